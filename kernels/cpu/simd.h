// Vectors of W floats on the compiler's vector types: one source for every instruction set. The file that includes this
// is compiled for one of them. Bits do not depend on which: each function here is made of operations that IEEE 754
// rounds correctly, in one order, and sums over lanes have LANES of them whatever W is.
//
// V holds W floats, VI W int32 (comparison masks), VW W 32-bit words; VAnywhere, VWAnywhere and VHAnywhere (W 16-bit
// halves) are the same in memory, without alignment.
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

// clang-format off
#if defined __AVX512F__
enum { W = 16 };
#define ZIP_LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define COUNTED  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define ALL(x)   x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x
#elif defined __AVX2__
enum { W = 8 };
#define ZIP_LOW  0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define COUNTED  0, 1, 2, 3, 4, 5, 6, 7
#define ALL(x)   x, x, x, x, x, x, x, x
#else
enum { W = 4 };
#define ZIP_LOW  0, 4, 1, 5
#define ZIP_HIGH 2, 6, 3, 7
#define COUNTED  0, 1, 2, 3
#define ALL(x)   x, x, x, x
#endif
// clang-format on

enum { LANES = 16, PARTS = LANES / W };

typedef float V __attribute__((vector_size(4 * W)));
typedef int32_t VI __attribute__((vector_size(4 * W)));
typedef uint32_t VW __attribute__((vector_size(4 * W)));
typedef float VAnywhere __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint32_t VWAnywhere __attribute__((vector_size(4 * W), aligned(2), may_alias));
typedef uint16_t VHAnywhere __attribute__((vector_size(2 * W), aligned(2), may_alias));

static inline V v_set(float x) { return (V){ALL(x)}; }
static inline VW v_word(uint32_t x) { return (VW){ALL(x)}; }
static inline V v_load(const float *p) { return *(const VAnywhere *)p; }
static inline void v_store(float *p, V v) { *(VAnywhere *)p = v; }

// The first `left` lanes, the others 0; left >= W is the whole vector, and left <= 0 reads and writes nothing.
static inline V v_load_part(const float *p, int left) {
    if (left >= W) return v_load(p);
    float part[W] = {0};
    if (left > 0) memcpy(part, p, (size_t)left * sizeof *p);
    return v_load(part);
}
static inline void v_store_part(float *p, V v, int left) {
    if (left >= W) {
        v_store(p, v);
        return;
    }
    float part[W];
    v_store(part, v);
    if (left > 0) memcpy(p, part, (size_t)left * sizeof *p);
}
static inline V v_first(V v, int count) { return (V)((VI)v & ((VI){COUNTED} < count)); }
static inline V v_between(V v, int begin, int end) {
    return (V)((VI)v & ((VI){COUNTED} >= begin) & ((VI){COUNTED} < end));
}

// a * b + c, rounded once
#if defined __AVX512F__
static inline V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined __FMA__
static inline V v_fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined __x86_64__
// Two lanes in double: the product is exact, and the sum is rounded to double and then to float. That differs from one
// rounding only where the double lies halfway between two floats. If it is not exact there, its neighbour with an odd
// last bit is taken, on the side of the exact sum (Boldo and Melquiond, "Emulation of a FMA and correctly rounded
// sums", IEEE Transactions on Computers 57, 2008).
static inline __m128d fma_of_two(__m128d product, __m128d c) {
    __m128d sum = product + c;
    // 28 zeros at the end, at most, of a number halfway between two floats, which may be subnormal
    const __m128i ends = (__m128i)sum << 36, even = _mm_cmpeq_epi32(ends, _mm_setzero_si128());
    if (__builtin_expect(_mm_movemask_epi8(even) & 0xf0f0, 0)) {
        const __m128d added = sum - product, lost = (product - (sum - added)) + (c - added);
        const __m128i inward = (__m128i)(_mm_xor_pd(sum, lost)) >> 63; // -1 if the magnitude was rounded up
        const __m128i odd = (__m128i)sum & _mm_set1_epi64x(1);
        const __m128i inexact = (__m128i)((lost < 0) | (lost > 0)); // not of NaN
        sum = (__m128d)((__m128i)sum + (inexact & (odd - 1) & (inward | 1)));
    }
    return sum;
}
static inline V v_fma(V a, V b, V c) {
    const __m128d low = fma_of_two(_mm_cvtps_pd(a) * _mm_cvtps_pd(b), _mm_cvtps_pd(c));
    const __m128d high = fma_of_two(_mm_cvtps_pd(_mm_movehl_ps(a, a)) * _mm_cvtps_pd(_mm_movehl_ps(b, b)),
                                    _mm_cvtps_pd(_mm_movehl_ps(c, c)));
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
#else
static inline V v_fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
#endif
// Lane by lane: the lower 32 bits of a * b, and the upper ones.
static inline VW v_multiply_wide(VW a, uint32_t b, VW *high) {
#if defined __x86_64__
#if defined __AVX512F__
    const VW even = (VW)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi32((int)b));
    const VW odd = (VW)_mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), _mm512_set1_epi32((int)b));
    *high = (VW)_mm512_mask_mov_epi32(_mm512_srli_epi64((__m512i)even, 32), 0xaaaa, (__m512i)odd);
