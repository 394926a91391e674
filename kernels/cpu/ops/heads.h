// Between the product of queries, keys and values and attention: the norm and the rotation of heads, and keys and
// values that several heads of queries share. A head of D channels is taken in two halves, whose elements turn in
// pairs.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/columns.h"

// Two vectors of a head: k elements from the start of each half.
typedef struct {
    V low, high;
} Pair;

typedef struct {
    int D, low, high; // channels of the head and of its halves; low >= high
} Halves;

static inline Halves halves_of(int D) { return (Halves){D, (D + 1) / 2, D / 2}; }

static inline Pair pair_of_floats(const float *x, Halves h, int k) {
    return (Pair){v_load_part(x + k, h.low - k), h.high > k ? v_load_part(x + h.low + k, h.high - k) : v_set(0)};
}
static inline Pair pair_load(const Number *x, Halves h, int k) {
    return (Pair){act_load_part(x + k, h.low - k), h.high > k ? act_load_part(x + h.low + k, h.high - k) : v_set(0)};
}
static inline void pair_store(Number *x, Halves h, int k, Pair v) {
    act_store_part(x + k, v.low, h.low - k);
    if (h.high > k) act_store_part(x + h.low + k, v.high, h.high - k);
}

// By the angles of a row of `rotation`, or back.
static inline Pair pair_rotate(Pair v, const float *rotation, Halves h, int k, bool back) {
    if (!rotation) return v;
    const V cosine = v_load_part(rotation + k, h.low - k), sine = v_load_part(rotation + h.low + k, h.high - k);
    const V turn = back ? -sine : sine;
    return (Pair){v.low * cosine - v.high * turn, v.high * cosine + v.low * turn};
}

static inline float head_rstd(const Number *x, int D) {
    LaneSum square = {0};
    EACH_VECTOR(k, part, 0, D) {
        const V v = act_load_part(x + k, D - k);
        square.part[part] = v_fma(v, v, square.part[part]);
    }
    return 1 / sqrtf(lanes_sum(square) / (float)D + 1e-5f);
}

static inline void head_forward(Number *out, const Number *x, const float *gain, const float *rotation, Halves h) {
    const V r = v_set(gain ? head_rstd(x, h.D) : 1);
    for (int k = 0; k < h.low; k += W) {
        Pair v = pair_load(x, h, k);
        if (gain) {
            const Pair by = pair_of_floats(gain, h, k);
            v.low *= r * by.low, v.high *= r * by.high;
        }
        pair_store(out, h, k, pair_rotate(v, rotation, h, k, false));
    }
}

TEAM_LOOP(heads_rows, int, (Act *, qkv), (const Act *, in), (const Heads *, heads)) {
    const int T = heads->T, H = heads->H, K = heads->K, D = heads->D;
    const float *q_gain = (const float *)heads->q_gain, *k_gain = (const float *)heads->k_gain;
    const float *rotation = heads->rotation;
    const Halves h = halves_of(D);
    const size_t width = (size_t)D, row_in = (size_t)(H + 2 * K) * width, row_out = 3 * (size_t)H * width;
    const int shares = H / K;
    for (int n = first; n < end; n++) {
        const Number *x = (const Number *)in + (size_t)n * row_in;
        Number *out = (Number *)qkv + (size_t)n * row_out;
        const size_t position = (size_t)(heads->positions ? heads->positions[n] : n % T);
        const float *turn = rotation ? rotation + position * width : NULL;
        for (int i = 0; i < H; i++, x += D, out += D) head_forward(out, x, q_gain, turn, h);
        for (int i = 0; i < 2 * K; i++, x += D) {
            if (i < K) head_forward(out, x, k_gain, turn, h);
            for (int copy = i < K; copy < shares; copy++)
                if (out + (size_t)copy * width != x)
                    memcpy(out + (size_t)copy * width, i < K ? out : x, width * sizeof *x);
            out += shares * D;
        }
    }
}

static void cpu_heads_forward(Act *qkv, const Act *in, const Heads *heads) {
    heads_rows(heads->B * heads->T, 1, qkv, in, heads);
}

// The sum of the gradients of `shares` neighbouring heads.
static inline Pair pair_shared(const Number *d, int shares, Halves h, int k) {
    Pair sum = pair_load(d, h, k);
    for (int copy = 1; copy < shares; copy++) {
        const Pair more = pair_load(d + (size_t)copy * (size_t)h.D, h, k);
        sum.low += more.low, sum.high += more.high;
    }
    return sum;
}

