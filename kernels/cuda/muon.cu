// Muon, without its matrix products: eight elements a thread, and an operand in both orders by way of shared memory.
#include "kernels/cuda/rounding.cuh"
#include "kernels/muon_scalars.h"

enum { THREADS = 256, TILE = 32, STRANDS = THREADS / TILE };

static __global__ void __launch_bounds__(THREADS)
    muon_momentum_kernel(float *__restrict__ direction, float *__restrict__ momentum,
                         const float *__restrict__ gradients, size_t count, const Muon *__restrict__ muon,
                         const float *__restrict__ norm, const float *__restrict__ divisor) {
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count) return;
    const float length = *norm, keep = muon->momentum;
    float g[8] = {}, m[8];
    if (isfinite(length)) {
        const float scale = gradient_scale(muon->adamw, length, *divisor);
        load8(g, gradients + i), load8(m, momentum + i);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            g[k] *= scale;
            m[k] = keep * m[k] + (1 - keep) * g[k];
            g[k] = keep * m[k] + (1 - keep) * g[k];
        }
        store8(momentum + i, m);
    }
    store8(direction + i, g);
}

void FOR_ACT(cuda_muon_momentum)(Grad *direction, float *momentum, const Update *of, const Muon *muon) {
    assert(of->count % 8 == 0);
    LAUNCH(muon_momentum_kernel, blocks_of(of->count / 8, THREADS), THREADS, 0, cuda.stream, (float *)direction,
           momentum, (const float *)of->gradients, of->count, muon, of->norm, of->divisor);
}

#ifdef ACT_FP32
INLINE act act_of(float value) { return value; }
#else
INLINE act act_of(float value) { return act{(uint16_t)pack(value, 0)}; }
#endif

static __global__ void __launch_bounds__(THREADS)
    muon_operand_kernel(act *__restrict__ out, act *__restrict__ transposed, const float *__restrict__ in, int rows,
                        int cols, const float *__restrict__ norm) {
    SHARED(float, tile, TILE *(TILE + 1)); // a row more: no two threads of a warp read the same bank
    const float scale = norm ? 1 / fmaxf(*norm, MUON_EPSILON) : 1;
    const int lane = threadIdx.x % TILE, strand = threadIdx.x / TILE;
    const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    for (int i = strand; i < TILE; i += STRANDS)
        if (top + i < rows && left + lane < cols) {
            const size_t at = (size_t)(top + i) * cols + left + lane;
            const float value = in[at] * scale;
            out[at] = act_of(value);
            tile[i * (TILE + 1) + lane] = value;
        }
    __syncthreads();
    for (int i = strand; transposed && i < TILE; i += STRANDS)
        if (left + i < cols && top + lane < rows)
            transposed[(size_t)(left + i) * rows + top + lane] = act_of(tile[lane * (TILE + 1) + i]);
}

void FOR_ACT(cuda_muon_operand)(Act *out, Act *transposed, const Grad *in, int rows, int cols, const float *norm) {
    LAUNCH(muon_operand_kernel, dim3(blocks_of((size_t)cols, TILE), blocks_of((size_t)rows, TILE)), THREADS, 0,
           cuda.stream, (act *)out, (act *)transposed, (const float *)in, rows, cols, norm);
}

static __global__ void __launch_bounds__(THREADS)
    muon_polynomial_kernel(act *__restrict__ out, const float *__restrict__ gram, const float *__restrict__ square,
                           int n) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (size_t)n * n) return;
    const float identity = i / n == i % n ? MUON_A : 0;
    out[i] = act_of(identity + MUON_B * gram[i] + MUON_C * square[i]);
}

void FOR_ACT(cuda_muon_polynomial)(Act *out, const Grad *gram, const Grad *square, int n) {
    LAUNCH(muon_polynomial_kernel, blocks_of((size_t)n * (size_t)n, THREADS), THREADS, 0, cuda.stream, (act *)out,
           (const float *)gram, (const float *)square, n);
}

template <bool MASTER>
__global__ void __launch_bounds__(THREADS)
    muon_update(act *__restrict__ params, float *__restrict__ master, const float *__restrict__ direction,
                size_t before, size_t count, float scale, const Muon *__restrict__ muon,
                const float *__restrict__ norm) {
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (i >= count || !isfinite(*norm)) return;
    const float rate = scale * muon->rate, shrink = muon->shrink;
    float p[8], d[8];
    if (MASTER)
        load8(p, master + i);
    else
        load8(p, params + i);
    load8(d, direction + i);
#pragma unroll
    for (int k = 0; k < 8; k++) p[k] = p[k] * shrink - rate * d[k];
    if (MASTER)
        store8(master + i, p), store8(params + i, p);
    else
        store8_parameters(params + i, p, muon->adamw, before + i);
}

void FOR_ACT(cuda_muon_update)(const Update *of, float scale, const Muon *muon) {
    assert(of->first % 8 == 0 && of->count % 8 == 0);
    LAUNCH(cuda.no_master ? muon_update<false> : muon_update<true>, blocks_of(of->count / 8, THREADS), THREADS, 0,
           cuda.stream, (act *)of->params, of->master, (const float *)of->gradients, of->first, of->count, scale, muon,
           of->norm);
}
