// Column sums over N rows: each chunk of CHUNK_ROWS rows is summed into its own row of partials, then the chunks are
// added in order.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/cpu_internal.h"

static int chunk_count(int N) { return (N + CHUNK_ROWS - 1) / CHUNK_ROWS; }

static size_t partials_bytes(int N, size_t columns) { return (size_t)chunk_count(N) * columns * sizeof(float); }

static float *partials_take(int N, size_t columns) {
    size_t used = 0;
    return scratch_take(&used, partials_bytes(N, columns));
}

TEAM_LOOP(add_partials, int, (float *, out), (const float *, partials), (int, count), (size_t, stride), (bool, add)) {
    for (int k = first; k < end; k += W) {
        V sum = v_set(0);
        for (int c = 0; c < count; c++) sum += v_load_part(partials + (size_t)c * stride + k, end - k);
        v_store_part(out + k, add ? v_load_part(out + k, end - k) + sum : sum, end - k);
    }
}

// out (n) = the sum of `count` partial rows, `stride` floats apart
static void columns_finish(float *out, const float *partials, int n, int count, size_t stride, bool add) {
    add_partials(n, 64, out, partials, count, stride, add);
}

TEAM_LOOP(sum_chunks, int, (float *, partials), (const Number *, x), (size_t, stride), (int, N), (int, columns)) {
    for (int chunk = first; chunk < end; chunk++) {
        float *sum = partials + (size_t)chunk * (size_t)columns;
        memset(sum, 0, (size_t)columns * sizeof *sum);
        for (int i = chunk * CHUNK_ROWS; i < smaller(N, (chunk + 1) * CHUNK_ROWS); i++)
            for (int k = 0; k < columns; k += W) {
                const V v = act_load_part(x + (size_t)i * stride + k, columns - k);
                v_store_part(sum + k, v + v_load_part(sum + k, columns - k), columns - k);
            }
    }
}

// out (columns) = the column sums of x, rows `stride` numbers apart
static void columns_sum(float *out, const Number *x, size_t stride, int N, int columns, bool add) {
    float *partials = partials_take(N, (size_t)columns);
    sum_chunks(chunk_count(N), 1, partials, x, stride, N, columns);
    columns_finish(out, partials, columns, chunk_count(N), (size_t)columns, add);
}
