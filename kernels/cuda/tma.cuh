// Copies of whole tiles by one thread (TMA), and barriers in shared memory that count arrivals and bytes (mbarrier), on
// compute capability 9.0.
//
// A barrier has phases. One ends, and the next begins, when as many threads as it was opened for have arrived and all
// bytes have landed that arrivals of the phase have announced. barrier_wait(b, parity) returns when the phase of that
// parity has ended; for a new barrier the phase of parity 1 has: the n-th use of a barrier, from 0, waits for n & 1,
// and a wait for the use before it, which the first use has not, for (n & 1) ^ 1. Writes of threads before they
// arrived, and bytes that have landed, are seen after the wait. The emulator has them all (tests/cuda/emulator/tma.cc).
#pragma once

#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

typedef uint64_t Barrier; // in shared memory

#ifndef EMU
#if defined __CUDA_ARCH__ && !defined __CUDA_ARCH_FEAT_SM90_ALL
#define TMA_ASM(...)
#else
#define TMA_ASM(...) asm volatile(__VA_ARGS__)
#endif

INLINE void barrier_open(Barrier *b, int arrivals) {
    TMA_ASM("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(shared_offset(b)), "r"(arrivals) : "memory");
}
// The barriers that this thread has opened are seen by copies, after the next __syncthreads.
INLINE void barriers_opened() { TMA_ASM("fence.mbarrier_init.release.cluster;" ::: "memory"); }
INLINE void barrier_arrive(Barrier *b) {
    TMA_ASM("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(shared_offset(b)) : "memory");
}
// An arrival that announces bytes.
INLINE void barrier_arrive_with(Barrier *b, int bytes) {
    TMA_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(shared_offset(b)), "r"(bytes) : "memory");
}
INLINE void barrier_wait(Barrier *b, int parity) {
    TMA_ASM("{.reg .pred over; again: mbarrier.try_wait.parity.shared::cta.b64 over,[%0],%1; @!over bra again;}" ::"r"(
                shared_offset(b)),
            "r"(parity)
            : "memory");
}
// The map is needed soon.
INLINE void prefetch_map(const TensorMap &map) { TMA_ASM("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
// A tile of a map: from `row` of sequence b on, the columns of one head. `to`: at a multiple of 1024 bytes.
INLINE void copy_tile(void *to, const TensorMap &map, int head, int row, int b, Barrier *landed) {
    TMA_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3,%4,%5}],"
            "[%6];" ::"r"(shared_offset(to)),
            "l"(&map), "r"(0), "r"(head), "r"(row), "r"(b), "r"(shared_offset(landed))
            : "memory");
}
// Starts a store of a tile, without the part beyond the map. bulk_commit and bulk_wait follow, as after bulk_store.
INLINE void store_tile(const TensorMap &map, int head, int row, int b, const void *from) {
    TMA_ASM("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0,{%1,%2,%3,%4}],[%5];" ::"l"(&map), "r"(0),
            "r"(head), "r"(row), "r"(b), "r"(shared_offset(from))
            : "memory");
}
// `bytes` and both addresses are multiples of 16.
INLINE void copy_bytes(void *to, const void *from, int bytes, Barrier *landed) {
    TMA_ASM(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(shared_offset(to)),
        "l"(from), "r"(bytes), "r"(shared_offset(landed))
        : "memory");
}
// Starts a store of `bytes` from shared memory to memory; add: of floats, added to those in memory. bulk_wait of the
// same thread, after bulk_commit, returns when it is done.
INLINE void bulk_store(void *to, const void *from, int bytes, bool add) {
    if (add)
        TMA_ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0],[%1],%2;" ::"l"(to),
                "r"(shared_offset(from)), "r"(bytes)
                : "memory");
    else
        TMA_ASM("cp.async.bulk.global.shared::cta.bulk_group [%0],[%1],%2;" ::"l"(to), "r"(shared_offset(from)),
                "r"(bytes)
                : "memory");
}
INLINE void bulk_commit() { TMA_ASM("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until the committed stores of this thread are in memory, or only until they were read from shared memory.
INLINE void bulk_wait() { TMA_ASM("cp.async.bulk.wait_group 0;" ::: "memory"); }
INLINE void bulk_wait_read() { TMA_ASM("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// Between an acquire and a copy or store that this thread starts: without it the copy may read older values.
INLINE void memory_fence() { TMA_ASM("fence.proxy.async.global;" ::: "memory"); }
// Sets the registers of each thread of a warpgroup to COUNT: give_registers to fewer than the kernel starts with,
// take_registers to more, when other warpgroups have given as many.
template <int COUNT> INLINE void give_registers() { TMA_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT> INLINE void take_registers() { TMA_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
#endif

// An arrival of the warp. After it products and stores may read the warp's writes to shared memory.
INLINE void arrive_with_writes(Barrier *b) {
    async_fence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(b);
}
