// Packs weights into oneDNN's blocked layout, and converts numbers between types.
#pragma once

#include "kernels/cpu/act.h"

// Stores past the caches: the packed weights are larger than the caches and are read much later. p is aligned.
static inline void lane_stream(Lane *p, VW v) {
#ifdef __AVX512F__
    _mm512_stream_si512((void *)p, (__m512i)v);
#else
    lane_store(p, v);
#endif
}
static inline void stream_end(void) { // before another thread reads
#ifdef __AVX512F__
    _mm_sfence();
#endif
}

// Packs w (rows,cols) for both directions, each as a matrix (K, N) in blocks of columns. A block holds lanes of
// PER_LANE rows: lane k of column n lies at (n / block * (K / PER_LANE) + k) * block + n % block. The part of w:
// to->tile_rows rows and at most to->tile_cols columns at (row, col).
static void pack_tile(const float *w, int rows, int cols, const Packing *to, int row, int col) {
    const int end = smaller(cols, col + to->tile_cols), lanes_of_cols = cols / PER_LANE,
              lanes_of_rows = rows / PER_LANE;
    const int block = to->tile_rows, wide = to->block; // w^T: K = cols, N = rows
    for (int k = col / PER_LANE; k < end / PER_LANE; k += W)
        for (int group = 0; group < block; group += W) {
            VW r[W];
            for (int i = 0; i < W; i++)
                r[i] = lane_of_floats(w + (size_t)(row + group + i) * (size_t)cols + (size_t)k * PER_LANE);
            v_transpose(r);
            Lane *out =
                (Lane *)to->transposed + (size_t)row * (size_t)lanes_of_cols + (size_t)k * (size_t)block + group;
            for (int i = 0; i < W; i++) lane_stream(out + (size_t)i * (size_t)block, r[i]);
        }
    for (int n = col; n < end; n += wide) // w: K = rows, N = cols
        for (int k = row / PER_LANE; k < (row + block) / PER_LANE; k++) {
            const float *above = w + (size_t)k * PER_LANE * (size_t)cols + n, *below = above + (PER_LANE - 1) * cols;
            Lane *out = (Lane *)to->plain + (size_t)n * (size_t)lanes_of_rows + (size_t)k * (size_t)wide;
            for (int group = 0; group < wide; group += W)
                lane_stream(out + group, lane_zip(v_load(above + group), v_load(below + group)));
        }
    stream_end();
}

// The tiles of w are numbered row by row.
static int tiles_of_row(int cols, const Packing *to) { return (cols + to->tile_cols - 1) / to->tile_cols; }
static int tile_count(int rows, int cols, const Packing *to) { return rows / to->tile_rows * tiles_of_row(cols, to); }
static int tile_row(int cols, const Packing *to, int tile) { return tile / tiles_of_row(cols, to) * to->tile_rows; }
static int tile_col(int cols, const Packing *to, int tile) { return tile % tiles_of_row(cols, to) * to->tile_cols; }

TEAM_LOOP(pack_each_tile, int, (const float *, w), (int, rows), (int, cols), (const Packing *, to)) {
    for (int tile = first; tile < end; tile++)
        pack_tile(w, rows, cols, to, tile_row(cols, to, tile), tile_col(cols, to, tile));
}

static void pack_tiles(const float *w, int rows, int cols, const Packing *to) {
    pack_each_tile(tile_count(rows, cols, to), 1, w, rows, cols, to);
}

TEAM_LOOP(widen_range, size_t, (float *, out), (const Number *, in)) {
    for (size_t i = first; i < end; i += W) {
        const int left = end - i < W ? (int)(end - i) : W;
        v_store_part(out + i, act_load_part(in + i, left), left);
    }
}

static void widen(float *out, const void *in, size_t n) { widen_range(n, NUMBERS_PIECE, out, in); }

TEAM_LOOP(narrow_range, size_t, (Number *, out), (const float *, in)) {
    for (size_t i = first; i < end; i += W) {
        const int left = end - i < W ? (int)(end - i) : W;
        act_store_part(out + i, v_load_part(in + i, left), left);
    }
}

static void narrow(void *out, const float *in, size_t n) { narrow_range(n, NUMBERS_PIECE, out, in); }
