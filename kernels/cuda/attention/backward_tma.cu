// backward.cu for heads of 64 channels on compute capability 9.0. A block has three warpgroups that multiply, of 64
// keys each, and one that copies. S^T = K Q^T and dP^T = V dO^T leave P^T and dS^T in registers as operands of dV and
// dK; dS^T also goes to shared memory, where one warpgroup after another turns it into the block's part of a tile of
// dQ.
//
// A block goes through its tiles of queries from the last that sees its keys down to its diagonal. A tile's parts of dQ
// are added in memory in the order of the blocks, which is the order of their tickets, and the diagonal's block, the
// last, adds its own in registers. As all blocks of a head begin with the same tiles, a block that is one step later
// does not wait. One thread of the copying warpgroup adds the parts, so that no product waits for a block's turn.
#ifndef ACT_FP32
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/tma.cuh"

namespace {

enum {
    GROUPS = 3,
    SIDE = 64, // queries, and keys of a warpgroup, of a product
    KEYS = GROUPS * SIDE,
    GROUP_THREADS = 128,
    THREADS = (GROUPS + 1) * GROUP_THREADS,
    CHUNKS = SIDE / 8,
    STAGES = 3,             // of Q and dO
    SLOTS = 2,              // of dS, and of sums
    LAG = 1,                // steps until dS of a tile is dQ
    SUMS = SIDE * SIDE / 4, // float4, of a tile
    SUM_BYTES = SUMS * (int)sizeof(float4),
    ROW_BYTES = SIDE * (int)sizeof(float2), // of statistics
    TILES_TOGETHER = 1536,                  // of queries, of the heads that are computed together
    COPYING_REGISTERS = 32,                 // of a thread: 32 + 3 * 160 = 4 * 128
    MULTIPLYING_REGISTERS = 160
};
// A wait tests the parity of a phase: a thread must neither miss a phase that ended nor take an older one for it.
static_assert(STAGES >= 2 && SLOTS >= 2 && SLOTS >= STAGES - 1 && LAG >= 1 && LAG <= 2, "copy_tiles, sum_queries");

// Stages and slots are used in turn. `landed`: Q and dO of a tile; filled, emptied: dS; given: a part of dQ; taken: it
// has been read.
struct Tiles {
    uint4 k[GROUPS][SIDE * CHUNKS], v[GROUPS][SIDE * CHUNKS];
    uint4 q[STAGES][SIDE * CHUNKS], o[STAGES][SIDE * CHUNKS];
    uint4 ds[SLOTS][GROUPS][SIDE * CHUNKS]; // (keys, queries)
    float4 sums[SLOTS][SUMS];
    float4 statistics[STAGES][SIDE / 2]; // of two queries each
    Barrier landed[STAGES], filled[SLOTS], emptied[SLOTS], given[SLOTS], taken[SLOTS];
    int ticket;
};

// KEYS keys from kb * KEYS on, of one head of one sequence.
struct KeyBlock {
    AttentionMask mask;
    int kb, b, h, T, stride; // stride: of qkv
    int steps;               // tiles of queries that see a key
    float root;
    float4 *sums; // of the head's tiles in memory
    int *turns;   // of them: how many blocks have added theirs
};

} // namespace

INLINE int first_tile(const KeyBlock &block) { return block.kb * GROUPS; }
INLINE int tile_of(const KeyBlock &block, int step) { return first_tile(block) + block.steps - 1 - step; }
// The first key that a tile of queries sees.
INLINE int first_key_of(const KeyBlock &block, int tile) {
    return first_key_at(block.mask, block.b, tile * SIDE, block.T);
}
// Does a query of the tile see a key of the warpgroup?
INLINE bool sees(const KeyBlock &block, int tile, int group) {
    return tile >= first_tile(block) + group && first_key_of(block, tile) < block.kb * KEYS + (group + 1) * SIDE;
}
// How many blocks add to dQ of the tile before this one; is this one the last?
INLINE int before(const KeyBlock &block, int tile) { return block.kb - first_key_of(block, tile) / KEYS; }
INLINE bool is_last(const KeyBlock &block, int tile) { return tile < first_tile(block) + GROUPS; }

