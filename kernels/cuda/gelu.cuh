// GELU, tanh form or exact, or relu(x)^2, and its slope.
#pragma once

#include "kernels/cuda/ptx.cuh"

#define SQRT_2_OVER_PI 0.7978845608028654f

// 0.5(1 + tanh u) is the logistic function of 2u: one exponential, and no cancellation if x is far below zero.
INLINE float tanh_gate(float x) {
    float u = SQRT_2_OVER_PI * x * (1 + 0.044715f * x * x);
    return __fdividef(1, 1 + exp2_fast(-2 * LOG2E * u));
}

// The normal distribution beyond a >= 0, and beyond it less a times its density, which is the slope of GELU at -a. In
// types of two bytes the instructions bound the speed: one exponential and a polynomial. The first is off by at most
// 2.5e-4 and 6e-6 of itself up to a = 5.5, the second by 7e-5 and 6e-6.
#ifdef ACT_FP32
INLINE float normal_tail(float a) { return 0.5f * erfcf(0.7071067811865476f * a); }
INLINE float slope_tail(float a) { return normal_tail(a) - a * 0.3989422804014327f * exp2_fast(-0.5f * LOG2E * a * a); }
#else
template <int N> INLINE float polynomial(const float (&of)[N], float a) {
    float sum = of[N - 1];
#pragma unroll
    for (int i = N - 2; i >= 0; i--) sum = sum * a + of[i];
    return sum;
}
INLINE float normal_tail(float a) {
#ifdef ACT_BF16
    constexpr float logarithm[] = {-1.00035906f,   -1.14626086f,   -0.469681084f,
                                   -0.0445990115f, 0.00486977398f, -0.000233251325f};
#else
    constexpr float logarithm[] = {-0.999995291f, -1.15125108f,     -0.458464384f,  -0.0539600663f,
                                   0.0085078897f, -0.000930524606f, 6.15982644e-5f, -1.83480984e-6f};
#endif
    return exp2_fast(polynomial(logarithm, a));
}
INLINE float slope_tail(float a) {
#ifdef ACT_BF16
    constexpr float factor[] = {0.499937266f,   -0.795509577f, 0.23543264f,
                                -0.0996613353f, 0.025280064f,  -0.00273958477f};
#else
    constexpr float factor[] = {0.499996036f,  -0.797662377f,  0.247959644f,   -0.12582694f,
                                0.0499400347f, -0.0139236031f, 0.00231906981f, -0.000168557337f};
#endif
    a = fminf(a, 16); // else infinite times zero
    return exp2_fast(-0.5f * LOG2E * a * a) * polynomial(factor, a);
}
#endif

template <Activation FORM> INLINE float gelu_of(float x) {
    if (FORM == ACTIVATION_RELU2) return x <= 0 ? 0 : x * x;
    if (FORM == ACTIVATION_GELU) return fmaxf(x, 0) - fabsf(x) * normal_tail(fabsf(x));
    return x * tanh_gate(x);
}
template <Activation FORM> INLINE float slope_of(float x) {
    if (FORM == ACTIVATION_RELU2) return x <= 0 ? 0 : 2 * x;
    if (FORM == ACTIVATION_GELU) {
        const float tail = slope_tail(fabsf(x));
        return x > 0 ? 1 - tail : tail;
    }
    float gate = tanh_gate(x);
    return gate + 2 * x * gate * (1 - gate) * SQRT_2_OVER_PI * (1 + 3 * 0.044715f * x * x);
}
