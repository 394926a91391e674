// What attention forward and backward share: tiles of packed qkv (B,T,3,H,D) in shared memory. Kernels exist for head
// dimensions D of 64, 96 and 128; a smaller one (`width`, a multiple of 8) runs as the next of them, its missing
// columns read as zeros and never written.
#pragma once

#include "kernels/cuda/wgmma.cuh"

enum { TILE = 64 }; // rows of scratch are padded to it

// Turing: a block has at most 64 KiB of shared memory, and so has a multiprocessor. What needs more is not launched
// there, and of the rest one block at a time has all registers.
template <size_t SHARED_BYTES> constexpr bool is_launched = ARCH >= 800 || SHARED_BYTES <= 64 << 10;
// Compute capability 12.0 spills with three, and its shared memory holds two.
template <int BLOCKS> constexpr int blocks_at_once = ARCH<800 ? 1 : ARCH >= 1200 && BLOCKS> 2 ? 2 : BLOCKS;

// Index of 16-byte chunk `chunk` of `row` in a tile W chunks wide. The xor spreads every eight rows that an ldmatrix
// reads over all the banks.
template <int W> INLINE int chunk_at(int row, int chunk) {
    return row * W + (chunk ^ (W % 8 == 0 ? row & 7 : W % 4 == 0 ? row >> 1 & 3 : row >> 2 & 1));
}

// Where ldmatrix reads its four 8x8 matrices: rows by lane%16, then chunks (operand A; B of the transposed form) ...
template <int W> INLINE int rows_first(int row, int chunk, int lane) {
    return chunk_at<W>(row + (lane & 15), chunk + (lane >> 4));
}
// ... or chunks first, then rows (operand B; A of the transposed form).
template <int W> INLINE int chunks_first(int row, int chunk, int lane) {
    return chunk_at<W>(row + (lane & 7) + (lane >> 4) * 8, chunk + (lane >> 3 & 1));
}

// Starts the copy of rows [row, row + ROWS) of src; rows from T on and columns from width on are zeros.
template <int W, int ROWS, int THREADS>
INLINE void load_tile(uint4 *tile, const act *src, int stride, int row, int T, int width) {
    static_assert(ROWS * W % THREADS == 0, "whole rounds: a loop from threadIdx.x to a bound would not be unrolled");
#pragma unroll
    for (int j = 0; j < ROWS * W / THREADS; j++) {
        int i = j * THREADS + threadIdx.x, r = i / W, c = i % W;
        bool inside = row + r < T && c * 8 < width;
        cp_async16(tile + chunk_at<W>(r, c), src + (inside ? (row + r) * stride + c * 8 : 0), inside);
    }
}

// What the weights are besides causal. starts: the first key of each query, NULL: 0. mask: dropout, by the masks of
// kernels/dropout_mask.h, NULL: none. A warp computes the bits of 16 queries and 16 keys, a Philox counter a lane,
// before its products: then there are registers for it.
struct Weights {
    const int32_t *starts;
    const Dropout *mask;
    uint32_t layer_site;
};

INLINE int first_key_of(const Weights &weights, int b, int query, int T) {
    return query < T ? weights.starts[b * T + query] : 0;
}

// Bit k of lane 2*q: key first_key + k of query first_query + q of the head is kept. first_key: a multiple of 8.
INLINE uint32_t kept_weights(const Weights &weights, int b, int h, int first_query, int first_key, int T, int lane) {
    const Dropout mask = *weights.mask;
    const uint32_t row = (uint32_t)(h * T + first_query + lane / 2), groups = (uint32_t)(T + 7) / 8;
    uint32_t bits[4] = {row * groups + (uint32_t)first_key / 8 + (lane & 1), mask.first_sample + (uint32_t)b, mask.step,
                        weights.layer_site};
    philox(bits, mask.seed[0], mask.seed[1]);
    uint32_t kept = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) kept |= (uint32_t)((bits[k / 2] >> k % 2 * 16 & 0xffffu) >= mask.threshold) << k;
    return kept | __shfl_xor_sync(0xffffffffu, kept, 1) << 8;
}

// The bits of a lane's scores, which are those of queries g and g+8 and of keys n*8 + 2*t4 + (0, 1), n < KEYS/8, from
// first_key: bit kept_bit(n, e) of the result for register e of accumulator n.
template <int KEYS>
INLINE uint32_t kept_scores(const Weights &weights, int b, int h, int first_query, int first_key, int T, int lane) {
    static_assert(KEYS <= 64, "32 bits: four for eight keys");
    uint32_t kept = 0;
#pragma unroll
    for (int pair = 0; pair < KEYS / 16; pair++) {
        uint32_t rows = kept_weights(weights, b, h, first_query, first_key + pair * 16, T, lane);
        uint32_t low_row = __shfl_sync(0xffffffffu, rows, lane >> 2 << 1);
        uint32_t high_row = __shfl_sync(0xffffffffu, rows, (lane >> 2 << 1) + 16);
        kept |= ((low_row | high_row << 16) >> (lane & 3) * 2 & 0x03030303u) << pair * 2;
    }
    return kept;
}
INLINE constexpr int kept_bit(int n, int e) { return (n & 1) * 8 + (n >> 1) * 2 + (e & 1) + (e >> 1) * 16; }

static inline Weights weights_of(const int32_t *starts, const Dropout *dropout, int layer) {
    return {starts, dropout, (uint32_t)(layer * DROPOUT_SITES + DROPOUT_ATTENTION)};
}

// The kernel width for a head of D channels.
static inline int attention_width(int D) {
    assert(D % 8 == 0 && D <= HEAD_MAX);
    return D <= 64 ? 64 : D <= 96 ? 96 : 128;
}

// Are heads of up to 64 channels for wgmma: on compute capability 9.0, by code that was compiled for it?
static inline bool attention_by_wgmma(void) {
    return cuda.wgmma && (cuda_attention_form == ATTENTION_AUTO || cuda_attention_form == ATTENTION_WGMMA);
}
