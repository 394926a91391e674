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
#include "kernels/cuda/attention.cuh"

// statistics (B,H,padded) = {lse in powers of two, sum of dO*O}; rows from T on {infinity, 0}, so that their P is 0
// without a test. Resets the ticket and the turns, so that nothing else has to. Eight lanes a row.
__global__ void __launch_bounds__(256)
    prepare(float2 *__restrict__ statistics, int *__restrict__ turns, int turn_count, const act *__restrict__ out,
            const act *__restrict__ dout, const float *__restrict__ lse, int B, int T, int padded, int H, int width) {
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
    if (b < B && (id & 7) == 0)
        statistics[((size_t)b * H + h) * padded + t] =
            make_float2(t < T ? lse[((size_t)b * H + h) * T + t] * LOG2E : INFINITY, sum);
}

template <int D, int WARPS, int QUERIES, bool KEPT>
constexpr size_t shared_bytes = 16 * (size_t)(2 * WARPS * 16 * (D / 8) + 4 * QUERIES * (D / 8) + QUERIES +
                                              (KEPT ? 0 : WARPS * 16 * (QUERIES / 8)));

// PART queries are in work at a time. KEPT: K and V wait in registers, and dS takes V's place in shared memory. EXACT:
// width is D, which is worth the registers that three blocks are short of. WGMMA: the warps multiply together.
template <int D, int WARPS, int QUERIES, int PART, bool KEPT, bool FUSED, bool EXACT, int BLOCKS, bool WGMMA>
__global__ void __launch_bounds__(WARPS * 32, blocks_at_once<BLOCKS>)
    keys_gradient(act *__restrict__ dqkv, float4 *__restrict__ dq_sums, int *__restrict__ turns,
                  const act *__restrict__ qkv, const act *__restrict__ dout, const float2 *__restrict__ statistics,
                  Weights weights, int T, int padded, int H, int any_width) {
    const int width = EXACT ? D : any_width;
    constexpr int KEYS = WARPS * 16, W = D / 8, THREADS = WARPS * 32;
    constexpr int WS = QUERIES / 8;                       // chunks of a row of dS
    constexpr int COLUMNS = D / (WARPS / (QUERIES / 16)); // of dQ, a warp
    constexpr int STRETCH =
        COLUMNS % 32 || BLOCKS < 3 || WGMMA ? COLUMNS : COLUMNS / 2; // columns at a time: the peak of registers
    static_assert(!KEPT || QUERIES <= D, "dS takes V's place");
    static_assert(!WGMMA || (D == 64 && WARPS == 4 && QUERIES == 64 && PART == 64 && !KEPT && FUSED),
                  "tiles of 64 x 64");
    if (!is_launched<shared_bytes<D, WARPS, QUERIES, KEPT>> || (WGMMA && !has_wgmma)) return;
    DYNAMIC_SHARED(uint4, tiles);
    uint4 *k_tile = tiles, *v_tile = k_tile + KEYS * W, *q_tiles = v_tile + KEYS * W;
    uint4 *o_tiles = q_tiles + 2 * QUERIES * W, *s_tiles = o_tiles + 2 * QUERIES * W;
    uint4 *ds_tile = KEPT ? v_tile : s_tiles + QUERIES;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    int key_blocks = (T + KEYS - 1) / KEYS, tile_count = padded / QUERIES, id = blockIdx.x;
    if (FUSED) { // in dynamic memory: four static bytes would cost sm_86 its second block
        if (threadIdx.x == 0) *(int *)tiles = atomicAdd(turns, 1);
        __syncthreads();
        id = *(int *)tiles;
        __syncthreads();
    }
    int kb = FUSED ? key_blocks - 1 - id % key_blocks : id % key_blocks;
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

    uint32_t keys[KEPT ? D / 16 : 1][4], values[KEPT ? D / 16 : 1][4];
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    const float scale_of_kept = weights.mask ? weights.mask->scale : 1; // by dropout
    const float root = rsqrtf((float)width), scale = LOG2E * root;
    if (KEPT) {
        cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            ldmatrix_x4(keys[d], k_tile + rows_first<W>(warp * 16, 2 * d, lane));
            ldmatrix_x4(values[d], v_tile + rows_first<W>(warp * 16, 2 * d, lane));
        }
    }
    for (int tile = first; tile < tile_count; tile++) {
        const uint4 *q_tile = q_tiles + (tile & 1) * QUERIES * W, *o_tile = o_tiles + (tile & 1) * QUERIES * W;
        const uint4 *s_tile = s_tiles + (tile & 1) * QUERIES / 2;
        cp_async_wait<0>();
        if (WGMMA) async_fence();
        __syncthreads(); // the tile has landed, and all warps have left the one before
        if (FUSED && threadIdx.x == 0 && tile > first)
            store_release(turn + tile - 1, (tile - 1) * QUERIES / KEYS - kb + 1);
        if (tile + 1 < tile_count) load_queries(tile + 1);
        cp_async_commit();
        bool diagonal = (kb + 1) * KEYS > tile * QUERIES;
#pragma unroll(BLOCKS < 3 ? 2 : 1) // the unrolled loop would spill with three blocks
        for (int part = 0; part < QUERIES / PART; part++) {
            // Bit 2(n & 3) + (e & 1) + 8(e >> 1) of word n / 4: of query n*8 + 2*t4 + (e & 1) and key g + 8(e >> 1).
            uint32_t kept[(PART + 31) / 32] = {};
            if (weights.mask)
#pragma unroll
                for (int n = 0; n < PART / 8; n += 2) {
                    uint32_t rows = kept_weights(weights, b, h, tile * QUERIES + part * PART + n * 8,
                                                 kb * KEYS + warp * 16, T, lane);
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        kept[n / 4] |=
                            (__shfl_sync(0xffffffffu, rows, 2 * (q / 2 * 8 + 2 * t4 + (q & 1))) >> g & 0x101u)
                            << (2 * (n & 3) + q);
                }
            float s[PART / 8][4], dp[PART / 8][4];
            if constexpr (WGMMA) {
                wgmma_fence();
#pragma unroll
                for (int d = 0; d < D / 16; d++) wgmma<LINE, LINE>(s, k_tile, q_tile, d, d > 0);
#pragma unroll
                for (int d = 0; d < D / 16; d++) wgmma<LINE, LINE>(dp, v_tile, o_tile, d, d > 0);
                wgmma_commit();
                wgmma_wait<0>(s), wgmma_wait<0>(dp);
            } else {
                memset(s, 0, sizeof s), memset(dp, 0, sizeof dp);
#pragma unroll
                for (int d = 0; d < D / 16; d++) {
                    uint32_t f[4], kf[4], vf[4];
                    if (!KEPT) {
                        ldmatrix_x4(kf, k_tile + rows_first<W>(warp * 16, 2 * d, lane));
                        ldmatrix_x4(vf, v_tile + rows_first<W>(warp * 16, 2 * d, lane));
                    }
#pragma unroll
                    for (int n = 0; n < PART / 16; n++) {
                        int at = chunks_first<W>(part * PART + n * 16, 2 * d, lane);
                        ldmatrix_x4(f, q_tile + at);
                        mma_16x8x16(s[2 * n], KEPT ? keys[d] : kf, f[0], f[1]);
                        mma_16x8x16(s[2 * n + 1], KEPT ? keys[d] : kf, f[2], f[3]);
                        ldmatrix_x4(f, o_tile + at);
                        mma_16x8x16(dp[2 * n], KEPT ? values[d] : vf, f[0], f[1]);
                        mma_16x8x16(dp[2 * n + 1], KEPT ? values[d] : vf, f[2], f[3]);
                    }
                }
            }
            if (weights.starts)
#pragma unroll
                for (int n = 0; n < PART / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int query = tile * QUERIES + part * PART + n * 8 + 2 * t4 + (e & 1);
                        if (kb * KEYS + warp * 16 + g + (e >> 1) * 8 < first_key_of(weights, b, query, T))
                            s[n][e] = -INFINITY;
                    }
            if (weights.mask)
#pragma unroll
                for (int n = 0; n < PART / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        dp[n][e] =
                            kept[n / 4] >> (2 * (n & 3) + (e & 1) + 8 * (e >> 1)) & 1 ? dp[n][e] * scale_of_kept : 0;
            uint32_t p[PART / 16][4], ds[PART / 16][4];
#pragma unroll
            for (int n = 0; n < PART / 8; n++) {
                float4 x = ((const float4 *)s_tile)[(part * PART + n * 8 + 2 * t4) / 2]; // two queries' statistics
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float pe = exp2_fast(s[n][e] * scale - (e & 1 ? x.z : x.x));
                    int key = kb * KEYS + warp * 16 + g + (e >> 1) * 8;
                    if (diagonal && key > tile * QUERIES + part * PART + n * 8 + 2 * t4 + (e & 1)) pe = 0;
                    s[n][e] = pe, dp[n][e] = pe * (dp[n][e] - (e & 1 ? x.w : x.y));
                }
#pragma unroll
                for (int r = 0; r < 2; r++) { // accumulator rows g, g+8 are registers r, r+2 of operand A
                    int to = (n & 1) * 2 + r;
                    p[n >> 1][to] = pack(s[n][2 * r], s[n][2 * r + 1]);
                    ds[n >> 1][to] = pack(dp[n][2 * r], dp[n][2 * r + 1]);
                    uint32_t *shared =
                        (uint32_t *)(ds_tile + chunk_at<WS>(warp * 16 + g + r * 8, part * (PART / 8) + n));
                    if (WGMMA)
                        put_async(shared + t4, ds[n >> 1][to]);
                    else if (FUSED)
                        shared[t4] = ds[n >> 1][to];
                }
            }
            if (weights.mask)
#pragma unroll
                for (int n = 0; n < PART / 8; n++)
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        const uint32_t pair = kept[n / 4] >> (2 * (n & 3) + 8 * r);
                        p[n >> 1][(n & 1) * 2 + r] &= (pair & 1 ? 0xffffu : 0) | (pair & 2 ? 0xffff0000u : 0);
                    }
            if constexpr (WGMMA) {
                async_fence();
                wgmma_fence();
#pragma unroll
                for (int kk = 0; kk < PART / 16; kk++) wgmma<TERM>(dv, p[kk], o_tile, kk);
#pragma unroll
                for (int kk = 0; kk < PART / 16; kk++) wgmma<TERM>(dk, ds[kk], q_tile, kk);
                wgmma_commit();
            } else {
#pragma unroll
                for (int kk = 0; kk < PART / 16; kk++)
#pragma unroll
                    for (int n = 0; n < D / 16; n++) {
                        uint32_t f[4];
                        int at = rows_first<W>(part * PART + kk * 16, 2 * n, lane);
                        ldmatrix_x4_transposed(f, o_tile + at);
                        mma_16x8x16(dv[2 * n], p[kk], f[0], f[1]);
                        mma_16x8x16(dv[2 * n + 1], p[kk], f[2], f[3]);
                        ldmatrix_x4_transposed(f, q_tile + at);
                        mma_16x8x16(dk[2 * n], ds[kk], f[0], f[1]);
                        mma_16x8x16(dk[2 * n + 1], ds[kk], f[2], f[3]);
                    }
            }
        }
        if (!FUSED) continue;
        int before = tile * QUERIES / KEYS - kb, row16 = warp % (QUERIES / 16), strip = warp / (QUERIES / 16);
        if (threadIdx.x == 0) WAIT_UNTIL(load_acquire(turn + tile) == before);
        __syncthreads(); // dS of all warps has arrived, and it is our turn
        float4 *dq_tile =
            dq_sums + ((size_t)bh * tile_count + tile) * (QUERIES * D / 4) + warp * (COLUMNS / 8) * 32 + lane;
