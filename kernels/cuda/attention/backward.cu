// Causal flash attention backward, deterministic, without float atomics and, in its fused form, without extra products.
//
// Fused: one block owns 16*WARPS keys and walks the query tiles upwards from the diagonal. S^T = K Q^T and dP^T = V
// dO^T leave P^T and dS^T in registers exactly as operands A of dV += P^T dO and dK += dS^T Q. dS^T also goes to shared
// memory once, for dQ += dS K. A tile of dQ is summed in fp32 scratch in a fixed order: the diagonal key block first,
// block 0 last; turn[tile] counts the blocks so far. Block kb reaches a tile one step after kb+1 has left it, so blocks
// in lockstep never wait. A ticket, not blockIdx, numbers the blocks: one that is waited for has already started.
//
// Split: the same kernel without dQ, then a second one for dQ. 7 products for 5, but no order between blocks: better
// while the grid is only a few waves.
#ifndef ACT_FP32 // fp32.cu
#include "kernels/cuda/attention/attention.cuh"

// statistics (B,H,padded/2,2,2) = lse in powers of two of two queries, then their sums of dO*O; of rows from T on
// infinity and 0, so that their P is 0 without a test. Resets the ticket and the turns, so that nothing else has to.
// Eight lanes compute a row.
__global__ void __launch_bounds__(256)
    attention_statistics(float *__restrict__ statistics, int *__restrict__ turns, int turn_count,
                         const act *__restrict__ out, const act *__restrict__ dout, const float *__restrict__ lse,
                         int B, int T, int padded, int H, int width) {
    int id = blockIdx.x * 256 + threadIdx.x, row = id / 8;
    for (int i = id; i < turn_count; i += gridDim.x * 256) turns[i] = 0;
    int h = row % H, t = row / H % padded, b = row / H / padded;
    float sum = 0;
    if (b < B && t < T)
        for (int c = (id & 7) * 8; c < width; c += 64) {
            size_t at = (((size_t)b * T + t) * H + h) * width + c;
            float x[8], y[8];
            load8(x, out + at), load8(y, dout + at);
#pragma unroll
            for (int k = 0; k < 8; k++) sum += x[k] * y[k];
        }
    for (int lane = 4; lane; lane >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (b >= B || id & 7) return;
    float *pair = statistics + (((size_t)b * H + h) * padded + t / 2 * 2) * 2;
    pair[t % 2] = t < T ? lse[((size_t)b * H + h) * T + t] * LOG2E : INFINITY;
    pair[2 + t % 2] = sum;
}

// The variants of attention_keys_gradient, by the channels D of a head.
struct KeysConfig {
    static constexpr int WARPS = 4;     // of 16 keys each
    static constexpr int QUERIES = 64;  // of a tile
    static constexpr int PART = 16;     // queries in work at a time
    static constexpr int BLOCKS = 3;    // on a multiprocessor
    static constexpr bool KEPT = true;  // K and V wait in registers, and dS takes V's place in shared memory
    static constexpr bool FUSED = true; // dQ as well
    static constexpr bool EXACT = true; // width is D, which is worth the registers that three blocks are short of
    static constexpr bool SKIPS = true; // tiles of other documents, which takes registers
};
struct Keys64 : KeysConfig {
    static constexpr int D = 64;
};
struct Keys64Split : Keys64 {
    static constexpr bool FUSED = false;
    static constexpr bool SKIPS = ARCH != 900; // backward_tma.cu takes its place there
};
struct Keys64ThreeBlocks : Keys64 {
    static constexpr bool SKIPS = false;
};
struct Keys64TwoBlocks : Keys64 {
    static constexpr int PART = 32, BLOCKS = 2;
};
struct Keys64Narrow : Keys64TwoBlocks { // fewer channels than 64
    static constexpr bool EXACT = false;
};
struct Keys96 : KeysConfig {
    static constexpr int D = 96, QUERIES = 32, PART = 32, BLOCKS = 2;
    static constexpr bool KEPT = false, EXACT = false;
};
struct Keys128 : Keys96 {
    static constexpr int D = 128, BLOCKS = 1;
};
struct Keys128Turing : Keys128 { // 64 KiB of shared memory
    static constexpr int QUERIES = 16, PART = 16;
};
template <class C> constexpr int keys_of = C::WARPS * 16; // of a block
template <class C>
constexpr size_t shared_bytes = 16 * (size_t)(2 * keys_of<C> * (C::D / 8) + 4 * C::QUERIES * (C::D / 8) + C::QUERIES +
                                              (C::KEPT ? 0 : keys_of<C> * (C::QUERIES / 8)));

// The arrays of a block in shared memory while it works on a tile of queries.
struct Tiles {
    const uint4 *k, *v, *q, *o;
    const float4 *statistics; // of two queries each
    uint4 *ds;
};

// The first key that a tile of queries sees: rows from T on see the same keys as the last one. First keys rise with the
// queries: after the first tile that does not see a block's keys, no tile does. Blocks reach a tile in falling order.
// The last block of a tile has its first key, and the blocks that the tile does not see would come after it. The key is
// read when it is needed: there is no register for it.
template <int QUERIES> INLINE int first_key(const AttentionMask &mask, int b, int tile, int T) {
    return mask.starts[b * T + (QUERIES == TILE ? tile * QUERIES : min(tile * QUERIES, T - 1))];
}

// S^T = K Q^T and dP^T = V dO^T of a part of the tile that begins at query `part`. keys, values: K and V if KEPT.
template <class C>
INLINE void multiply_queries(float (&s)[C::PART / 8][4], float (&dp)[C::PART / 8][4], const Tiles &tiles,
                             uint32_t (&keys)[C::D / 16][4], uint32_t (&values)[C::D / 16][4], int part) {
    constexpr int W = C::D / 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    memset(s, 0, sizeof s), memset(dp, 0, sizeof dp);
#pragma unroll
    for (int d = 0; d < C::D / 16; d++) {
        uint32_t f[4], kf[4], vf[4];
        if (!C::KEPT) {
            ldmatrix_x4(kf, tiles.k + rows_first<W>(warp * 16, 2 * d, lane));
            ldmatrix_x4(vf, tiles.v + rows_first<W>(warp * 16, 2 * d, lane));
        }
#pragma unroll
        for (int n = 0; n < C::PART / 16; n++) {
            int at = chunks_first<W>(part + n * 16, 2 * d, lane);
            ldmatrix_x4(f, tiles.q + at);
            add_product(s + 2 * n, C::KEPT ? keys[d] : kf, f);
            ldmatrix_x4(f, tiles.o + at);
            add_product(dp + 2 * n, C::KEPT ? values[d] : vf, f);
        }
    }
}

// P^T and dS^T of a part, from scores s and gradients dp of weights, as operands A of dV and dK: accumulator rows g and
// g+8 are registers r and r+2. dS^T also goes to shared memory. query, key: the lane's first ones.
template <class C>
INLINE void pack_gradients(uint32_t (&p)[C::PART / 16][4], uint32_t (&ds)[C::PART / 16][4], float (&s)[C::PART / 8][4],
                           float (&dp)[C::PART / 8][4], const Tiles &tiles, float scale, bool diagonal, int part,
                           int query, int key) {
    const int row = threadIdx.x / 32 * 16 + (threadIdx.x % 32 >> 2), t4 = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < C::PART / 8; n++) {
        const float4 x = tiles.statistics[(part + n * 8 + 2 * t4) / 2];
        gradient_of_scores<KEY_ROWS>(s[n], dp[n], {make_float2(x.x, x.z), make_float2(x.y, x.w)}, scale, diagonal, n,
                                     query, key);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int to = (n & 1) * 2 + r;
            p[n >> 1][to] = pack(s[n][2 * r], s[n][2 * r + 1]);
            ds[n >> 1][to] = pack(dp[n][2 * r], dp[n][2 * r + 1]);
            uint32_t *shared = (uint32_t *)(tiles.ds + chunk_at<C::QUERIES / 8>(row + r * 8, part / 8 + n));
            if (C::FUSED) shared[t4] = ds[n >> 1][to];
        }
    }
}

