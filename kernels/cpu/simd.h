// Vectors of W floats on the compiler's vector types: one source for every instruction set. The file that includes this
// is compiled for one of them; the order of every sum depends on W alone.
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

// The first `left` lanes, the others 0; left >= W is the whole vector.
static inline V v_load_part(const float *p, int left) {
    if (left >= W) return v_load(p);
    float part[W] = {0};
    memcpy(part, p, (size_t)left * sizeof *p);
    return v_load(part);
}
static inline void v_store_part(float *p, V v, int left) {
    if (left >= W) {
        v_store(p, v);
        return;
    }
    float part[W];
    v_store(part, v);
    memcpy(p, part, (size_t)left * sizeof *p);
}
static inline V v_first(V v, int count) { return (V)((VI)v & ((VI){COUNTED} < count)); }
static inline V v_between(V v, int begin, int end) {
    return (V)((VI)v & ((VI){COUNTED} >= begin) & ((VI){COUNTED} < end));
}

static inline V v_fma(V a, V b, V c) {
#if defined __AVX512F__
    return _mm512_fmadd_ps(a, b, c);
#elif defined __FMA__
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}
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
#else
    for (int i = 0; i < W; i++) v[i] = sqrtf(v[i]);
    return v;
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

// e^x = 2^n e^r with |r| <= ln 2 / 2; relative error 1e-7. e^-87 below -87.
static inline V v_exp(V x) {
    x = v_max(v_set(-87.3f), x);
#ifndef __AVX512F__
    x = v_min(v_set(88), x); // 2^n below is made of n's bits: it cannot overflow to infinity
#endif
    const V magic = v_set(12582912); // 1.5 * 2^23: adding it rounds to a whole number
    V n = v_fma(x, v_set(1.44269504f), magic) - magic;
    V r = v_fma(n, v_set(-0.693359375f), x); // ln 2 in two parts, the first exact in few bits
    r = v_fma(n, v_set(2.12194440e-4f), r);
    V p = v_fma(r, v_set(1.39504916e-3f), v_set(8.36888980e-3f)); // fitted: (e^r - 1 - r) / r^2
    p = v_fma(p, r, v_set(4.16662060e-2f));
    p = v_fma(p, r, v_set(1.66665182e-1f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r * r, r) + v_set(1);
#ifdef __AVX512F__
    return _mm512_scalef_ps(p, n);
#else
    return p * (V)((__builtin_convertvector(n, VI) + 127) << 23);
#endif
}

// Below 0.3 by its series, because 1 - 2 / (e^2x + 1) would cancel.
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
