// Causal attention of float32 activations, forward and backward, in plain float32 without tensor cores. A block owns a
// tile of 64 rows, of queries or, in the gradients of keys and values, of keys, and walks the tiles of the other side.
// A thread computes 8 x 4 scores of a tile, and for 8 rows 4 or 8 channels of the block's sums. Shared memory holds 32
// channels of two tiles for the scores, then the scores' weights and 4,096 numbers of the rows they multiply: 39 KB for
// every head width. Sums are 64 or 128 channels wide; channels that a head lacks read as zeros and are not written. All
// sums are made in a fixed order. dQ has a kernel of its own and dK with dV another; each computes the scores again, so
// that no block adds to the sums of another block.
#ifdef ACT_FP32
#include "kernels/cuda/ptx.cuh"

enum { TILE = 64, THREADS = 128, ROWS = 8, COLUMNS = 4 }; // a thread has ROWS x COLUMNS of TILE x TILE
enum { SLICE = 8, SLICE_STRIDE = SLICE + 1 }; // channels of a tile, in float4: an odd stride spares the banks
enum { WEIGHTS_STRIDE = 80 };                 // two rows that a warp writes share no bank
enum { TILES = 2 * TILE * SLICE_STRIDE, WEIGHTS = TILE * WEIGHTS_STRIDE / 4 };
typedef float Scores[ROWS][COLUMNS];

// On a multiprocessor, of kernels that sum N channels a thread. Compute capability 12.0 spills with three, and its
// shared memory holds two.
template <int N> constexpr int blocks_at_once = N == 4 && ARCH < 1200 ? 3 : 2;

// A thread's place in a tile. A warp has 16 rows, and each of its lanes every second one of them; columns are 16 apart.
// Lanes 2n and 2n + 1 read the same columns, lanes n and n + 2 the same rows: few addresses for one load.
INLINE int row_of(int i) { return threadIdx.x / 32 * 2 * ROWS + 2 * i + threadIdx.x % 2; }
INLINE int first_column() { return threadIdx.x % 32 / 2; }
INLINE int column_of(int j) { return first_column() + 16 * j; }
INLINE int channel_of(int n) { return first_column() * 4 + n / 4 * 64 + n % 4; } // of the sums

struct HeadArrays {
    int T, H, D;
    const int32_t *starts;  // (B,T): the first key of each query; NULL: 0
    const Dropout *dropout; // NULL: none
    uint32_t layer_site;
};

// The rows of the block's head from some row on; those from `count` on read as zeros.
struct HeadRows {
    const float *at;
    int stride, count, D;
};
INLINE HeadRows rows_from(const HeadRows &x, int row) { return {x.at + row * x.stride, x.stride, x.count - row, x.D}; }
INLINE HeadRows rows_of(const float *x, const HeadArrays &a, int parts, int part, int row = 0) { // x (B,T,parts,H,D)
    const int stride = parts * a.H * a.D, h = blockIdx.y, b = blockIdx.z;
    return rows_from({x + (size_t)b * a.T * stride + (part * a.H + h) * a.D, stride, a.T, a.D}, row);
}
INLINE size_t statistic_of(const HeadArrays &a, int row) { // in lse and deltas; beyond T, of the last row
    return ((size_t)blockIdx.z * a.H + blockIdx.y) * a.T + min(row, a.T - 1);
}
// The first of the keys that a query sees; the last one is itself.
INLINE int first_key(const HeadArrays &a, int query) {
    return a.starts ? a.starts[(size_t)blockIdx.z * a.T + min(query, a.T - 1)] : 0;
}

// The first keys of the sequence with which the text of a query begins.
INLINE int shared_keys(const HeadArrays &a, int query, const int32_t *positions) {
    return positions[(size_t)blockIdx.z * a.T + min(query, a.T - 1)] - (min(query, a.T - 1) - first_key(a, query));
}

// COUNT rows and W float4 of each, from `channel` on.
template <int COUNT, int W, int STRIDE> INLINE void load_tile(float4 *tile, const HeadRows &from, int channel) {
    static_assert(COUNT * W % THREADS == 0, "whole rounds");
    const int row = threadIdx.x / W, c = channel + threadIdx.x % W * 4;
    const float *at = from.at + row * from.stride + c;
#pragma unroll 4 // more loads at once would spill
    for (int r = 0; r < COUNT; r += THREADS / W) {
        const bool inside = row + r < from.count && c < from.D;
        tile[(row + r) * STRIDE + threadIdx.x % W] = inside ? __ldg((const float4 *)at) : make_float4(0, 0, 0, 0);
        at += THREADS / W * from.stride;
    }
}

