// Sums of gradients, one element after another in the same order wherever they are made: eight a thread.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };

INLINE void add8(float (&sum)[8], const float *more) {
    float g[8];
    load8(g, more);
#pragma unroll
    for (int k = 0; k < 8; k++) sum[k] += g[k];
}

static __global__ void __launch_bounds__(THREADS)
    add_gradients_kernel(float *__restrict__ sums, const float *__restrict__ part, size_t count) {
    const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count) return;
    float sum[8];
    load8(sum, sums + i);
    add8(sum, part + i);
    store8(sums + i, sum);
}

void FOR_ACT(cuda_add_gradients)(Grad *sums, const Grad *part, size_t count) {
    assert(count % 8 == 0);
    LAUNCH(add_gradients_kernel, blocks_of(count / 8, THREADS), THREADS, 0, cuda.stream, (float *)sums,
           (const float *)part, count);
}

// `after` may be `before` or `own`.
static __global__ void __launch_bounds__(THREADS)
    sum_ranks_kernel(float *after, const float *before, const float *own, const float *received, size_t stride,
                     unsigned rank, unsigned ranks, size_t count) {
    const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count) return;
    float sum[8];
    load8(sum, before ? before + i : rank ? received + i : own + i);
    for (unsigned r = before ? 0 : 1; r < ranks; r++) add8(sum, r == rank ? own + i : received + r * stride + i);
    store8(after + i, sum);
}

void FOR_ACT(sum_ranks)(cudaStream_t stream, const RankSums *sums, size_t count) {
    assert(count % 8 == 0);
    LAUNCH(sum_ranks_kernel, blocks_of(count / 8, THREADS), THREADS, 0, stream, sums->after, sums->before, sums->own,
           sums->received, sums->stride, sums->rank, sums->ranks, count);
}
