// Shared by attention forward and backward: tiles of packed qkv (B,T,3,H,D) in shared memory. Kernels exist for head
// dimensions D of 64, 96 and 128; a smaller one (`width`, a multiple of 8) runs as the next of them, its missing
// columns read as zeros and never written.
#pragma once

#include "kernels/cuda/attention/wave_order.h"
#include "kernels/cuda/wgmma.cuh"

enum { TILE = ATTENTION_TILE };

// Turing: a block has at most 64 KiB of shared memory, and so has a multiprocessor. A kernel that needs more is not
// launched there, and of the others one block at a time has all registers.
template <size_t SHARED_BYTES> constexpr bool is_launched = ARCH >= 800 || SHARED_BYTES <= 64 << 10;
// Compute capability 12.0 spills with three, and its shared memory holds two.
template <int BLOCKS> constexpr int blocks_at_once = ARCH<800 ? 1 : ARCH >= 1200 && BLOCKS> 2 ? 2 : BLOCKS;

// Index of 16-byte chunk `chunk` of `row` in a tile W chunks wide. The xor spreads every eight rows that an ldmatrix
// reads over all the banks.
template <int W> INLINE int chunk_at(int row, int chunk) {
    return row * W + (chunk ^ (W % 8 == 0 ? row & 7 : W % 4 == 0 ? row >> 1 & 3 : row >> 2 & 1));
}

// The places of ldmatrix's four 8x8 matrices: rows by lane%16, then chunks (operand A; B of the transposed form) ...
template <int W> INLINE int rows_first(int row, int chunk, int lane) {
    return chunk_at<W>(row + (lane & 15), chunk + (lane >> 4));
}
// ... or chunks first, then rows (operand B; A of the transposed form).
template <int W> INLINE int chunks_first(int row, int chunk, int lane) {
    return chunk_at<W>(row + (lane & 7) + (lane >> 4) * 8, chunk + (lane >> 3 & 1));
}

// Starts the copy of rows [row, row + ROWS) of src, by THREADS threads; rows from T on and columns from width on are
// zeros.
template <int W, int ROWS, int THREADS>
INLINE void load_tile(uint4 *tile, const act *src, int stride, int row, int T, int width, int thread = threadIdx.x) {
    static_assert(ROWS * W % THREADS == 0, "whole rounds: a loop from thread to a bound would not be unrolled");
#pragma unroll
    for (int j = 0; j < ROWS * W / THREADS; j++) {
        int i = j * THREADS + thread, r = i / W, c = i % W;
        bool inside = row + r < T && c * 8 < width;
        cp_async16(tile + chunk_at<W>(r, c), src + (inside ? (row + r) * stride + c * 8 : 0), inside);
    }
}

// Which keys a query sees, besides the causal ones, and which of their weights dropout keeps (kernels/dropout_mask.h).
// A warp computes the bits of 16 queries and 16 keys, one Philox counter in each lane, before its products: at that
// point registers are free for it.
struct AttentionMask {
    const int32_t *starts;  // (B,T): the first key of each query; NULL: 0
    const Dropout *dropout; // NULL: none
    uint32_t layer_site;
};

// The first key that a query sees, without positions. Later ones see no earlier keys.
INLINE int first_key_at(const AttentionMask &mask, int b, int query, int T) {
    return mask.starts ? mask.starts[b * T + min(query, T - 1)] : 0;
}

// A warp's product has 16 rows: register e of accumulator n holds row g + 8(e >> 1) and column n*8 + 2*t4 + (e & 1),
// where g = lane/4 and t4 = lane%4. The rows of scores are queries, of transposed scores keys. query_of and key_of
// count from the lane's first query and key.
enum ScoreRows { QUERY_ROWS, KEY_ROWS };
template <ScoreRows ROWS> INLINE constexpr int query_of(int n, int e) {
    return ROWS == QUERY_ROWS ? (e >> 1) * 8 : n * 8 + (e & 1);
}
template <ScoreRows ROWS> INLINE constexpr int key_of(int n, int e) {
    return query_of < ROWS == QUERY_ROWS ? KEY_ROWS : QUERY_ROWS > (n, e);
}

