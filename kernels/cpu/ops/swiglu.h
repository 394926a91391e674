// SwiGLU: silu(gate) * up.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/columns.h"

static inline V logistic(V x) { return v_set(1) / (v_set(1) + v_exp(-x)); }

static void cpu_swiglu_forward(Act *out, const Act *in, int N, int F) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < N; i++) {
        const Number *gate = (const Number *)in + (size_t)i * 2 * (size_t)F, *up = gate + F;
        Number *y = (Number *)out + (size_t)i * (size_t)F;
        for (int k = 0; k < F; k += W) {
            const V g = act_load_part(gate + k, F - k);
            act_store_part(y + k, g * logistic(g) * act_load_part(up + k, F - k), F - k);
        }
    }
}

// The bias gradient is summed half by half.
static size_t cpu_swiglu_scratch(const Shape *s) { return partials_bytes(s->B * s->T, 4 * (size_t)s->C); }

static void cpu_swiglu_backward(Act *in, Grad *dbias, const Act *dout, int N, int F, bool add) {
    const size_t stride = 2 * (size_t)F;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < N; i++) {
        Number *gate = (Number *)in + (size_t)i * stride, *up = gate + F;
        const Number *dy = (const Number *)dout + (size_t)i * (size_t)F;
        for (int k = 0; k < F; k += W) {
            const V g = act_load_part(gate + k, F - k), u = act_load_part(up + k, F - k), s = logistic(g);
            const V d = act_load_part(dy + k, F - k);
            act_store_part(gate + k, d * u * s * v_fma(g, v_set(1) - s, v_set(1)), F - k);
            act_store_part(up + k, d * g * s, F - k);
        }
    }
    for (int half = 0; dbias && half < 2; half++)
        columns_sum((float *)dbias + half * F, (const Number *)in + half * F, stride, N, F, add);
}
