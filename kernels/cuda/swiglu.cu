// SwiGLU, silu(gate) * up, and its gradient in place. Eight numbers per thread.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };

INLINE float logistic(float x) { return __fdividef(1, 1 + exp2_fast(-LOG2E * x)); }

__global__ void __launch_bounds__(THREADS) swiglu(act *out, const act *in, size_t vectors, int F) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    const size_t at = i * 8, gate = at + at / F * F;
    float g[8], u[8];
    load8(g, in + gate);
    load8(u, in + gate + F);
#pragma unroll
    for (int k = 0; k < 8; k++) g[k] *= logistic(g[k]) * u[k];
    store8(out + at, g);
}

void FOR_ACT(cuda_swiglu_forward)(Act *out, const Act *in, int N, int F) {
    assert(F % 8 == 0);
    const size_t vectors = (size_t)N * F / 8;
    LAUNCH(swiglu, blocks_of(vectors, THREADS), THREADS, 0, cuda.stream, (act *)out, (const act *)in, vectors, F);
}

__global__ void __launch_bounds__(THREADS) swiglu_gradient(act *in, const act *dout, size_t vectors, int F) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    const size_t at = i * 8, gate = at + at / F * F;
    float g[8], u[8], d[8];
    load8(g, in + gate);
    load8(u, in + gate + F);
    load8(d, dout + at);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float s = logistic(g[k]), x = g[k];
        g[k] = d[k] * u[k] * s * (1 + x * (1 - s));
        u[k] = d[k] * x * s;
    }
    store8(in + gate, g);
    store8(in + gate + F, u);
}

void FOR_ACT(cuda_swiglu_backward)(Act *in, Grad *dbias, const Act *dout, int N, int F, bool add) {
    const size_t vectors = (size_t)N * F / 8;
    LAUNCH(swiglu_gradient, blocks_of(vectors, THREADS), THREADS, 0, cuda.stream, (act *)in, (const act *)dout, vectors,
           F);
    if (dbias) FOR_ACT(column_sums)(dbias, in, N, 2 * F, add);
}