// dV += P^T dO, dK += dS^T Q.
template <class C>
INLINE void add_queries(float (&dk)[C::D / 8][4], float (&dv)[C::D / 8][4], const uint32_t (&p)[C::PART / 16][4],
                        const uint32_t (&ds)[C::PART / 16][4], const Tiles &tiles, int part) {
#pragma unroll
    for (int kk = 0; kk < C::PART / 16; kk++)
#pragma unroll
        for (int n = 0; n < C::D / 16; n++) {
            uint32_t f[4];
            int at = rows_first<C::D / 8>(part + kk * 16, 2 * n, threadIdx.x % 32);
            ldmatrix_x4_transposed(f, tiles.o + at);
            add_product(dv + 2 * n, p[kk], f);
            ldmatrix_x4_transposed(f, tiles.q + at);
            add_product(dk + 2 * n, ds[kk], f);
        }
}

// Adds dS K to the sums of a tile of dQ. is_first: there are no sums so far. is_last: writes the result to dq, row 0 of
// the tile.
template <class C>
INLINE void add_keys(act *dq, float4 *dq_sums, const Tiles &tiles, bool is_first, bool is_last, int first, int T,
                     int stride, int width, float root) {
    constexpr int COLUMNS = C::D / (C::WARPS / (C::QUERIES / 16));                 // of dQ, a warp
    constexpr int STRETCH = COLUMNS % 32 || C::BLOCKS < 3 ? COLUMNS : COLUMNS / 2; // at a time: the peak of registers
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row16 = warp % (C::QUERIES / 16), strip = warp / (C::QUERIES / 16);
    dq_sums += warp * (COLUMNS / 8) * 32 + lane;
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += STRETCH) {
        float a[STRETCH / 8][4] = {};
        if (!is_first)
#pragma unroll
            for (int n = 0; n < STRETCH / 8; n++) {
                float4 x = __ldcg(dq_sums + (c / 8 + n) * 32);
                a[n][0] = x.x, a[n][1] = x.y, a[n][2] = x.z, a[n][3] = x.w;
            }
#pragma unroll
        for (int kk = 0; kk < keys_of<C> / 16; kk++) {
            uint32_t sf[4], f[4];
            ldmatrix_x4_transposed(sf, tiles.ds + chunks_first<C::QUERIES / 8>(kk * 16, 2 * row16, lane));
#pragma unroll
            for (int n = 0; n < STRETCH / 16; n++) {
                int at = rows_first<C::D / 8>(kk * 16, (strip * COLUMNS + c) / 8 + 2 * n, lane);
                ldmatrix_x4_transposed(f, tiles.k + at);
                add_product(a + 2 * n, sf, f);
            }
        }
#pragma unroll
        for (int n = 0; n < STRETCH / 8; n++) {
            if (!is_last) {
                __stcg(dq_sums + (c / 8 + n) * 32, make_float4(a[n][0], a[n][1], a[n][2], a[n][3]));
                continue;
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int row = first + row16 * 16 + (lane >> 2) + r * 8, column = strip * COLUMNS + c + n * 8;
                if (row < T && column < width)
                    *(uint32_t *)(dq + row * stride + column + 2 * (lane & 3)) =
                        pack(a[n][2 * r] * root, a[n][2 * r + 1] * root);
            }
        }
    }
}

