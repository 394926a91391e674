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
    for (int i = strand; i < TILE; i += STRANDS)
        if (left + i < cols && top + lane < rows)
            transposed[(size_t)(left + i) * rows + top + lane] = act_of(tile[lane * (TILE + 1) + i]);
}

void FOR_ACT(cuda_muon_operand)(Act *out, Act *transposed, const Grad *in, int rows, int cols, const float *norm) {
    LAUNCH(muon_operand_kernel, dim3(blocks_of((size_t)cols, TILE), blocks_of((size_t)rows, TILE)), THREADS, 0,
           cuda.stream, (act *)out, (act *)transposed, (const float *)in, rows, cols, norm);
}

static __device__ void store_symmetric(float *whole, act *beside, int n, int row, int col, float value) {
    const size_t at = (size_t)row * n + col;
    whole[at] = value;
    if (beside) beside[at] = act_of(row == col ? 0 : value);
}

// Tiles from the diagonal on, each with its image. beside NULL: it is whole, and the diagonals are in the product.
static __global__ void __launch_bounds__(THREADS)
    muon_symmetric_kernel(float *__restrict__ whole, act *__restrict__ beside, const float *__restrict__ a,
                          const float *__restrict__ b, int n, bool polynomial) {
    SHARED(float, tile, TILE *(TILE + 1));
    const int lane = threadIdx.x % TILE, strand = threadIdx.x / TILE;
    const int top = blockIdx.y * TILE, left = blockIdx.x * TILE, col = left + lane;
    if (left < top) return;
    for (int i = strand; i < TILE; i += STRANDS) {
        const int row = top + i;
        if (row >= n || col >= n || col < row) continue;
        const size_t at = (size_t)row * n + col, next = (size_t)n + 1;
        float value = whole[at];
        if (a && beside) value += a[row * next] * b[at] + (col > row ? a[at] * b[col * next] : 0);
        if (polynomial) value = (col == row ? MUON_A : 0) + MUON_B * a[at] + MUON_C * value;
        store_symmetric(whole, beside, n, row, col, value);
        tile[i * (TILE + 1) + lane] = value;
    }
    __syncthreads();
    for (int i = strand; i < TILE; i += STRANDS)
        if (left + i < n && top + lane < n && left + i > top + lane)
            store_symmetric(whole, beside, n, left + i, top + lane, tile[lane * (TILE + 1) + i]);
}

void FOR_ACT(cuda_muon_symmetric)(const Symmetric *out, const Symmetric *a, const Symmetric *b, int n,
                                  bool polynomial) {
    const bool apart = (const void *)out->beside != (const void *)out->whole;
    const unsigned tiles = blocks_of((size_t)n, TILE);
    LAUNCH(muon_symmetric_kernel, dim3(tiles, tiles), THREADS, 0, cuda.stream, (float *)out->whole,
           apart ? (act *)out->beside : NULL, a ? (const float *)a->whole : NULL, b ? (const float *)b->whole : NULL, n,
           polynomial);
}

static __global__ void __launch_bounds__(THREADS)
    muon_diagonal_kernel(float *__restrict__ x, const float *__restrict__ whole, int rows, int cols,
                         const float *__restrict__ norm) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (size_t)rows * cols) return;
    const float scale = norm ? 1 / fmaxf(*norm, MUON_EPSILON) : 1;
    x[i] *= scale * (cols > rows ? whole[i / cols * (rows + 1)] : whole[i % cols * (cols + 1)]);
}

void FOR_ACT(cuda_muon_diagonal)(Grad *x, const Grad *whole, int rows, int cols, const float *norm) {
    LAUNCH(muon_diagonal_kernel, blocks_of((size_t)rows * (size_t)cols, THREADS), THREADS, 0, cuda.stream, (float *)x,
           (const float *)whole, rows, cols, norm);
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
