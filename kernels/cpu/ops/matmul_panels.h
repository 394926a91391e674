// A product c (M,N) (+)= a * b + bias of floats; a (M,K) or turned (K,M), b (K,N) or turned (N,K). In the gradient of
// weights a is turned, and a and b may be activations of another type.
//
// Each element is one sum: fma(a[m][K-1], b[K-1][n], ... fma(a[m][0], b[0][n], start)), where start is c, bias[n] or 0.
// Vectors hold neighbouring elements, and a tile of sums that leaves the registers continues from c. So the bits
// depend on neither the instruction set, the shapes of tiles, nor the number of threads.
//
// Operands are copied in the order in which a product by outer products reads them: b in panels (K, columns of a
// tile), a in strips of tiles (K, rows of a tile). The smaller one is copied first, for all threads, and each part of
// the other one by the thread that multiplies it, while it is in that thread's cache.
// oneDNN's fp32 products with AVX2 are half as fast if rows of b are a multiple of 4 KiB apart: the input gradient of
// 256 x 1,024 weights has 73 GFLOP/s and 141 here, of 768 x 3,072 56 and 118 (1,024 rows, Zen 3, two cores).
// A tile of sums stays in registers over PANEL_SUM of K, whose panels fit the first-level cache; a strip stays
// in the second-level cache.
#pragma once

#include "common/machine/cpu.h"
#include "kernels/cpu/act.h"
#include "kernels/cpu/cpu_internal.h"

enum {
    PANEL_ROWS = W == 16  ? 12
                 : W == 8 ? 6
                          : ON_X86(4, 8), // of c in a tile, with 2 vectors of columns each; its sums fit the registers
    PANEL_COLS = 2 * W,
    PANEL_TILES = 16,   // tiles of a strip at most
    PANEL_SUM = 256,    // of K in a product of panels
    PANEL_DEPTH = 1024, // of K, whose panels of b are in scratch at a time
    PANEL_WIDTH = 4096, // of N, the same
    SHARED_ROWS = 2048, // of a that is copied for all threads
    PIECES = 4,         // of a product for each thread, at least
    PANEL_AHEAD = 6,    // rows of a turned a, each in pages of its own, that are fetched while one is copied
    STRIP_SIZE = PANEL_TILES * (PANEL_ROWS * PANEL_SUM + W) // floats
};

// A strip's tile of so many of K, with the vector that is written after it.
static size_t tile_size(int depth) { return (size_t)(PANEL_ROWS * depth + W); }

// Panels of b, or tiles of a, which has no more rows than b has columns.
static size_t panels_size(int N) {
    const size_t tiles = round_up((size_t)smaller(N, SHARED_ROWS), PANEL_ROWS) / PANEL_ROWS * tile_size(PANEL_DEPTH);
    return round_up(size_larger(round_up((size_t)smaller(N, PANEL_WIDTH), PANEL_COLS) * PANEL_DEPTH, tiles), 16);
}

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

// x (rows,depth) -> out (depth,width), zeros in the columns from `rows` to W. Of each vector that it writes the next
// row overwrites the end.
static inline __attribute__((always_inline)) void turn_tile(float *out, int width, const float *x, size_t stride,
                                                            int rows, int depth) {
    for (int k = 0; k < depth; k += W) {
        VW block[W];
        for (int i = 0; i < W; i++)
            block[i] = i < rows ? (VW)v_load_part(x + (size_t)i * stride + k, depth - k) : v_word(0);
        v_transpose(block);
        for (int i = 0; i < smaller(W, depth - k); i++, out += width) v_store(out, (V)block[i]);
    }
}

// rows <= PANEL_ROWS and cols <= PANEL_COLS of c: a (depth,PANEL_ROWS), b (depth,PANEL_COLS). The sums begin with c if
// `add`, else with bias (cols), NULL: 0.
// A function of its own, because gcc would keep sums of a caller of memcpy in memory.
static __attribute__((noinline)) void multiply_tile(float *c, size_t stride, int rows, int cols, const float *a,
                                                    const float *b, int depth, bool add, const float *bias) {
    V sum[PANEL_ROWS][2] = {0};
#pragma GCC unroll 12
    for (int i = 0; i < PANEL_ROWS; i++)
        for (int half = 0; half < 2 && i < rows && half * W < cols && (add || bias); half++)
            sum[i][half] = v_load_part((add ? c + (size_t)i * stride : bias) + half * W, cols - half * W);
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
        for (int half = 0; half < 2 && half * W < cols; half++)
            v_store_part(c + half * W, sum[i][half], cols - half * W);
    }
}