// s += the products of 64 rows and 64 columns, each a row of its matrix.
INLINE void add_scores(Scores &s, float4 *tiles, const HeadRows &rows, const HeadRows &columns) {
    float4 *a = tiles, *b = tiles + TILE * SLICE_STRIDE;
    for (int channel = 0; channel < rows.D; channel += SLICE * 4) {
        __syncthreads(); // the tiles have been read
        load_tile<TILE, SLICE, SLICE_STRIDE>(a, rows, channel);
        load_tile<TILE, SLICE, SLICE_STRIDE>(b, columns, channel);
        __syncthreads(); // the slices are there
#pragma unroll 2
        for (int c = 0; c < SLICE; c++) {
            float4 y[COLUMNS];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) y[j] = b[column_of(j) * SLICE_STRIDE + c];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float4 x = a[row_of(i) * SLICE_STRIDE + c];
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    s[i][j] += x.x * y[j].x, s[i][j] += x.y * y[j].y;
                    s[i][j] += x.z * y[j].z, s[i][j] += x.w * y[j].w;
                }
            }
        }
    }
}

// Hides the keys that a query does not see, in the tile whose 64 queries and 64 keys begin with these. Keys of the
// tokens with which all texts of an item begin stay visible (Attention.positions; NULL: there are none).
template <bool ROWS_ARE_KEYS>
INLINE void hide_keys(Scores &s, const HeadArrays &a, int queries, int keys, const int32_t *positions = NULL) {
    if (queries > keys && !a.starts) return;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int query = queries + (ROWS_ARE_KEYS ? column_of(j) : row_of(i));
            const int key = keys + (ROWS_ARE_KEYS ? row_of(i) : column_of(j));
            const bool is_shared = positions && key < shared_keys(a, query, positions);
            if (key > query || (!is_shared && key < first_key(a, query))) s[i][j] = -INFINITY;
        }
}

INLINE float &weight_at(float4 *weights, int i, int j) {
    return ((float *)weights)[row_of(i) * WEIGHTS_STRIDE + column_of(j)];
}

INLINE void add_weighted(float *sums, float weight, const float4 &x) {
    sums[0] += weight * x.x, sums[1] += weight * x.y, sums[2] += weight * x.z, sums[3] += weight * x.w;
}

// sums += weights (64,64), which the warp has written, times 64 rows.
template <int N>
INLINE void add_rows(float (&sums)[ROWS][N], float4 *tile, const float4 *weights, const HeadRows &rows) {
    constexpr int W = N * 4, AT_ONCE = 1024 / W;
    for (int first = 0; first < TILE; first += AT_ONCE) {
        __syncthreads(); // the tile has been read
        load_tile<AT_ONCE, W, W>(tile, rows_from(rows, first), 0);
        __syncthreads(); // the rows are there
#pragma unroll 1
        for (int r = 0; r < AT_ONCE; r += 4)
#pragma unroll
            for (int n = 0; n < N; n += 4) {
                float4 y[4];
#pragma unroll
                for (int e = 0; e < 4; e++) y[e] = tile[(r + e) * W + channel_of(n) / 4];
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    const float4 x = weights[(row_of(i) * WEIGHTS_STRIDE + first + r) / 4];
                    add_weighted(sums[i] + n, x.x, y[0]), add_weighted(sums[i] + n, x.y, y[1]);
                    add_weighted(sums[i] + n, x.z, y[2]), add_weighted(sums[i] + n, x.w, y[3]);
                }
            }
    }
}

// Writes scale * sums to the rows that exist.
template <int N> INLINE void store_rows(const HeadRows &to, const float (&sums)[ROWS][N], float scale) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int n = 0; n < N; n += 4)
            if (row_of(i) < to.count && channel_of(n) < to.D)
                *(float4 *)(to.at + row_of(i) * to.stride + channel_of(n)) = make_float4(
                    sums[i][n] * scale, sums[i][n + 1] * scale, sums[i][n + 2] * scale, sums[i][n + 3] * scale);
}

