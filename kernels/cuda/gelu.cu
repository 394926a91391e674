// GELU, and its gradient with the bias gradient of the matmul below. Eight numbers per thread.
#include "kernels/cuda/gelu.cuh"

enum { THREADS = 256, WARPS = ROWS_AT_ONCE, STRIP = 256 }; // columns a block of gelu_gradient
template <Activation FORM> __global__ void __launch_bounds__(THREADS) gelu(act *out, const act *in, size_t vectors) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    float x[8];
    load8(x, in + i * 8);
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = gelu_of<FORM>(x[k]);
    store8(out + i * 8, x);
}

void FOR_ACT(cuda_gelu_forward)(Act *out, const Act *in, size_t n, Activation form) {
    assert(n % 8 == 0);
    auto kernel = form == ACTIVATION_RELU2  ? gelu<ACTIVATION_RELU2>
                  : form == ACTIVATION_GELU ? gelu<ACTIVATION_GELU>
                                            : gelu<ACTIVATION_GELU_TANH>;
    LAUNCH(kernel, blocks_of(n / 8, THREADS), THREADS, 0, cuda.stream, (act *)out, (const act *)in, n / 8);
}

// A lane keeps its eight columns; parts (ROW_BLOCKS, C) receive the column sums of the result.
template <Activation FORM>
__global__ void __launch_bounds__(THREADS) gelu_gradient(act *d, float *parts, const act *in, int N, int C) {
    SHARED(float, sums, WARPS *STRIP);
    int warp = threadIdx.x / 32, c = blockIdx.x * STRIP + (threadIdx.x % 32) * 8;
    float sum[8] = {};
    if (c < C)
        for (int n = blockIdx.y * WARPS + warp; n < N; n += gridDim.y * WARPS) {
            size_t at = (size_t)n * C + c;
            float x[8], g[8];
            load8(x, in + at);
            load8(g, d + at);
#pragma unroll
            for (int k = 0; k < 8; k++) g[k] *= slope_of<FORM>(x[k]);
            act8 rounded = pack8(g);
            *(act8 *)(d + at) = rounded;
            unpack8(g, rounded); // the bias gets the same gradient as the weights
#pragma unroll
            for (int k = 0; k < 8; k++) sum[k] += g[k];
        }
    if (!parts) return;
    store8(sums + warp * STRIP + threadIdx.x % 32 * 8, sum);
    __syncthreads();
    float total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w * STRIP + threadIdx.x];
    c = blockIdx.x * STRIP + threadIdx.x;
    if (c < C) parts[(size_t)blockIdx.y * C + c] = total;
}

void FOR_ACT(cuda_gelu_backward)(Act *d, Grad *dbias, const Act *in, int N, int C, Activation form, bool add) {
    int blocks = row_blocks(N);
    float *parts = dbias ? (float *)cuda.scratch : NULL;
    auto kernel = form == ACTIVATION_RELU2  ? gelu_gradient<ACTIVATION_RELU2>
                  : form == ACTIVATION_GELU ? gelu_gradient<ACTIVATION_GELU>
                                            : gelu_gradient<ACTIVATION_GELU_TANH>;
    LAUNCH(kernel, dim3(blocks_of((size_t)C, STRIP), (unsigned)blocks), THREADS, 0, cuda.stream, (act *)d, parts,
           (const act *)in, N, C);
    if (dbias) FOR_ACT(add_parts)(dbias, NULL, parts, blocks, C, C, add);
}