// Rows row .. end-1 of a, of K those from `first` on.
static void make_strip(float *strip, const void *a, bool turned, int M, int K, int row, int end, int first, int depth) {
    const size_t size = tile_size(depth);
    for (int m = row, tile = 0; !turned && m < end; m += PANEL_ROWS, tile++)
        for (int at = 0; at < PANEL_ROWS; at += W)
            turn_tile(strip + (size_t)tile * size + at, PANEL_ROWS,
                      (const float *)a + (size_t)(m + at) * (size_t)K + first, (size_t)K,
                      smaller(PANEL_ROWS, end - m) - at, depth);
    for (int k = 0; turned && k < depth; k++, strip += PANEL_ROWS) {
        const Number *ahead = (const Number *)a + (size_t)(first + smaller(k + PANEL_AHEAD, depth - 1)) * (size_t)M;
        for (int m = row; m < end; m += 16) __builtin_prefetch(ahead + m);
        for (int m = row, tile = 0; m < end; m += PANEL_ROWS, tile++)
            fill_row(strip + (size_t)tile * size, a, (size_t)(first + k) * (size_t)M + (size_t)m, true, M - m,
                     PANEL_ROWS);
    }
}

// Columns col .. end-1 of b, at most PANEL_COLS, of K those from `first` on.
static void make_panel(float *panel, const PanelProduct *p, int col, int end, int first, int depth) {
    for (int half = 0; half < 2 && p->b_turned; half++)
        turn_tile(panel + half * W, PANEL_COLS, (const float *)p->b + (size_t)(col + half * W) * (size_t)p->K + first,
                  (size_t)p->K, end - col - half * W, depth);
    for (int k = 0; k < depth && !p->b_turned; k++)
        fill_row(panel + (size_t)(k * PANEL_COLS), p->b, (size_t)(first + k) * (size_t)p->N + (size_t)col, p->a_turned,
                 end - col, PANEL_COLS);
}

// Of b: rows from .. from+depth-1, and columns from `start` on, of which this loop has `first` to `end`.
TEAM_LOOP(fill_panels, int, (float *, panels), (const PanelProduct *, p), (int, start), (int, from), (int, depth)) {
    for (int n = first; n < end; n += PANEL_COLS)
        make_panel(panels + (size_t)n * (size_t)depth, p, start + n, start + end, from, depth);
}

// Tiles `first` to end-1 of a, of K from .. from+depth-1.
TEAM_LOOP(fill_tiles, int, (float *, tiles), (const PanelProduct *, p), (int, from), (int, depth)) {
    for (int tile = first; tile < end; tile++)
        make_strip(tiles + (size_t)tile * tile_size(depth), p->a, p->a_turned, p->M, p->K, tile * PANEL_ROWS,
                   smaller(p->M, (tile + 1) * PANEL_ROWS), from, depth);
}

// Columns left .. right-1 and rows row .. stop-1 of c: tiles of a that are `tile` apart, the first one of `row`, and
// panels of b that are `panel` apart, the first one of `left`; `add`: to c.
static void multiply_part(const PanelProduct *p, int row, int stop, int left, int right, const float *a, size_t tile,
                          const float *b, size_t panel, int depth, bool add) {
    const size_t N = (size_t)p->N;
    for (int n = left; n < right; n += PANEL_COLS, b += panel) {
        const float *its = a;
        for (int m = row; m < (p->upper ? smaller(stop, n + PANEL_COLS) : stop); m += PANEL_ROWS, its += tile)
            multiply_tile(p->c + (size_t)m * N + n, N, smaller(PANEL_ROWS, stop - m), right - n, its, b, depth, add,
                          p->bias ? p->bias + n : NULL);
    }
}

