// Conversions between float and the two-byte types: bf16, the upper half of a float, and fp16, binary16 of IEEE 754.
// They round to nearest, ties to even; infinities and NaN are kept.
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// For the table of number types, of which float is one.
static inline float fp32_value(float value) { return value; }
static inline float fp32_of(float value) { return value; }

static inline float bf16_value(uint16_t half) { return bits_float((uint32_t)half << 16); }
static inline uint16_t bf16_of(float value) {
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// fp16 has five bits of exponent with bias 15 (a float has eight, bias 127) and ten bits of fraction.
#define FP16_REBIAS 0x1p112f
enum {
    FP16_OVERFLOW = 0x477ff000, // float 65520 as bits: halfway from the largest fp16 to the next power of two
    FP16_NORMAL = 0x38800000,   // 2^-14, the smallest that is not subnormal
    FP16_HALF = 0x3f000000,     // 0.5: its last bit is 2^-24, like the last bit of a subnormal fp16
    FP16_BIAS = 112 << 23
};
static inline float fp16_value(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = (uint32_t)(half & 0x7fff) << 13;
    if ((half & 0x7c00) == 0x7c00) return bits_float(sign | 0x7f800000 | magnitude);
    return bits_float(sign | float_bits(bits_float(magnitude) * FP16_REBIAS)); // subnormal ones become normal
}
static inline uint16_t fp16_of(float value) {
    const uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= FP16_OVERFLOW) return (uint16_t)(sign | 0x7c00);
    if (magnitude < FP16_NORMAL) return (uint16_t)(sign | (float_bits(bits_float(magnitude) + 0.5f) - FP16_HALF));
    return (uint16_t)(sign | (magnitude - FP16_BIAS + 0xfff + (magnitude >> 13 & 1)) >> 13);
}
