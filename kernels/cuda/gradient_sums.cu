// Sums of gradients, one element after another in the same order wherever they are made: eight a thread.
#include "kernels/cuda/rounding.cuh"

enum { THREADS = 256 };

template <class T> INLINE void add8(float (&sum)[8], const T *more) {
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

// Infinities and NaN are kept.
INLINE uint32_t bf16_bits(float value) {
    const uint32_t bits = __float_as_uint(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
INLINE void store8_rounded(bf16 *to, const float (&from)[8]) {
    uint32_t word[4];
#pragma unroll
    for (int k = 0; k < 4; k++) word[k] = bf16_bits(from[2 * k]) | bf16_bits(from[2 * k + 1]) << 16;
    *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
}
INLINE void store8_rounded(float *to, const float (&from)[8]) {
    float wide[8];
#pragma unroll
    for (int k = 0; k < 8; k++) wide[k] = __uint_as_float(bf16_bits(from[k]) << 16);
    store8(to, wide);
}

// `to` may be `from`.
template <class T>
static __global__ void __launch_bounds__(THREADS) round_kernel(T *to, const float *from, size_t count) {
    const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count) return;
    float values[8];
    load8(values, from + i);
    store8_rounded(to + i, values);
}

void FOR_ACT(cuda_round_to_bf16)(Grad *values, size_t count) {
    assert(count % 8 == 0);
    LAUNCH(round_kernel<float>, blocks_of(count / 8, THREADS), THREADS, 0, cuda.stream, (float *)values,
           (const float *)values, count);
}

void FOR_ACT(write_bf16)(cudaStream_t stream, void *to, const float *values, size_t count) {
    assert(count % 8 == 0);
    LAUNCH(round_kernel<bf16>, blocks_of(count / 8, THREADS), THREADS, 0, stream, (bf16 *)to, values, count);
}

// `after` may be `before` or `own`.
template <class T>
static __global__ void __launch_bounds__(THREADS)
    sum_ranks_kernel(float *after, const float *before, const T *own, const T *received, size_t stride, unsigned rank,
                     unsigned ranks, size_t count) {
    const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count) return;
    float sum[8];
    if (before)
        load8(sum, before + i);
    else
        load8(sum, rank ? received + i : own + i);
    for (unsigned r = before ? 0 : 1; r < ranks; r++) add8(sum, r == rank ? own + i : received + r * stride + i);
    store8(after + i, sum);
}

template <class T> static void sum_operands(cudaStream_t stream, const RankSums *sums, size_t count) {
    LAUNCH(sum_ranks_kernel<T>, blocks_of(count / 8, THREADS), THREADS, 0, stream, sums->after, sums->before,
           (const T *)sums->own, (const T *)sums->received, sums->stride, sums->rank, sums->ranks, count);
}

void FOR_ACT(sum_ranks)(cudaStream_t stream, const RankSums *sums, size_t count) {
    assert(count % 8 == 0);
    if (sums->bf16)
        sum_operands<bf16>(stream, sums, count);
    else
        sum_operands<float>(stream, sums, count);
}
