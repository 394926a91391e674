// The words of every kernel: activations, vectors of eight, warp sums, and the instructions C++ has no name for. The
// instructions, SHARED, DYNAMIC_SHARED and LAUNCH have a second meaning on the host (tests/cuda/emulator/emu.h).
#pragma once

#include "common/id_array.h"
#include "kernels/cuda/cuda_internal.h"
#include <assert.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#define INLINE static __device__ __forceinline__ // static: bf16's and fp16's have one name

// Storage types. The toolkit's own headers for them take as long to compile as most kernels.
struct fp16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};
#if defined ACT_FP32
typedef float act; // attention/fp32.cu has its attention, without tensor cores
#elif defined ACT_FP16
typedef fp16 act;
#define ACT_TYPE "f16"
#define LEAST    0xfc00u // the bits of -infinity
#elif defined ACT_BF16
typedef bf16 act;
#define ACT_TYPE "bf16"
#define LEAST    0xff80u
#else
#error "the loads and stores of this type are missing"
#endif

#ifdef __CUDA_ARCH__
#define ARCH __CUDA_ARCH__
#elif !defined ARCH // the emulator defines the card it emulates
#define ARCH 800
#endif

#ifndef EMU
#define SHARED(type, name, count) __shared__ type name[count]
#define DYNAMIC_SHARED(type, name)                                                                                     \
    extern __shared__ __align__(1024) unsigned char name##_bytes[];                                                    \
    type *name = (type *)name##_bytes
