// Runs CUDA kernels on the host: the .cu files of kernels/cuda, compiled by g++ with this header in front, one fiber
// per CUDA thread, so that plain arithmetic, ASan and UBSan can judge them.
//
// Barriers, shuffles, votes, ldmatrix and mma.sync are places where threads meet; threads that meet at different
// places, or never, end the run with the waiting lines. cp.async takes effect at its wait and TMA when nothing else can
// go on or, in every other order, at once; wgmma, which only a card of compute capability 9.0 may launch, at its wait:
// it then reads shared memory, and until then its sums are NaN and must stay so. Shared memory is fresh for every block
// and starts as NaN, with a red zone around it. Threads, warps and blocks run in one of four orders (emu_order):
// forward, backward, random, random with warps interleaved. A floating-point atomic is fatal, since sums must not
// depend on the order.
//
// Blocks run one after another. What one block reads of another must be ordered by a release and an acquire, which is
// checked for accesses by __stcg, __ldcg and TMA. A launch with more threads than the launch bounds of its kernel is
// fatal. Not modelled: clusters; rounding inside a tensor core; registers and occupancy (ptxas tells,
// see tests/cuda/emulator/registers.py).
#pragma once

// Every kernel is compiled with this header: it includes little.
#include "kernels/cuda/tensor_map.h"
#include "kernels/half.h"
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include <cuda_runtime.h>

#undef __shared__ // kernels say SHARED or DYNAMIC_SHARED
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#undef __grid_constant__
#define __grid_constant__
// As many nops at the start of a kernel as its bound has warps, for launch() to count.
#define __launch_bounds__(threads, ...) __attribute__((patchable_function_entry((threads) / 32)))
#define __restrict__ __restrict

namespace emu {

// One meeting of a warp: the lanes of `mask` arrive at one call, each with three words to show; then `left` of them
// have still to read. The first of these computes the product of an mma for all lanes.
struct Meeting {
    unsigned mask = 0, present = 0;
    int arrived = 0, left = 0;
    unsigned generation = 0; // of the meetings that took place
    const char *place = nullptr;
    uint64_t shown[32][3];
    bool multiplied;
    float product[16][8]; // of an mma
};

struct Warp;
struct Thread {
    int lane = 0, index = 0;
    uint3 id;
    Warp *warp = nullptr;
    const char *waits_at = nullptr;
};

extern Thread *self;
extern uint3 block_index;
extern dim3 block_size, grid_size;
extern char *dynamic_shared;

[[noreturn]] void die(const char *what, const char *where = "");
int barrier(int vote, const char *place); // the OR of the votes
Meeting *meet(unsigned mask, const uint64_t *words, int count, const char *place);
char *shared(size_t bytes, const char *place); // the same for every thread of the block
// __stcg and __ldcg, the accesses to memory that blocks share during a launch. A write stays out of memory until the
// launch ends, so that a plain load reads the old value; a read is fatal unless an acquire, after the writer's release,
// or a barrier orders it after the write.
void write_through(void *to, const void *value, size_t bytes);
void read_through(const void *from, void *value, size_t bytes);
void release(const int *flag);
void acquire(const int *flag);
void allow_shared_of(const void *kernel, size_t bytes);
template <class... P> const void *address_of(void (*kernel)(P...)) { return (const void *)kernel; }
void launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t dynamic, cudaStream_t stream,
            std::function<void()> body);
void run_grid(const char *name, dim3 grid, dim3 block, size_t dynamic, const std::function<void()> &body);
void enqueue(cudaStream_t stream, std::function<void()> kernel, double us = 1); // device.cc

// The record of calls (device.h: emu_record), one a line.
extern bool recording;
void note_word(const char *word);
void note_pointer(const void *pointer);
void note_integer(long long value);
void note_real(double value);
template <class T> void note_one(const T &argument) {
    if constexpr (std::is_pointer<T>::value)
        note_pointer((const void *)argument);
    else if constexpr (std::is_floating_point<T>::value)
        note_real(argument);
    else if constexpr (std::is_arithmetic<T>::value || std::is_enum<T>::value)
        note_integer((long long)argument);
    else
        note_word(" a struct");
}
template <class... A> void note(const char *call, const A &...arguments) {
    if (!recording) return;
    note_word(call), (note_one(arguments), ...), note_word("\n");
}

// Arguments are evaluated and converted once, as a launch does.
template <class... P, class... A> auto bind(void (*kernel)(P...), A... arguments) {
    return [kernel, all = std::tuple<P...>(arguments...)] { std::apply(kernel, all); };
}

