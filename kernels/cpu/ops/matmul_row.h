// The product of a single row with weights, as sampling needs it. It reads each weight once, so the threads share the
// rows of the weights; oneDNN runs a single row on one thread if it uses AMX tiles.
//
// By packed weights the sums have the order of oneDNN's products of many rows, so that a row has the same bits in both:
// in chunks of inputs whose sums are added, and on AMX tiles, for each 32 inputs, over the even and over the odd ones.
// Only there one in 10,000 sums over more than 2,048 inputs is rounded to another bf16.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/cpu_internal.h"

enum {
    ROW_VECTORS = 4,
    TILE_LANES = 16,
    AHEAD = 32, // lanes to prefetch: the panels are read once, from memory
};

static inline VW lane_at(const Number *x, int k) {
    Lane lane;
    memcpy(&lane, x + (size_t)k * PER_LANE, sizeof lane);
    return lane_set(lane);
}

// sum (vectors) = x (lanes) * w (lanes, block)
static inline __attribute__((always_inline)) void multiply_panel(int vectors, V *sum, const Number *x, const Lane *w,
                                                                 int block, int lanes) {
    for (int k = 0; k < lanes; k++, w += block) {
        const VW left = lane_at(x, k);
        for (int v = 0; v < vectors; v++) __builtin_prefetch(w + AHEAD * block + v * W);
        for (int v = 0; v < vectors; v++) sum[v] = lane_dot(sum[v], left, lane_load(w + v * W));
    }
}

#if defined ACT_BF16 && defined __AVX512BF16__
static inline __attribute__((always_inline)) void multiply_panel_as_tiles(int vectors, V *sum, const Number *x,
                                                                          const Lane *w, int block, int lanes) {
    for (int tile = 0; tile < lanes; tile += TILE_LANES) {
        V even[ROW_VECTORS] = {0}, odd[ROW_VECTORS] = {0};
        for (int k = tile; k < tile + TILE_LANES; k++, w += block) {
            const VW left = lane_at(x, k);
            for (int v = 0; v < vectors; v++) __builtin_prefetch(w + AHEAD * block + v * W);
            for (int v = 0; v < vectors; v++) {
                const VW right = lane_load(w + v * W);
                even[v] = v_fma(even_of(left), even_of(right), even[v]);
                odd[v] = v_fma(odd_of(left), odd_of(right), odd[v]);
            }
        }
        for (int v = 0; v < vectors; v++) sum[v] += even[v] + odd[v];
    }
}
#endif

static inline __attribute__((always_inline)) void
multiply_outputs(int vectors, Number *out, const Number *x, const Lane *w, const float *bias, int block, int lanes) {
    const int chunk = (lanes * PER_LANE > 1024 ? 1024 : 512) / PER_LANE;
    V sum[ROW_VECTORS] = {0};
#if defined ACT_BF16 && defined __AVX512BF16__
    if (cpu_amx)
        multiply_panel_as_tiles(vectors, sum, x, w, block, lanes);
    else
#endif
        for (int k = 0; k < lanes; k += chunk) {
            V part[ROW_VECTORS] = {0};
            multiply_panel(vectors, part, x + (size_t)k * PER_LANE, w + (size_t)k * (size_t)block, block,
                           smaller(chunk, lanes - k));
            for (int v = 0; v < vectors; v++) sum[v] += part[v];
        }
    for (int v = 0; v < vectors; v++) act_store(out + v * W, bias ? sum[v] + v_load(bias + v * W) : sum[v]);
}

TEAM_LOOP(multiply_row_blocks, int, (Number *, out), (const Number *, in), (const Lane *, packed),
          (const float *, bias), (int, block), (int, lanes)) {
    for (int panel = first; panel < end; panel += block) {
        const Lane *w = packed + (size_t)panel * (size_t)lanes;
        for (int at = 0; at < block; at += ROW_VECTORS * W) {
            Number *to = out + panel + at;
            const float *its_bias = bias ? bias + panel + at : NULL;
            switch ((block - at) / W) {
            default:
                multiply_outputs(4, to, in, w + at, its_bias, block, lanes);
                break;
            case 3:
                multiply_outputs(3, to, in, w + at, its_bias, block, lanes);
                break;
            case 2:
                multiply_outputs(2, to, in, w + at, its_bias, block, lanes);
                break;
            case 1:
                multiply_outputs(1, to, in, w + at, its_bias, block, lanes);
                break;
            }
        }
    }
}

// out (rows) = in (cols) * w^T + bias (NULL: none); packed: w^T by pack_tile()
static void multiply_row(void *out, const void *in, const void *packed, const float *bias, int rows, int cols,
                         int block) {
    multiply_row_blocks(rows, block, out, in, packed, bias, block, cols / PER_LANE);
}

// Each element is one sum in the order of matmul_panels.h.
TEAM_LOOP(multiply_row_strips, int, (Number *, out), (const Number *, in), (const float *, w), (const float *, bias),
          (int, cols)) {
    for (int row = first; row < end; row += W) {
        const float *from = w + (size_t)row * (size_t)cols;
        const int rows = smaller(W, end - row);
        V sum = bias ? v_load_part(bias + row, rows) : v_set(0);
        for (int k = 0; k < cols; k += W) {
            VW block[W] = {0};
            for (int i = 0; i < rows; i++) __builtin_prefetch(from + (size_t)(i + W) * (size_t)cols + k);
            for (int i = 0; i < rows; i++) block[i] = (VW)v_load_part(from + (size_t)i * (size_t)cols + k, cols - k);
            v_transpose(block);
            for (int i = 0; i < smaller(W, cols - k); i++)
                sum = v_fma(v_set(number_float(in[k + i])), (V)block[i], sum);
        }
        act_store_part(out + row, sum, rows);
    }
}

// out (rows) = in (cols) * w^T + bias (NULL: none); w (rows, cols) as it is
static void multiply_row_plain(void *out, const void *in, const float *w, const float *bias, int rows, int cols) {
    multiply_row_strips(rows, W, out, in, w, bias, cols);
}
