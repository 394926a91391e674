// What the two kernels of the gradient by wgmma share: blocks of three warpgroups of 64 keys each, and what a warpgroup
// does with a tile of 64 queries between its products. Registers are laid out as those of keys by queries.
#pragma once

#include "kernels/cuda/attention/attention.cuh"

enum {
    GROUPS = 3,
    SIDE = 64, // queries, and keys of a warpgroup, of a product
    KEYS = GROUPS * SIDE,
    GROUP_THREADS = 128,
    CHUNKS = SIDE / 8
};

// A block: KEYS keys from kb * KEYS on, of one head of one sequence.
struct KeyBlock {
    AttentionMask mask;
    int kb, b, h, T, width, stride; // stride: of qkv
    float root;
};

INLINE int first_tile(const KeyBlock &block) { return block.kb * GROUPS; }
// The first key that a tile of queries sees.
INLINE int first_key_of(const KeyBlock &block, int tile) {
    return block.mask.starts ? block.mask.starts[block.b * block.T + tile * SIDE] : 0;
}
// Does a query of the tile see a key of the warpgroup?
INLINE bool sees(const KeyBlock &block, int tile, int group) {
    return tile >= first_tile(block) + group && first_key_of(block, tile) < block.kb * KEYS + (group + 1) * SIDE;
}
// Neither this tile of queries nor a later one sees a key of the block.
INLINE bool is_over(const KeyBlock &block, int tile) {
    return tile >= (block.T + SIDE - 1) / SIDE || first_key_of(block, tile) >= (block.kb + 1) * KEYS;
}
// How many blocks add to dQ of the tile before this one, the diagonal's first; is this one the last?
INLINE int before(const KeyBlock &block, int tile) { return tile / GROUPS - block.kb; }
INLINE bool is_last(const KeyBlock &block, int tile) { return first_key_of(block, tile) >= block.kb * KEYS; }

// Scores become weights, and `p` those as an operand. of_queries: the statistics of queries, two after two.
INLINE void weigh_keys(uint32_t (&p)[4][4], float (&s)[8][4], const float4 *of_queries, float scale, bool diagonal,
                       int query, int key) {
    if (diagonal) hide_later_keys<KEY_ROWS>(s, query, key);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float4 x = of_queries[n * 4];
        weigh_scores<KEY_ROWS>(s[n], {x.x, x.z}, scale, false, n, query, key);
#pragma unroll
        for (int r = 0; r < 2; r++) p[n >> 1][(n & 1) * 2 + r] = pack(s[n][2 * r], s[n][2 * r + 1]);
    }
}

// dS of weights and their gradients, as an operand and in a tile of shared memory from the lane's first row on.
INLINE void put_gradients(uint32_t (&ds)[4][4], uint4 *tile, const float (&s)[8][4], const float (&dp)[8][4],
                          const float4 *of_queries, int row, int t4) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float4 x = of_queries[n * 4];
        const float sums[2] = {x.y, x.w};
#pragma unroll
        for (int r = 0; r < 2; r++)
            ds[n >> 1][(n & 1) * 2 + r] =
                pack(s[n][2 * r] * (dp[n][2 * r] - sums[0]), s[n][2 * r + 1] * (dp[n][2 * r + 1] - sums[1]));
    }
    // Behind all loads, which may not move before a store; chunk_at(row + r * 8, n), of which the first row is computed once.
    char *const first = (char *)(tile + row * CHUNKS);
    const int chunk = (row & 7) << 4 | t4 << 2;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            put_async((uint32_t *)(first + (chunk ^ n << 4) + r * 8 * CHUNKS * 16), ds[n >> 1][(n & 1) * 2 + r]);
}

// dK of the warp's 16 keys from `key` on, and behind it dV; to: row 0 of the sequence.
INLINE void store_keys(act *to, const float (&dk)[8][4], const float (&dv)[8][4], const KeyBlock &block, int key,
                       float scale_of_kept) {
    const int lane = threadIdx.x % 32, to_values = block.stride / 3;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = key + (lane >> 2) + r * 8;
            if (row >= block.T || n * 8 >= block.width) continue;
            act *at = to + row * block.stride + n * 8 + 2 * (lane & 3);
            *(uint32_t *)at = pack(dk[n][2 * r] * block.root, dk[n][2 * r + 1] * block.root);
            *(uint32_t *)(at + to_values) = pack(dv[n][2 * r] * scale_of_kept, dv[n][2 * r + 1] * scale_of_kept);
        }
}
