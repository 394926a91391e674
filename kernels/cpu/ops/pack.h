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

// Packs the matrix (K, N) in blocks of `block` columns. A block holds lanes of PER_LANE rows: lane k of column n lies
// at (n / block * (K / PER_LANE) + k) * block + n % block. For w^T: K = cols, N = rows.
static void pack_transposed(const float *w, int rows, int cols, int block, void *packed) {
    const int lanes = cols / PER_LANE;
#pragma omp parallel for schedule(static)
    for (int n = 0; n < rows; n += block) {
        for (int k = 0; k < lanes; k += W)
            for (int group = 0; group < block; group += W) {
                VW r[W];
                for (int i = 0; i < W; i++)
                    r[i] = lane_of_floats(w + (size_t)(n + group + i) * (size_t)cols + (size_t)k * PER_LANE);
                v_transpose(r);
                Lane *out = (Lane *)packed + (size_t)n * (size_t)lanes + (size_t)k * (size_t)block + group;
                for (int i = 0; i < W; i++) lane_stream(out + (size_t)i * (size_t)block, r[i]);
            }
        stream_end();
    }
}

// For w: K = rows, N = cols.
static void pack_plain(const float *w, int rows, int cols, int block, void *packed) {
    const int lanes = rows / PER_LANE, tall = 16;
#pragma omp parallel for schedule(static)
    for (int k = 0; k < lanes; k += tall) {
        for (int n = 0; n < cols; n += block)
            for (int i = k; i < k + tall; i++) {
                const float *above = w + (size_t)i * PER_LANE * (size_t)cols + n,
                            *below = above + (PER_LANE - 1) * cols;
                Lane *out = (Lane *)packed + (size_t)n * (size_t)lanes + (size_t)i * (size_t)block;
                for (int group = 0; group < block; group += W)
                    lane_stream(out + group, lane_zip(v_load(above + group), v_load(below + group)));
            }
        stream_end();
    }
}

static void widen(float *out, const void *in, size_t n) {
    const size_t piece = 4096;
#pragma omp parallel for schedule(static)
    for (size_t start = 0; start < n; start += piece)
        for (size_t i = start; i < n && i < start + piece; i += W) {
            const int left = n - i < W ? (int)(n - i) : W;
            v_store_part(out + i, act_load_part((const Number *)in + i, left), left);
        }
}

static void narrow(void *out, const float *in, size_t n) {
    const size_t piece = 4096;
#pragma omp parallel for schedule(static)
    for (size_t start = 0; start < n; start += piece)
        for (size_t i = start; i < n && i < start + piece; i += W) {
            const int left = n - i < W ? (int)(n - i) : W;
            act_store_part((Number *)out + i, v_load_part(in + i, left), left);
        }
}