#elif defined __AVX2__
    const VW even = (VW)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi32((int)b));
    const VW odd = (VW)_mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), _mm256_set1_epi32((int)b));
    *high = (VW)_mm256_blend_epi32(_mm256_srli_epi64((__m256i)even, 32), (__m256i)odd, 0xaa);
#else
    const VW even = (VW)_mm_mul_epu32((__m128i)a, _mm_set1_epi32((int)b));
    const VW odd = (VW)_mm_mul_epu32(_mm_srli_epi64((__m128i)a, 32), _mm_set1_epi32((int)b));
    *high = (VW)_mm_srli_epi64((__m128i)even, 32) | (odd & (VW){0, ~0u, 0, ~0u});
#endif
#else
    for (int i = 0; i < W; i++) (*high)[i] = (uint32_t)((uint64_t)a[i] * b >> 32);
#endif
    return a * b;
}
// b if either is NaN: written max(bound, x), a NaN in x is kept.
static inline V v_max(V a, V b) {
#if defined __AVX512F__
    return _mm512_max_ps(a, b);
#else
    VI greater = a > b;
    return (V)(((VI)a & greater) | ((VI)b & ~greater));
#endif
}
static inline V v_min(V a, V b) {
#if defined __AVX512F__
    return _mm512_min_ps(a, b);
#else
    VI less = a < b;
    return (V)(((VI)a & less) | ((VI)b & ~less));
#endif
}
static inline V v_sqrt(V v) {
#if defined __AVX512F__
    return _mm512_sqrt_ps(v);
#elif defined __AVX2__
    return _mm256_sqrt_ps(v);
#elif defined __x86_64__
    return _mm_sqrt_ps(v);
#else
    return vsqrtq_f32(v);
#endif
}
static inline float v_sum(V v) {
    float lane[W];
    v_store(lane, v);
    for (int half = W / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}
static inline float v_largest(V v) {
    float lane[W];
    v_store(lane, v);
    for (int half = W / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

// A sum of LANES lanes. EACH_VECTOR is the loop over the vectors of a row that has numbers first .. end-1; `part` is
// the one of the sum's to which vector k belongs. The last vectors may have no number.
typedef struct {
    V part[PARTS];
} LaneSum;

#define EACH_VECTOR(k, part, first, end)                                                                               \
    for (int k = (first); k < (end);) _Pragma("GCC unroll 4") for (int part = 0; part < PARTS; part++, k += W)

static inline float lanes_sum(LaneSum sum) {
    for (int half = PARTS / 2; half; half /= 2)
        for (int i = 0; i < half; i++) sum.part[i] += sum.part[i + half];
    return v_sum(sum.part[0]);
}

// e^x = 2^n e^r with |r| <= ln 2 / 2; 1.1 ulp. e^-87 below -87, e^88 above 88.
static inline V v_exp(V x) {
    x = v_min(v_set(88), v_max(v_set(-87.3f), x));
    // Adding 1.5 * 2^23 rounds to a whole number; with 127 more its last bits are the exponent of 2^n.
    const V magic = v_set(12582912 + 127), exponent = v_fma(x, v_set(1.44269504f), magic);
    const V n = exponent - magic;
    V r = v_fma(n, v_set(-0.693359375f), x); // ln 2 in two parts, the first exact in few bits
    r = v_fma(n, v_set(2.12194440e-4f), r);
    V p = v_fma(r, v_set(1.39504916e-3f), v_set(8.36888980e-3f)); // fitted: (e^r - 1 - r) / r^2
    p = v_fma(p, r, v_set(4.16662060e-2f));
    p = v_fma(p, r, v_set(1.66665182e-1f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r * r, r) + v_set(1);
    return p * (V)((VW)exponent << 23);
}

// 5.1 ulp. Below 0.3 by its series, because 1 - 2 / (e^2x + 1) would cancel.
static inline V v_tanh(V x) {
    V square = x * x, series = v_fma(square, v_set(62.0f / 2835), v_set(-17.0f / 315));
    series = v_fma(square, series, v_set(2.0f / 15));
    series = v_fma(square, series, v_set(-1.0f / 3));
    series = v_fma(x * square, series, x);
    const V whole = v_set(1) - v_set(2) / (v_exp(x + x) + v_set(1));
    const VI small = square < 0.09f;
    return (V)((small & (VI)series) | (~small & (VI)whole));
}

// The lanes of a and b whose numbers follow, first a's, then b's.
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else // gcc 11 has no other name for it
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (VI){__VA_ARGS__})
#endif

// W x W transpose of 32-bit lanes: log2(W) perfect shuffles.
static inline void v_transpose(VW r[W]) {
    VW t[W];
    for (int round = 1; round < W; round *= 2) {
        for (int i = 0; i < W / 2; i++) {
            t[2 * i] = SHUFFLE(r[i], r[i + W / 2], ZIP_LOW);
            t[2 * i + 1] = SHUFFLE(r[i], r[i + W / 2], ZIP_HIGH);
        }
        memcpy(r, t, sizeof t);
    }
}