// Bit k: dropout keeps the weight of key first + k (kernels/dropout_mask.h). first: a multiple of 8.
INLINE uint32_t kept_keys(const HeadArrays &a, int query, int first) {
    const Dropout dropout = *a.dropout;
    const uint32_t row = (uint32_t)(blockIdx.y * a.T + query), groups = (uint32_t)(a.T + 7) / 8;
    uint32_t bits[4] = {row * groups + (uint32_t)first / 8, dropout.first_sample + blockIdx.z, dropout.step,
                        a.layer_site},
             kept = 0;
    philox(bits, dropout.seed[0], dropout.seed[1]);
#pragma unroll
    for (int k = 0; k < 8; k++) kept |= (uint32_t)((bits[k / 2] >> k % 2 * 16 & 0xffffu) >= dropout.threshold) << k;
    return kept;
}

// Are a thread's weights kept? Bit i * COLUMNS + j is for row i and column j. The 16 lanes of the same rows compute
// eight keys of every second row each ...
INLINE uint32_t kept_of_queries(const HeadArrays &a, int first_query, int first_key) {
    if (!a.dropout) return ~0u;
    const int lane = threadIdx.x % 32, column = first_column();
    uint32_t bytes = 0, kept = 0;
#pragma unroll
    for (int k = 0; k < ROWS / 2; k++)
        bytes |= kept_keys(a, first_query + row_of(2 * k + column / 8), first_key + column % 8 * 8) << 8 * k;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) { // of the rows 2k + bit / 4
        const int from = bit / 4 * 8 + column_of(bit % 4) / 8;
        kept |= (__shfl_sync(0xffffffffu, bytes, 2 * from + lane % 2) >> column % 8 & 0x01010101u) << bit;
    }
    return kept;
}
// ... and if rows are keys, two lanes of the same columns eight of the warp's 16 keys each.
INLINE uint32_t kept_of_keys(const HeadArrays &a, int first_query, int first_key) {
    if (!a.dropout) return ~0u;
    const int odd = threadIdx.x % 2;
    uint32_t kept = 0;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const uint32_t mine = kept_keys(a, first_query + column_of(j), first_key + row_of(0) - odd + odd * 8);
        const uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 1);
        const uint32_t keys = odd ? mine << 8 | other : other << 8 | mine;
#pragma unroll
        for (int i = 0; i < ROWS; i++) kept |= (keys >> (2 * i + odd) & 1) << (i * COLUMNS + j);
    }
    return kept;
}

// N: the channels that a thread sums, of 16 N in all.
template <int N>
__global__ void __launch_bounds__(THREADS, blocks_at_once<N>)
    attention_tiles(float *__restrict__ out, float *__restrict__ lse, const float *__restrict__ qkv, HeadArrays a,
                    const int32_t *positions) {
    SHARED(float4, tiles, TILES);
    SHARED(float4, weights, WEIGHTS);
    const int first_query = ((a.T - 1) / TILE - (int)blockIdx.x) * TILE; // the longest walks begin first
    const HeadRows q = rows_of(qkv, a, 3, 0, first_query), k = rows_of(qkv, a, 3, 1), v = rows_of(qkv, a, 3, 2);
    const float scale = LOG2E * rsqrtf((float)a.D), kept_scale = a.dropout ? a.dropout->scale : 1;
    float most[ROWS], weight[ROWS] = {}, sums[ROWS][N] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) most[i] = -INFINITY;
    const int begin = positions ? 0 : first_key(a, first_query) / TILE * TILE;
    for (int keys = begin; keys <= first_query; keys += TILE) {
        const uint32_t kept = kept_of_queries(a, first_query, keys);
        Scores s = {};
        add_scores(s, tiles, q, rows_from(k, keys));
        hide_keys<false>(s, a, first_query, keys, positions);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float before = most[i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) most[i] = fmaxf(most[i], s[i][j]);
#pragma unroll
            for (int lane = 2; lane < 32; lane *= 2)
                most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], lane));
            const float top = most[i] == -INFINITY ? 0 : most[i]; // no key of the row so far
            const float fade = exp2_fast((before - top) * scale), shift = top * scale;
            weight[i] *= fade;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const float p = exp2_fast(s[i][j] * scale - shift);
                weight[i] += p; // of these columns
                weight_at(weights, i, j) = kept >> (i * COLUMNS + j) & 1 ? p : 0;
            }
