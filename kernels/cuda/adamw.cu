// The update: global gradient norm, and AdamW over the flat arena in one launch, eight parameters a thread.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256, NORM_GRID = 512 }; // by the count alone: the sum does not depend on the card

__global__ void __launch_bounds__(THREADS) sum_squares(float *parts, const float *gradients, size_t vectors) {
    SHARED(float, sums, THREADS / 32);
    float sum = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (size_t)gridDim.x * THREADS) {
        float g[8];
        load8(g, gradients + i * 8);
#pragma unroll
        for (int k = 0; k < 8; k++) sum += g[k] * g[k];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS / 32; i++) sum += sums[i];
    parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(32) root_of_sum(float *norm, const float *parts, int count) {
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += 32) sum += parts[i];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (threadIdx.x == 0) *norm = (float)sqrt(sum);
}

size_t norm_scratch(void) { return NORM_GRID * sizeof(float); }

void cuda_gradient_norm(float *norm, const Grad *gradients, size_t count) {
    assert(count % 8 == 0);
    float *parts = (float *)cuda.scratch;
    unsigned blocks = min((unsigned)NORM_GRID, blocks_of(count / 8, THREADS));
    LAUNCH(sum_squares, blocks, THREADS, 0, cuda.stream, parts, (const float *)gradients, count / 8);
    LAUNCH(root_of_sum, 1, 32, 0, cuda.stream, norm, parts, (int)blocks);
}

typedef struct {
    float rate, beta1, beta2, epsilon, shrink, root; // learning rate / correction 1, 1 - lr*decay, 1/sqrt(correction 2)
    float max_norm;
} Step;

__global__ void __launch_bounds__(THREADS)
    update(act *__restrict__ params, float *__restrict__ master, const float *__restrict__ gradients,
           float *__restrict__ m, float *__restrict__ v, size_t count, size_t decay_count, Step step,
           const float *__restrict__ norm) {
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    float length = *norm;
    if (i >= count || !isfinite(length)) return;
    float scale = step.max_norm > 0 && length > step.max_norm ? step.max_norm / (length + 1e-6f) : 1.0f;
    float p[8], g[8], first[8], second[8], shrink = i < decay_count ? step.shrink : 1.0f;
    load8(p, master + i), load8(g, gradients + i), load8(first, m + i), load8(second, v + i);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float x = g[k] * scale;
        first[k] = step.beta1 * first[k] + (1 - step.beta1) * x;
        second[k] = step.beta2 * second[k] + (1 - step.beta2) * x * x;
        p[k] = p[k] * shrink - step.rate * first[k] / (sqrtf(second[k]) * step.root + step.epsilon);
    }
    store8(master + i, p), store8(params + i, p), store8(m + i, first), store8(v + i, second);
}

void cuda_adamw(Par *params, float *master, const Grad *gradients, float *m, float *v, size_t count, size_t decay_count,
                const AdamW *adamw, const float *norm, float max_norm) {
    assert(count % 8 == 0 && decay_count % 8 == 0);
    double correct1 = 1 - pow((double)adamw->beta1, (double)adamw->step);
    double correct2 = 1 - pow((double)adamw->beta2, (double)adamw->step);
    Step step = {(float)(adamw->learning_rate / correct1),
                 adamw->beta1,
                 adamw->beta2,
                 adamw->epsilon,
                 1 - adamw->learning_rate * adamw->weight_decay,
                 (float)(1 / sqrt(correct2)),
                 max_norm};
    LAUNCH(update, blocks_of(count / 8, THREADS), THREADS, 0, cuda.stream, (act *)params, master,
           (const float *)gradients, m, v, count, decay_count, step, norm);
}