// it takes the launch for comparisons
// clang-format off
#define LAUNCH(kernel, grid, block, dynamic, stream, ...)                                                              \
    ((kernel)<<<grid, block, dynamic, stream>>>(__VA_ARGS__), cuda_check(cudaGetLastError(), #kernel))
// clang-format on
// more than 48 KiB of shared memory must be allowed, once a kernel
#define ALLOW_SHARED(kernel, bytes) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)
// of the code that a launch would run: 90, or 80 if the driver compiled it for a newer card
template <class K> static inline int ptx_version(K kernel) {
    cudaFuncAttributes of = {};
    cuda_check(cudaFuncGetAttributes(&of, kernel), "querying a kernel");
    return of.ptxVersion;
}
INLINE unsigned shared_offset(const void *shared) { return (unsigned)__cvta_generic_to_shared(shared); }
#define BLOCKS_PER_MULTIPROCESSOR(result, kernel, threads, bytes)                                                      \
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(result, kernel, threads, bytes)
#define WAIT_UNTIL(condition)                                                                                          \
    while (!(condition)) {                                                                                             \
    }
// forget how a vector was made: else unpacked copies of its halves stay alive across phases, and spill
#define KEEP_PACKED(v) asm volatile("" : "+r"((v).x), "+r"((v).y), "+r"((v).z), "+r"((v).w))

#ifndef ACT_FP32
#if ARCH >= 800
// d (16,8) += a (16,16) b (16,8)
INLINE void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." ACT_TYPE "." ACT_TYPE
                 ".f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// 16 bytes into shared memory by the time a cp_async_wait returns; !read: zeros, and `from` is not touched
INLINE void cp_async16(void *to, const void *from, bool read = true) {
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_offset(to)), "l"(from), "r"(read ? 16 : 0)
                 : "memory");
}
INLINE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// all but the last GROUPS committed groups have landed, for this thread
template <int GROUPS> INLINE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory"); }
#else
// d (16,8) += a (16,8) b (8,8)
INLINE void mma_16x8x8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}
#endif
#endif
INLINE void ldmatrix_x4(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_offset(row))
                 : "memory");
}
INLINE void ldmatrix_x4_transposed(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_offset(row))
                 : "memory");
}
INLINE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE int load_acquire(const int *p) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0,[%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}
INLINE void store_release(int *p, int value) {
    asm volatile("st.release.gpu.global.s32 [%0],%1;" ::"l"(p), "r"(value) : "memory");
}
#ifndef ACT_FP32
// Two activations in a word, the first one low.
#if ARCH >= 800
INLINE uint32_t pack(float first, float second) {
    uint32_t word;
    asm("cvt.rn." ACT_TYPE "x2.f32 %0,%1,%2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
#else
INLINE uint32_t pack(float first, float second) {
    uint32_t word;
    asm("{.reg .f16 a,b; cvt.rn.f16.f32 a,%1; cvt.rn.f16.f32 b,%2; mov.b32 %0,{a,b};}"
        : "=r"(word)
        : "f"(first), "f"(second));
    return word;
}
#endif
#ifdef ACT_FP16
INLINE float low(uint32_t word) {
    float value;
    asm("cvt.f32.f16 %0,%1;" : "=f"(value) : "h"((uint16_t)word));
    return value;
}
INLINE float high(uint32_t word) { return low(word >> 16); }
#else
INLINE float low(uint32_t word) { return __uint_as_float(word << 16); }
INLINE float high(uint32_t word) { return __uint_as_float(word & 0xffff0000u); }
#endif
#endif
#endif

#if ARCH < 800 && !defined ACT_FP32 // Turing: products of half the depth, and copies that the thread makes itself
INLINE void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_16x8x8(d, a[0], a[1], b0);
    mma_16x8x8(d, a[2], a[3], b1);
}
INLINE void cp_async16(void *to, const void *from, bool read = true) {
    *(uint4 *)to = read ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
}
INLINE void cp_async_commit() {}
template <int GROUPS> INLINE void cp_async_wait() {}
#endif

#define LOG2E 1.4426950408889634f

// Eight activations: a vector of 16 bytes, or of 32.
#ifdef ACT_FP32
struct act8 {
    float4 first, second;
};
#undef KEEP_PACKED
#define KEEP_PACKED(v) ((void)0)
INLINE void unpack8(float (&to)[8], act8 v) {
    to[0] = v.first.x, to[1] = v.first.y, to[2] = v.first.z, to[3] = v.first.w;
    to[4] = v.second.x, to[5] = v.second.y, to[6] = v.second.z, to[7] = v.second.w;
}
INLINE act8 pack8(const float (&from)[8]) {
    return {make_float4(from[0], from[1], from[2], from[3]), make_float4(from[4], from[5], from[6], from[7])};
}
INLINE act8 read_once(const act8 *from) { return {__ldcs(&from->first), __ldcs(&from->second)}; }
INLINE act8 read_only(const act8 *from) { return {__ldg(&from->first), __ldg(&from->second)}; }
#else
typedef uint4 act8;
INLINE act8 read_once(const act8 *from) { return __ldcs(from); }
INLINE act8 read_only(const act8 *from) { return __ldg(from); }
INLINE void unpack8(float (&to)[8], uint4 v) {
    to[0] = low(v.x), to[1] = high(v.x), to[2] = low(v.y), to[3] = high(v.y);
    to[4] = low(v.z), to[5] = high(v.z), to[6] = low(v.w), to[7] = high(v.w);
}
INLINE uint4 pack8(const float (&from)[8]) {
    return make_uint4(pack(from[0], from[1]), pack(from[2], from[3]), pack(from[4], from[5]), pack(from[6], from[7]));
}
INLINE void load8(float (&to)[8], const act *from) { unpack8(to, *(const act8 *)from); }
INLINE void store8(act *to, const float (&from)[8]) { *(act8 *)to = pack8(from); }
#endif
INLINE void load8(float (&to)[8], const float *from) {
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
INLINE void store8(float *to, const float (&from)[8]) {
    ((float4 *)to)[0] = make_float4(from[0], from[1], from[2], from[3]);
    ((float4 *)to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}
// stores, or adds to the old values
INLINE void add8(float *to, const float (&from)[8], bool add) {
    float sum[8] = {};
    if (add) load8(sum, to);
#pragma unroll
    for (int k = 0; k < 8; k++) sum[k] += from[k];
    store8(to, sum);
}

INLINE float warp_sum(float value) {
    for (int lane = 16; lane; lane >>= 1) value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
}
INLINE float warp_max(float value) {
    for (int lane = 16; lane; lane >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lane));
    return value;
}

// How many blocks of `size` cover n.
static inline unsigned blocks_of(size_t n, unsigned size) { return (unsigned)((n + size - 1) / size); }

// Philox4x32-10 as in common/rng.h.
INLINE void philox(uint32_t (&c)[4], uint32_t key0, uint32_t key1) {
#pragma unroll
    for (int i = 0; i < 10; i++) {
        uint32_t high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
        uint32_t high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
        c[0] = high1 ^ c[1] ^ key0, c[1] = low1, c[2] = high0 ^ c[3] ^ key1, c[3] = low0;
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
}

// An id of an array of 2 or 4 bytes each (common/id_array.h).
INLINE uint32_t token_at(const void *ids, size_t i, unsigned bytes) {
    return bytes == 2 ? ((const uint16_t *)ids)[i] : ((const uint32_t *)ids)[i];
}
