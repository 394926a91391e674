// Layer norm backward with the residual gradient's addition: one warp per row. A lane owns fixed columns and keeps
// their weight and bias gradients in registers over all its rows; warps are added in order in shared memory, blocks
// leave parts (GRID, 2, C) that add_parts adds in order. The grid depends on N alone, so the sums do not depend on the
// card.
#include "kernels/cuda/ptx.cuh"

enum { WARPS = 4, GRID = LAYERNORM_BLOCKS };

// dsum_act may be dsum, and is then written once
template <int VECTORS, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, sizeof(act) == 4 ? 1 : BLOCKS)
    layernorm_gradient(act *dsum, act *dsum_act, float *__restrict__ parts, const act *__restrict__ dout,
                       const act *__restrict__ x, const float *__restrict__ mean, const float *__restrict__ rstd,
                       const act *__restrict__ weight, int N, int C, bool first) {
    // dsum is loaded before the shuffles, which hide its latency: after them the compiler could not load it early,
    // since dsum_act may be dsum. The widest rows have no registers left for that.
    constexpr bool EARLY = VECTORS < (sizeof(act) == 4 ? 5 : 7);
    constexpr bool KEPT = sizeof(act) == 2 || VECTORS < 7; // x and dout; else they are read twice
    DYNAMIC_SHARED(float, sums);                           // (2, C)
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const act8 zero = {};
    float dw[VECTORS][8] = {}, db[VECTORS][8] = {};
    for (int row = blockIdx.x * WARPS + warp; row < N; row += gridDim.x * WARPS) {
        size_t at = (size_t)row * C;
        act8 xs[VECTORS], gs[VECTORS], ds[VECTORS];
        float mu = mean ? mean[row] : 0, r = rstd[row], sum_g = 0, sum_gx = 0;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            int c = (i * 32 + lane) * 8;
            if (KEPT) xs[i] = c < C ? read_once((const act8 *)(x + at + c)) : zero;
            if (KEPT) gs[i] = c < C ? read_once((const act8 *)(dout + at + c)) : zero;
            if (EARLY) ds[i] = c < C && !first ? *(const act8 *)(dsum + at + c) : zero;
        }
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            int c = (i * 32 + lane) * 8;
            act8 ws = c < C ? read_only((const act8 *)(weight + c)) : zero;
            float a[8], g[8], w[8];
            unpack8(a, KEPT ? xs[i] : c < C ? read_once((const act8 *)(x + at + c)) : zero);
            unpack8(g, KEPT ? gs[i] : c < C ? read_once((const act8 *)(dout + at + c)) : zero);
            unpack8(w, ws);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float normal = (a[k] - mu) * r;
                sum_g += g[k] * w[k], sum_gx += g[k] * w[k] * normal;
                dw[i][k] += g[k] * normal, db[i][k] += g[k];
            }
        }
        sum_g = mean ? warp_sum(sum_g) / C : 0, sum_gx = warp_sum(sum_gx) / C;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            int c = (i * 32 + lane) * 8;
            if (c >= C) continue;
            if (!EARLY) ds[i] = first ? zero : *(const act8 *)(dsum + at + c);
            float a[8], g[8], w[8], d[8];
            unpack8(d, ds[i]);
            unpack8(a, KEPT ? xs[i] : read_only((const act8 *)(x + at + c)));
            unpack8(g, KEPT ? gs[i] : read_only((const act8 *)(dout + at + c)));
            unpack8(w, read_only((const act8 *)(weight + c)));
#pragma unroll
            for (int k = 0; k < 8; k++) d[k] += r * (g[k] * w[k] - sum_g - (a[k] - mu) * r * sum_gx);
            act8 rounded = pack8(d);
            *(act8 *)(dsum + at + c) = rounded;
            if (dsum_act != dsum) *(act8 *)(dsum_act + at + c) = rounded;
        }
    }
    for (int w = 0; w < WARPS; w++) {
        if (warp == w)
#pragma unroll
            for (int i = 0; i < VECTORS; i++) {
                int c = (i * 32 + lane) * 8;
                if (c >= C) continue;
                add8(sums + c, dw[i], w > 0);
                add8(sums + C + c, db[i], w > 0);
            }
        __syncthreads();
    }
    for (int c = threadIdx.x * 4; c < 2 * C; c += WARPS * 32 * 4)
        *(float4 *)(parts + (size_t)blockIdx.x * 2 * C + c) = *(float4 *)(sums + c);
}

void FOR_ACT(cuda_layernorm_backward)(Res *dsum, Act *dsum_act, const NormGradients *gradients, const Act *dout,
                                      const Res *sum, const Norm *norm, bool first, bool add) {
    const int N = norm->N, C = norm->C;
    float *parts = (float *)cuda.scratch;
    auto kernel = C <= 768    ? layernorm_gradient<3, 3>
                  : C <= 1024 ? layernorm_gradient<4, 3>
                  : C <= 1280 ? layernorm_gradient<5, 2>
                              : layernorm_gradient<7, 2>;
    assert(C <= CHANNELS_MAX);
    int blocks = min((int)GRID, (int)blocks_of((size_t)N, WARPS));
    LAUNCH(kernel, (unsigned)blocks, WARPS * 32, (size_t)2 * C * sizeof(float), cuda.stream, (act *)dsum,
           (act *)dsum_act, parts, (const act *)dout, (const act *)sum, norm->mean, norm->rstd,
           (const act *)norm->weight, N, C, first);
    FOR_ACT(add_parts)(gradients->weight, gradients->bias, parts, blocks, C, 2 * C, add);
    if (gradients->below) FOR_ACT(column_sums)(gradients->below, dsum_act, N, C, add);
}
