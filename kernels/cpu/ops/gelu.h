// GELU, exact and by tanh, and relu(x)^2.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/columns.h"

// The normal distribution's Phi(x), and its density for the derivative.
// Phi(-z) = e^(-z*z/2) t Q(t), t = 1/(1 + z/4), Q fitted to 6e-8 relative: no cancellation in the tail.
static inline V normal_cdf(V x, V *density) {
    V z = v_max(x, -x), e = v_exp(x * x * v_set(-0.5f));
    V t = v_set(1) / v_fma(z, v_set(0.25f), v_set(1));
    V q = v_fma(t, v_set(0.0257236846f), v_set(-0.152810266f));
    q = v_fma(q, t, v_set(0.296123763f));
    q = v_fma(q, t, v_set(-0.205785459f));
    q = v_fma(q, t, v_set(0.201759884f));
    q = v_fma(q, t, v_set(0.0329271848f));
    q = v_fma(q, t, v_set(0.103746882f));
    q = v_fma(q, t, v_set(0.0985168153f));
    q = v_fma(q, t, v_set(0.099797483f));
    V tail = e * t * q;
    VI positive = x > 0;
    *density = e * v_set(0.398942280f);
    return (V)((positive & (VI)(v_set(1) - tail)) | (~positive & (VI)tail));
}

// 0.5 (1 + tanh u) = 1 / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
static inline V tanh_gate(V x) {
    V u = x * v_set(-1.59576912f) * v_fma(x * x, v_set(0.044715f), v_set(1));
    return v_set(1) / (v_set(1) + v_exp(u));
}

static inline V gelu_value(V x, Activation form) {
    V density;
    if (form == ACTIVATION_RELU2) {
        const V above = v_max(v_set(0), x);
        return above * above;
    }
    return x * (form == ACTIVATION_GELU ? normal_cdf(x, &density) : tanh_gate(x));
}

static inline V gelu_slope(V x, Activation form) {
    if (form == ACTIVATION_RELU2) return v_set(2) * v_max(v_set(0), x);
    if (form == ACTIVATION_GELU) {
        V density, cdf = normal_cdf(x, &density);
        return v_fma(x, density, cdf);
    }
    V gate = tanh_gate(x), du = v_set(1.59576912f) * v_fma(x * x, v_set(0.134145f), v_set(1));
    return v_fma(x * gate * (v_set(1) - gate), du, gate);
}

// Calls function(.., form) with a constant form.
#define AS_FORM(function, form, ...)                                                                                   \
    ((form) == ACTIVATION_RELU2  ? function(__VA_ARGS__, ACTIVATION_RELU2)                                             \
     : (form) == ACTIVATION_GELU ? function(__VA_ARGS__, ACTIVATION_GELU)                                              \
                                 : function(__VA_ARGS__, ACTIVATION_GELU_TANH))

static inline void gelu_forward_as(size_t first, size_t end, Number *out, const Number *in, Activation form) {
    for (size_t i = first; i < end; i += W) {
        const int left = end - i < W ? (int)(end - i) : W;
        act_store_part(out + i, gelu_value(act_load_part(in + i, left), form), left);
    }
}

TEAM_LOOP(gelu_range, size_t, (Number *, out), (const Number *, in), (Activation, form)) {
    AS_FORM(gelu_forward_as, form, first, end, out, in);
}

static void cpu_gelu_forward(Act *out, const Act *in, size_t n, Activation form) {
    gelu_range(n, NUMBERS_PIECE, (Number *)out, (const Number *)in, form);
}

static inline void gelu_backward_as(int first, int end, Number *d, const Number *in, int N, int C, float *partials,
                                    Activation form) {
    for (int chunk = first; chunk < end; chunk++) {
        float *sum = partials + (size_t)chunk * (size_t)C;
        memset(sum, 0, (size_t)C * sizeof *sum);
        for (int i = chunk * CHUNK_ROWS; i < smaller(N, (chunk + 1) * CHUNK_ROWS); i++) {
            Number *g = d + (size_t)i * (size_t)C;
            const Number *x = in + (size_t)i * (size_t)C;
            for (int k = 0; k < C; k += W) {
                V now = act_load_part(g + k, C - k) * gelu_slope(act_load_part(x + k, C - k), form);
                act_store_part(g + k, now, C - k);
                v_store_part(sum + k, now + v_load_part(sum + k, C - k), C - k);
            }
        }
    }
}

TEAM_LOOP(gelu_gradients, int, (Number *, d), (const Number *, in), (int, N), (int, C), (float *, partials),
          (Activation, form)) {
    AS_FORM(gelu_backward_as, form, first, end, d, in, N, C, partials);
}

static size_t cpu_gelu_scratch(const Shape *s) { return partials_bytes(s->B * s->T, 4 * (size_t)s->C); }

static void cpu_gelu_backward(Act *d, Grad *dbias, const Act *in, int N, int C, Activation form, bool add) {
    float *partials = partials_take(N, (size_t)C);
    gelu_gradients(chunk_count(N), 1, (Number *)d, (const Number *)in, N, C, partials, form);
    if (dbias) columns_finish((float *)dbias, partials, C, chunk_count(N), (size_t)C, add);
}
