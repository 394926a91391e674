// The weight gradient in fp32: dw (rows,cols) (+)= dout^T * in, summed over the tokens.
//
// Both operands have the tokens as rows, which is the order in which a product by outer products reads them: they are
// copied into panels (tokens, outputs of a tile), and nothing is transposed, as oneDNN does for each thread again.
// A tile of sums stays in registers over WEIGHT_TOKENS tokens, whose panels fit the first-level cache; a strip of dw
// stays in the second-level cache. Chunks of tokens follow one another, so that the bits depend on the shape alone.
#pragma once

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/simd.h"

enum {
    WEIGHT_ROWS = W == 16 ? 12 : 6, // of dw, with 2 vectors of columns each: 32 and 16 registers hold them
    WEIGHT_COLS = 2 * W,
    WEIGHT_TILES = 16,   // tiles of rows that a thread packs at a time
    WEIGHT_TOKENS = 256, // of a product of panels
    WEIGHT_DEPTH = 1024  // whose panels of `in` are in scratch at a time
};

static size_t weight_panels(int cols) { return round_up((size_t)cols, WEIGHT_COLS) * WEIGHT_DEPTH; }

static size_t weight_scratch(int cols, int threads) {
    return (weight_panels(cols) + (size_t)threads * WEIGHT_TILES * WEIGHT_ROWS * WEIGHT_TOKENS) * sizeof(float);
}

// `count` numbers of a row, and zeros up to `width`.
static inline __attribute__((always_inline)) void fill_row(float *out, const float *x, int count, int width) {
    if (count >= width) {
        memcpy(out, x, (size_t)width * sizeof *out);
        return;
    }
    memcpy(out, x, (size_t)count * sizeof *out);
    memset(out + count, 0, (size_t)(width - count) * sizeof *out);
}

// rows <= WEIGHT_ROWS and cols <= WEIGHT_COLS of dw: a (tokens,WEIGHT_ROWS), b (tokens,WEIGHT_COLS)
static inline void multiply_tile(float *dw, size_t stride, int rows, int cols, const float *a, const float *b,
                                 int tokens, bool add) {
    V sum[WEIGHT_ROWS][2] = {0};
    for (int t = 0; t < tokens; t++, a += WEIGHT_ROWS, b += WEIGHT_COLS) {
        const V left = v_load(b), right = v_load(b + W);
#pragma GCC unroll 12
        for (int i = 0; i < WEIGHT_ROWS; i++) {
            const V output = v_set(a[i]);
            sum[i][0] = v_fma(output, left, sum[i][0]);
            sum[i][1] = v_fma(output, right, sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < WEIGHT_ROWS; i++, dw += stride) {
        if (i == rows) return;
        for (int half = 0; half < 2 && half * W < cols; half++) {
            float *to = dw + half * W;
            const int left = cols - half * W;
            v_store_part(to, add ? v_load_part(to, left) + sum[i][half] : sum[i][half], left);
        }
    }
}

// dout (M,rows), in (M,cols); scratch: weight_scratch(cols, threads) bytes
static void multiply_weight(float *dw, const float *dout, const float *in, int M, int rows, int cols, bool add,
                            void *scratch) {
    float *panels = scratch, *strips = panels + weight_panels(cols);
    int tiles = WEIGHT_TILES; // fewer if there are too few strips for the threads; the bits are the same
    while (tiles > 1 && rows < 4 * team_threads() * tiles * WEIGHT_ROWS) tiles /= 2;
    const int strip = tiles * WEIGHT_ROWS;
    for (int first = 0; first < M; first += WEIGHT_DEPTH) {
        const int tokens = smaller(WEIGHT_DEPTH, M - first);
        const float *of_in = in + (size_t)first * (size_t)cols;
        const float *of_dout = dout + (size_t)first * (size_t)rows;
#pragma omp parallel for schedule(static)
        for (int c = 0; c < cols; c += WEIGHT_COLS)
            for (int t = 0; t < tokens; t++)
                fill_row(panels + (size_t)c * (size_t)tokens + (size_t)(t * WEIGHT_COLS),
                         of_in + (size_t)t * (size_t)cols + c, cols - c, WEIGHT_COLS);
#pragma omp parallel for schedule(static)
        for (int start = 0; start < rows; start += strip) {
            const int end = smaller(rows, start + strip);
            float *mine = strips + (size_t)team_thread() * WEIGHT_TILES * WEIGHT_ROWS * WEIGHT_TOKENS;
            for (int from = 0; from < tokens; from += WEIGHT_TOKENS) {
                const int count = smaller(WEIGHT_TOKENS, tokens - from);
                for (int t = 0; t < count; t++)
                    for (int r = start; r < end; r += WEIGHT_ROWS)
                        fill_row(mine + (size_t)(r - start) * (size_t)count + (size_t)(t * WEIGHT_ROWS),
                                 of_dout + (size_t)(from + t) * (size_t)rows + r, rows - r, WEIGHT_ROWS);
                for (int c = 0; c < cols; c += WEIGHT_COLS)
                    for (int r = start; r < end; r += WEIGHT_ROWS)
                        multiply_tile(dw + (size_t)r * (size_t)cols + c, (size_t)cols, smaller(WEIGHT_ROWS, end - r),
                                      cols - c, mine + (size_t)(r - start) * (size_t)count,
                                      panels + (size_t)c * (size_t)tokens + (size_t)(from * WEIGHT_COLS), count,
                                      add || first || from);
            }
        }
    }
}
