// Residual sum and layer norm in one pass: one warp a row, the row in registers, VECTORS vectors of eight a lane.
#include "kernels/cuda/ptx.cuh"

enum { WARPS = 4 };
#define EPSILON 1e-5f

// sum may be in: a lane reads its own vectors before it writes them, so neither is __restrict__
template <int VECTORS>
__global__ void __launch_bounds__(WARPS * 32, sizeof(act) == 4 ? 4 : 8)
    layernorm_forward_kernel(act *sum, act *__restrict__ out, float *__restrict__ mean, float *__restrict__ rstd,
                             const act *in, const act *__restrict__ branch, const act *__restrict__ weight,
                             const act *__restrict__ bias, int N, int C) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    size_t first = (size_t)row * C;
    act8 x[VECTORS];
    float total = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int c = (i * 32 + lane) * 8;
        x[i] = {};
        if (c >= C) continue;
        float a[8], b[8];
        load8(a, in + first + c);
        if (branch) {
            load8(b, branch + first + c);
#pragma unroll
            for (int k = 0; k < 8; k++) a[k] += b[k];
        }
        x[i] = pack8(a);
        unpack8(a, x[i]); // the statistics are of the rounded sum, which the backward pass reads
#pragma unroll
        for (int k = 0; k < 8; k++) total += a[k];
        if (branch || sum != in) *(act8 *)(sum + first + c) = x[i];
    }
    float mu = mean ? warp_sum(total) / C : 0, squares = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        float a[8];
        unpack8(a, x[i]);
        if ((i * 32 + lane) * 8 < C)
#pragma unroll
            for (int k = 0; k < 8; k++) squares += (a[k] - mu) * (a[k] - mu);
    }
    float r = rsqrtf(warp_sum(squares) / C + EPSILON);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int c = (i * 32 + lane) * 8;
        if (c >= C) continue;
        float a[8], w[8], b[8] = {};
        unpack8(a, x[i]);
        load8(w, weight + c);
        if (bias) load8(b, bias + c);
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] = (a[k] - mu) * r * w[k] + b[k];
        store8(out + first + c, a);
    }
    if (lane) return;
    if (mean) mean[row] = mu;
    rstd[row] = r;
}

void FOR_ACT(cuda_layernorm_forward)(Res *sum, Act *out, const Res *in, const Act *branch, const Norm *norm) {
    const int N = norm->N, C = norm->C;
    auto kernel = C <= 768    ? layernorm_forward_kernel<3>
                  : C <= 1024 ? layernorm_forward_kernel<4>
                  : C <= 1280 ? layernorm_forward_kernel<5>
                              : layernorm_forward_kernel<7>;
    assert(C <= CHANNELS_MAX);
    LAUNCH(kernel, blocks_of((size_t)N, WARPS), WARPS * 32, 0, cuda.stream, (act *)sum, (act *)out, norm->mean,
           norm->rstd, (const act *)in, (const act *)branch, (const act *)norm->weight, (const act *)norm->bias, N, C);
}
