// Column sums over N rows: each chunk of CHUNK_ROWS rows is summed into its own row of partials, then the chunks are
// added in order.
#pragma once

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/simd.h"

static int chunk_count(int N) { return (N + CHUNK_ROWS - 1) / CHUNK_ROWS; }

static size_t partials_bytes(int N, size_t columns) { return (size_t)chunk_count(N) * columns * sizeof(float); }

static float *partials_take(int N, size_t columns) {
    size_t used = 0;
    return scratch_take(&used, partials_bytes(N, columns));
}

// out (n) = the sum of `count` partial rows, `stride` floats apart
static void columns_finish(float *out, const float *partials, int n, int count, size_t stride, bool add) {
#pragma omp parallel for schedule(static)
    for (int strip = 0; strip < n; strip += 64)
        for (int k = strip; k < n && k < strip + 64; k += W) {
            V sum = v_set(0);
            for (int c = 0; c < count; c++) sum += v_load_part(partials + (size_t)c * stride + k, n - k);
            v_store_part(out + k, add ? v_load_part(out + k, n - k) + sum : sum, n - k);
        }
}
