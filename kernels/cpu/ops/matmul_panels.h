// A product c (M,N) (+)= a * b (K,N) of floats, with a (M,K), or of activations, with a^T (K,M), for a weight gradient.
//
// Operands are copied in the order in which a product by outer products reads them: b in panels (K, columns of a tile),
// a in strips of tiles (K, rows of a tile). oneDNN's fp32 products with AVX2 are half as fast if rows of b are a
// multiple of 4 KiB apart: the input gradient of 256 x 1,024 weights has 73 GFLOP/s and 141 here, of 768 x 3,072 56 and
// 118 (1,024 rows, Zen 3, two cores, 2026-11-28).
// A tile of sums stays in registers over PANEL_SUM of K, whose panels fit the first-level cache; a strip stays
// in the second-level cache. Chunks of K follow one another, so that the bits depend on the shape alone.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/cpu_internal.h"

enum {
    PANEL_ROWS = W == 16 ? 12 : 6, // of c in a tile, with 2 vectors of columns each: 32 and 16 registers hold them
    PANEL_COLS = 2 * W,
    PANEL_TILES = 16,                                      // tiles of a strip at most
    PANEL_SUM = 256,                                       // of K in a product of panels
    PANEL_DEPTH = 1024,                                    // of K, whose panels of b are in scratch at a time
    STRIP_SIZE = PANEL_TILES * PANEL_ROWS * PANEL_SUM + 16 // floats; turn_tile() writes up to a vector after its tile
};

static size_t panels_size(int N) { return round_up((size_t)N, PANEL_COLS) * PANEL_DEPTH; }

static size_t panels_scratch(int N, int threads) {
    return (panels_size(N) + (size_t)threads * STRIP_SIZE) * sizeof(float);
}

// `count` numbers of a row from x[at] on, activations or floats, and zeros up to `width`. It writes whole vectors: the
// next row overwrites their end.
static inline __attribute__((always_inline)) void fill_row(float *out, const void *x, size_t at, bool activations,
                                                           int count, int width) {
    for (int i = 0; i < width; i += W, at += W)
        v_store(out + i, count <= i    ? v_set(0)
                         : activations ? act_load_part((const Number *)x + at, count - i)
                                       : v_load_part((const float *)x + at, count - i));
}

// x (rows,depth) -> out (depth,PANEL_ROWS), zeros in the rows after `rows`. Of each vector that it writes the next row
// overwrites the end.
static inline void turn_tile(float *out, const float *x, size_t stride, int rows, int depth) {
    for (int k = 0; k < depth; k += W) {
        VW block[W];
        for (int i = 0; i < W; i++)
            block[i] = i < rows ? (VW)v_load_part(x + (size_t)i * stride + k, depth - k) : v_word(0);
        v_transpose(block);
        for (int i = 0; i < smaller(W, depth - k); i++, out += PANEL_ROWS) v_store(out, (V)block[i]);
    }
}

// rows <= PANEL_ROWS and cols <= PANEL_COLS of c: a (depth,PANEL_ROWS), b (depth,PANEL_COLS)
static inline void multiply_tile(float *c, size_t stride, int rows, int cols, const float *a, const float *b, int depth,
                                 bool add) {
    V sum[PANEL_ROWS][2] = {0};
    for (int k = 0; k < depth; k++, a += PANEL_ROWS, b += PANEL_COLS) {
        const V left = v_load(b), right = v_load(b + W);
#pragma GCC unroll 12
        for (int i = 0; i < PANEL_ROWS; i++) {
            const V factor = v_set(a[i]);
            sum[i][0] = v_fma(factor, left, sum[i][0]);
            sum[i][1] = v_fma(factor, right, sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < PANEL_ROWS; i++, c += stride) {
        if (i == rows) return;
        for (int half = 0; half < 2 && half * W < cols; half++) {
            float *to = c + half * W;
            const int left = cols - half * W;
            v_store_part(to, add ? v_load_part(to, left) + sum[i][half] : sum[i][half], left);
        }
    }
}

// Rows row .. end-1 of a, of K those from `first` on.
static void make_strip(float *strip, const void *a, bool turned, int M, int K, int row, int end, int first, int depth) {
    for (int m = row; m < end; m += PANEL_ROWS, strip += PANEL_ROWS * depth) {
        if (!turned) turn_tile(strip, (const float *)a + (size_t)m * (size_t)K + first, (size_t)K, end - m, depth);
        for (int k = 0; turned && k < depth; k++)
            fill_row(strip + (size_t)k * PANEL_ROWS, a, (size_t)(first + k) * (size_t)M + (size_t)m, true, M - m,
                     PANEL_ROWS);
    }
}

// Rows from .. from+depth-1 of b (K,N)
TEAM_LOOP(fill_panels, int, (float *, panels), (const void *, b), (bool, activations), (int, N), (int, from),
          (int, depth)) {
    for (int n = first; n < end; n += PANEL_COLS)
        for (int k = 0; k < depth; k++)
            fill_row(panels + (size_t)n * (size_t)depth + (size_t)(k * PANEL_COLS), b,
                     (size_t)(from + k) * (size_t)N + (size_t)n, activations, N - n, PANEL_COLS);
}

typedef struct {
    float *c;
    const void *a;
    bool turned, add, upper;
    int M, N, K, strip; // rows of a strip
    float *panels, *strips;
} PanelProduct;

// Adds the product over K of from .. from+depth-1.
TEAM_LOOP(multiply_strips, int, (const PanelProduct *, p), (int, from), (int, depth)) {
    const size_t N = (size_t)p->N;
    float *mine = p->strips + (size_t)team_thread() * STRIP_SIZE;
    for (int row = first, stop; row < end; row = stop) {
        stop = smaller(end, row + p->strip);
        for (int part = 0; part < depth; part += PANEL_SUM) {
            const int count = smaller(PANEL_SUM, depth - part);
            make_strip(mine, p->a, p->turned, p->M, p->K, row, stop, from + part, count);
            for (int n = p->upper ? row / PANEL_COLS * PANEL_COLS : 0; n < p->N; n += PANEL_COLS)
                for (int m = row; m < (p->upper ? smaller(stop, n + PANEL_COLS) : stop); m += PANEL_ROWS)
                    multiply_tile(p->c + (size_t)m * N + n, N, smaller(PANEL_ROWS, stop - m), p->N - n,
                                  mine + (size_t)(m - row) * (size_t)count,
                                  p->panels + (size_t)n * (size_t)depth + (size_t)(part * PANEL_COLS), count,
                                  p->add || from || part);
        }
    }
}

// c (M,N) (+)= a (M,K), or turned (K,M), times b (K,N); `upper`: elements below the diagonal may be
// left out; scratch: panels_scratch(N, threads) bytes
static void multiply_panels(float *c, const void *a, bool turned, const void *b, int M, int N, int K, bool add,
                            bool upper, void *scratch) {
    float *panels = scratch, *strips = panels + panels_size(N);
    int tiles = PANEL_TILES; // fewer if there are too few strips for the threads; the bits are the same
    while (tiles > 1 && M < 8 * team_threads() * tiles * PANEL_ROWS) tiles /= 2;
    const PanelProduct product = {c, a, turned, add, upper, M, N, K, tiles * PANEL_ROWS, panels, strips};
    for (int from = 0; from < K; from += PANEL_DEPTH) {
        const int depth = smaller(PANEL_DEPTH, K - from);
        fill_panels(N, PANEL_COLS, panels, b, turned, N, from, depth);
        multiply_strips(M, product.strip, &product, from, depth);
    }
}