// The steps of a block; first keys do not fall from tile to tile.
INLINE int steps_of(const KeyBlock &block) {
    int least = 1, most = (block.T - 1) / SIDE + 1 - first_tile(block);
    if (!block.mask.starts) return most;
    while (least < most) {
        const int middle = (least + most + 1) / 2;
        if (first_key_of(block, first_tile(block) + middle - 1) < (block.kb + 1) * KEYS)
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

// The block of a ticket.
INLINE KeyBlock block_of(int ticket, const AttentionMask &mask, int B, int T, int H, float4 *sums, int *turns) {
    const int tiles = (T + SIDE - 1) / SIDE;
    const BlockOfHead x = block_of_head(ticket, (T + KEYS - 1) / KEYS, B * H, max(TILES_TOGETHER / tiles, 1));
    KeyBlock block = {mask,
                      x.rank,
                      x.head / H,
                      x.head % H,
                      T,
                      3 * H * SIDE,
                      0,
                      rsqrtf((float)SIDE),
                      sums + (size_t)x.head * tiles * SUMS,
                      turns + (size_t)x.head * tiles};
    block.steps = steps_of(block);
    return block;
}

// A thread that has tiles of Q and dO copied while there is room, with the first the keys and values.
INLINE void copy_tiles(Tiles &tiles, const KeyBlock &block, const TensorMap &qkv, const TensorMap &dout,
                       const float2 *statistics, int H) {
    for (int n = 0; n < block.steps; n++) {
        const int tile = tile_of(block, n), stage = n % STAGES;
        Barrier *landed = &tiles.landed[stage];
        // the step after the one STAGES before, whose products have been waited for
        const int last = n + 1 - STAGES;
        if (last > 0) barrier_wait(&tiles.filled[last % SLOTS], last / SLOTS & 1);
        barrier_arrive_with(landed, 2 * TILE_BYTES + ROW_BYTES + (n ? 0 : 2 * GROUPS * TILE_BYTES));
        for (int group = 0; group < (n ? 0 : GROUPS); group++) {
            const int key = block.kb * KEYS + group * SIDE;
            copy_tile(tiles.k[group], qkv, H + block.h, key, block.b, landed);
            copy_tile(tiles.v[group], qkv, 2 * H + block.h, key, block.b, landed);
        }
        copy_tile(tiles.q[stage], qkv, block.h, tile * SIDE, block.b, landed);
        copy_tile(tiles.o[stage], dout, block.h, tile * SIDE, block.b, landed);
        copy_bytes(tiles.statistics[stage], statistics + tile * SIDE, ROW_BYTES, landed);
    }
}

// A thread that adds the block's parts of dQ to the sums in memory, in turn, or stores a tile's first.
INLINE void add_parts(Tiles &tiles, const KeyBlock &block) {
    for (int n = 0; n < block.steps - GROUPS; n++) {
        const int tile = tile_of(block, n), turn = before(block, tile), slot = n % SLOTS;
        barrier_wait(&tiles.given[slot], n / SLOTS & 1);
        if (turn) {
            WAIT_UNTIL(load_acquire(block.turns + tile) == turn);
            memory_fence();
        }
        bulk_store(block.sums + tile * SUMS, tiles.sums[slot], SUM_BYTES, turn);
        bulk_commit();
        bulk_wait_read();
        barrier_arrive(&tiles.taken[slot]);
        bulk_wait();
        store_release(block.turns + tile, turn + 1);
    }
}

// Words of the four lanes of a row, transposed: word i of lane j becomes word j of lane i.
INLINE void transpose_words(uint32_t (&x)[4]) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & bit) continue;
            const bool odd = threadIdx.x & bit;
            const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i | bit], bit);
            (odd ? x[i] : x[i | bit]) = other;
        }
}

// The warp's 16 rows of a head, from `row` on, times `scale`; to: row 0 of the sequence. In whole sectors.
INLINE void store_rows(act *to, const float (&x)[8][4], float scale, int row, const KeyBlock &block) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[i] = pack(x[half * 4 + i][2 * r] * scale, x[half * 4 + i][2 * r + 1] * scale);
            transpose_words(words);
            const int at = row + lane / 4 + r * 8;
            uint4 *const chunk = (uint4 *)(to + at * block.stride + half * 32 + lane % 4 * 8);
            if (at < block.T) __stcg(chunk, make_uint4(words[0], words[1], words[2], words[3])); // which is not split
        }
}