template <class C>
__global__ void __launch_bounds__(C::WARPS * 32, blocks_at_once<C::BLOCKS>)
    attention_keys_gradient(act *__restrict__ dqkv, float4 *__restrict__ dq_sums, int *__restrict__ turns,
                            const act *__restrict__ qkv, const act *__restrict__ dout,
                            const float2 *__restrict__ statistics, AttentionMask mask, int T, int padded, int H,
                            int any_width) {
    constexpr int D = C::D, QUERIES = C::QUERIES, PART = C::PART, KEYS = keys_of<C>, W = D / 8, THREADS = C::WARPS * 32;
    const int width = C::EXACT ? D : any_width;
    static_assert(!C::KEPT || QUERIES <= D, "dS takes V's place");
    if (!is_launched<shared_bytes<C>>) return;
    DYNAMIC_SHARED(uint4, tiles);
    uint4 *k_tile = tiles, *v_tile = k_tile + KEYS * W, *q_tiles = v_tile + KEYS * W;
    uint4 *o_tiles = q_tiles + 2 * QUERIES * W, *s_tiles = o_tiles + 2 * QUERIES * W;
    uint4 *ds_tile = C::KEPT ? v_tile : s_tiles + QUERIES;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    int key_blocks = (T + KEYS - 1) / KEYS, tile_count = padded / QUERIES, id = blockIdx.x;
    if (C::FUSED) { // in dynamic memory: four static bytes would cost sm_86 its second block
        if (threadIdx.x == 0) *(int *)tiles = atomicAdd(turns, 1);
        __syncthreads();
        id = *(int *)tiles;
        __syncthreads();
    }
    int kb = C::FUSED ? key_blocks - 1 - id % key_blocks : id % key_blocks;
    int bh = id / key_blocks, b = bh / H, h = bh % H, first = kb * KEYS / QUERIES;
    const int out_stride = H * width, stride = 3 * out_stride;
    const size_t origin = (size_t)b * T * stride + h * width; // of Q in qkv and of dQ in dqkv
    const act *q = qkv + origin, *o = dout + (size_t)b * T * out_stride + h * width;
    const float2 *rows = statistics + (size_t)bh * padded;
    int *turn = turns + 1 + (size_t)bh * tile_count;
    auto load_queries = [&](int tile) {
        int half = tile & 1;
        load_tile<W, QUERIES, THREADS>(q_tiles + half * QUERIES * W, q, stride, tile * QUERIES, T, width);
        load_tile<W, QUERIES, THREADS>(o_tiles + half * QUERIES * W, o, out_stride, tile * QUERIES, T, width);
        if (threadIdx.x < QUERIES / 2)
            cp_async16(s_tiles + half * QUERIES / 2 + threadIdx.x, rows + tile * QUERIES + 2 * threadIdx.x);
    };
    load_tile<W, KEYS, THREADS>(k_tile, q + out_stride, stride, kb * KEYS, T, width);
    load_tile<W, KEYS, THREADS>(v_tile, q + 2 * out_stride, stride, kb * KEYS, T, width);
    load_queries(first);
    cp_async_commit();

    uint32_t keys[D / 16][4], values[D / 16][4];
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    const float scale_of_kept = mask.dropout ? mask.dropout->scale : 1;
    const float root = rsqrtf((float)width), scale = LOG2E * root;
    if (C::KEPT) {
        cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            ldmatrix_x4(keys[d], k_tile + rows_first<W>(warp * 16, 2 * d, lane));
            ldmatrix_x4(values[d], v_tile + rows_first<W>(warp * 16, 2 * d, lane));
        }
    }
    const bool skips = C::SKIPS && mask.starts;
    int end = tile_count;
    for (int tile = first; tile < end; tile++) {
        if (skips && first_key<QUERIES>(mask, b, tile, T) >= (kb + 1) * KEYS) {
            end = tile;
            break;
        }
        const int half = (tile & 1) * QUERIES;
        const Tiles now = {k_tile, v_tile, q_tiles + half * W, o_tiles + half * W, (const float4 *)(s_tiles + half / 2),
                           ds_tile};
        cp_async_wait<0>();
        __syncthreads(); // the tile has landed, and all warps have left the previous tile
        if (C::FUSED && threadIdx.x == 0 && tile > first)
            store_release(turn + tile - 1, (tile - 1) * QUERIES / KEYS - kb + 1);
        if (tile + 1 < tile_count) load_queries(tile + 1);
        cp_async_commit();
        bool diagonal = (kb + 1) * KEYS > tile * QUERIES;
#pragma unroll(C::BLOCKS < 3 ? 2 : 1) // the unrolled loop would spill with three blocks
        for (int part = 0; part < QUERIES; part += PART) {
            const int query = tile * QUERIES + part, key = kb * KEYS + warp * 16;
            uint32_t kept = 0;
            if (mask.dropout) kept = kept_scores<KEY_ROWS, PART>(mask, b, h, query, key, T, lane);
            float s[PART / 8][4], dp[PART / 8][4];
            uint32_t p[PART / 16][4], ds[PART / 16][4];
            multiply_queries<C>(s, dp, now, keys, values, part);
            if (mask.starts) mask_scores<KEY_ROWS>(s, mask, b, query + 2 * t4, key + g, T);
            if (mask.dropout) drop_scores<KEY_ROWS>(dp, kept, scale_of_kept);
            pack_gradients<C>(p, ds, s, dp, now, scale, diagonal, part, query + 2 * t4, key + g);
            if (mask.dropout) drop_packed(p, kept);
            add_queries<C>(dk, dv, p, ds, now, part);
        }
        if (!C::FUSED) continue;
        int before = tile * QUERIES / KEYS - kb;
        if (threadIdx.x == 0) WAIT_UNTIL(load_acquire(turn + tile) == before);
        __syncthreads(); // dS of all warps has arrived, and it is our turn
        add_keys<C>(dqkv + origin, dq_sums + ((size_t)bh * tile_count + tile) * (QUERIES * D / 4), now, !before,
                    skips ? first_key<QUERIES>(mask, b, tile, T) >= kb * KEYS : !kb, tile * QUERIES, T, stride, width,
                    root);
    }
    if (C::FUSED) {
        __syncthreads();
        if (threadIdx.x == 0) store_release(turn + end - 1, (end - 1) * QUERIES / KEYS - kb + 1);
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = kb * KEYS + warp * 16 + g + r * 8;
            if (row >= T || n * 8 >= width) continue;
            act *to = dqkv + origin + out_stride + row * stride + n * 8 + 2 * t4;
            *(uint32_t *)to = pack(dk[n][2 * r] * root, dk[n][2 * r + 1] * root);
            *(uint32_t *)(to + out_stride) = pack(dv[n][2 * r] * scale_of_kept, dv[n][2 * r + 1] * scale_of_kept);
        }
}

