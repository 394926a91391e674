// Causal attention of float32 activations, forward and backward, in plain float32 without tensor cores: for runs that
// compare digits, not for speed. A warp has a row: of queries, and in the gradients of keys and values a row of keys. Its
// lanes take 32 rows of the other side at a time, each the whole product of one, and then the channels c, c + 32, ...
// of the sums. All sums have a fixed order.
#ifdef ACT_FP32
#include "kernels/cuda/ptx.cuh"

enum { WARPS = 4, LANES = 32, PARTS = HEAD_MAX / LANES };

struct HeadRows {
    int B, T, H, D, from;
    const int32_t *starts;  // (B,T): the first key of each query; NULL: 0
    const Dropout *dropout; // NULL: none
    uint32_t layer_site;

    __device__ __host__ int stride() const { return 3 * H * D; } // of qkv
};

// The row of a warp: position t of head h of sequence b. False: there is none.
struct HeadRow {
    int b, h, t, lane, warp;
    bool exists;
};
INLINE HeadRow row_of_warp(const HeadRows &a, int from) {
    const int rows = a.T - from, warp = threadIdx.x / LANES;
    const size_t i = (size_t)blockIdx.x * WARPS + warp, head = i / rows;
    return {(int)(head / a.H),       (int)(head % a.H), from + (int)(i % rows), (int)(threadIdx.x % LANES), warp,
            head < (size_t)a.B * a.H};
}

