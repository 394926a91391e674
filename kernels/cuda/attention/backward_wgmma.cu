// backward.cu for heads of up to 64 channels on compute capability 9.0. A block has three warpgroups of 64
// keys each, and a multiprocessor one block: sums of dQ, which travel from block to block through the cache, are what
// limits blocks of fewer keys. dS of a tile lies in shared memory until the next step, where one warpgroup after
// another turns it into dQ: there is one barrier a step, and one warpgroup's products overlap with another's
// exponentials.
#ifndef ACT_FP32
#include "kernels/cuda/attention/backward_keys.cuh"

namespace {

enum {
    THREADS = GROUPS * GROUP_THREADS,
    STAGES = 2 // of Q and dO
};

struct Tiles {
    uint4 k[GROUPS][SIDE * CHUNKS], v[GROUPS][SIDE * CHUNKS];
    uint4 q[STAGES][SIDE * CHUNKS], o[STAGES][SIDE * CHUNKS];
    uint4 ds[2][GROUPS][SIDE * CHUNKS];  // (keys, queries)
    float4 statistics[STAGES][SIDE / 2]; // of two queries each
};

} // namespace

// Adds dS K to the sums of a tile of dQ, or writes the result to dq, row 0 of the sequence, where nothing is to come.
INLINE void add_keys(act *dq, float4 *dq_sums, const int *turn, const Tiles &tiles, const KeyBlock &block, int tile) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, turns = before(block, tile);
    float a[8][4] = {};
    dq_sums += tile * (SIDE * SIDE / 4) + warp * 8 * 32 + lane;
    WAIT_UNTIL(load_acquire(turn + tile) == turns);
    if (turns)
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float4 x = __ldcg(dq_sums + n * 32);
            a[n][0] = x.x, a[n][1] = x.y, a[n][2] = x.z, a[n][3] = x.w;
        }
    wgmma_fence();
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
        if (sees(block, tile, group))
#pragma unroll
            for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM, TERM>(a, tiles.ds[tile & 1][group], tiles.k[group], kk);
    wgmma_commit();
    wgmma_wait<0>(a);
    const bool last = is_last(block, tile);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        if (!last) {
            __stcg(dq_sums + n * 32, make_float4(a[n][0], a[n][1], a[n][2], a[n][3]));
            continue;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = tile * SIDE + warp * 16 + (lane >> 2) + r * 8;
            if (row < block.T && n * 8 < block.width)
                *(uint32_t *)(dq + row * block.stride + n * 8 + 2 * (lane & 3)) =
                    pack(a[n][2 * r] * block.root, a[n][2 * r + 1] * block.root);
        }
    }
}