// dQ alone, of heads of up to 64 channels: Q and dO wait in registers, and a step reads KEYS keys.
struct QueriesConfig {
    static constexpr int D = 64, WARPS = 4, KEYS = 64, BLOCKS = 3;
    static constexpr int QUERIES = WARPS * 16, THREADS = WARPS * 32;
    static constexpr size_t bytes = (size_t)(2 * QUERIES + 4 * KEYS) * D * 2; // of shared memory
};
template <class C>
__global__ void __launch_bounds__(C::THREADS, blocks_at_once<C::BLOCKS>)
    attention_queries_gradient(act *__restrict__ dqkv, const act *__restrict__ qkv, const act *__restrict__ dout,
                               const float2 *__restrict__ statistics, AttentionMask mask, int T, int padded, int H,
                               int width, int wave) {
    constexpr int D = C::D, KEYS = C::KEYS, QUERIES = C::QUERIES, W = D / 8, THREADS = C::THREADS;
    DYNAMIC_SHARED(uint4, tiles);
    uint4 *q_tile = tiles, *o_tile = q_tile + QUERIES * W, *k_tiles = o_tile + QUERIES * W;
    uint4 *v_tiles = k_tiles + 2 * KEYS * W;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    const RowsOfBlock mine = rows_of_block(wave);
    const int block = gridDim.x - 1 - mine.last, h = mine.h, b = mine.b;
    int out_stride = H * width, stride = 3 * out_stride;
    const size_t origin = (size_t)b * T * stride + h * width;
    const act *q = qkv + origin, *k = q + out_stride, *v = k + out_stride;
    auto load_keys = [&](int step) {
        load_tile<W, KEYS, THREADS>(k_tiles + (step & 1) * KEYS * W, k, stride, step * KEYS, T, width);
        load_tile<W, KEYS, THREADS>(v_tiles + (step & 1) * KEYS * W, v, stride, step * KEYS, T, width);
    };
    load_tile<W, QUERIES, THREADS>(q_tile, q, stride, block * QUERIES, T, width);
    load_tile<W, QUERIES, THREADS>(o_tile, dout + (size_t)b * T * out_stride + h * width, out_stride, block * QUERIES,
                                   T, width);
    const int first_step = first_key_at(mask, b, block * QUERIES, T) / KEYS;
    load_keys(first_step);
    cp_async_commit();

    const float root = rsqrtf((float)width), scale = LOG2E * root;
    float dq[D / 8][4] = {};
    uint32_t queries[D / 16][4], outs[D / 16][4];
    float2 x[2];
    int row0 = block * QUERIES + warp * 16 + g, steps = (min((block + 1) * QUERIES, T) - 1) / KEYS + 1;
    for (int r = 0; r < 2; r++) {
        const int query = row0 + r * 8;
        const float *pair = (const float *)(statistics + ((size_t)b * H + h) * padded + query / 2 * 2) + query % 2;
        x[r] = query < padded ? make_float2(pair[0], pair[2]) : make_float2(INFINITY, 0);
    }
    for (int step = first_step; step < steps; step++) {
        const uint4 *k_tile = k_tiles + (step & 1) * KEYS * W, *v_tile = v_tiles + (step & 1) * KEYS * W;
        cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < steps) load_keys(step + 1);
        cp_async_commit();
        if (step == first_step)
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                ldmatrix_x4(queries[d], q_tile + rows_first<W>(warp * 16, 2 * d, lane));
                ldmatrix_x4(outs[d], o_tile + rows_first<W>(warp * 16, 2 * d, lane));
            }
        bool diagonal = (step + 1) * KEYS > block * QUERIES;
