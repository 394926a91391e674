// Stores that round up or down at random, by the seed, the step and the element (kernels/adamw_scalars.h).
#pragma once

#include "kernels/adamw_scalars.h"
#include "kernels/cuda/ptx.cuh"

// The bits of value in two bytes: up with the probability of the part that is cut off.
INLINE uint32_t rounded(bf16, float value, uint32_t random16) {
    uint32_t bits = __float_as_uint(value);
    return ((bits & 0x7f800000u) == 0x7f800000u ? bits : bits + random16) >> 16;
}

// Steps of fp16 are 2^-24 below 2^-14, its smallest exponent. A finite value stays finite.
INLINE uint32_t rounded(fp16, float value, uint32_t random16) {
    uint32_t bits = __float_as_uint(value) & 0x7fffffffu, sign = __float_as_uint(value) >> 16 & 0x8000u;
    if (bits >= 0x7f800000u) return sign | (bits > 0x7f800000u ? 0x7e00u : 0x7c00u);
    if (bits < 0x38800000u)
        return sign | (uint32_t)(__uint_as_float(bits) * 0x1p24f + (float)(random16 >> 3) * 0x1p-13f);
    return sign | min((bits - 0x38000000u + (random16 >> 3)) >> 13, 0x7bffu);
}

#ifndef ACT_BF16
// Moments of two bytes are bf16 all the same: v goes far below the range of fp16.
INLINE void load8(float (&to)[8], const bf16 *from) {
    uint4 v = *(const uint4 *)from;
    const uint32_t *word = &v.x;
#pragma unroll
    for (int k = 0; k < 8; k++) to[k] = __uint_as_float(k & 1 ? word[k / 2] & 0xffff0000u : word[k / 2] << 16);
}
#endif

template <class T>
INLINE void store8_randomly(T *to, const float (&from)[8], const AdamW &step, size_t element, uint32_t stream) {
    uint32_t bits[4] = {(uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), step.step, stream}, word[4];
    philox(bits, step.seed[0], step.seed[1]);
#pragma unroll
    for (int k = 0; k < 4; k++)
        word[k] = rounded(T(), from[2 * k], bits[k] & 0xffffu) | rounded(T(), from[2 * k + 1], bits[k] >> 16) << 16;
    *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
}
INLINE void store8_randomly(float *to, const float (&from)[8], const AdamW &, size_t, uint32_t) { store8(to, from); }

// Parameters without a master: float32 ones hold values of bf16.
INLINE void store8_parameters(act *to, const float (&from)[8], const AdamW &step, size_t element) {
#ifdef ACT_FP32
    bf16 halves[8];
    float wide[8];
    store8_randomly(halves, from, step, element, 0);
    load8(wide, halves);
    store8(to, wide);
#else
    store8_randomly(to, from, step, element, 0);
#endif
}

// The factor of the gradients.
INLINE float gradient_scale(const AdamW &step, float norm, float divisor) {
    float clip = step.max_norm > 0 && norm > step.max_norm ? step.max_norm / (norm + 1e-6f) : 1.0f;
    return clip / divisor;
}