template <class T> T show(unsigned mask, T value, int from, const char *place) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof(T));
    auto shown = meet(mask, &word, 1, place)->shown;
    if (!(mask >> (from & 31) & 1)) die("shuffle reads a lane outside the mask at ", place);
    T result;
    memcpy(&result, &shown[from & 31][0], sizeof(T));
    return result;
}

enum Direction { INDEX, UP, DOWN, XOR };

// The source lane as the hardware picks it: itself when the wanted one is outside its group.
inline int source_lane(int width, int by, Direction direction) {
    int lane = self->lane, base = lane & ~(width - 1), from = lane;
    if (direction == INDEX) from = base + (by & (width - 1));
    if (direction == UP) from = lane - by;
    if (direction == DOWN) from = lane + by;
    if (direction == XOR) from = lane ^ by;
    return from < base || from >= base + width ? lane : from;
}

inline unsigned ballot(unsigned mask, bool vote, const char *place) {
    uint64_t word = vote;
    auto shown = meet(mask, &word, 1, place)->shown;
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && shown[i][0]) result |= 1u << i;
    return result;
}

template <class T> T *aligned(T *p) {
    if ((uintptr_t)p % sizeof(T)) die("misaligned access");
    return p;
}

template <class T> T *atomic(T *p) {
    if (std::is_floating_point<T>::value) die("floating-point atomic: the sum would depend on the order");
    return aligned(p);
}

extern size_t shared_limit; // of a block, the device's
template <class K> cudaError_t allow_shared(K kernel, int bytes) {
    if ((size_t)bytes > shared_limit) return cudaErrorInvalidValue;
    return allow_shared_of(address_of(kernel), (size_t)bytes), cudaSuccess;
}
extern int blocks_per_multiprocessor; // what the device would answer, for tests to set

} // namespace emu

#define threadIdx (emu::self->id)
#define blockIdx  (emu::block_index)
#define blockDim  (emu::block_size)
#define gridDim   (emu::grid_size)

#define EMU_TEXT2(x)               #x
#define EMU_TEXT(x)                EMU_TEXT2(x)
#define EMU_HERE                   __FILE__ ":" EMU_TEXT(__LINE__)
#define EMU_FIRST(a, ...)          a
#define EMU_OR(default_value, ...) EMU_FIRST(__VA_ARGS__ __VA_OPT__(, ) default_value)

#define __syncthreads()        ((void)emu::barrier(0, EMU_HERE))
#define __syncthreads_or(vote) emu::barrier((vote) != 0, EMU_HERE)
#define __syncwarp(...)        ((void)emu::ballot(EMU_OR(0xffffffffu, __VA_ARGS__), false, EMU_HERE))
#define EMU_SHUFFLE(mask, value, by, direction, ...)                                                                   \
    emu::show(mask, value, emu::source_lane(EMU_OR(32, __VA_ARGS__), by, emu::direction), EMU_HERE)
#define __shfl_sync(mask, value, lane, ...)    EMU_SHUFFLE(mask, value, lane, INDEX, __VA_ARGS__)
#define __shfl_up_sync(mask, value, by, ...)   EMU_SHUFFLE(mask, value, by, UP, __VA_ARGS__)
#define __shfl_down_sync(mask, value, by, ...) EMU_SHUFFLE(mask, value, by, DOWN, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, by, ...)  EMU_SHUFFLE(mask, value, by, XOR, __VA_ARGS__)
#define __ballot_sync(mask, vote)              emu::ballot(mask, (vote) != 0, EMU_HERE)

template <class T, class U> T atomicAdd(T *p, U value) {
    T old = *emu::atomic(p);
    *p = (T)(old + (T)value);
    return old;
}
template <class T> T __ldg(const T *p) { return *emu::aligned(p); }
template <class T> T __ldcs(const T *p) { return *emu::aligned(p); }
template <class T> T __ldcg(const T *p) {
    T value;
    emu::read_through(emu::aligned(p), &value, sizeof value);
    return value;
}
template <class T> void __stcs(T *p, T value) { *emu::aligned(p) = value; }
template <class T> void __stcg(T *p, T value) { emu::write_through(emu::aligned(p), &value, sizeof value); }
using std::isfinite;
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }

// The host halves of kernels/cuda/ptx.cuh.
#define SHARED(type, name, count)  type *name = (type *)emu::shared(sizeof(type) * (count), EMU_HERE)
#define DYNAMIC_SHARED(type, name) type *name = (type *)emu::dynamic_shared
#define LAUNCH(kernel, grid, block, dynamic, stream, ...)                                                              \
    (emu::note(#kernel, __VA_ARGS__),                                                                                  \
     emu::launch(#kernel, emu::address_of(kernel), grid, block, dynamic, stream, emu::bind(kernel, __VA_ARGS__)))
#define ALLOW_SHARED(kernel, bytes) emu::allow_shared(kernel, bytes)
#define BLOCKS_PER_MULTIPROCESSOR(result, kernel, threads, bytes)                                                      \
    ((void)(kernel), (void)(threads), (void)(bytes), *(result) = emu::blocks_per_multiprocessor, cudaSuccess)
// Blocks run one after another here: waiting for one that has not run would be for ever.
#define WAIT_UNTIL(condition) ((condition) ? (void)0 : emu::die("waits for a block that has not run, at " EMU_HERE))
#define KEEP_PACKED(vector)   ((void)0)
template <class K> static int ptx_version(K kernel) { return (void)kernel, 90; }

inline int load_acquire(const int *p) {
    emu::acquire(p);
    return *p;
}
inline void store_release(int *p, int value) {
    emu::release(p);
    *p = value;
}
inline float exp2_fast(float x) { return exp2f(x); }

// Two activations in a word, and the value of one, by the conversions of half.h.
typedef float (*EmuValue)(uint16_t bits);
#if defined ACT && !defined ACT_FP32
#define EMU_PASTE_(act, what) act##_##what
#define EMU_PASTE(act, what)  EMU_PASTE_(act, what)
#define EMU_VALUE             EMU_PASTE(ACT, value)
#define EMU_OF                EMU_PASTE(ACT, of)
static inline uint32_t pack(float first, float second) { return EMU_OF(first) | (uint32_t)EMU_OF(second) << 16; }
static inline float low(uint32_t word) { return EMU_VALUE((uint16_t)word); }
static inline float high(uint32_t word) { return EMU_VALUE((uint16_t)(word >> 16)); }
#else
#define EMU_VALUE nullptr // no tensor cores
#endif

void emu_ldmatrix(uint32_t (&r)[4], const void *row, bool transposed, const char *place);
#define ldmatrix_x4(r, row)            emu_ldmatrix(r, row, false, EMU_HERE)
#define ldmatrix_x4_transposed(r, row) emu_ldmatrix(r, row, true, EMU_HERE)

#ifndef ARCH // of the card that is stood for, as __CUDA_ARCH__
#define ARCH 800
#endif
// d (16,8) += a (16,depth) b (depth,8)
void emu_mma(float (&d)[4], const uint32_t *a, const uint32_t *b, int depth, EmuValue value);
#if ARCH >= 800
static inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    emu_mma(d, a, b, 16, EMU_VALUE);
}
void cp_async16(void *to, const void *from, bool read = true);
void cp_async_commit();
void emu_cp_async_wait(int groups);
template <int GROUPS> static void cp_async_wait() { emu_cp_async_wait(GROUPS); }
#else
static inline void mma_16x8x8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    const uint32_t a[2] = {a0, a1};
    emu_mma(d, a, &b, 8, EMU_VALUE);
}
#endif

// The host half of kernels/cuda/wgmma.cuh.
constexpr bool has_wgmma = true;
unsigned shared_offset(const void *shared);
// A product as a thread issues it; its first operand is `a` or the tile part_a.
struct EmuProduct {
    float (*sums)[4];
    int columns;
    uint32_t a[4];
    bool a_in_registers, a_term, b_term, add;
    EmuValue value;
    uint64_t part_a, part_b;
};
void emu_wgmma(const EmuProduct &product);
void emu_wgmma_wait(int groups);
void wgmma_fence();
void wgmma_commit();
void async_fence();
void emu_put_async(void *to, const void *value, size_t bytes);
template <class T> static void put_async(T *to, T value) { emu_put_async(to, &value, sizeof value); }
template <int GROUPS> static void wgmma_wait() { emu_wgmma_wait(GROUPS); }
template <int GROUPS, int N> static void wgmma_wait(float (&)[N][4]) { emu_wgmma_wait(GROUPS); }

// The host half of kernels/cuda/tma.cuh.
void barrier_open(uint64_t *b, int arrivals);
void barriers_opened();
void barrier_arrive_with(uint64_t *b, int bytes);
static inline void barrier_arrive(uint64_t *b) { barrier_arrive_with(b, 0); }
#define barrier_wait(b, parity) emu_barrier_wait(b, parity, EMU_HERE)
void emu_barrier_wait(uint64_t *b, int parity, const char *place);
static inline void prefetch_map(const TensorMap &) {}
void copy_tile(void *to, const TensorMap &map, int head, int row, int b, uint64_t *landed);
void store_tile(const TensorMap &map, int head, int row, int b, const void *from);
void copy_bytes(void *to, const void *from, int bytes, uint64_t *landed);
void bulk_store(void *to, const void *from, int bytes, bool add);
void bulk_commit();
void bulk_wait();
void bulk_wait_read();
void memory_fence();
template <int COUNT> static void give_registers() {}
template <int COUNT> static void take_registers() {}