INLINE float dot(const float *x, const float *y, int D) {
    float sum = 0;
#pragma unroll 4
    for (int c = 0; c < D; c += 4) {
        const float4 a = *(const float4 *)(x + c), b = *(const float4 *)(y + c);
        sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    return sum;
}

INLINE void load_row(float *to, const float *from, int D, int lane) {
    for (int c = lane; c < D; c += LANES) to[c] = from[c];
}

// sums += weight of lane l times row l of `rows`, of the first `count` lanes.
INLINE void add_rows(float (&sums)[PARTS], float weight, const float *rows, size_t stride, int count, int D, int lane) {
#pragma unroll 2
    for (int l = 0; l < count; l++) {
        const float w = __shfl_sync(0xffffffffu, weight, l);
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            if (i * LANES + lane < D) sums[i] += w * rows[l * stride + i * LANES + lane];
    }
}

INLINE void store_row(float *to, const float (&sums)[PARTS], float scale, int D, int lane) {
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        if (i * LANES + lane < D) to[i * LANES + lane] = sums[i] * scale;
}

// Does dropout keep this weight (kernels/dropout_mask.h)?
INLINE bool is_kept(const HeadRows &a, int b, int h, int query, int key) {
    const Dropout dropout = *a.dropout;
    const uint32_t groups = (uint32_t)(a.T + 7) / 8;
    uint32_t bits[4] = {(uint32_t)(h * a.T + query) * groups + (uint32_t)key / 8, dropout.first_sample + (uint32_t)b,
                        dropout.step, a.layer_site};
    philox(bits, dropout.seed[0], dropout.seed[1]);
    const uint32_t low_half = key & 2 ? bits[1] : bits[0], high_half = key & 2 ? bits[3] : bits[2];
    return ((key & 4 ? high_half : low_half) >> (key & 1) * 16 & 0xffffu) >= dropout.threshold;
}

__global__ void __launch_bounds__(WARPS *LANES, 4)
    attention_rows(float *__restrict__ out, float *__restrict__ lse, const float *__restrict__ qkv, HeadRows a) {
    SHARED(float4, queries, WARPS * HEAD_MAX / 4);
    const HeadRow x = row_of_warp(a, a.from);
    if (!x.exists) return;
    const int D = a.D, first = a.starts ? a.starts[(size_t)x.b * a.T + x.t] : 0;
    const size_t stride = a.stride(), head = (size_t)x.b * a.T * stride + (size_t)x.h * D;
    const float *k = qkv + head + a.H * D, *v = k + a.H * D;
    const float scale = LOG2E * rsqrtf((float)D);
    float *q = (float *)queries + x.warp * HEAD_MAX;
    load_row(q, qkv + head + x.t * stride, D, x.lane);
    __syncwarp();
    float most = -INFINITY, weight = 0, sums[PARTS] = {};
    for (int base = first; base <= x.t; base += LANES) { // key `base` is seen
        const int key = base + x.lane;
        const float s = key <= x.t ? dot(q, k + key * stride, D) * scale : -INFINITY;
        const float top = fmaxf(most, warp_max(s)), fade = exp2_fast(most - top);
        float p = exp2_fast(s - top);
        weight = weight * fade + warp_sum(p), most = top;
        if (a.dropout && key <= x.t && !is_kept(a, x.b, x.h, x.t, key)) p = 0;
#pragma unroll
        for (int i = 0; i < PARTS; i++) sums[i] *= fade;
        add_rows(sums, p, v + base * stride, stride, min((int)LANES, x.t + 1 - base), D, x.lane);
    }
    store_row(out + (((size_t)x.b * a.T + x.t) * a.H + x.h) * D, sums, (a.dropout ? a.dropout->scale : 1) / weight, D,
              x.lane);
    if (x.lane == 0) lse[((size_t)x.b * a.H + x.h) * a.T + x.t] = most / LOG2E + logf(weight);
}

// dQ, and deltas (B,H,T) = sums of dO * O.
__global__ void __launch_bounds__(WARPS *LANES, 4)
    attention_rows_dq(float *__restrict__ dqkv, float *__restrict__ deltas, const float *__restrict__ qkv,
                      const float *__restrict__ dout, const float *__restrict__ out, const float *__restrict__ lse,
                      HeadRows a) {
    SHARED(float4, tiles, 2 * WARPS * HEAD_MAX / 4);
    const HeadRow x = row_of_warp(a, 0);
    if (!x.exists) return;
    const int D = a.D, first = a.starts ? a.starts[(size_t)x.b * a.T + x.t] : 0;
    const size_t stride = a.stride(), head = (size_t)x.b * a.T * stride + (size_t)x.h * D;
    const size_t row = (((size_t)x.b * a.T + x.t) * a.H + x.h) * D, statistic = ((size_t)x.b * a.H + x.h) * a.T + x.t;
    const float *k = qkv + head + a.H * D, *v = k + a.H * D;
    const float root = rsqrtf((float)D), log_sum = lse[statistic] * LOG2E,
                kept_scale = a.dropout ? a.dropout->scale : 1;
    float *q = (float *)tiles + 2 * x.warp * HEAD_MAX, *o = q + HEAD_MAX, delta = 0, sums[PARTS] = {};
    load_row(q, qkv + head + x.t * stride, D, x.lane), load_row(o, dout + row, D, x.lane);
    for (int c = x.lane; c < D; c += LANES) delta += dout[row + c] * out[row + c];
    delta = warp_sum(delta);
    if (x.lane == 0) deltas[statistic] = delta;
    __syncwarp();
    for (int base = first; base <= x.t; base += LANES) {
        const int key = base + x.lane;
        float ds = 0;
        if (key <= x.t) {
            const float p = exp2_fast(dot(q, k + key * stride, D) * (LOG2E * root) - log_sum);
            float dp = dot(o, v + key * stride, D);
            if (a.dropout) dp = is_kept(a, x.b, x.h, x.t, key) ? dp * kept_scale : 0;
            ds = p * (dp - delta);
        }
        add_rows(sums, ds, k + base * stride, stride, min((int)LANES, x.t + 1 - base), D, x.lane);
    }
    store_row(dqkv + head + x.t * stride, sums, root, D, x.lane);
}

// dK and dV; deltas of attention_rows_dq.
__global__ void __launch_bounds__(WARPS *LANES, 4)
    attention_rows_dkv(float *__restrict__ dqkv, const float *__restrict__ deltas, const float *__restrict__ qkv,
                       const float *__restrict__ dout, const float *__restrict__ lse, HeadRows a) {
    SHARED(float4, tiles, 2 * WARPS * HEAD_MAX / 4);
    const HeadRow x = row_of_warp(a, 0);
    if (!x.exists) return;
    const int D = a.D, key = x.t;
    const size_t stride = a.stride(), out_stride = (size_t)a.H * D, head = (size_t)x.b * a.T * stride + (size_t)x.h * D;
    const size_t statistics = ((size_t)x.b * a.H + x.h) * a.T;
    const float *q = qkv + head, *o = dout + (size_t)x.b * a.T * out_stride + (size_t)x.h * D;
    const float root = rsqrtf((float)D), kept_scale = a.dropout ? a.dropout->scale : 1;
    float *k = (float *)tiles + 2 * x.warp * HEAD_MAX, *v = k + HEAD_MAX, dk[PARTS] = {}, dv[PARTS] = {};
    load_row(k, q + key * stride + out_stride, D, x.lane), load_row(v, q + key * stride + 2 * out_stride, D, x.lane);
    __syncwarp();
    for (int base = key; base < a.T; base += LANES) {
        const int query = base + x.lane;
        const bool sees = query < a.T && (!a.starts || key >= a.starts[(size_t)x.b * a.T + query]);
        if (!__ballot_sync(0xffffffffu, sees)) break; // first keys rise with the queries
        float p = 0, ds = 0;
        if (sees) {
            p = exp2_fast(dot(k, q + query * stride, D) * (LOG2E * root) - lse[statistics + query] * LOG2E);
            float dp = dot(v, o + query * out_stride, D);
            const bool kept = !a.dropout || is_kept(a, x.b, x.h, query, key);
            ds = p * ((kept ? dp * kept_scale : 0) - deltas[statistics + query]);
            if (!kept) p = 0;
        }
        const int count = min((int)LANES, a.T - base);
        add_rows(dk, ds, q + base * stride, stride, count, D, x.lane);
        add_rows(dv, p, o + base * out_stride, out_stride, count, D, x.lane);
    }
    store_row(dqkv + head + key * stride + out_stride, dk, root, D, x.lane);
    store_row(dqkv + head + key * stride + 2 * out_stride, dv, kept_scale, D, x.lane);
}

static HeadRows rows_of(const Attention &a, int from) {
    assert(a.D % 8 == 0 && a.D <= HEAD_MAX);
    return {a.B, a.T, a.H, a.D, from, a.starts, a.dropout, (uint32_t)(a.layer * DROPOUT_SITES + DROPOUT_ATTENTION)};
}

void FOR_ACT(cuda_attention_forward)(Act *out, float *lse, const Act *qkv, const Attention *attention) {
    const HeadRows a = rows_of(*attention, attention->from);
    LAUNCH(attention_rows, blocks_of((size_t)a.B * a.H * (size_t)(a.T - a.from), WARPS), WARPS * LANES, 0, cuda.stream,
           (float *)out, lse, (const float *)qkv, a);
}

size_t FOR_ACT(cuda_attention_scratch)(const Shape *shape) {
    return (size_t)shape->B * (size_t)shape->T * (size_t)shape->H * sizeof(float);
}

void FOR_ACT(cuda_attention_backward)(Act *dqkv, Grad *dbias, const Act *dout, const Act *out, const float *lse,
                                      const Act *qkv, const Attention *attention, bool add) {
    const HeadRows a = rows_of(*attention, 0);
    float *deltas = (float *)cuda.scratch;
    const unsigned blocks = blocks_of((size_t)a.B * a.H * (size_t)a.T, WARPS);
    LAUNCH(attention_rows_dq, blocks, WARPS * LANES, 0, cuda.stream, (float *)dqkv, deltas, (const float *)qkv,
           (const float *)dout, (const float *)out, lse, a);
    LAUNCH(attention_rows_dkv, blocks, WARPS * LANES, 0, cuda.stream, (float *)dqkv, deltas, (const float *)qkv,
           (const float *)dout, lse, a);
    if (dbias) FOR_ACT(column_sums)(dbias, dqkv, a.B * a.T, 3 * a.H * a.D, add);
}

extern "C" bool FOR_ACT(attention_has_wgmma)(void) { return false; }
#endif
