// backward.cu for heads of 64 channels on compute capability 9.0, with a warpgroup that only copies. Three
// warpgroups of 64 keys each multiply, independent of each other as far as the stages of shared memory allow; one after
// another they turn dS of a tile into this block's part of its dQ. A warp has copies of Q and dO made ahead of them, and
// another one adds the parts to the sums in memory, in the order of the blocks: what it waits for holds up no product.
#ifndef ACT_FP32
#include "kernels/cuda/attention/backward_keys.cuh"
#include "kernels/cuda/attention/tma.cuh"

namespace {

enum {
    THREADS = (GROUPS + 1) * GROUP_THREADS,
    STAGES = 4, // of Q and dO
    SLOTS = 3,  // of dS
    LAG = 2,    // steps until dS of a tile is dQ: other warpgroups are not waited for
    TILE_BYTES = SIDE * SIDE * (int)sizeof(act),
    SUM_BYTES = SIDE * SIDE * (int)sizeof(float),
    ROW_BYTES = SIDE * (int)sizeof(float2), // of statistics
    COPYING_REGISTERS = 32,                 // of a thread: 32 + 3 * 160 = 4 * 128
    MULTIPLYING_REGISTERS = 160
};

// Stages and slots are used in turn. `landed`: Q and dO of a tile; filled, emptied: dS; ready: what memory has of a
// tile's sums, or room for a part of them; given: that part.
struct Tiles {
    uint4 k[GROUPS][SIDE * CHUNKS], v[GROUPS][SIDE * CHUNKS];
    uint4 q[STAGES][SIDE * CHUNKS], o[STAGES][SIDE * CHUNKS];
    uint4 ds[SLOTS][GROUPS][SIDE * CHUNKS]; // (keys, queries)
    float4 sums[2][SIDE * SIDE / 4];
    float4 statistics[STAGES][SIDE / 2]; // of two queries each
    Barrier landed[STAGES], filled[SLOTS], emptied[SLOTS], ready[2], given[2];
    int ticket;
};

} // namespace

// A thread that has tiles of Q and dO copied while there is room, with the first the keys and values.
INLINE void copy_tiles(Tiles &tiles, const KeyBlock &block, const TensorMap &qkv, const TensorMap &dout,
                       const float2 *statistics, int H) {
    const int first = first_tile(block);
    for (int tile = first; !is_over(block, tile); tile++) {
        const int n = tile - first, stage = n % STAGES;
        Barrier *landed = &tiles.landed[stage];
        // the tile after that of STAGES before, whose products have been waited for
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

// A thread that adds this block's parts of dQ to the sums in memory, or has those copied for the block that is the last.
INLINE void exchange_sums(Tiles &tiles, const KeyBlock &block, float4 *dq_sums, int *turn) {
    auto sums = [&](int tile) { return dq_sums + tile * (SIDE * SIDE / 4); };
    auto wait_for_turn = [&](int tile) {
        if (!before(block, tile)) return;
        WAIT_UNTIL(load_acquire(turn + tile) == before(block, tile));
        memory_fence();
    };
    auto hand_on = [&](int tile) {
        if (tile >= first_tile(block) && !is_last(block, tile)) store_release(turn + tile, before(block, tile) + 1);
    };
    int tile = first_tile(block);
    for (bool over = is_over(block, tile);; tile++) {
        const int n = tile - first_tile(block), slot = n & 1;
        bulk_wait<0>(); // of two tiles before, from this slot
        hand_on(tile - 2);
        if (!over && is_last(block, tile) && before(block, tile)) {
            wait_for_turn(tile);
            barrier_arrive_with(&tiles.ready[slot], SUM_BYTES);
            copy_bytes(tiles.sums[slot], sums(tile), SUM_BYTES, &tiles.ready[slot]);
        } else if (!over) {
            barrier_arrive(&tiles.ready[slot]);
        }
        if (n) {
            barrier_wait(&tiles.given[slot ^ 1], (n - 1) >> 1 & 1);
            if (!is_last(block, tile - 1)) {
                wait_for_turn(tile - 1);
                bulk_store(sums(tile - 1), tiles.sums[slot ^ 1], SUM_BYTES, before(block, tile - 1));
            }
        }
        bulk_commit();
        if (over) break;
        over = is_over(block, tile + 1);
    }
    bulk_wait<0>();
    hand_on(tile - 1);
}

// The warpgroup's turn: dS of a tile into this block's part of dQ, which goes to tiles.sums, or with what is there to dq,
// row 0 of the sequence.
INLINE void sum_queries(Tiles &tiles, const KeyBlock &block, int tile, act *dq) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const int n = tile - first_tile(block), slot = n % SLOTS;
    float a[8][4] = {};
    barrier_wait(&tiles.filled[slot], n / SLOTS & 1);
    wgmma_fence();
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
        if (sees(block, tile, group))
#pragma unroll
            for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM, TERM>(a, tiles.ds[slot][group], tiles.k[group], kk);
    wgmma_commit();
    wgmma_wait<0>(a);
    if (lane == 0) barrier_arrive(&tiles.emptied[slot]);
    barrier_wait(&tiles.ready[n & 1], n >> 1 & 1);
    float4 *sums = tiles.sums[n & 1] + warp * 8 * 32 + lane;
    const bool last = is_last(block, tile), add = before(block, tile);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        if (!last) {
            put_async(sums + n * 32, make_float4(a[n][0], a[n][1], a[n][2], a[n][3]));
            continue;
        }
        const float4 x = add ? sums[n * 32] : make_float4(0, 0, 0, 0);
        const float y[4] = {a[n][0] + x.x, a[n][1] + x.y, a[n][2] + x.z, a[n][3] + x.w};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = tile * SIDE + warp * 16 + (lane >> 2) + r * 8;
            if (row < block.T)
                *(uint32_t *)(dq + row * block.stride + n * 8 + 2 * (lane & 3)) =
                    pack(y[2 * r] * block.root, y[2 * r + 1] * block.root);
        }
    }
    async_fence();
    __syncwarp();
    if (lane == 0) barrier_arrive(&tiles.given[n & 1]);
}