// Hides the keys before the first one that a query sees. Keys of the tokens with which all texts of an item begin stay
// visible (Attention.positions; NULL: there are none). A query's first key is loaded once.
template <ScoreRows ROWS, int N>
INLINE void mask_scores(float (&s)[N][4], const AttentionMask &mask, int b, int query, int key, int T,
                        const int32_t *positions = NULL) {
#pragma unroll
    for (int q = 0; q < (ROWS == QUERY_ROWS ? 2 : 2 * N); q++) {
        const int from = ROWS == QUERY_ROWS ? q * 8 : q / 2 * 8 + q % 2;
        const int first = query + from < T ? mask.starts[b * T + query + from] : 0;
        const int shared = positions && query + from < T ? positions[b * T + query + from] - (query + from - first) : 0;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int k = key + key_of<ROWS>(n, e);
                if (query_of<ROWS>(n, e) == from && !(positions && k < shared) && k < first) s[n][e] = -INFINITY;
            }
    }
}
template <ScoreRows ROWS> INLINE bool is_later_key(int n, int e, int query, int key) {
    return key + key_of<ROWS>(n, e) > query + query_of<ROWS>(n, e);
}

// Hides the keys after their query.
template <ScoreRows ROWS, int N> INLINE void hide_later_keys(float (&s)[N][4], int query, int key) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (is_later_key<ROWS>(n, e, query, key)) s[n][e] = -INFINITY;
}

// Bit k of lane 2*q: key first_key + k of query first_query + q of the head is kept. first_key: a multiple of 8.
INLINE uint32_t kept_weights(const AttentionMask &mask, int b, int h, int first_query, int first_key, int T, int lane) {
    const Dropout dropout = *mask.dropout;
    const uint32_t row = (uint32_t)(h * T + first_query + lane / 2), groups = (uint32_t)(T + 7) / 8;
    uint32_t bits[4] = {row * groups + (uint32_t)first_key / 8 + (lane & 1), dropout.first_sample + (uint32_t)b,
                        dropout.step, mask.layer_site};
    philox(bits, dropout.seed[0], dropout.seed[1]);
    uint32_t kept = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) kept |= (uint32_t)((bits[k / 2] >> k % 2 * 16 & 0xffffu) >= dropout.threshold) << k;
    return kept | __shfl_xor_sync(0xffffffffu, kept, 1) << 8;
}

template <ScoreRows ROWS> INLINE constexpr int kept_bit(int n, int e) {
    return ROWS == QUERY_ROWS ? (n & 1) * 8 + (n >> 1) * 2 + (e & 1) + (e >> 1) * 16
                              : (n >> 2) * 16 + (n & 3) * 2 + (e & 1) + (e >> 1) * 8;
}

// The bits of a lane's scores, 16 rows and COLUMNS columns from (first_query, first_key): bit kept_bit(n, e) is for
// register e of accumulator n.
template <ScoreRows ROWS, int COLUMNS>
INLINE uint32_t kept_scores(const AttentionMask &mask, int b, int h, int first_query, int first_key, int T, int lane) {
    static_assert(COLUMNS <= 64, "32 bits: four for eight columns");
    const int g = lane >> 2, t4 = lane & 3;
    uint32_t kept = 0;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n += 2) {
        const int column = n * 8;
        if (ROWS == QUERY_ROWS) {
            uint32_t rows = kept_weights(mask, b, h, first_query, first_key + column, T, lane);
            uint32_t low_row = __shfl_sync(0xffffffffu, rows, 2 * g);
            uint32_t high_row = __shfl_sync(0xffffffffu, rows, 2 * g + 16);
            kept |= ((low_row | high_row << 16) >> t4 * 2 & 0x03030303u) << n;
            continue;
        }
        uint32_t rows = kept_weights(mask, b, h, first_query + column, first_key, T, lane);
#pragma unroll
        for (int q = 0; q < 4; q++)
            kept |= (__shfl_sync(0xffffffffu, rows, 2 * (q / 2 * 8 + 2 * t4 + (q & 1))) >> g & 0x101u)
                    << kept_bit<ROWS>(n + q / 2, q & 1);
    }
    return kept;
}

// Dropout of a lane's weights, or of their gradients: kept values are multiplied by `scale`.
template <ScoreRows ROWS, int N> INLINE void drop_scores(float (&x)[N][4], uint32_t kept, float scale) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[n][e] = kept >> kept_bit<ROWS>(n, e) & 1 ? x[n][e] * scale : 0;
}

