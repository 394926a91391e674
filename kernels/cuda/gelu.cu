// GELU, tanh form or exact, or relu(x)^2, and its gradient with the bias gradient of the matmul below. Eight numbers
// per thread.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256, WARPS = ROWS_AT_ONCE, STRIP = 256 }; // columns a block of gelu_gradient
#define SQRT_2_OVER_PI 0.7978845608028654f

// 0.5(1 + tanh u) is the logistic function of 2u: one exponential, and no cancellation where x is far below zero.
INLINE float tanh_gate(float x) {
    float u = SQRT_2_OVER_PI * x * (1 + 0.044715f * x * x);
    return __fdividef(1, 1 + exp2_fast(-2 * LOG2E * u));
}

// Phi(x), the normal distribution: as exactly as the activations need it, because the instructions of erfcf bound the
// speed. In bf16 a logistic function of an odd polynomial, off by at most 3.5e-4; the clamp keeps the polynomial rising
// beyond |x| = 8. In float16 formula 7.1.26 of Abramowitz and Stegun, off by at most 1e-7.
#if defined ACT_FP32
INLINE float normal_gate(float x) { return 0.5f * erfcf(-0.7071067811865476f * x); }
#elif defined ACT_FP16
INLINE float normal_gate(float x) {
    const float t = __fdividef(1, 1 + 0.2316418882f * fabsf(x)); // 0.3275911 / sqrt(2)
    const float series =
        ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float tail = 0.5f * series * exp2_fast(-0.5f * LOG2E * x * x);
    return x < 0 ? tail : 1 - tail;
}
#else
INLINE float normal_gate(float x) {
    float y = fminf(x * x, 64), u = y * -7.71611e-8f + 1.3568e-5f;
    u = x * (((u * y - 1.07181e-3f) * y + 7.63827e-2f) * y + 1.59172f);
    return __fdividef(1, 1 + exp2_fast(-LOG2E * u));
}
#endif

template <Activation FORM> INLINE float gelu_of(float x) {
    if (FORM == ACTIVATION_RELU2) return x <= 0 ? 0 : x * x;
    return x * (FORM == ACTIVATION_GELU ? normal_gate(x) : tanh_gate(x));
}
template <Activation FORM> INLINE float slope_of(float x) {
    if (FORM == ACTIVATION_RELU2) return x <= 0 ? 0 : 2 * x;
    if (FORM == ACTIVATION_GELU) return normal_gate(x) + x * 0.3989422804014327f * exp2_fast(-0.5f * LOG2E * x * x);
    float gate = tanh_gate(x);
    return gate + 2 * x * gate * (1 - gate) * SQRT_2_OVER_PI * (1 + 3 * 0.044715f * x * x);
}

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
            unpack8(g, rounded); // the bias gets what the weights get
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

size_t FOR_ACT(cuda_gelu_scratch)(const Shape *shape) {
    return (size_t)ROW_BLOCKS * 4 * (size_t)shape->C * sizeof(float);
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