// The warpgroup's turn: dS of a step into the block's part of dQ, which goes to tiles.sums, or with the parts of the
// blocks before to dq, row 0 of the sequence.
INLINE void sum_queries(Tiles &tiles, const KeyBlock &block, int step, act *dq) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, place = warp * 8 * 32 + lane;
    const int tile = tile_of(block, step), slot = step % SLOTS;
    const bool last = is_last(block, tile);
    const int turn = last ? before(block, tile) : 0;
    float a[8][4] = {};
    if (turn) {
        WAIT_UNTIL(load_acquire(block.turns + tile) == turn);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float4 x = __ldcg(block.sums + tile * SUMS + place + n * 32);
            a[n][0] = x.x, a[n][1] = x.y, a[n][2] = x.z, a[n][3] = x.w;
        }
    }
    barrier_wait(&tiles.filled[slot], step / SLOTS & 1);
    wgmma_fence();
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM, TERM>(a, tiles.ds[slot][group], tiles.k[group], kk);
    wgmma_commit();
    wgmma_wait<0>(a);
    if (lane == 0) barrier_arrive(&tiles.emptied[slot]);
    if (last) return store_rows(dq, a, block.root, tile * SIDE + warp * 16, block);
    barrier_wait(&tiles.taken[slot], (step / SLOTS & 1) ^ 1);
#pragma unroll
    for (int n = 0; n < 8; n++)
        put_async(tiles.sums[slot] + place + n * 32, make_float4(a[n][0], a[n][1], a[n][2], a[n][3]));
    arrive_with_writes(&tiles.given[slot]);
}

// Scores become weights, and `p` those as an operand.
INLINE void weigh_keys(uint32_t (&p)[4][4], float (&s)[8][4], const float2 (&lse)[8], float scale) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
        weigh_scores<KEY_ROWS>(s[n], {lse[n].x, lse[n].y}, scale, false, n, 0, 0);
#pragma unroll
        for (int r = 0; r < 2; r++) p[n >> 1][(n & 1) * 2 + r] = pack(s[n][2 * r], s[n][2 * r + 1]);
    }
}

// dS of weights and their gradients, as an operand and in a tile of shared memory. of_queries: the lane's statistics.
INLINE void put_gradients(uint32_t (&ds)[4][4], uint4 *tile, const float (&s)[8][4], const float (&dp)[8][4],
                          const float4 *of_queries) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float2 sums = ((const float2 *)(of_queries + n * 4))[1];
#pragma unroll
        for (int r = 0; r < 2; r++)
            ds[n >> 1][(n & 1) * 2 + r] =
                pack(s[n][2 * r] * (dp[n][2 * r] - sums.x), s[n][2 * r + 1] * (dp[n][2 * r + 1] - sums.y));
    }
    // After all loads, which may not move before a store; chunk_at(row + r * 8, n), of which the first row is computed
    // once.
    char *const first = (char *)(tile + row * CHUNKS);
    const int chunk = (row & 7) << 4 | lane % 4 << 2;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            put_async((uint32_t *)(first + (chunk ^ n << 4) + r * 8 * CHUNKS * 16), ds[n >> 1][(n & 1) * 2 + r]);
}

// dS of a tile that does not see the warpgroup's keys.
INLINE void put_zeros(uint4 *tile) {
#pragma unroll
    for (int i = 0; i < SIDE * CHUNKS / GROUP_THREADS; i++)
        put_async(tile + i * GROUP_THREADS + threadIdx.x % GROUP_THREADS, make_uint4(0, 0, 0, 0));
}

// A warpgroup of SIDE keys: dK and dV of them, dS of each tile, and its turns at dQ; dq: as above, and dK and dV.
INLINE void multiply_tiles(Tiles &tiles, const KeyBlock &block, int group, act *dq) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    const int first_key = block.kb * KEYS + group * SIDE + warp * 16;
    const AttentionMask &mask = block.mask;
    const float scale_of_kept = mask.dropout ? mask.dropout->scale : 1, scale = LOG2E * block.root;
    float dk[8][4] = {}, dv[8][4] = {};
    for (int n = 0; n < block.steps + LAG; n++) {
        const int tile = tile_of(block, n), stage = n % STAGES, slot = n % SLOTS, reused = (n / SLOTS & 1) ^ 1;
        // the last turns belong to groups that see no key of the last tiles
        if (n >= LAG && (block.steps + 1 - n) % GROUPS == group) sum_queries(tiles, block, n - LAG, dq);
        if (n >= block.steps) continue;
        barrier_wait(&tiles.landed[stage], n / STAGES & 1);
        if (!sees(block, tile, group)) {
            barrier_wait(&tiles.emptied[slot], reused);
            put_zeros(tiles.ds[slot][group]);
            arrive_with_writes(&tiles.filled[slot]);
            continue;
        }
        const int query = tile * SIDE + 2 * t4, key = first_key + g;
        const float4 *of_queries = tiles.statistics[stage] + t4;
        uint32_t kept = 0;
        if (mask.dropout)
            kept = kept_scores<KEY_ROWS, SIDE>(mask, block.b, block.h, tile * SIDE, first_key, block.T, lane);
        float s[8][4], dp[8][4];
        uint32_t p[4][4], ds[4][4];
        float2 lse[8]; // read before products keep the shared memory busy
#pragma unroll
        for (int i = 0; i < 8; i++) lse[i] = *(const float2 *)(of_queries + i * 4);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < CHUNKS / 2; d++) wgmma<LINE, LINE>(s, tiles.k[group], tiles.q[stage], d, d > 0);
        wgmma_commit();
