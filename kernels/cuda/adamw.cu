// The update: global gradient norm, and AdamW over the flat arena in one launch, eight parameters a thread.
#include "kernels/cuda/rounding.cuh"

enum { THREADS = 256, ROOT_THREADS = 1024 };

// A block a piece.
static __global__ void __launch_bounds__(THREADS)
    square_sums_kernel(double *sums, const float *gradients, size_t vectors) {
    SHARED(float, warps, THREADS / 32);
    const size_t first = (size_t)blockIdx.x * (NORM_PIECE / 8);
    float sum = 0;
    for (size_t i = threadIdx.x; i < NORM_PIECE / 8 && first + i < vectors; i += THREADS) {
        float g[8];
        load8(g, gradients + (first + i) * 8);
#pragma unroll
        for (int k = 0; k < 8; k++) sum += g[k] * g[k];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS / 32; i++) sum += warps[i];
    sums[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(ROOT_THREADS)
    gradient_norm_kernel(float *norm, const double *sums, size_t count, const float *divisor) {
    SHARED(double, warps, ROOT_THREADS / 32);
    double sum = 0;
    for (size_t i = threadIdx.x; i < count; i += ROOT_THREADS) sum += sums[i];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < ROOT_THREADS / 32; i++) sum += warps[i];
    *norm = (float)(sqrt(sum) / *divisor);
}

void FOR_ACT(cuda_square_sums)(double *sums, const Grad *gradients, size_t count) {
    assert(count % 8 == 0);
    LAUNCH(square_sums_kernel, (unsigned)norm_pieces(count), THREADS, 0, cuda.stream, sums, (const float *)gradients,
           count / 8);
}

void FOR_ACT(cuda_gradient_norm)(float *norm, const double *sums, size_t count, const float *divisor) {
    LAUNCH(gradient_norm_kernel, 1, ROOT_THREADS, 0, cuda.stream, norm, sums, count, divisor);
}

// With beta2 = 0.95 and more a step changes v by less than half a bf16 ulp: rounded to nearest it would never move.
template <class M, bool MASTER>
__global__ void __launch_bounds__(THREADS)
    adamw_update(act *__restrict__ params, float *__restrict__ master, const float *__restrict__ gradients,
                 M *__restrict__ m, M *__restrict__ v, size_t before, size_t count, size_t decay_count,
                 const AdamW *__restrict__ adamw, const float *__restrict__ norm, const float *__restrict__ divisor) {
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8, element = before + i;
    float length = *norm;
    if (i >= count || !isfinite(length)) return;
    const AdamW step = *adamw;
    float scale = gradient_scale(step, length, *divisor), p[8], g[8], first[8], second[8];
    float shrink = element < decay_count ? step.shrink : 1.0f;
    if (MASTER)
        load8(p, master + i);
    else
        load8(p, params + i);
    load8(g, gradients + i), load8(first, m + i), load8(second, v + i);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float x = g[k] * scale;
        first[k] = step.beta1 * first[k] + (1 - step.beta1) * x;
        second[k] = step.beta2 * second[k] + (1 - step.beta2) * x * x;
        p[k] = p[k] * shrink - step.rate * first[k] / (sqrtf(second[k]) * step.root + step.epsilon);
    }
    if (MASTER)
        store8(master + i, p), store8(params + i, p);
    else
        store8_parameters(params + i, p, step, element);
    store8_randomly(m + i, first, step, element, 1);
    store8_randomly(v + i, second, step, element, 2);
}

template <class M, bool MASTER> static void launch_adamw(Moment *m, Moment *v, const Update *of, const AdamW *adamw) {
    LAUNCH((adamw_update<M, MASTER>), blocks_of(of->count / 8, THREADS), THREADS, 0, cuda.stream, (act *)of->params,
           of->master, (const float *)of->gradients, (M *)m, (M *)v, of->first, of->count, of->decay_count, adamw,
           of->norm, of->divisor);
}

void FOR_ACT(cuda_adamw)(Moment *m, Moment *v, const Update *of, const AdamW *adamw) {
    assert(!of->weight && of->first % 8 == 0 && of->count % 8 == 0 && of->decay_count % 8 == 0);
    if (cuda.wide_moments)
        launch_adamw<float, true>(m, v, of, adamw);
    else if (!cuda.no_master)
        launch_adamw<bf16, true>(m, v, of, adamw);
    else
        launch_adamw<bf16, false>(m, v, of, adamw);
}

// With MASTER params has another type, or is the master.
template <bool MASTER>
__global__ void __launch_bounds__(THREADS)
    average_kernel(float *__restrict__ average, const act *__restrict__ params, const float *__restrict__ master,
                   size_t count, const float *__restrict__ take, const float *__restrict__ norm) {
    const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count || !isfinite(*norm)) return;
    float p[8], kept[8];
    if (MASTER)
        load8(p, master + i);
    else
        load8(p, params + i);
    load8(kept, average + i);
#pragma unroll
    for (int k = 0; k < 8; k++) kept[k] = fmaf(*take, p[k] - kept[k], kept[k]);
    store8(average + i, kept);
}

void FOR_ACT(cuda_average)(float *average, const Update *of, const float *take) {
    assert(of->count % 8 == 0);
    LAUNCH(cuda.no_master ? average_kernel<false> : average_kernel<true>, blocks_of(of->count / 8, THREADS), THREADS, 0,
           cuda.stream, average, (const act *)of->params, of->master, of->count, take, of->norm);
}

// params may be master.
static __global__ void __launch_bounds__(THREADS)
    average_swap_kernel(float *average, act *params, float *master, size_t count) {
    const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count) return;
    float p[8], kept[8];
    load8(p, master + i), load8(kept, average + i);
    store8(master + i, kept), store8(params + i, kept), store8(average + i, p);
}

void FOR_ACT(cuda_average_swap)(float *average, const Update *of) {
    assert(!cuda.no_master && of->count % 8 == 0);
    LAUNCH(average_swap_kernel, blocks_of(of->count / 8, THREADS), THREADS, 0, cuda.stream, average, (act *)of->params,
           of->master, of->count);
}
