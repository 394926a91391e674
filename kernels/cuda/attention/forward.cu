// Causal flash attention forward: each warp of a block has TILES tiles of 16 queries, and a step reads KEYS keys and
// values, double buffered. Scores and the running softmax never leave the registers. Dropout takes weights out after
// they have been added to the softmax's denominator.
#ifndef ACT_FP32 // fp32.cu
#include "kernels/cuda/attention/softmax.cuh"

// The variants of the kernel, by the channels D of a head.
struct ForwardConfig {
    static constexpr int WARPS = 4, TILES = 1, KEYS = 64;
    static constexpr int BLOCKS = 2; // on a multiprocessor
};
struct Forward64 : ForwardConfig {
    static constexpr int D = 64, TILES = 2;
};
struct Forward96 : ForwardConfig {
    static constexpr int D = 96;
};
struct Forward128 : ForwardConfig {
    static constexpr int D = 128;
};
struct Forward128Turing : Forward128 { // 64 KiB of shared memory
    static constexpr int KEYS = 32;
};
template <class C> constexpr int queries_of = C::WARPS *C::TILES * 16; // of a block
template <class C> constexpr size_t shared_bytes = (size_t)(queries_of<C> + 4 * C::KEYS) * C::D * sizeof(act);

// s = Q K^T for each of the warp's tiles. `queries`: Q in registers.
template <class C>
INLINE void multiply_keys(float (&s)[C::TILES][C::KEYS / 8][4], const uint32_t (&queries)[C::TILES][C::D / 16][4],
                          const uint4 *k_tile, int lane) {
    constexpr int W = C::D / 8;
    memset(s, 0, sizeof s);
#pragma unroll
    for (int d = 0; d < C::D / 16; d++)
#pragma unroll
        for (int n = 0; n < C::KEYS / 16; n++) {
            uint32_t f[4];
            ldmatrix_x4(f, k_tile + chunks_first<W>(n * 16, 2 * d, lane));
#pragma unroll
            for (int i = 0; i < C::TILES; i++) add_product(s[i] + 2 * n, queries[i][d], f);
        }
}

template <class C>
__global__ void __launch_bounds__(C::WARPS * 32, blocks_at_once<C::BLOCKS>)
    attention_forward_kernel(act *__restrict__ out, float *__restrict__ lse, const act *__restrict__ qkv,
                             AttentionMask mask, const int32_t *positions, int T, int H, int width, int wave) {
    constexpr int D = C::D, TILES = C::TILES, KEYS = C::KEYS, QUERIES = queries_of<C>, THREADS = C::WARPS * 32;
    constexpr int W = D / 8;
    if (!is_launched<shared_bytes<C>>) return;
    DYNAMIC_SHARED(uint4, tiles);
    uint4 *q_tile = tiles, *k_tiles = q_tile + QUERIES * W, *v_tiles = k_tiles + 2 * KEYS * W;
    const RowsOfBlock mine = rows_of_block(wave);
    const int block = (T - 1) / QUERIES - mine.last, h = mine.h, b = mine.b;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    int stride = 3 * H * width;
    const act *q = qkv + (size_t)b * T * stride + h * width, *k = q + H * width, *v = k + H * width;
    auto load_keys = [&](int step) {
        load_tile<W, KEYS, THREADS>(k_tiles + (step & 1) * KEYS * W, k, stride, step * KEYS, T, width);
        load_tile<W, KEYS, THREADS>(v_tiles + (step & 1) * KEYS * W, v, stride, step * KEYS, T, width);
    };
    load_tile<W, QUERIES, THREADS>(q_tile, q, stride, block * QUERIES, T, width);
    // keys that no row sees are before
    const int first = positions ? 0 : first_key_at(mask, b, block * QUERIES, T) / KEYS;
    load_keys(first);
    cp_async_commit();

    const float scale = LOG2E * rsqrtf((float)width); // exponentials are powers of two
    Softmax<D> softmax[TILES] = {};
    uint32_t queries[TILES][D / 16][4];
#pragma unroll
    for (int i = 0; i < TILES; i++) softmax[i].most[0] = softmax[i].most[1] = -INFINITY;
    int steps = (min((block + 1) * QUERIES, T) - 1) / KEYS + 1, row0 = block * QUERIES + warp * TILES * 16 + g;
    for (int step = first; step < steps; step++) {
        const uint4 *k_tile = k_tiles + (step & 1) * KEYS * W, *v_tile = v_tiles + (step & 1) * KEYS * W;
        cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < steps) load_keys(step + 1);
        cp_async_commit();
        if (step == first)
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int d = 0; d < D / 16; d++)
                    ldmatrix_x4(queries[i][d], q_tile + rows_first<W>((warp * TILES + i) * 16, 2 * d, lane));

        uint32_t kept[TILES];
        if (mask.dropout)