#pragma unroll
        for (int d = 0; d < CHUNKS / 2; d++) wgmma<LINE, LINE>(dp, tiles.v[group], tiles.o[stage], d, d > 0);
        wgmma_commit();
        wgmma_wait<1>(s);
        if (first_key_at(mask, block.b, tile * SIDE + SIDE - 1, block.T) > block.kb * KEYS + group * SIDE)
            mask_scores<KEY_ROWS>(s, mask, block.b, query, key, block.T);
        if (tile == first_tile(block) + group) hide_later_keys<KEY_ROWS>(s, query, key);
        weigh_keys(p, s, lse, scale);
        if (mask.dropout) drop_packed(p, kept);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM>(dv, p[kk], tiles.o[stage], kk);
        wgmma_commit();
        wgmma_wait<1>(dp);
        if (mask.dropout) drop_scores<KEY_ROWS>(dp, kept, scale_of_kept);
        barrier_wait(&tiles.emptied[slot], reused);
        put_gradients(ds, tiles.ds[slot][group], s, dp, of_queries);
        arrive_with_writes(&tiles.filled[slot]);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM>(dk, ds[kk], tiles.q[stage], kk);
        wgmma_commit();
        wgmma_wait<0>(dv), wgmma_wait<0>(dk);
    }
    store_rows(dq + block.stride / 3, dk, block.root, first_key, block);
    store_rows(dq + 2 * (block.stride / 3), dv, scale_of_kept, first_key, block);
}

__global__ void __launch_bounds__(THREADS, 1)
    attention_gradient_tma(act *__restrict__ dqkv, float4 *__restrict__ sums, int *__restrict__ turns,
                           const __grid_constant__ TensorMap qkv, const __grid_constant__ TensorMap dout,
                           const float2 *__restrict__ statistics, AttentionMask mask, int B, int T, int padded, int H) {
    if (!has_wgmma) return;
    DYNAMIC_SHARED(uint4, memory);
    Tiles &tiles = *(Tiles *)memory;
    if (threadIdx.x == 0) {
        const int ticket = atomicAdd(turns, 1); // a block that is waited for has already started
        prefetch_map(qkv), prefetch_map(dout);
        for (int i = 0; i < STAGES; i++) barrier_open(&tiles.landed[i], 1);
        for (int i = 0; i < SLOTS; i++) { // a thread of each warp arrives, or one that copies
            barrier_open(&tiles.filled[i], GROUPS * 4);
            barrier_open(&tiles.emptied[i], 4);
            barrier_open(&tiles.given[i], 4);
            barrier_open(&tiles.taken[i], 1);
        }
        barriers_opened();
        tiles.ticket = ticket;
    }
    __syncthreads();
    const int ticket = __shfl_sync(0xffffffffu, tiles.ticket, 0);
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS, 0);
    const KeyBlock block = block_of(ticket, mask, B, T, H, sums, turns + 1);
    if (group == GROUPS) {
        give_registers<COPYING_REGISTERS>();
        if (threadIdx.x == GROUPS * GROUP_THREADS)
            copy_tiles(tiles, block, qkv, dout, statistics + (size_t)(block.b * H + block.h) * padded, H);
        if (threadIdx.x == GROUPS * GROUP_THREADS + 32) add_parts(tiles, block);
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        multiply_tiles(tiles, block, group, dqkv + (size_t)block.b * T * block.stride + block.h * SIDE);
    }
}

void FOR_ACT(attention_gradient_by_tma)(const AttentionGradient &c) {
    static const cudaError_t allowed = ALLOW_SHARED(attention_gradient_tma, (int)sizeof(Tiles));
    cuda_check(allowed, "attention_backward");
    LAUNCH(attention_gradient_tma, blocks_of((size_t)c.a.T, KEYS) * (unsigned)(c.a.B * c.a.H), THREADS, sizeof(Tiles),
           cuda.stream, (act *)c.dqkv, c.dq_sums, c.turns, tensor_map(c.qkv, c.a.B, c.a.T, 3 * c.a.H, c.a.D, SIDE),
           tensor_map(c.dout, c.a.B, c.a.T, c.a.H, c.a.D, SIDE), (const float2 *)c.statistics, attention_mask(c.a),
           c.a.B, c.a.T, c.padded, c.a.H);
}
#endif
