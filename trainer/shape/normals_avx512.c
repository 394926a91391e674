// Normal numbers with AVX-512. Philox by the products of its vectors, which compilers do not find.
#include "common/rng.h"
#include "trainer/shape/normals.h"
#include <immintrin.h>

enum { LANES = 8 };

// philox4x32 of LANES counters. Each number is the lower half of 64 bits; the upper half has no meaning.
static void random_bits(uint64_t seed, uint64_t stream, uint64_t first, uint64_t *a_bits, uint64_t *b_bits) {
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), below = _mm512_set1_epi64(UINT32_MAX);
    const __m512i a = _mm512_set1_epi64(0xD2511F53), b = _mm512_set1_epi64(0xCD9E8D57);
    __m512i c0 = _mm512_add_epi64(_mm512_set1_epi64((long long)first), lanes), c1 = _mm512_srli_epi64(c0, 32);
    __m512i c2 = _mm512_set1_epi64((long long)stream), c3 = _mm512_srli_epi64(c2, 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const __m512i p0 = _mm512_mul_epu32(c0, a), p1 = _mm512_mul_epu32(c2, b);
        c0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), c1), _mm512_set1_epi64(k0));
        c2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), c3), _mm512_set1_epi64(k1));
        c1 = p1, c3 = p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    _mm512_storeu_si512(a_bits, _mm512_or_si512(_mm512_slli_epi64(c1, 32), _mm512_and_si512(c0, below)));
    _mm512_storeu_si512(b_bits, _mm512_or_si512(_mm512_slli_epi64(c3, 32), _mm512_and_si512(c2, below)));
}

void normals_avx512(uint64_t seed, uint64_t stream, uint64_t first, size_t count, double *values) {
    enum { PIECE = 256 };
    uint64_t a[PIECE], b[PIECE];
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        for (size_t i = 0; i < n; i += LANES) random_bits(seed, stream, first + at + i, a + i, b + i);
        for (size_t i = 0; i < n; i++) values[at + i] = rng_normal_square(a[i], b[i]);
        for (size_t i = at; i < at + n; i++) values[i] = rng_signed_root(values[i]);
    }
}