// dgain (D) += its gradient
static inline void head_backward(Number *dx, float *dgain, const Number *d, int shares, const Number *x,
                                 const float *gain, const float *rotation, Halves h) {
    const V r = v_set(gain ? head_rstd(x, h.D) : 1);
    LaneSum alongs = {0};
    EACH_VECTOR(k, part, 0, gain ? h.low : 0) {
        const Pair dy = pair_rotate(pair_shared(d, shares, h, k), rotation, h, k, true),
                   by = pair_of_floats(gain, h, k);
        const Pair v = pair_load(x, h, k), sum = pair_of_floats(dgain, h, k);
        const Pair grown = {v_fma(dy.low, v.low * r, sum.low), v_fma(dy.high, v.high * r, sum.high)};
        v_store_part(dgain + k, grown.low, h.low - k);
        if (h.high > k) v_store_part(dgain + h.low + k, grown.high, h.high - k);
        alongs.part[part] += dy.low * by.low * v.low * r + dy.high * by.high * v.high * r;
    }
    const V along = v_set(lanes_sum(alongs) / (float)h.D);
    for (int k = 0; k < h.low; k += W) {
        Pair dy = pair_rotate(pair_shared(d, shares, h, k), rotation, h, k, true);
        if (gain) {
            const Pair by = pair_of_floats(gain, h, k), v = pair_load(x, h, k);
            dy.low = r * (dy.low * by.low - v.low * r * along), dy.high = r * (dy.high * by.high - v.high * r * along);
        }
        pair_store(dx, h, k, dy);
    }
}

static size_t cpu_heads_scratch(const Shape *s) { return partials_bytes(s->B * s->T, 3 * (size_t)s->C); }

TEAM_LOOP(heads_gradients, int, (Act *, din), (const Act *, dqkv), (const Act *, in), (const Heads *, heads),
          (float *, partials)) {
    const int T = heads->T, H = heads->H, K = heads->K, D = heads->D, N = heads->B * T, shares = H / K;
    const float *q_gain = (const float *)heads->q_gain, *k_gain = (const float *)heads->k_gain;
    const float *rotation = heads->rotation;
    const Halves h = halves_of(D);
    const size_t width = (size_t)D, row_in = (size_t)(H + 2 * K) * width, row_out = 3 * (size_t)H * width;
    for (int chunk = first; chunk < end; chunk++) {
        float *sums = partials + (size_t)chunk * 2 * width;
        memset(sums, 0, 2 * width * sizeof *sums);
        for (int n = chunk * CHUNK_ROWS; n < smaller(N, (chunk + 1) * CHUNK_ROWS); n++) {
            const Number *d = (const Number *)dqkv + (size_t)n * row_out, *x = (const Number *)in + (size_t)n * row_in;
            Number *dx = (Number *)din + (size_t)n * row_in;
            const float *turn = rotation ? rotation + (size_t)(n % T) * width : NULL;
            for (int i = 0; i < H; i++, d += D, x += D, dx += D) head_backward(dx, sums, d, 1, x, q_gain, turn, h);
            for (int i = 0; i < 2 * K; i++, d += shares * D, x += D, dx += D)
                head_backward(dx, sums + width, d, shares, x, i < K ? k_gain : NULL, i < K ? turn : NULL, h);
        }
    }
}

static void cpu_heads_backward(Act *din, Grad *dq_gain, Grad *dk_gain, Grad *dbias, const Act *dqkv, const Act *in,
                               const Heads *heads, bool add) {
    const int D = heads->D, N = heads->B * heads->T;
    const size_t width = (size_t)D, row_in = (size_t)(heads->H + 2 * heads->K) * width;
    float *partials = partials_take(N, 2 * width);
    heads_gradients(chunk_count(N), 1, din, dqkv, in, heads, partials);
    if (heads->q_gain) {
        columns_finish((float *)dq_gain, partials, D, chunk_count(N), 2 * width, add);
        columns_finish((float *)dk_gain, partials + width, D, chunk_count(N), 2 * width, add);
    }
    if (dbias) columns_sum((float *)dbias, (const Number *)din, row_in, N, (int)row_in, add);
}
