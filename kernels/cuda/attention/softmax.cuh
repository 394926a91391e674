// The running softmax of attention forward, in registers.
#pragma once

#include "kernels/cuda/attention/attention.cuh"

// The running softmax of a tile's rows g and g+8, which four lanes hold, and its sums of values.
template <int D> struct Softmax { float most[2], weight[2], sums[D / 8][4]; };

// The scores of a step become weights, of the denominator too; fade: the factor of softmax_fade for the sums so far.
template <int D, int N> INLINE void softmax_weigh(Softmax<D> &x, float (&s)[N][4], float (&fades)[2], float scale) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = x.most[r];
#pragma unroll
        for (int n = 0; n < N; n++) most = fmaxf(most, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float top = most == -INFINITY ? 0 : most; // no key of the row so far
        const float fade = fades[r] = exp2_fast((x.most[r] - top) * scale), shift = top * scale;
        float sum = 0;
        x.most[r] = most;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++)
                sum += s[n][e] = exp2_fast(fmaf(s[n][e], scale, -shift)); // as nvcc contracts it
        x.weight[r] = x.weight[r] * fade + sum;
    }
}
template <int D> INLINE void softmax_fade(Softmax<D> &x, const float (&fades)[2]) {
#pragma unroll
    for (int d = 0; d < D / 8; d++)
#pragma unroll
        for (int e = 0; e < 4; e++) x.sums[d][e] *= fades[e >> 1];
}
// Weights as the next product's operand A, which accumulators are laid out as.
template <int N> INLINE void softmax_pack(uint32_t (&p)[N / 2][4], const float (&s)[N][4]) {
#pragma unroll
    for (int kk = 0; kk < N / 2; kk++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float *pair = s[2 * kk + (e >> 1)] + (e & 1) * 2;
            p[kk][e] = pack(pair[0], pair[1]);
        }
}

// Writes a tile's rows, of which `row` is the lane's first.
template <int D>
INLINE void softmax_store(const Softmax<D> &x, act *out, float *lse, float scale, float scale_of_kept, int b, int h,
                          int row, int T, int H, int width, int t4) {
#pragma unroll
    for (int r = 0; r < 2; r++, row += 8) {
        float z = x.weight[r];
        z += __shfl_xor_sync(0xffffffffu, z, 1);
        z += __shfl_xor_sync(0xffffffffu, z, 2);
        if (row >= T) continue;
        float share = scale_of_kept / z;
        act *to = out + (((size_t)b * T + row) * H + h) * width;
#pragma unroll
        for (int d = 0; d < D / 8; d++)
            if (d * 8 < width)
                *(uint32_t *)(to + d * 8 + 2 * t4) = pack(x.sums[d][2 * r] * share, x.sums[d][2 * r + 1] * share);
        if (t4 == 0) lse[((size_t)b * H + h) * T + row] = x.most[r] * scale / LOG2E + logf(z);
    }
}