#pragma unroll 1
        for (int c = 0; c < COLUMNS; c += STRETCH) {
            float a[STRETCH / 8][4] = {};
            if (before)
#pragma unroll
                for (int n = 0; n < STRETCH / 8; n++) {
                    float4 x = __ldcg(dq_tile + (c / 8 + n) * 32);
                    a[n][0] = x.x, a[n][1] = x.y, a[n][2] = x.z, a[n][3] = x.w;
                }
            if constexpr (WGMMA) {
                wgmma_fence();
#pragma unroll
                for (int kk = 0; kk < KEYS / 16; kk++) wgmma<TERM, TERM>(a, ds_tile, k_tile, kk);
                wgmma_commit();
                wgmma_wait<0>(a), wgmma_wait<0>(dv), wgmma_wait<0>(dk);
            } else {
#pragma unroll
                for (int kk = 0; kk < KEYS / 16; kk++) {
                    uint32_t sf[4];
                    ldmatrix_x4_transposed(sf, ds_tile + chunks_first<WS>(kk * 16, 2 * row16, lane));
#pragma unroll
                    for (int n = 0; n < STRETCH / 16; n++) {
                        uint32_t f[4];
                        ldmatrix_x4_transposed(f, k_tile +
                                                      rows_first<W>(kk * 16, (strip * COLUMNS + c) / 8 + 2 * n, lane));
                        mma_16x8x16(a[2 * n], sf, f[0], f[1]);
                        mma_16x8x16(a[2 * n + 1], sf, f[2], f[3]);
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < STRETCH / 8; n++) {
                if (kb) {
                    __stcg(dq_tile + (c / 8 + n) * 32, make_float4(a[n][0], a[n][1], a[n][2], a[n][3]));
                    continue;
                }
#pragma unroll
                for (int r = 0; r < 2; r++) { // the last to come writes the result
                    int row = tile * QUERIES + row16 * 16 + g + r * 8, column = strip * COLUMNS + c + n * 8;
                    if (row < T && column < width)
                        *(uint32_t *)(dqkv + origin + row * stride + column + 2 * t4) =
                            pack(a[n][2 * r] * root, a[n][2 * r + 1] * root);
                }
            }
        }
    }
    if (FUSED) {
        __syncthreads();
        if (threadIdx.x == 0) store_release(turn + tile_count - 1, (tile_count - 1) * QUERIES / KEYS - kb + 1);
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

// dQ alone: WARPS warps of 16 queries, Q and dO in registers, KEYS keys a step.
template <int D, int WARPS, int KEYS, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, blocks_at_once<BLOCKS>)
    queries_gradient(act *__restrict__ dqkv, const act *__restrict__ qkv, const act *__restrict__ dout,
                     const float2 *__restrict__ statistics, Weights weights, int T, int padded, int H, int width) {
    constexpr int QUERIES = WARPS * 16, W = D / 8, THREADS = WARPS * 32;
    DYNAMIC_SHARED(uint4, tiles);
    uint4 *q_tile = tiles, *o_tile = q_tile + QUERIES * W, *k_tiles = o_tile + QUERIES * W;
    uint4 *v_tiles = k_tiles + 2 * KEYS * W;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    int block = gridDim.x - 1 - blockIdx.x, h = blockIdx.y, b = blockIdx.z; // the longest rows start first
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
    load_keys(0);
    cp_async_commit();

    const float root = rsqrtf((float)width), scale = LOG2E * root;
    float dq[D / 8][4] = {};
    uint32_t queries[D / 16][4], outs[D / 16][4];
    float2 x[2];
    int row0 = block * QUERIES + warp * 16 + g, steps = (min((block + 1) * QUERIES, T) - 1) / KEYS + 1;
    for (int r = 0; r < 2; r++)
        x[r] =
            row0 + r * 8 < padded ? statistics[((size_t)b * H + h) * padded + row0 + r * 8] : make_float2(INFINITY, 0);
    for (int step = 0; step < steps; step++) {
        const uint4 *k_tile = k_tiles + (step & 1) * KEYS * W, *v_tile = v_tiles + (step & 1) * KEYS * W;
        cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < steps) load_keys(step + 1);
        cp_async_commit();
        if (step == 0)
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                ldmatrix_x4(queries[d], q_tile + rows_first<W>(warp * 16, 2 * d, lane));
                ldmatrix_x4(outs[d], o_tile + rows_first<W>(warp * 16, 2 * d, lane));
            }
        bool diagonal = (step + 1) * KEYS > block * QUERIES;
#pragma unroll 1
        for (int part = 0; part < KEYS / 32; part++) {
            uint32_t kept = 0;
            if (weights.mask) kept = kept_scores<32>(weights, b, h, row0 - g, step * KEYS + part * 32, T, lane);
            float s[4][4] = {}, dp[4][4] = {};
            uint32_t f[4], ds[2][4];
#pragma unroll
            for (int d = 0; d < D / 16; d++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    int at = chunks_first<W>(part * 32 + n * 16, 2 * d, lane);
                    ldmatrix_x4(f, k_tile + at);
                    mma_16x8x16(s[2 * n], queries[d], f[0], f[1]);
                    mma_16x8x16(s[2 * n + 1], queries[d], f[2], f[3]);
                    ldmatrix_x4(f, v_tile + at);
                    mma_16x8x16(dp[2 * n], outs[d], f[0], f[1]);
                    mma_16x8x16(dp[2 * n + 1], outs[d], f[2], f[3]);
                }
            if (weights.starts)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int first = first_key_of(weights, b, row0 + r * 8, T) - step * KEYS - part * 32 - 2 * t4;
#pragma unroll
                    for (int n = 0; n < 4; n++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            if (n * 8 + e < first) s[n][2 * r + e] = -INFINITY;
                }
            if (weights.mask)
#pragma unroll
                for (int n = 0; n < 4; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        dp[n][e] = kept >> kept_bit(n, e) & 1 ? dp[n][e] * weights.mask->scale : 0;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float y[2];
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float pe = exp2_fast(s[n][2 * r + e] * scale - x[r].x);
                        if (diagonal && step * KEYS + part * 32 + n * 8 + 2 * t4 + e > row0 + r * 8) pe = 0;
                        y[e] = pe * (dp[n][2 * r + e] - x[r].y);
                    }
                    ds[n >> 1][(n & 1) * 2 + r] = pack(y[0], y[1]);
                }
#pragma unroll
            for (int kk = 0; kk < 2; kk++)
#pragma unroll
                for (int n = 0; n < D / 16; n++) {
                    ldmatrix_x4_transposed(f, k_tile + rows_first<W>(part * 32 + kk * 16, 2 * n, lane));
                    mma_16x8x16(dq[2 * n], ds[kk], f[0], f[1]);
                    mma_16x8x16(dq[2 * n + 1], ds[kk], f[2], f[3]);
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

// Where the three arrays lie in the scratch; the sums of dQ come first, since they need the most alignment.
typedef struct {
    float4 *dq_sums;
    float2 *statistics;
    int *turns, turn_count;
    int padded;
    size_t bytes;
} Scratch;

static Scratch lay_out(char *base, int B, int T, int H, int D) {
    Scratch s = {};
    s.padded = (T + TILE - 1) / TILE * TILE;
    size_t rows = (size_t)B * H * s.padded, sums = rows * attention_width(D) * sizeof(float);
    s.turn_count = 1 + (int)(rows / 16); // of the shortest tile
    s.dq_sums = (float4 *)base, s.statistics = (float2 *)(base + sums);
    s.turns = (int *)(base + sums + rows * sizeof(float2));
    s.bytes = sums + rows * sizeof(float2) + (size_t)s.turn_count * sizeof(int);
    return s;
}

size_t FOR_ACT(cuda_attention_scratch)(const Shape *shape) {
    return lay_out(NULL, shape->B, shape->T, shape->H, shape->C / shape->H).bytes;
}

namespace { // it differs from type to type

struct Call {
    act *dqkv;
    const act *dout, *out, *qkv;
    const float *lse;
    Weights weights;
    int B, T, H, width;
    Scratch scratch;
};

template <int D, int WARPS, int QUERIES, int PART, bool KEPT, bool FUSED, bool EXACT, int BLOCKS, bool WGMMA = false>
struct Keys {
    static constexpr size_t bytes = shared_bytes<D, WARPS, QUERIES, KEPT>;

    // How many of its blocks a multiprocessor takes at a time.
    static int resident() {
        static int blocks = 0;
        if (blocks) return blocks;
        auto kernel = keys_gradient<D, WARPS, QUERIES, PART, KEPT, FUSED, EXACT, BLOCKS, WGMMA>;
        cuda_check(ALLOW_SHARED(kernel, (int)bytes), "attention_backward");
        cuda_check(BLOCKS_PER_MULTIPROCESSOR(&blocks, kernel, WARPS * 32, bytes), "attention_backward");
        return blocks;
    }

    static void launch(const Call &c) {
        if (!resident()) cuda_check(cudaErrorLaunchOutOfResources, "attention_backward");
        auto kernel = keys_gradient<D, WARPS, QUERIES, PART, KEPT, FUSED, EXACT, BLOCKS, WGMMA>;
        LAUNCH(kernel, blocks_of((size_t)c.T, WARPS * 16) * (unsigned)(c.B * c.H), WARPS * 32, bytes, cuda.stream,
               c.dqkv, c.scratch.dq_sums, c.scratch.turns, c.qkv, c.dout, (const float2 *)c.scratch.statistics,
               c.weights, c.T, c.scratch.padded, c.H, c.width);
    }
};

} // namespace

static void launch_queries(const Call &c) {
    constexpr int WARPS = 4, KEYS = 64;
    constexpr size_t bytes = (size_t)(2 * WARPS * 16 + 4 * KEYS) * 64 * sizeof(act);
    auto kernel = queries_gradient<64, WARPS, KEYS, 3>;
    static const cudaError_t allowed = ALLOW_SHARED(kernel, (int)bytes);
    cuda_check(allowed, "attention_backward");
    LAUNCH(kernel, dim3(blocks_of((size_t)c.T, WARPS * 16), (unsigned)c.H, (unsigned)c.B), WARPS * 32, bytes,
           cuda.stream, c.dqkv, c.qkv, c.dout, (const float2 *)c.scratch.statistics, c.weights, c.T, c.scratch.padded,
           c.H, c.width);
}

// Heads of up to 64 channels: three blocks on a multiprocessor whose shared memory holds them, else two of the variant
// with larger parts; and the split form while the grid would not fill the card three times over.
static void launch_64(const Call &c) {
    typedef Keys<64, 4, 64, 16, true, true, true, 3> Three;
    typedef Keys<64, 4, 64, 32, true, true, true, 2> Two;
    typedef Keys<64, 4, 64, 32, true, true, false, 2> Narrow;
    typedef Keys<64, 4, 64, 16, true, false, true, 3> Split;
    typedef Keys<64, 4, 64, 64, false, true, false, 3, true> Together;
    if (attention_by_wgmma()) return Together::launch(c);
    if (c.width != 64) return Narrow::launch(c);
    AttentionForm form = cuda_attention_form;
    int blocks = c.B * c.H * (int)blocks_of((size_t)c.T, 64);
    if (form == ATTENTION_AUTO || form == ATTENTION_WGMMA)
        form = blocks < 3 * cuda.multiprocessors * Split::resident() ? ATTENTION_SPLIT
               : Three::resident() >= 3                              ? ATTENTION_FUSED_3
                                                                     : ATTENTION_FUSED_2;
    if (form == ATTENTION_SPLIT)
        Split::launch(c), launch_queries(c);
    else if (form == ATTENTION_FUSED_3)
        Three::launch(c);
    else
        Two::launch(c);
}

// Tiles of 16 queries where a block's shared memory does not hold 32: Turing's 64 KiB.
static void launch_128(const Call &c) {
    typedef Keys<128, 4, 32, 32, false, true, false, 1> Whole;
    typedef Keys<128, 4, 16, 16, false, true, false, 1> Half;
    if (Whole::bytes <= cuda.shared_bytes)
        Whole::launch(c);
    else
        Half::launch(c);
}

void FOR_ACT(cuda_attention_backward)(Act *dqkv, Grad *dbias, const Act *dout, const Act *out, const float *lse,
                                      const Act *qkv, const int32_t *starts, const Dropout *dropout, int layer, int B,
                                      int T, int H, int D, bool add) {
    Call c = {(act *)dqkv,
              (const act *)dout,
              (const act *)out,
              (const act *)qkv,
              lse,
              weights_of(starts, dropout, layer),
              B,
              T,
              H,
              D,
              {}};
    c.scratch = lay_out((char *)cuda.scratch, B, T, H, D);
    LAUNCH(prepare, blocks_of((size_t)B * c.scratch.padded * H * 8, 256), 256, 0, cuda.stream, c.scratch.statistics,
           c.scratch.turns, c.scratch.turn_count, c.out, c.dout, lse, B, T, c.scratch.padded, H, D);
    if (attention_width(D) == 64)
        launch_64(c);
    else if (attention_width(D) == 96)
        Keys<96, 4, 32, 32, false, true, false, 2>::launch(c);
    else
        launch_128(c);
    if (dbias) FOR_ACT(column_sums)(dbias, dqkv, B * T, 3 * H * D, add);
}