__global__ void __launch_bounds__(THREADS, 1)
    attention_gradient_wgmma(act *__restrict__ dqkv, float4 *__restrict__ dq_sums, int *__restrict__ turns,
                             const act *__restrict__ qkv, const act *__restrict__ dout,
                             const float2 *__restrict__ statistics, AttentionMask mask, int T, int padded, int H,
                             int width) {
    if (!has_wgmma) return;
    DYNAMIC_SHARED(uint4, memory);
    Tiles &tiles = *(Tiles *)memory;
    if (threadIdx.x == 0) *(int *)memory = atomicAdd(turns, 1); // a block that is waited for has already started
    __syncthreads();
    const int id = __shfl_sync(0xffffffffu, *(int *)memory, 0);
    __syncthreads();
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS, 0),
              thread = threadIdx.x % GROUP_THREADS;
    const int warp = thread / 32, lane = thread % 32, g = lane >> 2, t4 = lane & 3;
    const int key_blocks = (T + KEYS - 1) / KEYS, tile_count = padded / SIDE, bh = id / key_blocks;
    const int out_stride = H * width;
    const KeyBlock block = {
        mask, key_blocks - 1 - id % key_blocks, bh / H, bh % H, T, width, 3 * out_stride, rsqrtf((float)width)};
    const size_t origin = (size_t)block.b * T * block.stride + block.h * width; // of Q in qkv and of dQ in dqkv
    const act *q = qkv + origin, *o = dout + (size_t)block.b * T * out_stride + block.h * width;
    int *turn = turns + 1 + (size_t)bh * tile_count;
    dq_sums += (size_t)bh * tile_count * (SIDE * SIDE / 4);
    auto load_queries = [&](int tile) {
        const int stage = tile % STAGES;
        if (group == 0)
            load_tile<CHUNKS, SIDE, GROUP_THREADS>(tiles.q[stage], q, block.stride, tile * SIDE, T, width, thread);
        else if (group == 1)
            load_tile<CHUNKS, SIDE, GROUP_THREADS>(tiles.o[stage], o, out_stride, tile * SIDE, T, width, thread);
        else if (thread < SIDE / 2)
            cp_async16(tiles.statistics[stage] + thread, statistics + (size_t)bh * padded + tile * SIDE + 2 * thread);
    };
    load_tile<CHUNKS, KEYS, THREADS>(tiles.k[0], q + out_stride, block.stride, block.kb * KEYS, T, width);
    load_tile<CHUNKS, KEYS, THREADS>(tiles.v[0], q + 2 * out_stride, block.stride, block.kb * KEYS, T, width);
    load_queries(first_tile(block));
    cp_async_commit();

    float dk[8][4] = {}, dv[8][4] = {};
    const float scale_of_kept = mask.dropout ? mask.dropout->scale : 1, scale = LOG2E * block.root;
    const int first_key = block.kb * KEYS + group * SIDE + warp * 16, row = warp * 16 + g;
    int tile = first_tile(block), end = tile_count;
    for (;; tile++) {
        if (tile < end && first_key_of(block, tile) >= (block.kb + 1) * KEYS)
            end = tile; // nor does a later tile see a key
        cp_async_wait<0>();
        async_fence();   // for the copies that have landed, and for dS
        __syncthreads(); // the tile has landed; dS of the tile before it and dQ of the one before that are complete
        if (threadIdx.x == 0 && tile >= first_tile(block) + 2)
            store_release(turn + tile - 2, before(block, tile - 2) + 1);
        if (tile + 1 < end) load_queries(tile + 1);
        cp_async_commit();
        if (tile > first_tile(block) && tile % GROUPS == group)
            add_keys(dqkv + origin, dq_sums, turn, tiles, block, tile - 1);
        if (tile == end) break;
        if (!sees(block, tile, group)) continue;
        const int stage = tile % STAGES, query = tile * SIDE + 2 * t4, key = first_key + g;
        const float4 *of_queries = tiles.statistics[stage] + t4;
        const bool diagonal = tile == first_tile(block) + group;
        uint32_t kept = 0;
        if (mask.dropout) kept = kept_scores<KEY_ROWS, SIDE>(mask, block.b, block.h, tile * SIDE, first_key, T, lane);
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
        if (mask.starts) mask_scores<KEY_ROWS>(s, mask, block.b, query, key, T);
        weigh_keys(p, s, of_queries, scale, diagonal, query, key);
        if (mask.dropout) drop_packed(p, kept);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM>(dv, p[kk], tiles.o[stage], kk);
        wgmma_commit();
        wgmma_wait<1>(dp);
        if (mask.dropout) drop_scores<KEY_ROWS>(dp, kept, scale_of_kept);
        put_gradients(ds, tiles.ds[tile & 1][group], s, dp, of_queries, row, t4);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++) wgmma<TERM>(dk, ds[kk], tiles.q[stage], kk);
        wgmma_commit();
        wgmma_wait<0>(dv), wgmma_wait<0>(dk);
    }
    wgmma_wait<0>(dv), wgmma_wait<0>(dk);
    __syncthreads();
    if (threadIdx.x == 0) store_release(turn + end - 1, before(block, end - 1) + 1);
    store_keys(dqkv + origin + out_stride, dk, dv, block, first_key, scale_of_kept);
}

void FOR_ACT(attention_gradient_by_wgmma)(const AttentionGradient &c) {
    static const cudaError_t allowed = ALLOW_SHARED(attention_gradient_wgmma, (int)sizeof(Tiles));
    cuda_check(allowed, "attention_backward");
    LAUNCH(attention_gradient_wgmma, blocks_of((size_t)c.a.T, KEYS) * (unsigned)(c.a.B * c.a.H), THREADS, sizeof(Tiles),
           cuda.stream, (act *)c.dqkv, c.dq_sums, c.turns, (const act *)c.qkv, (const act *)c.dout,
           (const float2 *)c.statistics, attention_mask(c.a), c.a.T, c.padded, c.a.H, c.a.D);
}
#endif