#pragma unroll 1
        for (int part = 0; part < KEYS / 32; part++) {
            const int key = step * KEYS + part * 32;
            uint32_t kept = 0;
            if (mask.dropout) kept = kept_scores<QUERY_ROWS, 32>(mask, b, h, row0 - g, key, T, lane);
            float s[4][4] = {}, dp[4][4] = {};
            uint32_t f[4], ds[2][4];
#pragma unroll
            for (int d = 0; d < D / 16; d++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    int at = chunks_first<W>(part * 32 + n * 16, 2 * d, lane);
                    ldmatrix_x4(f, k_tile + at);
                    add_product(s + 2 * n, queries[d], f);
                    ldmatrix_x4(f, v_tile + at);
                    add_product(dp + 2 * n, outs[d], f);
                }
            if (mask.starts) mask_scores<QUERY_ROWS>(s, mask, b, row0, key + 2 * t4, T);
            if (mask.dropout) drop_scores<QUERY_ROWS>(dp, kept, mask.dropout->scale);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                gradient_of_scores<QUERY_ROWS>(s[n], dp[n], x, scale, diagonal, n, row0, key + 2 * t4);
                for (int r = 0; r < 2; r++) ds[n >> 1][(n & 1) * 2 + r] = pack(dp[n][2 * r], dp[n][2 * r + 1]);
            }