// A warpgroup of SIDE keys: dK and dV of them, dS of each tile, and its turns at dQ.
INLINE void multiply_tiles(Tiles &tiles, const KeyBlock &block, int group, act *dq) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    const int first_key = block.kb * KEYS + group * SIDE + warp * 16, row = warp * 16 + g;
    const AttentionMask &mask = block.mask;
    const float scale_of_kept = mask.dropout ? mask.dropout->scale : 1, scale = LOG2E * block.root;
    float dk[8][4] = {}, dv[8][4] = {};
    for (int tile = first_tile(block), steps_left = LAG; steps_left; tile++) {
        const int n = tile - first_tile(block), stage = n % STAGES, slot = n % SLOTS, reused = (n / SLOTS & 1) ^ 1;
        if (n >= LAG && tile % GROUPS == group) sum_queries(tiles, block, tile - LAG, dq);
        if (is_over(block, tile)) {
            steps_left--;
            continue;
        }
        barrier_wait(&tiles.landed[stage], n / STAGES & 1);
        if (!sees(block, tile, group)) {
            barrier_wait(&tiles.emptied[slot], reused);
            __syncwarp();
            if (lane == 0) barrier_arrive(&tiles.filled[slot]);
            continue;
        }
        const int query = tile * SIDE + 2 * t4, key = first_key + g;
        const float4 *of_queries = tiles.statistics[stage] + t4;
        const bool diagonal = tile == first_tile(block) + group;
        uint32_t kept = 0;
        if (mask.dropout)
            kept = kept_scores<KEY_ROWS, SIDE>(mask, block.b, block.h, tile * SIDE, first_key, block.T, lane);
        float s[8][4], dp[8][4];
        uint32_t p[4][4], ds[4][4];
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < CHUNKS / 2; d++) wgmma<LINE, LINE>(s, tiles.k[group], tiles.q[stage], d, d > 0);
        wgmma_commit();
