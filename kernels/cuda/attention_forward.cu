// Causal flash attention forward: WARPS warps with M_TILES tiles of 16 queries each, KEYS keys a step, keys and
// values double buffered. Scores and the running softmax never leave the registers. Dropout takes weights out after
// they have been added to the softmax's denominator. WGMMA: the warps multiply together, 64 queries at a time, and a
// tile's softmax overlaps with another one's products.
#include "kernels/cuda/attention.cuh"

enum { WARPS = 4, THREADS = WARPS * 32 };

template <int D, int M_TILES, int KEYS>
constexpr size_t shared_bytes = (size_t)(WARPS *M_TILES * 16 + 4 * KEYS) * D * sizeof(act);

template <int D, int M_TILES, int KEYS, int BLOCKS, bool WGMMA>
__global__ void __launch_bounds__(THREADS, blocks_at_once<BLOCKS>)
    flash(act *__restrict__ out, float *__restrict__ lse, const act *__restrict__ qkv, Weights weights, int T, int H,
          int width) {
    constexpr int QUERIES = WARPS * M_TILES * 16, W = D / 8,
                  ROWS_APART = WGMMA ? WGMMA_ROWS : 16; // of two tiles of a warp
    static_assert(!WGMMA || (D == 64 && KEYS == 64), "tiles of 64 x 64");
    if (!is_launched<shared_bytes<D, M_TILES, KEYS>> || (WGMMA && !has_wgmma)) return;
    DYNAMIC_SHARED(uint4, tiles);
    uint4 *q_tile = tiles, *k_tiles = q_tile + QUERIES * W, *v_tiles = k_tiles + 2 * KEYS * W;
    int block = (T - 1) / QUERIES - blockIdx.x, h = blockIdx.y, b = blockIdx.z; // the longest rows start first
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    int stride = 3 * H * width;
    const act *q = qkv + (size_t)b * T * stride + h * width, *k = q + H * width, *v = k + H * width;
    auto load_keys = [&](int step) {
        load_tile<W, KEYS, THREADS>(k_tiles + (step & 1) * KEYS * W, k, stride, step * KEYS, T, width);
        load_tile<W, KEYS, THREADS>(v_tiles + (step & 1) * KEYS * W, v, stride, step * KEYS, T, width);
    };
    load_tile<W, QUERIES, THREADS>(q_tile, q, stride, block * QUERIES, T, width);
    load_keys(0);
    cp_async_commit();

    const float scale = LOG2E * rsqrtf((float)width); // exponentials are powers of two
    float sums[M_TILES][D / 8][4] = {}, most[M_TILES][2], weight[M_TILES][2] = {};
    uint32_t queries[WGMMA ? 1 : M_TILES][D / 16][4];
#pragma unroll
    for (int i = 0; i < M_TILES; i++) most[i][0] = most[i][1] = -INFINITY;
    int steps = (min((block + 1) * QUERIES, T) - 1) / KEYS + 1,
        row0 = block * QUERIES + warp * (WGMMA ? 16 : M_TILES * 16) + g;
    for (int step = 0; step < steps; step++) {
        const uint4 *k_tile = k_tiles + (step & 1) * KEYS * W, *v_tile = v_tiles + (step & 1) * KEYS * W;
        cp_async_wait<0>();
        if (WGMMA) async_fence();
        __syncthreads();
        if (step + 1 < steps) load_keys(step + 1);
        cp_async_commit();
        if (!WGMMA && step == 0)
#pragma unroll
            for (int i = 0; i < M_TILES; i++)
#pragma unroll
                for (int d = 0; d < D / 16; d++)
                    ldmatrix_x4(queries[i][d], q_tile + rows_first<W>((warp * M_TILES + i) * 16, 2 * d, lane));

        uint32_t kept[M_TILES];
        if (weights.mask)
#pragma unroll
            for (int i = 0; i < M_TILES; i++)
                kept[i] = kept_scores<KEYS>(weights, b, h, row0 - g + i * ROWS_APART, step * KEYS, T, lane);
        float s[M_TILES][KEYS / 8][4];
        uint32_t p[M_TILES][KEYS / 16][4];
        if constexpr (WGMMA) {
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < M_TILES; i++) {
#pragma unroll
                for (int d = 0; d < D / 16; d++) wgmma<LINE, LINE>(s[i], q_tile + i * WGMMA_ROWS * W, k_tile, d, d > 0);
                wgmma_commit();
            }
        } else {
            memset(s, 0, sizeof s);
#pragma unroll
            for (int d = 0; d < D / 16; d++)
#pragma unroll
                for (int n = 0; n < KEYS / 16; n++) {
                    uint32_t f[4];
                    ldmatrix_x4(f, k_tile + chunks_first<W>(n * 16, 2 * d, lane));
#pragma unroll
                    for (int i = 0; i < M_TILES; i++) {
                        mma_16x8x16(s[i][2 * n], queries[i][d], f[0], f[1]);
                        mma_16x8x16(s[i][2 * n + 1], queries[i][d], f[2], f[3]);
                    }
                }
        }
#pragma unroll
        for (int i = 0; i < M_TILES; i++) {
            const int row = row0 + i * ROWS_APART;
            if constexpr (WGMMA) wgmma_wait<M_TILES - 1>(s[i]);
            if ((step + 1) * KEYS > block * QUERIES) // the diagonal
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (step * KEYS + n * 8 + 2 * t4 + (e & 1) > row + (e >> 1) * 8) s[i][n][e] = -INFINITY;
            if (weights.starts)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int first = first_key_of(weights, b, row + r * 8, T) - step * KEYS - 2 * t4;
#pragma unroll
                    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            if (n * 8 + e < first) s[i][n][2 * r + e] = -INFINITY;
                }
#pragma unroll
            for (int r = 0; r < 2; r++) { // rows g and g+8; four lanes hold a row
                float x = most[i][r];
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) x = fmaxf(x, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
                const float top = x == -INFINITY ? 0 : x; // no key of the row so far
                float fade = exp2_fast((most[i][r] - top) * scale), shift = top * scale, sum = 0;
                most[i][r] = x;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int e = 2 * r; e < 2 * r + 2; e++)
                        sum += s[i][n][e] = exp2_fast(fmaf(s[i][n][e], scale, -shift)); // as nvcc contracts it
                weight[i][r] = weight[i][r] * fade + sum;
#pragma unroll
                for (int d = 0; d < D / 8; d++) sums[i][d][2 * r] *= fade, sums[i][d][2 * r + 1] *= fade;
            }
            if (weights.mask)
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (!(kept[i] >> kept_bit(n, e) & 1)) s[i][n][e] = 0;
#pragma unroll
            for (int kk = 0; kk < KEYS / 16; kk++) // accumulators are laid out as the next product's operand A
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float *pair = s[i][2 * kk + (e >> 1)] + (e & 1) * 2;
                    p[i][kk][e] = pack(pair[0], pair[1]);
                }
            if constexpr (WGMMA) {
                wgmma_fence();
#pragma unroll
                for (int kk = 0; kk < KEYS / 16; kk++) wgmma<TERM>(sums[i], p[i][kk], v_tile, kk);
                wgmma_commit();
            }
        }
        if constexpr (WGMMA) {
#pragma unroll
            for (int i = 0; i < M_TILES; i++) wgmma_wait<0>(sums[i]);
        } else {
#pragma unroll
            for (int kk = 0; kk < KEYS / 16; kk++)
#pragma unroll
                for (int d = 0; d < D / 16; d++) {
                    uint32_t f[4];
                    ldmatrix_x4_transposed(f, v_tile + rows_first<W>(kk * 16, 2 * d, lane));
#pragma unroll
                    for (int i = 0; i < M_TILES; i++) {
                        mma_16x8x16(sums[i][2 * d], p[i][kk], f[0], f[1]);
                        mma_16x8x16(sums[i][2 * d + 1], p[i][kk], f[2], f[3]);
                    }
                }
        }
    }
    const float scale_of_kept = weights.mask ? weights.mask->scale : 1;
