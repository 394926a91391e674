// GELU, tanh form or exact, or relu(x)^2, and its slope.
#pragma once

#include "kernels/cuda/ptx.cuh"

#define SQRT_2_OVER_PI 0.7978845608028654f

// 0.5(1 + tanh u) is the logistic function of 2u: one exponential, and no cancellation where x is far below zero.
INLINE float tanh_gate(float x) {
    float u = SQRT_2_OVER_PI * x * (1 + 0.044715f * x * x);
    return __fdividef(1, 1 + exp2_fast(-2 * LOG2E * u));
}

// Phi(x), the normal distribution: as exactly as the activations need it, because the instructions of erfcf bound the
// speed. In bf16 a logistic function of an odd polynomial, off by at most 3.5e-4; the clamp keeps the polynomial rising
// beyond |x| = 8. In float16 formula 7.1.26 of Abramowitz and Stegun, off by at most 1e-7.
#if defined ACT_FP32
INLINE float normal_gate(float x) { return 0.5f * erfcf(-0.7071067811865476f * x); }
#elif defined ACT_FP16
INLINE float normal_gate(float x) {
    const float t = __fdividef(1, 1 + 0.2316418882f * fabsf(x)); // 0.3275911 / sqrt(2)
    const float series =
        ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float tail = 0.5f * series * exp2_fast(-0.5f * LOG2E * x * x);
    return x < 0 ? tail : 1 - tail;
}
#else
INLINE float normal_gate(float x) {
    float y = fminf(x * x, 64), u = y * -7.71611e-8f + 1.3568e-5f;
    u = x * (((u * y - 1.07181e-3f) * y + 7.63827e-2f) * y + 1.59172f);
    return __fdividef(1, 1 + exp2_fast(-LOG2E * u));
}
#endif

template <Activation FORM> INLINE float gelu_of(float x) {
    if (FORM == ACTIVATION_RELU2) return x <= 0 ? 0 : x * x;
    return x * (FORM == ACTIVATION_GELU ? normal_gate(x) : tanh_gate(x));
}
template <Activation FORM> INLINE float slope_of(float x) {
    if (FORM == ACTIVATION_RELU2) return x <= 0 ? 0 : 2 * x;
    if (FORM == ACTIVATION_GELU) return normal_gate(x) + x * 0.3989422804014327f * exp2_fast(-0.5f * LOG2E * x * x);
    float gate = tanh_gate(x);
    return gate + 2 * x * gate * (1 - gate) * SQRT_2_OVER_PI * (1 + 3 * 0.044715f * x * x);
}
