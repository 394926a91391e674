// Residual add and layer normalization.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/columns.h"

TEAM_LOOP(layernorm_rows, int, (Res *, sum), (Act *, out), (const Res *, in), (const Act *, branch),
          (const Norm *, norm)) {
    const int C = norm->C;
    const float *w = (const float *)norm->weight, *beta = (const float *)norm->bias;
    float *mean = norm->mean, *rstd = norm->rstd;
    for (int i = first; i < end; i++) {
        const float *x = (const float *)in + (size_t)i * (size_t)C;
        const Number *add = branch ? (const Number *)branch + (size_t)i * (size_t)C : NULL;
        float *r = (float *)sum + (size_t)i * (size_t)C;
        Number *y = (Number *)out + (size_t)i * (size_t)C;
        LaneSum total = {0}, square = {0};
        EACH_VECTOR(k, part, 0, C) {
            V v = v_load_part(x + k, C - k);
            if (add) v += act_load_part(add + k, C - k);
            if (add || r != x) v_store_part(r + k, v, C - k);
            total.part[part] += v;
        }
        float m = mean ? lanes_sum(total) / (float)C : 0;
        EACH_VECTOR(k, part, 0, C) {
            V v = v_first(v_load_part(r + k, C - k) - v_set(m), C - k);
            square.part[part] = v_fma(v, v, square.part[part]);
        }
        float s = 1 / sqrtf(lanes_sum(square) / (float)C + 1e-5f);
        for (int k = 0; k < C; k += W) {
            V v = (v_load_part(r + k, C - k) - v_set(m)) * v_set(s);
            V b = beta ? v_load_part(beta + k, C - k) : v_set(0);
            act_store_part(y + k, v_fma(v, v_load_part(w + k, C - k), b), C - k);
        }
        if (mean) mean[i] = m;
        rstd[i] = s;
    }
}

static void cpu_layernorm_forward(Res *sum, Act *out, const Res *in, const Act *branch, const Norm *norm) {
    layernorm_rows(norm->N, 1, sum, out, in, branch, norm);
}

static size_t cpu_layernorm_scratch(const Shape *s) { return partials_bytes(s->B * s->T, 3 * (size_t)s->C); }

// writes: dsum is written; else it is added to
TEAM_LOOP(layernorm_gradients, int, (Res *, dsum), (Act *, dsum_act), (const Act *, dout), (const Res *, sum),
          (const Norm *, norm), (bool, writes), (float *, partials)) {
    const int N = norm->N, C = norm->C;
    const float *w = (const float *)norm->weight, *mean = norm->mean, *rstd = norm->rstd;
    const size_t stride = 3 * (size_t)C;
    for (int chunk = first; chunk < end; chunk++) {
        float *dw = partials + (size_t)chunk * stride, *db = dw + C, *below = db + C;
        memset(dw, 0, stride * sizeof *dw);
        for (int i = chunk * CHUNK_ROWS; i < smaller(N, (chunk + 1) * CHUNK_ROWS); i++) {
            const size_t row = (size_t)i * (size_t)C;
            const Number *g = (const Number *)dout + row;
            const float *x = (const float *)sum + row;
            float *d = (float *)dsum + row;
            Number *narrow = (Number *)dsum_act + row;
            const V m = v_set(mean ? mean[i] : 0), r = v_set(rstd[i]);
            LaneSum totals = {0}, alongs = {0};
            EACH_VECTOR(k, part, 0, C) {
                V n = (v_load_part(x + k, C - k) - m) * r, dy = act_load_part(g + k, C - k);
                v_store_part(dw + k, v_fma(dy, n, v_load_part(dw + k, C - k)), C - k);
                v_store_part(db + k, dy + v_load_part(db + k, C - k), C - k);
                V dn = dy * v_load_part(w + k, C - k); // 0 past the end
                totals.part[part] += dn;
                alongs.part[part] = v_fma(dn, n, alongs.part[part]);
            }
            const V total = v_set(mean ? lanes_sum(totals) / (float)C : 0);
            const V along = v_set(lanes_sum(alongs) / (float)C);
            for (int k = 0; k < C; k += W) {
                V n = (v_load_part(x + k, C - k) - m) * r;
                V dn = act_load_part(g + k, C - k) * v_load_part(w + k, C - k);
                V old = writes ? v_set(0) : v_load_part(d + k, C - k);
                V now = v_fma(dn - total - n * along, r, old);
                v_store_part(d + k, now, C - k);
                act_store_part(narrow + k, now, C - k);
                v_store_part(below + k, now + v_load_part(below + k, C - k), C - k);
            }
        }
    }
}

static void cpu_layernorm_backward(Res *dsum, Act *dsum_act, const NormGradients *gradients, const Act *dout,
                                   const Res *sum, const Norm *norm, bool first, bool add) {
    const int N = norm->N, C = norm->C;
    const size_t stride = 3 * (size_t)C;
    float *partials = partials_take(N, stride);
    layernorm_gradients(chunk_count(N), 1, dsum, dsum_act, dout, sum, norm, first, partials);
    Grad *const sums[] = {gradients->weight, gradients->bias, gradients->below};
    for (int i = 0; i < 3; i++)
        if (sums[i]) columns_finish((float *)sums[i], partials + i * C, C, chunk_count(N), stride, add);
}
