// Sums over rows, for biases: parts of the rows first, then the parts in order, so that no atomics are needed.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256, WARPS = ROWS_AT_ONCE, STRIP = 256 }; // columns a block

__global__ void __launch_bounds__(THREADS) column_sums_of_strips(float *parts, const act *x, int N, int C) {
    SHARED(float, sums, WARPS *STRIP);
    int warp = threadIdx.x / 32, c = blockIdx.x * STRIP + (threadIdx.x % 32) * 8;
    float sum[8] = {};
    if (c < C)
        for (int n = blockIdx.y * WARPS + warp; n < N; n += gridDim.y * WARPS) {
            float row[8];
            load8(row, x + (size_t)n * C + c);
#pragma unroll
            for (int k = 0; k < 8; k++) sum[k] += row[k];
        }
    store8(sums + warp * STRIP + threadIdx.x % 32 * 8, sum);
    __syncthreads();
    float total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w * STRIP + threadIdx.x];
    c = blockIdx.x * STRIP + threadIdx.x;
    if (c < C) parts[(size_t)blockIdx.y * C + c] = total;
}

static __global__ void __launch_bounds__(THREADS)
    column_sums_of_parts(float *a, float *b, const float *parts, int blocks, int split, int columns, bool add) {
    SHARED(float, sums, THREADS); // 32 columns, 8 strands of parts each
    int strand = threadIdx.x / 32, c = blockIdx.x * 32 + threadIdx.x % 32;
    float sum = 0;
    if (c < columns)
        for (int block = strand; block < blocks; block += 8) sum += parts[(size_t)block * columns + c];
    sums[threadIdx.x] = sum;
    __syncthreads();
    float *to = c < split ? a : b;
    if (strand || c >= columns || !to) return;
    for (int i = 1; i < 8; i++) sum += sums[i * 32 + threadIdx.x];
    to += c < split ? c : c - split;
    *to = add ? *to + sum : sum;
}

void FOR_ACT(add_parts)(Grad *a, Grad *b, const float *parts, int blocks, int split, int columns, bool add) {
    LAUNCH(column_sums_of_parts, blocks_of((size_t)columns, 32), THREADS, 0, cuda.stream, (float *)a, (float *)b, parts,
           blocks, split, columns, add);
}

void FOR_ACT(column_sums)(Grad *out, const Act *x, int N, int C, bool add) {
    float *parts = (float *)cuda.scratch;
    int blocks = row_blocks(N);
    LAUNCH(column_sums_of_strips, dim3(blocks_of((size_t)C, STRIP), (unsigned)blocks), THREADS, 0, cuda.stream, parts,
           (const act *)x, N, C);
    FOR_ACT(add_parts)(out, NULL, parts, blocks, C, C, add);
}