#pragma unroll
    for (int i = 0; i < M_TILES; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float z = weight[i][r];
            z += __shfl_xor_sync(0xffffffffu, z, 1);
            z += __shfl_xor_sync(0xffffffffu, z, 2);
            int row = row0 + i * ROWS_APART + r * 8;
            if (row >= T) continue;
            float share = scale_of_kept / z;
            act *to = out + (((size_t)b * T + row) * H + h) * width;
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                if (d * 8 < width)
                    *(uint32_t *)(to + d * 8 + 2 * t4) = pack(sums[i][d][2 * r] * share, sums[i][d][2 * r + 1] * share);
            if (t4 == 0) lse[((size_t)b * H + h) * T + row] = most[i][r] * scale / LOG2E + logf(z);
        }
}

template <int D, int M_TILES, int KEYS, int BLOCKS, bool WGMMA = false>
static void launch(act *out, float *lse, const act *qkv, Weights weights, int B, int T, int H, int width, int from) {
    constexpr int queries = WARPS * M_TILES * 16;
    constexpr size_t bytes = shared_bytes<D, M_TILES, KEYS>;
    auto kernel = flash<D, M_TILES, KEYS, BLOCKS, WGMMA>;
    static const cudaError_t allowed = ALLOW_SHARED(kernel, (int)bytes);
    cuda_check(allowed, "attention_forward");
    LAUNCH(kernel, dim3(blocks_of((size_t)(T - from / queries * queries), queries), (unsigned)H, (unsigned)B), THREADS,
           bytes, cuda.stream, out, lse, qkv, weights, T, H, width);
}

void FOR_ACT(cuda_attention_forward)(Act *out, float *lse, const Act *qkv, const int32_t *starts,
                                     const Dropout *dropout, int layer, int B, int T, int H, int D, int from) {
    auto kernel = attention_width(D) == 64 ? (attention_by_wgmma() ? launch<64, 2, 64, 3, true> : launch<64, 2, 64, 2>)
                  : attention_width(D) == 96                      ? launch<96, 1, 64, 2>
                  : shared_bytes<128, 1, 64> <= cuda.shared_bytes ? launch<128, 1, 64, 2>
                                                                  : launch<128, 1, 32, 2>; // Turing: 64 KiB
    kernel((act *)out, lse, (const act *)qkv, weights_of(starts, dropout, layer), B, T, H, D, from);
}

extern "C" bool FOR_ACT(attention_has_wgmma)(void) { return ptx_version(flash<64, 2, 64, 3, true>) >= 90; }
