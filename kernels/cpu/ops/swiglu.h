// SwiGLU: silu(gate) * up.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/columns.h"

static inline V logistic(V x) { return v_set(1) / (v_set(1) + v_exp(-x)); }

TEAM_LOOP(swiglu_rows, int, (Number *, out), (const Number *, in), (int, F)) {
    for (int i = first; i < end; i++) {
        const Number *gate = in + (size_t)i * 2 * (size_t)F, *up = gate + F;
        Number *y = out + (size_t)i * (size_t)F;
        for (int k = 0; k < F; k += W) {
            const V g = act_load_part(gate + k, F - k);
            act_store_part(y + k, g * logistic(g) * act_load_part(up + k, F - k), F - k);
        }
    }
}

static void cpu_swiglu_forward(Act *out, const Act *in, int N, int F) {
    swiglu_rows(N, 1, (Number *)out, (const Number *)in, F);
}

TEAM_LOOP(swiglu_gradients, int, (Number *, in), (const Number *, dout), (int, F)) {
    for (int i = first; i < end; i++) {
        Number *gate = in + (size_t)i * 2 * (size_t)F, *up = gate + F;
        const Number *dy = dout + (size_t)i * (size_t)F;
        for (int k = 0; k < F; k += W) {
            const V g = act_load_part(gate + k, F - k), u = act_load_part(up + k, F - k), s = logistic(g);
            const V d = act_load_part(dy + k, F - k);
            act_store_part(gate + k, d * u * s * v_fma(g, v_set(1) - s, v_set(1)), F - k);
            act_store_part(up + k, d * g * s, F - k);
        }
    }
}

// The bias gradient is summed half by half.
static size_t cpu_swiglu_scratch(const Shape *s) { return partials_bytes(s->B * s->T, 4 * (size_t)s->C); }

static void cpu_swiglu_backward(Act *in, Grad *dbias, const Act *dout, int N, int F, bool add) {
    swiglu_gradients(N, 1, (Number *)in, (const Number *)dout, F);
    for (int half = 0; dbias && half < 2; half++)
        columns_sum((float *)dbias + half * F, (const Number *)in + half * F, 2 * (size_t)F, N, F, add);
}