// Adds the product over K of from .. from+depth-1 to `width` columns of c from `start` on. A piece is a strip of rows
// by `cols` columns; for neighbours in a row the strip is made once.
TEAM_LOOP(multiply_strips, int, (const PanelProduct *, p), (int, strip), (int, cols), (const float *, panels),
          (float *, strips), (int, start), (int, width), (int, from), (int, depth)) {
    const int across = (width + cols - 1) / cols;
    float *mine = strips + (size_t)team_thread() * STRIP_SIZE;
    for (int piece = first, next; piece < end; piece = next) {
        next = smaller(end, (piece / across + 1) * across);
        const int row = piece / across * strip, stop = smaller(p->M, row + strip);
        const int right = smaller(width, (piece % across + next - piece) * cols);
        const int skip = p->upper && row > start ? (row - start) / PANEL_COLS * PANEL_COLS : 0;
        const int left = piece % across * cols > skip ? piece % across * cols : skip;
        for (int part = 0; part < depth && left < right; part += PANEL_SUM) {
            const int count = smaller(PANEL_SUM, depth - part), at = from + part;
            make_strip(mine, p->a, p->a_turned, p->M, p->K, row, stop, at, count);
            multiply_part(p, row, stop, start + left, start + right, mine, tile_size(count),
                          panels + (size_t)left * (size_t)depth + (size_t)(part * PANEL_COLS),
                          (size_t)(PANEL_COLS * depth), count, p->add || at);
        }
    }
}

// The same of all rows, `tiles` of a, and columns first .. end-1.
TEAM_LOOP(multiply_columns, int, (const PanelProduct *, p), (const float *, tiles), (float *, strips), (int, from),
          (int, depth)) {
    float *mine = strips + (size_t)team_thread() * STRIP_SIZE;
    for (int left = first, right; left < end; left = right) {
        right = smaller(end, left + PANEL_TILES * PANEL_ROWS);
        for (int part = 0; part < depth; part += PANEL_SUM) {
            const int count = smaller(PANEL_SUM, depth - part), at = from + part;
            for (int n = left; n < right; n += PANEL_COLS)
                make_panel(mine + (size_t)(n - left) * (size_t)count, p, n, right, at, count);
            multiply_part(p, 0, p->M, left, right, tiles + (size_t)(part * PANEL_ROWS), tile_size(depth), mine,
                          (size_t)(PANEL_COLS * count), count, p->add || at);
        }
    }
}

// The sides of a piece: the longer is halved until each thread has PIECES. Returns how many there are.
static int shape_pieces(int M, int width, int *strip, int *cols) {
    for (*strip = PANEL_TILES * PANEL_ROWS, *cols = PANEL_WIDTH;;) {
        const int pieces = (M + *strip - 1) / *strip * ((width + *cols - 1) / *cols);
        const bool is_low = *strip == PANEL_ROWS, is_narrow = *cols == PANEL_COLS;
        if (pieces >= PIECES * team_threads() || (is_low && is_narrow)) return pieces;
        *(is_low || (!is_narrow && *cols > 2 * *strip) ? cols : strip) /= 2;
    }
}

// Whether a, not b, is copied for all threads: it is not larger, and there are columns enough for each of them.
static bool shares_a(const PanelProduct *p) {
    return !p->upper && p->M <= p->N && p->M <= SHARED_ROWS && p->N >= PIECES * team_threads() * PANEL_COLS;
}

static void multiply_panels(const PanelProduct *p, void *scratch) {
    float *panels = scratch, *strips = panels + panels_size(p->N);
    const bool columns = shares_a(p);
    for (int from = 0; columns && from < p->K; from += PANEL_DEPTH) {
        const int depth = smaller(PANEL_DEPTH, p->K - from);
        fill_tiles((p->M + PANEL_ROWS - 1) / PANEL_ROWS, 1, panels, p, from, depth);
        multiply_columns(p->N, PANEL_COLS, p, panels, strips, from, depth);
    }
    if (columns) return;
    for (int start = 0, strip, cols; start < p->N; start += PANEL_WIDTH) {
        const int width = smaller(PANEL_WIDTH, p->N - start), pieces = shape_pieces(p->M, width, &strip, &cols);
        for (int from = 0; from < p->K; from += PANEL_DEPTH) {
            const int depth = smaller(PANEL_DEPTH, p->K - from);
            fill_panels(width, PANEL_COLS, panels, p, start, from, depth);
            multiply_strips(pieces, 1, p, strip, cols, panels, strips, start, width, from, depth);
        }
    }
}
