// Activations as vectors, and the operands of dot products. ACT_BF16 or ACT_FP16 chooses the storage type, Number.
//
// A Lane is the content of one 32-bit lane of a dot product's operand: two neighbouring bf16 if the processor
// multiplies bf16 (PER_LANE = 2), else one fp32 (PER_LANE = 1). A LaneNumber is one of the PER_LANE numbers in it.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/half.h"
#include <string.h>

#if defined ACT_BF16
typedef uint16_t Number;
static inline float number_float(Number x) { return bf16_value(x); }
static inline Number number_of(float x) { return bf16_of(x); }
static inline V act_load(const Number *p) { return (V)(__builtin_convertvector(*(const VHAnywhere *)p, VW) << 16); }
static inline void act_store(Number *p, V v) {
#ifdef __AVX512BF16__
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v));
#else
    VW bits = (VW)v, nan = (VW)(v != v);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16; // to nearest, ties to even; the sum would carry a NaN away
    *(VHAnywhere *)p = __builtin_convertvector((bits & ~nan) | (0x7fc0 & nan), VHAnywhere);
#endif
}
#elif defined ACT_FP16
typedef uint16_t Number;
static inline float number_float(Number x) { return fp16_value(x); }
static inline Number number_of(float x) { return fp16_of(x); }
#if defined __AVX512F__
static inline V act_load(const Number *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void act_store(Number *p, V v) {
    // not _mm512_cvtps_ph, whose macro converts -1 to a mask if gcc does not optimize
    _mm256_storeu_si256((__m256i *)p, _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined __F16C__
static inline V act_load(const Number *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline void act_store(Number *p, V v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#else // the branches of half.h, selected lane by lane
static inline VW select_lanes(VW chosen, VW yes, VW no) { return (yes & chosen) | (no & ~chosen); }
static inline V act_load(const Number *p) {
    const VW half = __builtin_convertvector(*(const VHAnywhere *)p, VW), magnitude = (half & 0x7fff) << 13;
    const VW infinite = (VW)((half & 0x7c00) == 0x7c00), value = (VW)((V)magnitude * v_set(FP16_REBIAS));
    return (V)(select_lanes(infinite, magnitude | 0x7f800000, value) | (half & 0x8000) << 16);
}
static inline void act_store(Number *p, V v) {
    const VW bits = (VW)v, magnitude = bits & 0x7fffffff;
    const VW normal = (magnitude - FP16_BIAS + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const VW small = (VW)((V)magnitude + v_set(0.5f)) - FP16_HALF;
    VW half = select_lanes((VW)(magnitude < FP16_NORMAL), small, normal);
    half = select_lanes((VW)(magnitude >= FP16_OVERFLOW), v_word(0x7c00), half);
    half = select_lanes((VW)(v != v), v_word(0x7e00), half);
    *(VHAnywhere *)p = __builtin_convertvector(half | (bits >> 16 & 0x8000), VHAnywhere);
}
#endif
#else
typedef float Number;
static inline float number_float(Number x) { return x; }
static inline Number number_of(float x) { return x; }
static inline V act_load(const Number *p) { return v_load(p); }
static inline void act_store(Number *p, V v) { v_store(p, v); }
#endif

static inline V act_load_part(const Number *p, int left) {
    if (left >= W) return act_load(p);
    Number part[W] = {0};
    if (left > 0) memcpy(part, p, (size_t)left * sizeof *p);
    return act_load(part);
}
static inline void act_store_part(Number *p, V v, int left) {
    if (left >= W) {
        act_store(p, v);
        return;
    }
    Number part[W];
    act_store(part, v);
    if (left > 0) memcpy(p, part, (size_t)left * sizeof *p);
}

#if defined ACT_BF16 && defined __AVX512BF16__
enum { PER_LANE = 2 };
typedef uint32_t Lane;
typedef uint16_t LaneNumber;
static inline VW lane_load(const Lane *p) { return *(const VWAnywhere *)p; }
static inline void lane_store(Lane *p, VW v) { *(VWAnywhere *)p = v; }
static inline VW lane_set(Lane u) { return (VW){ALL(u)}; }
static inline V lane_dot(V c, VW a, VW b) {
#if defined __clang__ && __clang_major__ == 16 // its optimizer never ends on the intrinsic in some loops, and crashes
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
#else
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
#endif
}
static inline void lane_store_part(LaneNumber *p, V v) { act_store(p, v); }
// Lane i: a[i] below b[i], for operands whose two halves lie in neighbouring rows.
static inline VW lane_zip(V a, V b) {
    VW low = (VW)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a));
    return low | (VW)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(b)) << 16;
}
static inline VW lane_of_numbers(const Number *p) { return *(const VWAnywhere *)p; }
static inline V even_of(VW pair) { return (V)(pair << 16); }
static inline V odd_of(VW pair) { return (V)(pair & 0xffff0000); }
static inline VW lane_of_floats(const float *p) { return (VW)_mm512_cvtne2ps_pbh(v_load(p + W), v_load(p)); }
#else
enum { PER_LANE = 1 };
typedef float Lane;
typedef float LaneNumber;
static inline VW lane_load(const Lane *p) { return (VW)v_load(p); }
static inline void lane_store(Lane *p, VW v) { v_store(p, (V)v); }
static inline VW lane_set(Lane u) { return (VW)v_set(u); }
static inline V lane_dot(V c, VW a, VW b) { return v_fma((V)a, (V)b, c); }
static inline void lane_store_part(LaneNumber *p, V v) { v_store(p, v); }
static inline VW lane_zip(V a, V b) {
    (void)b;
    return (VW)a;
}
static inline VW lane_of_numbers(const Number *p) { return (VW)act_load(p); }
static inline VW lane_of_floats(const float *p) { return (VW)v_load(p); }
#endif