#pragma unroll
            for (int n = 0; n < N; n++) sums[i][n] *= fade;
        }
        add_rows(sums, tiles, weights, rows_from(v, keys));
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int lane = 2; lane < 32; lane *= 2) weight[i] += __shfl_xor_sync(0xffffffffu, weight[i], lane);
        const float share = kept_scale / weight[i];
#pragma unroll
        for (int n = 0; n < N; n++) sums[i][n] *= share;
        if (first_column() == 0 && row_of(i) < q.count)
            lse[statistic_of(a, first_query + row_of(i))] = most[i] * scale / LOG2E + logf(weight[i]);
    }
    store_rows(rows_of(out, a, 1, 0, first_query), sums, 1);
}

// dQ, and deltas (B,H,T) = sums of dO * O.
template <int N>
__global__ void __launch_bounds__(THREADS, blocks_at_once<N>)
    attention_tiles_dq(float *__restrict__ dqkv, float *__restrict__ deltas, const float *__restrict__ qkv,
                       const float *__restrict__ dout, const float *__restrict__ out, const float *__restrict__ lse,
                       HeadArrays a) {
    SHARED(float4, tiles, TILES);
    SHARED(float4, weights, WEIGHTS);
    const int first_query = ((int)gridDim.x - 1 - (int)blockIdx.x) * TILE;
    const HeadRows q = rows_of(qkv, a, 3, 0, first_query), k = rows_of(qkv, a, 3, 1), v = rows_of(qkv, a, 3, 2),
                   do_rows = rows_of(dout, a, 1, 0, first_query), o_rows = rows_of(out, a, 1, 0, first_query);
    const float root = rsqrtf((float)a.D), kept_scale = a.dropout ? a.dropout->scale : 1;
    SHARED(float2, statistics, TILE); // of the queries: lse in powers of two, delta; each warp has its own
    float sums[ROWS][N] = {};
#pragma unroll 1
    for (int i = 0; i < ROWS; i++) {
        float delta = 0;
        if (row_of(i) < q.count)
            for (int c = first_column() * 4; c < a.D; c += 64) {
                const float4 x = *(const float4 *)(do_rows.at + row_of(i) * do_rows.stride + c);
                const float4 y = *(const float4 *)(o_rows.at + row_of(i) * o_rows.stride + c);
                delta += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
            }
#pragma unroll
        for (int lane = 2; lane < 32; lane *= 2) delta += __shfl_xor_sync(0xffffffffu, delta, lane);
        if (first_column() != 0) continue;
        const size_t at = statistic_of(a, first_query + row_of(i));
        statistics[row_of(i)] = make_float2(lse[at] * LOG2E, delta);
        if (row_of(i) < q.count) deltas[at] = delta;
    }
    for (int keys = first_key(a, first_query) / TILE * TILE; keys <= first_query; keys += TILE) {
        const uint32_t kept = kept_of_queries(a, first_query, keys);
        Scores s = {}, dp = {};
        add_scores(s, tiles, q, rows_from(k, keys));
        hide_keys<false>(s, a, first_query, keys);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                weight_at(weights, i, j) = exp2_fast(s[i][j] * (LOG2E * root) - statistics[row_of(i)].x);
        add_scores(dp, tiles, do_rows, rows_from(v, keys));
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                weight_at(weights, i, j) *=
                    (kept >> (i * COLUMNS + j) & 1 ? dp[i][j] * kept_scale : 0) - statistics[row_of(i)].y;
        add_rows(sums, tiles, weights, rows_from(k, keys));
    }
    store_rows(rows_of(dqkv, a, 3, 0, first_query), sums, root);
}