#pragma unroll
            for (int kk = 0; kk < 2; kk++)
#pragma unroll
                for (int n = 0; n < D / 16; n++) {
                    ldmatrix_x4_transposed(f, k_tile + rows_first<W>(part * 32 + kk * 16, 2 * n, lane));
                    add_product(dq + 2 * n, ds[kk], f);
                }
        }
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (row0 + r * 8 < T && n * 8 < width)
                *(uint32_t *)(dqkv + origin + (row0 + r * 8) * stride + n * 8 + 2 * t4) =
                    pack(dq[n][2 * r] * root, dq[n][2 * r + 1] * root);
}

// The sums of dQ come first, since they need the most alignment.
static void lay_out(AttentionGradient *c, char *base) {
    const GradientScratch at = attention_scratch(c->a.B, c->a.T, c->a.H, c->a.D);
    c->padded = at.padded, c->turn_count = at.turn_count;
    c->dq_sums = (float4 *)base, c->statistics = (float2 *)(base + at.statistics), c->turns = (int *)(base + at.turns);
}

namespace { // it differs from type to type

template <class C> struct Keys {
    // How many of its blocks run on a multiprocessor at a time.
    static int resident() {
        static int blocks = 0;
        if (blocks) return blocks;
        auto kernel = attention_keys_gradient<C>;
        cuda_check(ALLOW_SHARED(kernel, (int)shared_bytes<C>), "attention_backward");
        cuda_check(BLOCKS_PER_MULTIPROCESSOR(&blocks, kernel, C::WARPS * 32, shared_bytes<C>), "attention_backward");
        return blocks;
    }

    static void launch(const AttentionGradient &c) {
        if (!resident()) cuda_check(cudaErrorLaunchOutOfResources, "attention_backward");
        LAUNCH(attention_keys_gradient<C>, blocks_of((size_t)c.a.T, keys_of<C>) * (unsigned)(c.a.B * c.a.H),
               C::WARPS * 32, shared_bytes<C>, cuda.stream, (act *)c.dqkv, c.dq_sums, c.turns, (const act *)c.qkv,
               (const act *)c.dout, (const float2 *)c.statistics, attention_mask(c.a), c.a.T, c.padded, c.a.H, c.a.D);
    }
};

} // namespace