// Dropout of packed weights.
template <int N> INLINE void drop_packed(uint32_t (&p)[N][4], uint32_t kept) {
#pragma unroll
    for (int n = 0; n < 2 * N; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t pair = kept >> kept_bit<KEY_ROWS>(n, 2 * r);
            p[n >> 1][(n & 1) * 2 + r] &= (pair & 1 ? 0xffffu : 0) | (pair & 2 ? 0xffff0000u : 0);
        }
}

// The scores of accumulator n become weights. lse: of the two queries of the four registers, in powers of two.
// diagonal: there may be keys after their query.
template <ScoreRows ROWS>
INLINE void weigh_scores(float (&s)[4], const float (&lse)[2], float scale, bool diagonal, int n, int query, int key) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        s[e] = exp2_fast(s[e] * scale - lse[ROWS == QUERY_ROWS ? e >> 1 : e & 1]);
        if (diagonal && is_later_key<ROWS>(n, e, query, key)) s[e] = 0; // in `mask_scores` it would take registers
    }
}

// The same, and dp, the gradients of weights, become gradients of scores. of_query: the statistics of the two queries.
template <ScoreRows ROWS>
INLINE void gradient_of_scores(float (&s)[4], float (&dp)[4], const float2 (&of_query)[2], float scale, bool diagonal,
                               int n, int query, int key) {
    const float lse[2] = {of_query[0].x, of_query[1].x};
    weigh_scores<ROWS>(s, lse, scale, diagonal, n, query, key);
#pragma unroll
    for (int e = 0; e < 4; e++) dp[e] = s[e] * (dp[e] - of_query[ROWS == QUERY_ROWS ? e >> 1 : e & 1].y);
}

// Accumulators of 16 columns += a * b.
INLINE void add_product(float (*sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
    mma_16x8x16(sums[0], a, b[0], b[1]);
    mma_16x8x16(sums[1], a, b[2], b[3]);
}

// The part of a block in a grid (blocks of rows, heads, sequences). `last` counts from the last rows of a sequence,
// which see the most keys. wave: the multiprocessors that share a grid which runs at once; 0: a longer one.
struct RowsOfBlock {
    int last, h, b;
};
INLINE RowsOfBlock rows_of_block(int wave, int together = 1) {
    const int blocks = gridDim.x, heads = gridDim.y * gridDim.z;
    const int id = blockIdx.x + blocks * (blockIdx.y + gridDim.y * blockIdx.z);
    const BlockOfHead x = wave ? block_of_head(wave_rank(id, blocks * heads, wave), blocks, heads, heads)
                               : block_of_head(id, blocks, heads, together);
    return {x.rank, x.head % (int)gridDim.y, x.head / (int)gridDim.y};
}

// How many blocks a multiprocessor has at once.
template <class K> static inline int resident_blocks(K kernel, int threads, size_t bytes) {
    int blocks = 0;
    cuda_check(BLOCKS_PER_MULTIPROCESSOR(&blocks, kernel, threads, bytes), "attention");
    return blocks;
}

// The `wave` of a grid, of blocks of which a multiprocessor has so many at once.
static inline int wave_of(dim3 grid, int resident) {
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    return blocks <= (size_t)resident * cuda.multiprocessors ? cuda.multiprocessors : 0;
}

static inline AttentionMask attention_mask(const Attention &a) {
    return {a.starts, a.dropout, (uint32_t)(a.layer * DROPOUT_SITES + DROPOUT_ATTENTION)};
}

// On compute capability 9.0, by code that was compiled for it, heads of 64 channels; tiles are not larger than a
// sequence.
static inline bool attention_by_tma(const Attention &a) {
    return cuda.wgmma && (cuda_attention_form == ATTENTION_AUTO || cuda_attention_form == ATTENTION_TMA) && a.D == 64 &&
           a.T >= TILE;
}

// The arguments of attention_backward, and its arrays in scratch memory.
struct AttentionGradient {
    Act *dqkv;
    const Act *dout, *qkv;
    Attention a;
    float4 *dq_sums;    // (B,H,padded,width): of a tile so far
    float2 *statistics; // (B,H,padded/2,2): attention_statistics
    int *turns;         // a ticket, and how many blocks have added to each tile of dq_sums
    int turn_count, padded;
};

void FOR_ACT(attention_gradient_by_tma)(const AttentionGradient &c);
void FOR_ACT(attention_forward_by_tma)(Act *out, float *lse, const Act *qkv, const Attention &a);