// dK and dV; deltas of attention_tiles_dq.
template <int N>
__global__ void __launch_bounds__(THREADS, blocks_at_once<N>)
    attention_tiles_dkv(float *__restrict__ dqkv, const float *__restrict__ deltas, const float *__restrict__ qkv,
                        const float *__restrict__ dout, const float *__restrict__ lse, HeadArrays a) {
    SHARED(float4, tiles, TILES);
    SHARED(float4, weights, WEIGHTS);
    const int keys = blockIdx.x * TILE;
    const HeadRows q = rows_of(qkv, a, 3, 0), k = rows_of(qkv, a, 3, 1, keys), v = rows_of(qkv, a, 3, 2, keys),
                   do_rows = rows_of(dout, a, 1, 0);
    const float root = rsqrtf((float)a.D), kept_scale = a.dropout ? a.dropout->scale : 1;
    float dk[ROWS][N] = {}, dv[ROWS][N] = {};
    for (int queries = keys; queries < a.T; queries += TILE) {
        if (first_key(a, queries) >= keys + TILE) break; // first keys rise with the queries
        const uint32_t kept = kept_of_keys(a, queries, keys);
        Scores s = {}, ds = {};
        add_scores(s, tiles, k, rows_from(q, queries));
        hide_keys<true>(s, a, queries, keys);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int query = queries + column_of(j);
            const float log_sum = query < a.T ? lse[statistic_of(a, query)] * LOG2E : INFINITY;
#pragma unroll
            for (int i = 0; i < ROWS; i++) weight_at(weights, i, j) = exp2_fast(s[i][j] * (LOG2E * root) - log_sum);
        }
        add_scores(ds, tiles, v, rows_from(do_rows, queries));
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const float delta = deltas[statistic_of(a, queries + column_of(j))];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const bool is_kept = kept >> (i * COLUMNS + j) & 1;
                float &weight = weight_at(weights, i, j);
                ds[i][j] = weight * ((is_kept ? ds[i][j] * kept_scale : 0) - delta);
                if (!is_kept) weight = 0;
            }
        }
        add_rows(dv, tiles, weights, rows_from(do_rows, queries));
        __syncwarp(); // the warp has read its weights
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) weight_at(weights, i, j) = ds[i][j];
        add_rows(dk, tiles, weights, rows_from(q, queries));
    }
    store_rows(rows_of(dqkv, a, 3, 1, keys), dk, root);
    store_rows(rows_of(dqkv, a, 3, 2, keys), dv, kept_scale);
}

static HeadArrays heads_of(const Attention &a) {
    assert(a.D % 8 == 0 && a.D <= HEAD_MAX);
    return {a.T, a.H, a.D, a.starts, a.dropout, (uint32_t)(a.layer * DROPOUT_SITES + DROPOUT_ATTENTION)};
}
static dim3 grid_of(const Attention &a, int from) {
    return dim3(blocks_of((size_t)(a.T - from / TILE * TILE), TILE), (unsigned)a.H, (unsigned)a.B);
}

void FOR_ACT(cuda_attention_forward)(Act *out, float *lse, const Act *qkv, const Attention *attention) {
    const Attention &a = *attention;
    auto kernel = a.D <= 64 ? attention_tiles<4> : attention_tiles<8>;
    LAUNCH(kernel, grid_of(a, a.from), THREADS, 0, cuda.stream, (float *)out, lse, (const float *)qkv, heads_of(a),
           a.positions);
}

void FOR_ACT(cuda_attention_backward)(Act *dqkv, Grad *dbias, const Act *dout, const Act *out, const float *lse,
                                      const Act *qkv, const Attention *attention, bool add) {
    const Attention &a = *attention;
    float *deltas = (float *)cuda.scratch;
    auto dq = a.D <= 64 ? attention_tiles_dq<4> : attention_tiles_dq<8>;
    auto dkv = a.D <= 64 ? attention_tiles_dkv<4> : attention_tiles_dkv<8>;
    LAUNCH(dq, grid_of(a, 0), THREADS, 0, cuda.stream, (float *)dqkv, deltas, (const float *)qkv, (const float *)dout,
           (const float *)out, lse, heads_of(a));
    LAUNCH(dkv, grid_of(a, 0), THREADS, 0, cuda.stream, (float *)dqkv, deltas, (const float *)qkv, (const float *)dout,
           lse, heads_of(a));
    if (dbias) FOR_ACT(column_sums)(dbias, dqkv, a.B * a.T, 3 * a.H * a.D, add);
}

extern "C" bool FOR_ACT(attention_has_wgmma)(void) { return false; }
#endif