#pragma unroll
        for (int d = 0; d < CHUNKS / 2; d++) wgmma<LINE, LINE>(dp, tiles.v[group], tiles.o[stage], d, d > 0);
        wgmma_commit();
        wgmma_wait<1>(s);
        if (mask.starts) mask_scores<KEY_ROWS>(s, mask, block.b, query, key, block.T);
        weigh_keys(p, s, of_queries, scale, diagonal, query, key);
        if (mask.dropout) drop_packed(p, kept);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM>(dv, p[kk], tiles.o[stage], kk);
        wgmma_commit();
        wgmma_wait<1>(dp);
        if (mask.dropout) drop_scores<KEY_ROWS>(dp, kept, scale_of_kept);
        barrier_wait(&tiles.emptied[slot], reused);
        put_gradients(ds, tiles.ds[slot][group], s, dp, of_queries, row, t4);
        async_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(&tiles.filled[slot]);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM>(dk, ds[kk], tiles.q[stage], kk);
        wgmma_commit();
        wgmma_wait<0>(dv), wgmma_wait<0>(dk);
    }
    store_keys(dq + block.stride / 3, dk, dv, block, first_key, scale_of_kept);
}

__global__ void __launch_bounds__(THREADS, 1)
    attention_gradient_tma(act *__restrict__ dqkv, float4 *__restrict__ dq_sums, int *__restrict__ turns,
                           const __grid_constant__ TensorMap qkv, const __grid_constant__ TensorMap dout,
                           const float2 *__restrict__ statistics, AttentionMask mask, int T, int padded, int H) {
    if (!has_wgmma) return;
    DYNAMIC_SHARED(uint4, memory);
    Tiles &tiles = *(Tiles *)memory;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) barrier_open(&tiles.landed[i], 1);
        for (int i = 0; i < SLOTS; i++) { // a thread of each warp arrives
            barrier_open(&tiles.filled[i], GROUPS * 4);
            barrier_open(&tiles.emptied[i], 4);
        }
        for (int i = 0; i < 2; i++) {
            barrier_open(&tiles.ready[i], 1);
            barrier_open(&tiles.given[i], 4);
        }
        barriers_opened();
        tiles.ticket = atomicAdd(turns, 1); // a block that is waited for has already started
    }
    __syncthreads();
    const int id = __shfl_sync(0xffffffffu, tiles.ticket, 0);
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS, 0);
    const int key_blocks = (T + KEYS - 1) / KEYS, tile_count = padded / SIDE, bh = id / key_blocks;
    const int out_stride = H * SIDE;
    const KeyBlock block = {
        mask, key_blocks - 1 - id % key_blocks, bh / H, bh % H, T, SIDE, 3 * out_stride, rsqrtf((float)SIDE)};
    act *dq = dqkv + (size_t)block.b * T * block.stride + block.h * SIDE;
    if (group == GROUPS) {
        give_registers<COPYING_REGISTERS>();
        if (threadIdx.x == GROUPS * GROUP_THREADS)
            copy_tiles(tiles, block, qkv, dout, statistics + (size_t)bh * padded, H);
        if (threadIdx.x == GROUPS * GROUP_THREADS + 32)
            exchange_sums(tiles, block, dq_sums + (size_t)bh * tile_count * (SIDE * SIDE / 4),
                          turns + 1 + (size_t)bh * tile_count);
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        multiply_tiles(tiles, block, group, dq);
    }
}

void FOR_ACT(attention_gradient_by_tma)(const AttentionGradient &c) {
    static const cudaError_t allowed = ALLOW_SHARED(attention_gradient_tma, (int)sizeof(Tiles));
    cuda_check(allowed, "attention_backward");
    LAUNCH(attention_gradient_tma, blocks_of((size_t)c.a.T, KEYS) * (unsigned)(c.a.B * c.a.H), THREADS, sizeof(Tiles),
           cuda.stream, (act *)c.dqkv, c.dq_sums, c.turns, tensor_map(c.qkv, c.a.B, c.a.T, 3 * c.a.H, c.a.D),
           tensor_map(c.dout, c.a.B, c.a.T, c.a.H, c.a.D), (const float2 *)c.statistics, attention_mask(c.a), c.a.T,
           c.padded, c.a.H);
}
#endif