static void launch_queries(const AttentionGradient &c) {
    typedef QueriesConfig C;
    auto kernel = attention_queries_gradient<C>;
    static const cudaError_t allowed = ALLOW_SHARED(kernel, (int)C::bytes);
    cuda_check(allowed, "attention_backward");
    static const int resident = resident_blocks(kernel, C::THREADS, C::bytes);
    const dim3 grid(blocks_of((size_t)c.a.T, C::QUERIES), (unsigned)c.a.H, (unsigned)c.a.B);
    LAUNCH(kernel, grid, C::THREADS, C::bytes, cuda.stream, (act *)c.dqkv, (const act *)c.qkv, (const act *)c.dout,
           (const float2 *)c.statistics, attention_mask(c.a), c.a.T, c.padded, c.a.H, c.a.D, wave_of(grid, resident));
}

// Heads of up to 64 channels: three blocks on a multiprocessor whose shared memory holds them, else two of the variant
// with larger parts, as if documents are masked (SKIPS); and the split form while the grid would not fill the card
// three times over.
static void launch_64(const AttentionGradient &c) {
    if (attention_by_tma(c.a)) return FOR_ACT(attention_gradient_by_tma)(c);
    if (c.a.D != 64) return Keys<Keys64Narrow>::launch(c);
    AttentionForm form = cuda_attention_form;
    int blocks = c.a.B * c.a.H * (int)blocks_of((size_t)c.a.T, 64);
    if (form == ATTENTION_AUTO || form == ATTENTION_TMA)
        form = blocks < 3 * cuda.multiprocessors * Keys<Keys64Split>::resident() ? ATTENTION_SPLIT
               : Keys<Keys64ThreeBlocks>::resident() >= 3                        ? ATTENTION_FUSED_3
                                                                                 : ATTENTION_FUSED_2;
    if (form == ATTENTION_FUSED_3 && c.a.starts) form = ATTENTION_FUSED_2;
    if (form == ATTENTION_SPLIT)
        Keys<Keys64Split>::launch(c), launch_queries(c);
    else if (form == ATTENTION_FUSED_3)
        Keys<Keys64ThreeBlocks>::launch(c);
    else
        Keys<Keys64TwoBlocks>::launch(c);
}

void FOR_ACT(cuda_attention_backward)(Act *dqkv, Grad *dbias, const Act *dout, const Act *out, const float *lse,
                                      const Act *qkv, const Attention *attention, bool add) {
    const Attention &a = *attention;
    AttentionGradient c = {};
    c.dqkv = dqkv, c.dout = dout, c.qkv = qkv, c.a = a;
    lay_out(&c, (char *)cuda.scratch);
    LAUNCH(attention_statistics, blocks_of((size_t)a.B * c.padded * a.H * 8, 256), 256, 0, cuda.stream,
           (float *)c.statistics, c.turns, c.turn_count, (const act *)out, (const act *)dout, lse, a.B, a.T, c.padded,
           a.H, a.D);
    if (attention_width(a.D) == 64)
        launch_64(c);
    else if (attention_width(a.D) == 96)
        Keys<Keys96>::launch(c);
    else if (shared_bytes<Keys128> <= cuda.shared_bytes)
        Keys<Keys128>::launch(c);
    else
        Keys<Keys128Turing>::launch(c);
    if (dbias) FOR_ACT(column_sums)(dbias, dqkv, a.B * a.T, 3 * a.H * a.D, add);
}
#endif