#pragma unroll
            for (int i = 0; i < TILES; i++)
                kept[i] = kept_scores<QUERY_ROWS, KEYS>(mask, b, h, row0 - g + i * 16, step * KEYS, T, lane);
        float s[TILES][KEYS / 8][4];
        uint32_t p[TILES][KEYS / 16][4];
        multiply_keys<C>(s, queries, k_tile, lane);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int query = row0 + i * 16, key = step * KEYS + 2 * t4;
            if ((step + 1) * KEYS > block * QUERIES) // the diagonal
                hide_later_keys<QUERY_ROWS>(s[i], query, key);
            if (mask.starts) mask_scores<QUERY_ROWS>(s[i], mask, b, query, key, T, positions);
            float fades[2];
            softmax_weigh(softmax[i], s[i], fades, scale);
            softmax_fade(softmax[i], fades);
            if (mask.dropout) drop_scores<QUERY_ROWS>(s[i], kept[i], 1);
            softmax_pack(p[i], s[i]);
        }
#pragma unroll
        for (int kk = 0; kk < KEYS / 16; kk++)
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                uint32_t f[4];
                ldmatrix_x4_transposed(f, v_tile + rows_first<W>(kk * 16, 2 * d, lane));
#pragma unroll
                for (int i = 0; i < TILES; i++) add_product(softmax[i].sums + 2 * d, p[i][kk], f);
            }
    }
    const float scale_of_kept = mask.dropout ? mask.dropout->scale : 1;
#pragma unroll
    for (int i = 0; i < TILES; i++)
        softmax_store(softmax[i], out, lse, scale, scale_of_kept, b, h, row0 + i * 16, T, H, width, t4);
}

template <class C> static void launch(act *out, float *lse, const act *qkv, const Attention &a) {
    constexpr int queries = queries_of<C>;
    auto kernel = attention_forward_kernel<C>;
    static const cudaError_t allowed = ALLOW_SHARED(kernel, (int)shared_bytes<C>);
    cuda_check(allowed, "attention_forward");
    static const int resident = resident_blocks(kernel, C::WARPS * 32, shared_bytes<C>);
    const dim3 grid(blocks_of((size_t)(a.T - a.from / queries * queries), queries), (unsigned)a.H, (unsigned)a.B);
    LAUNCH(kernel, grid, C::WARPS * 32, shared_bytes<C>, cuda.stream, out, lse, qkv, attention_mask(a), a.positions,
           a.T, a.H, a.D, wave_of(grid, resident));
}

void FOR_ACT(cuda_attention_forward)(Act *out, float *lse, const Act *qkv, const Attention *attention) {
    const int width = attention_width(attention->D);
    if (attention_by_tma(*attention)) return FOR_ACT(attention_forward_by_tma)(out, lse, qkv, *attention);
    auto kernel = width == 64                                     ? launch<Forward64>
                  : width == 96                                   ? launch<Forward96>
                  : shared_bytes<Forward128> <= cuda.shared_bytes ? launch<Forward128>
                                                                  : launch<Forward128Turing>;
    kernel((act *)out, lse, (const act *)qkv, *attention);
}
#endif
