// Causal attention: one thread per (sequence, head), blocks of 64 query rows; products in register tiles of 4 rows, or
// on AMX tiles if the processor has them.
//
// Operands are copied into lanes (act.h) first: transposed, "t" (lanes of D, tokens), where tokens are the columns of a
// product, or zipped, "z" (pairs of tokens, D), where they are summed over. Rows past T are zero. Tp = T rounded up to
// 64, Dp = D rounded up to a vector.
//
// A single query, as in sampling, reads keys and values once, where they lie. Its sums have the order of the
// blocks.
#pragma once

#include "common/math/portable_math.h"
#include "kernels/cpu/act.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/ops/columns.h"
#include "kernels/cpu/ops/dropout.h"

enum {
    QUERIES = 64,
    TILE_ROWS = 4,
    TILE_VECTORS = W == 16 ? 4 : 2,
    VALUE_VECTORS = 4,
    ROWS_AHEAD = 32, // rows of keys or values to prefetch for a single query: they are too far apart for the processor
};

// c (4 rows, `vectors` vectors) (+)= sum over k < depth of a[row * a_row + k * a_k] * b[k * b_row ..]
static inline __attribute__((always_inline)) void tile_of(int vectors, int depth, const Lane *a, size_t a_row,
                                                          size_t a_k, const Lane *b, size_t b_row, float *c,
                                                          size_t c_row, bool add) {
    V sum[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = add ? v_load(c + (size_t)r * c_row + v * W) : v_set(0);
    for (int k = 0; k < depth; k++) {
        VW right[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) right[v] = lane_load(b + (size_t)k * b_row + v * W);
        for (int r = 0; r < TILE_ROWS; r++) {
            VW left = lane_set(a[(size_t)r * a_row + (size_t)k * a_k]);
            for (int v = 0; v < vectors; v++) sum[r][v] = lane_dot(sum[r][v], left, right[v]);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++) v_store(c + (size_t)r * c_row + v * W, sum[r][v]);
}

// c (4 rows, columns) (+)= a * b; columns is a multiple of W
static void tiles(int columns, int depth, const Lane *a, size_t a_row, size_t a_k, const Lane *b, size_t b_row,
                  float *c, size_t c_row, bool add) {
    for (; columns >= TILE_VECTORS * W; columns -= TILE_VECTORS * W, b += TILE_VECTORS * W, c += TILE_VECTORS * W)
        tile_of(TILE_VECTORS, depth, a, a_row, a_k, b, b_row, c, c_row, add);
    switch (columns / W) {
    case 3:
        tile_of(smaller(3, TILE_VECTORS), depth, a, a_row, a_k, b, b_row, c, c_row, add);
        break;
    case 2:
        tile_of(2, depth, a, a_row, a_k, b, b_row, c, c_row, add);
        break;
    case 1:
        tile_of(1, depth, a, a_row, a_k, b, b_row, c, c_row, add);
        break;
    }
}

// Whether the products of heads of D channels run on AMX tiles.
static inline bool on_tiles(int D) { return PER_LANE == 2 && cpu_amx && D % AMX_BLOCK == 0; }

// LaneSum of a row of D numbers: the last one is half empty if D is odd.
static inline int lanes_of(int D) { return (D + PER_LANE - 1) / PER_LANE; }

// LaneSum u .. u+W-1 of W rows of x (rows, D), `stride` numbers a row, transposed; zero past D and past the rows.
static inline void transpose_block(VW block[W], const Number *x, size_t stride, int rows, int u, int D) {
    for (int i = 0; i < W; i++) {
        const Number *from = x + (size_t)i * stride + u * PER_LANE;
        if (i >= rows)
            block[i] = (VW){0};
        else if ((u + W) * PER_LANE <= D)
            block[i] = lane_of_numbers(from);
        else {
            Number rest[W * PER_LANE] = {0};
            memcpy(rest, from, (size_t)(D - u * PER_LANE) * sizeof *rest);
            block[i] = lane_of_numbers(rest);
        }
    }
    v_transpose(block);
}

// x (rows, D) -> out (lanes of D, columns), columns from `rows` to `padded` zero
static void transpose_rows(Lane *out, const Number *x, size_t stride, int rows, int padded, int D) {
    const int lanes = lanes_of(D);
    for (int row = 0; row < padded; row += W)
        for (int u = 0; u < lanes; u += W) {
            VW block[W];
            transpose_block(block, x + (size_t)row * stride, stride, rows - row, u, D);
            for (int i = 0; i < smaller(W, lanes - u); i++)
                lane_store(out + (size_t)(u + i) * (size_t)padded + row, block[i]);
        }
}

// W numbers of PER_LANE rows of x, zipped; zero past `rows` and past `left` numbers
static inline VW zip_block(const Number *x, size_t stride, int rows, int left) {
    V a = rows > 0 ? act_load_part(x, left) : v_set(0);
    V b = rows >= PER_LANE ? act_load_part(x + (PER_LANE - 1) * stride, left) : v_set(0);
    return lane_zip(a, b);
}

// x (rows, D) -> out (padded / PER_LANE, Dp)
static void zip_rows(Lane *out, const Number *x, size_t stride, int rows, int padded, int D, int Dp) {
    for (int row = 0; row < padded; row += PER_LANE)
        for (int d = 0; d < Dp; d += W)
            lane_store(out + (size_t)(row / PER_LANE) * (size_t)Dp + d,
                       zip_block(x + (size_t)row * stride + d, stride, rows - row, D - d));
}

// x (D) -> out (lanes of D)
static void copy_row(Lane *out, const Number *x, int D) {
    out[lanes_of(D) - 1] = 0;
    if (PER_LANE * sizeof *x == sizeof *out)
        memcpy(out, x, (size_t)D * sizeof *x);
    else
        for (int d = 0; d < D; d++) out[d] = (Lane)number_float(x[d]);
}

// x (rows, D) -> out (QUERIES, lanes of D)
static void copy_rows(Lane *out, const Number *x, size_t stride, int rows, int D) {
    const size_t lanes = (size_t)lanes_of(D);
    for (int row = 0; row < rows; row++) copy_row(out + (size_t)row * lanes, x + (size_t)row * stride, D);
    memset(out + (size_t)rows * lanes, 0, (size_t)(QUERIES - rows) * lanes * sizeof *out);
}

// Scratch of one thread, in 32-bit elements. The forward pass needs none of what `gradients` has, which is more than
// half.
typedef struct {
    Lane *kt, *vt, *kz, *vz;            // (lanes of D, Tp), (Tp/PER_LANE, Dp)
    Lane *q, *dout;                     // (QUERIES, lanes of D)
    Lane *qz, *doutz;                   // (QUERIES/PER_LANE, Dp)
    Lane *p, *pz, *dsz;                 // (QUERIES, Tp/PER_LANE), (QUERIES/PER_LANE, Tp)
    float *scores, *dp, *dk, *dv, *out; // (QUERIES, Tp), (Tp, Dp), (QUERIES, Dp)
    float *bias_q, *mask;               // (Dp), (PER_LANE, Tp rounded up to MASK_STEP)
} AttentionScratch;

static size_t attention_layout(AttentionScratch *s, char *base, int T, int D, bool gradients) {
    const size_t Tp = round_up((size_t)T, 64), Dp = round_up((size_t)D, W), keys = Tp * Dp, row = QUERIES * Dp;
    size_t used = 0;
#define PLACE(name, count) s->name = (void *)((uintptr_t)base + used), used += round_up(4 * (count), 64)
    PLACE(kt, keys), PLACE(vz, keys), PLACE(q, row), PLACE(out, row);
    PLACE(p, QUERIES * Tp), PLACE(scores, QUERIES * Tp), PLACE(mask, PER_LANE * round_up(Tp, MASK_STEP));
    if (!gradients) return used;
    PLACE(vt, keys), PLACE(kz, keys), PLACE(dout, row), PLACE(qz, row), PLACE(doutz, row);
    PLACE(pz, QUERIES * Tp), PLACE(dsz, QUERIES * Tp), PLACE(dp, QUERIES * Tp);
    PLACE(dk, keys), PLACE(dv, keys), PLACE(bias_q, Dp);
#undef PLACE
    return used;
}

static size_t attention_thread_bytes(int T, int D, bool gradients) {
    AttentionScratch s;
    return attention_layout(&s, NULL, T, D, gradients);
}

// attention_backward: bias partials of each sequence, then the scratch of each thread. It is enough for the forward
// pass of sequences of 2T tokens.
static size_t cpu_attention_scratch(const Shape *shape) {
    const size_t threads = (size_t)(shape->threads > 0 ? shape->threads : team_threads());
    return (size_t)shape->B * 3 * (size_t)shape->C * sizeof(float) + 64 +
           threads * attention_thread_bytes(shape->T, shape->C / shape->H, true);
}

// scores (rows, width) = q (rows, lanes of D) * kt (lanes of D, Tp); rows below `from` may be left out
static void multiply_keys(float *scores, const Lane *q, const Lane *kt, int from, int rows, int width, int Tp, int D) {
    const size_t lanes = (size_t)lanes_of(D);
    if (on_tiles(D)) {
        const int i = from / AMX_BLOCK * AMX_BLOCK;
        amx_tiles(QUERIES - i, width, D, (const uint32_t *)q + (size_t)i * lanes, lanes, (const uint32_t *)kt,
                  (size_t)Tp, scores + (size_t)i * (size_t)Tp, (size_t)Tp, false);
    } else
        for (int i = from / TILE_ROWS * TILE_ROWS; i < rows; i += TILE_ROWS)
            tiles(width, (int)lanes, q + (size_t)i * lanes, lanes, 1, kt, (size_t)Tp, scores + (size_t)i * (size_t)Tp,
                  (size_t)Tp, false);
}

// out (rows, Dp) = p (rows, keys) * z (keys, Dp), of the keys that the queries from `start` on see; rows below `from`
// may be left out
static void sum_keys(float *out, const Lane *p, const Lane *z, int from, int rows, int start, int Tp, int Dp, int D) {
    const size_t row = (size_t)(Tp / PER_LANE), columns = (size_t)Dp;
    if (on_tiles(D))
        for (int i = from / AMX_BLOCK * AMX_BLOCK; i < QUERIES; i += AMX_BLOCK)
            amx_tiles(AMX_BLOCK, Dp, start + i + AMX_BLOCK, (const uint32_t *)p + (size_t)i * row, row,
                      (const uint32_t *)z, columns, out + (size_t)i * columns, columns, false);
    else
        for (int i = from / TILE_ROWS * TILE_ROWS; i < rows; i += TILE_ROWS)
            tiles(Dp, (start + i + TILE_ROWS) / PER_LANE, p + (size_t)i * row, row, 1, z, columns,
                  out + (size_t)i * columns, columns, false);
}

// dk (width, Dp) += ds^T (width, queries) * q (queries, Dp), ds and q zipped; `turned` has room for ds^T. Queries
// before a key do not see it.
static void sum_queries(float *dk, const Lane *ds, const Lane *q, Lane *turned, int start, int width, int Tp, int Dp,
                        int D) {
    enum { PAIRS = QUERIES / PER_LANE };
    if (on_tiles(D)) {
        for (int pair = 0; pair < PAIRS; pair += W)
            for (int j = 0; j < width; j += W) {
                VW block[W];
                for (int i = 0; i < W; i++) block[i] = lane_load(ds + (size_t)(pair + i) * (size_t)Tp + j);
                v_transpose(block);
                for (int i = 0; i < W; i++) lane_store(turned + (size_t)(j + i) * PAIRS + pair, block[i]);
            }
        amx_tiles(width, Dp, QUERIES, (const uint32_t *)turned, PAIRS, (const uint32_t *)q, (size_t)Dp, dk, (size_t)Dp,
                  true);
        return;
    }
    for (int j = 0; j < width; j += TILE_ROWS) {
        const int skip = j > start ? (j - start) / PER_LANE : 0;
        tiles(Dp, PAIRS - skip, ds + (size_t)skip * (size_t)Tp + (size_t)j, 1, (size_t)Tp,
              q + (size_t)skip * (size_t)Dp, (size_t)Dp, dk + (size_t)j * (size_t)Dp, (size_t)Dp, true);
    }
}

static float largest_of(const float *scores, int first, int end, float top) {
    V largest = v_set(top);
    int j = first;
    for (; j + W <= end; j += W) largest = v_max(largest, v_load(scores + j));
    top = v_largest(largest);
    for (; j < end; j++) top = top > scores[j] ? top : scores[j];
    return top;
}

// p = exp(scores * scale - largest) of the keys 0 .. shared-1 and first .. visible-1, 0 elsewhere, times the dropout
// mask (NULL: none); returns the log of the denominator
static float softmax_row(LaneNumber *p, const float *scores, const float *mask, int shared, int first, int visible,
                         int width, float scale, float *inverse) {
    const float top = largest_of(scores, first, visible, largest_of(scores, 0, shared, -INFINITY)) * scale;
    LaneSum sum = {0};
    EACH_VECTOR(j, part, 0, width) {
        const V whole = v_exp(v_load(scores + j) * v_set(scale) - v_set(top));
        V e = v_between(whole, first - j, visible - j);
        if (j < shared) e += v_between(whole, 0, shared - j);
        sum.part[part] += e;
        lane_store_part(p + j, mask ? e * v_load(mask + j) : e);
    }
    const float total = lanes_sum(sum);
    *inverse = 1 / total;
    return top + (float)portable_log((double)total);
}

// Prefetches the numbers of a row.
static inline void prefetch_row(const Number *x, int numbers) {
    for (int d = 0; d < numbers; d += 64 / (int)sizeof *x) __builtin_prefetch(x + d);
}

// sum + a * b over W lanes
static inline V dot_lanes(V sum, const Lane *a, const VW *b, bool as_tiles) {
#if defined ACT_BF16 && defined __AVX512BF16__
    if (as_tiles) {
        V even = v_set(0), odd = v_set(0);
        for (int i = 0; i < W; i++) {
            even = v_fma(even_of(lane_set(a[i])), even_of(b[i]), even);
            odd = v_fma(odd_of(lane_set(a[i])), odd_of(b[i]), odd);
        }
        return sum + (even + odd);
    }
#endif
    (void)as_tiles;
    for (int i = 0; i < W; i++) sum = lane_dot(sum, lane_set(a[i]), b[i]);
    return sum;
}

// scores (keys, to a multiple of W) = q (lanes of D, to a multiple of W) * k (keys, D)^T
static void multiply_keys_of_row(float *scores, const Lane *q, const Number *k, size_t stride, int keys, int D) {
    for (int j = 0; j < keys; j += W) {
        V sum = v_set(0);
        for (int i = 0; i < W; i++) prefetch_row(k + (size_t)(j + i + ROWS_AHEAD) * stride, D);
        for (int u = 0; u < lanes_of(D); u += W) {
            VW block[W];
            transpose_block(block, k + (size_t)j * stride, stride, keys - j, u, D);
            sum = dot_lanes(sum, q + u, block, on_tiles(D));
        }
        v_store(scores + j, sum);
    }
}

// out (vectors) = p (keys) * v (keys, vectors), of which `left` numbers are there
static inline __attribute__((always_inline)) void sum_values(int vectors, float *out, const Lane *p, const Number *v,
                                                             size_t stride, int keys, int left) {
    V sum[VALUE_VECTORS] = {0};
    for (int j = 0; j < keys; j += PER_LANE, v += PER_LANE * stride) {
        const VW weight = lane_set(*p++);
        for (size_t r = 0; r < PER_LANE; r++) prefetch_row(v + (ROWS_AHEAD + r) * stride, vectors * W);
        for (int i = 0; i < vectors; i++)
            sum[i] = lane_dot(sum[i], weight, zip_block(v + i * W, stride, keys - j, left - i * W));
    }
    for (int i = 0; i < vectors; i++) v_store(out + i * W, sum[i]);
}

#if defined ACT_BF16 && defined __AVX512BF16__
static inline __attribute__((always_inline)) void sum_values_as_tiles(int vectors, float *out, const Lane *p,
                                                                      const Number *v, size_t stride, int keys) {
    V sum[VALUE_VECTORS] = {0};
    for (int tile = 0; tile < keys; tile += AMX_BLOCK) {
        V even[VALUE_VECTORS] = {0}, odd[VALUE_VECTORS] = {0};
        for (int j = tile; j < smaller(keys, tile + AMX_BLOCK); j += 2, v += 2 * stride) {
            const VW weights = lane_set(*p++);
            prefetch_row(v + ROWS_AHEAD * stride, vectors * W),
                prefetch_row(v + (ROWS_AHEAD + 1) * stride, vectors * W);
            for (int i = 0; i < vectors; i++) even[i] = v_fma(even_of(weights), act_load(v + i * W), even[i]);
            for (int i = 0; i < vectors && j + 1 < keys; i++)
                odd[i] = v_fma(odd_of(weights), act_load(v + stride + i * W), odd[i]);
        }
        for (int i = 0; i < vectors; i++) sum[i] += even[i] + odd[i];
    }
    for (int i = 0; i < vectors; i++) v_store(out + i * W, sum[i]);
}
#endif

// out (Dp) = p (keys) * v (keys, D)
static void sum_values_of_row(float *out, const Lane *p, const Number *v, size_t stride, int keys, int D) {
    int d = 0;
#if defined ACT_BF16 && defined __AVX512BF16__
    if (on_tiles(D)) {
        for (; D - d >= VALUE_VECTORS * W; d += VALUE_VECTORS * W)
            sum_values_as_tiles(VALUE_VECTORS, out + d, p, v + d, stride, keys);
        for (; d < D; d += W) sum_values_as_tiles(1, out + d, p, v + d, stride, keys);
    }
#endif
    for (; D - d >= VALUE_VECTORS * W; d += VALUE_VECTORS * W)
        sum_values(VALUE_VECTORS, out + d, p, v + d, stride, keys, D - d);
    for (; d < D; d += W) sum_values(1, out + d, p, v + d, stride, keys, D - d);
}

// One head of one sequence: row t of q, k and v is q + t * stride, then C and 2C numbers further.
typedef struct {
    const Attention *all;
    int b, h, C, Tp, Dp;
    size_t stride;
    float scale;
    AttentionScratch s;
} Head;

static Head head_of(const Attention *a, int head, char *scratch, bool gradients) {
    const int C = a->H * a->D;
    Head x = {a,
              head / a->H,
              head % a->H,
              C,
              (int)round_up((size_t)a->T, 64),
              (int)round_up((size_t)a->D, W),
              3 * (size_t)C,
              1 / sqrtf((float)a->D),
              {0}};
    attention_layout(&x.s, scratch + (size_t)team_thread() * attention_thread_bytes(a->T, a->D, gradients), a->T, a->D,
                     gradients);
    return x;
}

// Element of the head's first row in an array whose rows have `columns` numbers.
static size_t head_at(const Head *x, size_t columns) {
    return (size_t)x->b * (size_t)x->all->T * columns + (size_t)x->h * (size_t)x->all->D;
}
static int first_key(const Head *x, int t) { return x->all->starts ? x->all->starts[x->b * x->all->T + t] : 0; }
// The number of keys before that one, the first of the sequence, that query t sees.
static int shared_keys(const Head *x, int t) {
    return x->all->positions ? x->all->positions[x->b * x->all->T + t] - (t - first_key(x, t)) : 0;
}

// The dropout factors of query t for the keys before `width`, which is rounded up to MASK_STEP; NULL: all are 1.
static const float *mask_row(const Head *x, float *mask, int t, int width) {
    if (!x->all->dropout) return NULL;
    for (int col = 0; col < width; col += MASK_STEP)
        dropout_piece(mask + col, x->all->dropout, x->all->layer, DROPOUT_ATTENTION, x->b, x->h * x->all->T + t,
                      x->all->T, col);
    return mask;
}

// The last query alone, whose keys and values are read where they lie.
static void attend_row(const Head *x, Number *out, float *lse, const Number *q) {
    const AttentionScratch *s = &x->s;
    const int T = x->all->T, D = x->all->D, width = (int)round_up((size_t)T, LANES);
    float inverse;
    memset(s->q, 0, round_up((size_t)D, W) * sizeof *s->q);
    copy_row(s->q, q + (size_t)(T - 1) * x->stride, D);
    multiply_keys_of_row(s->scores, s->q, q + x->C, x->stride, T, D);
    lse[T - 1] = softmax_row((LaneNumber *)s->p, s->scores, mask_row(x, s->mask, T - 1, T), shared_keys(x, T - 1),
                             first_key(x, T - 1), T, width, x->scale, &inverse);
    sum_values_of_row(s->out, s->p, q + 2 * x->C, x->stride, T, D);
    out += (size_t)(T - 1) * (size_t)x->C;
    for (int d = 0; d < D; d += W) act_store_part(out + d, v_load(s->out + d) * v_set(inverse), D - d);
}

// Queries [start, start + QUERIES), those from `from` on.
static void attend_block(const Head *x, Number *out, float *lse, const Number *q, int start) {
    const AttentionScratch *s = &x->s;
    const int T = x->all->T, D = x->all->D, from = x->all->from, width = start + QUERIES;
    const int first = from > start ? from - start : 0, rows = smaller(QUERIES, T - start);
    const size_t Tp = (size_t)x->Tp;
    float inverse[QUERIES];
    copy_rows(s->q, q + (size_t)start * x->stride, x->stride, rows, D);
    multiply_keys(s->scores, s->q, s->kt, first, rows, width, x->Tp, D);
    for (int i = first; i < rows; i++)
        lse[start + i] = softmax_row((LaneNumber *)s->p + (size_t)i * Tp, s->scores + (size_t)i * Tp,
                                     mask_row(x, s->mask, start + i, width), shared_keys(x, start + i),
                                     first_key(x, start + i), start + i + 1, width, x->scale, &inverse[i]);
    for (int i = rows; i < QUERIES; i++) memset((LaneNumber *)s->p + (size_t)i * Tp, 0, Tp * sizeof(LaneNumber));
    sum_keys(s->out, s->p, s->vz, first, rows, start, x->Tp, x->Dp, D);
    for (int i = first; i < rows; i++)
        for (int d = 0; d < D; d += W)
            act_store_part(out + (size_t)(start + i) * (size_t)x->C + d,
                           v_load(s->out + i * x->Dp + d) * v_set(inverse[i]), D - d);
}

TEAM_LOOP(attention_heads, int, (Act *, out), (float *, lse), (const Act *, qkv), (const Attention *, a),
          (char *, scratch)) {
    for (int head = first; head < end; head++) {
        const Head x = head_of(a, head, scratch, false);
        const Number *q = (const Number *)qkv + head_at(&x, x.stride);
        Number *o = (Number *)out + head_at(&x, (size_t)x.C);
        float *log_sums = lse + (size_t)head * (size_t)a->T;
        if (a->T - a->from == 1) {
            attend_row(&x, o, log_sums, q);
            continue;
        }
        transpose_rows(x.s.kt, q + x.C, x.stride, a->T, x.Tp, a->D);
        zip_rows(x.s.vz, q + 2 * x.C, x.stride, a->T, x.Tp, a->D, x.Dp);
        for (int start = a->from / QUERIES * QUERIES; start < a->T; start += QUERIES)
            attend_block(&x, o, log_sums, q, start);
    }
}

static void cpu_attention_forward(Act *out, float *lse, const Act *qkv, const Attention *a) {
    size_t used = 0;
    char *scratch = scratch_take(&used, (size_t)team_threads() * attention_thread_bytes(a->T, a->D, false));
    attention_heads(a->B * a->H, 1, out, lse, qkv, a, scratch);
}

// Rows i .. i+PER_LANE of p and ds = p * (dp - delta) * scale, zipped, and ds as it lies.
static void score_gradients(const Head *x, int i, int rows, int start, const float *lse, const float *delta) {
    const AttentionScratch *s = &x->s;
    const size_t Tp = (size_t)x->Tp;
    const float *mask[2] = {0};
    for (int r = 0; r < PER_LANE; r++)
        mask[r] = mask_row(x, s->mask + (size_t)r * round_up(Tp, MASK_STEP), start + i + r, start + QUERIES);
    for (int j = 0; j < start + QUERIES; j += W) {
        V p[2], ds[2];
        for (int r = 0; r < PER_LANE; r++) {
            const size_t at = (size_t)(i + r) * Tp + (size_t)j;
            const int end = i + r < rows ? start + i + r + 1 - j : 0, begin = end ? first_key(x, start + i + r) - j : 0;
            p[r] = v_between(v_exp(v_load(s->scores + at) * v_set(x->scale) - v_set(lse[i + r])), begin, end);
            V factor = mask[r] ? v_load(mask[r] + j) : v_set(1);
            ds[r] = v_between(p[r] * v_set(x->scale) * (v_load(s->dp + at) * factor - v_set(delta[i + r])), begin, end);
            p[r] *= factor;
            lane_store_part((LaneNumber *)s->p + at, ds[r]);
        }
        const size_t pair = (size_t)(i / PER_LANE) * Tp + (size_t)j;
        lane_store(s->pz + pair, lane_zip(p[0], p[PER_LANE - 1]));
        lane_store(s->dsz + pair, lane_zip(ds[0], ds[PER_LANE - 1]));
    }
}

// Queries [start, start + QUERIES), whose rows are q, out and dout: writes dq, adds to dk and dv and to the bias of q.
static void gradient_of_block(const Head *x, Number *dq, const Number *q, const Number *out, const Number *dout,
                              const float *lse, int start) {
    const AttentionScratch *s = &x->s;
    const int T = x->all->T, D = x->all->D, Tp = x->Tp, Dp = x->Dp;
    const int rows = smaller(QUERIES, T - start), width = start + QUERIES;
    const size_t C = (size_t)x->C;
    float log_sum[QUERIES] = {0}, delta[QUERIES] = {0};
    copy_rows(s->q, q, x->stride, rows, D);
    copy_rows(s->dout, dout, C, rows, D);
    zip_rows(s->qz, q, x->stride, rows, QUERIES, D, Dp);
    zip_rows(s->doutz, dout, C, rows, QUERIES, D, Dp);
    multiply_keys(s->scores, s->q, s->kt, 0, QUERIES, width, Tp, D);
    multiply_keys(s->dp, s->dout, s->vt, 0, QUERIES, width, Tp, D);
    for (int i = 0; i < rows; i++) {
        LaneSum sum = {0};
        const size_t row = (size_t)i * C;
        EACH_VECTOR(d, part, 0, D)
        sum.part[part] =
            v_fma(act_load_part(dout + row + d, D - d), act_load_part(out + row + d, D - d), sum.part[part]);
        delta[i] = lanes_sum(sum), log_sum[i] = lse[i];
    }
    for (int i = 0; i < QUERIES; i += PER_LANE) score_gradients(x, i, rows, start, log_sum, delta);
    sum_keys(s->out, s->p, s->kz, 0, rows, start, Tp, Dp, D);
    for (int i = 0; i < rows; i++)
        for (int d = 0; d < D; d += W) {
            V v = v_load(s->out + i * Dp + d);
            act_store_part(dq + (size_t)i * x->stride + d, v, D - d);
            v_store(s->bias_q + d, v_load(s->bias_q + d) + v);
        }
    Lane *turned = (Lane *)s->scores; // which are no longer needed
    sum_queries(s->dv, s->pz, s->doutz, turned, start, width, Tp, Dp, D);
    sum_queries(s->dk, s->dsz, s->qz, turned, start, width, Tp, Dp, D);
}

// Writes dk and dv after dq, and the sums of the three.
static void store_gradients(const Head *x, Number *dq, float *bias) {
    const AttentionScratch *s = &x->s;
    const int C = x->C, D = x->all->D;
    for (int d = 0; d < D; d += W) {
        V bias_k = v_set(0), bias_v = v_set(0);
        for (int t = 0; t < x->all->T; t++) {
            const size_t at = (size_t)t * (size_t)x->Dp + (size_t)d;
            V k = v_load(s->dk + at), v = v_load(s->dv + at);
            bias_k += k, bias_v += v;
            act_store_part(dq + (size_t)t * x->stride + C + d, k, D - d);
            act_store_part(dq + (size_t)t * x->stride + 2 * C + d, v, D - d);
        }
        v_store_part(bias + d, v_load(s->bias_q + d), D - d);
        v_store_part(bias + C + d, bias_k, D - d);
        v_store_part(bias + 2 * C + d, bias_v, D - d);
    }
}

TEAM_LOOP(attention_gradients, int, (Act *, dqkv), (const Act *, dout), (const Act *, out), (const float *, lse),
          (const Act *, qkv), (const Attention *, a), (float *, partials), (char *, scratch)) {
    const size_t width = 3 * (size_t)(a->H * a->D);
    for (int head = first; head < end; head++) {
        const Head x = head_of(a, head, scratch, true);
        const AttentionScratch *s = &x.s;
        const size_t at = head_at(&x, x.stride), at_out = head_at(&x, (size_t)x.C);
        const Number *q = (const Number *)qkv + at;
        Number *dq = (Number *)dqkv + at;
        transpose_rows(s->kt, q + x.C, x.stride, a->T, x.Tp, a->D);
        transpose_rows(s->vt, q + 2 * x.C, x.stride, a->T, x.Tp, a->D);
        zip_rows(s->kz, q + x.C, x.stride, a->T, x.Tp, a->D, x.Dp);
        memset(s->dk, 0, sizeof(float) * (size_t)x.Tp * (size_t)x.Dp);
        memset(s->dv, 0, sizeof(float) * (size_t)x.Tp * (size_t)x.Dp);
        memset(s->bias_q, 0, sizeof(float) * (size_t)x.Dp);
        for (int start = 0; start < a->T; start += QUERIES) {
            const size_t row = (size_t)start * x.stride, row_out = at_out + (size_t)start * (size_t)x.C;
            gradient_of_block(&x, dq + row, q + row, (const Number *)out + row_out, (const Number *)dout + row_out,
                              lse + (size_t)head * (size_t)a->T + (size_t)start, start);
        }
        store_gradients(&x, dq, partials + (size_t)x.b * width + (size_t)(x.h * a->D));
    }
}

static void cpu_attention_backward(Act *dqkv, Grad *dbias, const Act *dout, const Act *out, const float *lse,
                                   const Act *qkv, const Attention *a, bool add) {
    const size_t width = 3 * (size_t)(a->H * a->D);
    size_t used = 0;
    float *partials = scratch_take(&used, (size_t)a->B * width * sizeof *partials);
    char *scratch = scratch_take(&used, (size_t)team_threads() * attention_thread_bytes(a->T, a->D, true));
    attention_gradients(a->B * a->H, 1, dqkv, dout, out, lse, qkv, a, partials, scratch);
    if (dbias) columns_finish((float *)dbias, partials, (int)width, a->B, width, add);
}
