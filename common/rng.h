// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). The same on every machine and without state:
// number i of a stream is a pure function of (key, i).
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

static inline void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// 64 random bits: number `index` of stream `stream` under `seed`.
static inline uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    philox4x32(counter, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

// Uniform in [0, 1) with 53 bits.
static inline double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return (double)(rng_u64(seed, stream, index) >> 11) * 0x1p-53;
}

// ---- normal numbers, without libm: the same bits on every machine, if the compiler fuses no operation

typedef union {
    uint64_t bits;
    double value;
} RngDouble;

static inline double rng_bits_double(uint64_t bits) { return ((RngDouble){.bits = bits}).value; }
static inline uint64_t rng_double_bits(double value) { return ((RngDouble){.value = value}).bits; }
// A number below 2^52 as a double. As all below, by operations that vectors have.
static inline double rng_double(uint64_t n) { return rng_bits_double(n | 0x4330000000000000) - 0x1p52; }
static inline double rng_double_53(uint64_t n) { return rng_double(n >> 32) * 0x1p32 + rng_double((uint32_t)n); }

// ln x to 2 ulp, x positive and normal: x = 2^k m, m from sqrt(1/2) to sqrt(2), ln m = 2 artanh((m - 1) / (m + 1)).
static inline double rng_log(double x) {
    static const double inverse[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                     1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
    const uint64_t root = 0x3fe6a09e667f3bcd, bits = rng_double_bits(x) + (0x3ff0000000000000 - root); // sqrt(1/2)
    const double k = rng_double(bits >> 52) - 1023;
    const double m = rng_bits_double((bits & 0xfffffffffffff) + root), s = (m - 1) / (m + 1), z = s * s;
    double sum = 0;
    for (int i = 0; i < 10; i++) sum = (sum + inverse[i]) * z;
    // ln 2 in two parts: the product with the first is exact
    return k * 0x1.62e42fefa38p-1 + (2 * s + (2 * s * sum + k * 0x1.ef35793c7673p-45));
}

// cos(2 pi x), x from 0 to 1: -sin(2 pi (1/4 - |x - 1/2|)), by Taylor's series. To 1e-15.
static inline double rng_cosine(double x) {
    static const double inverse[] = {1 / 51090942171709440000.0,
                                     -1 / 121645100408832000.0,
                                     1 / 355687428096000.0,
                                     -1 / 1307674368000.0,
                                     1 / 6227020800.0,
                                     -1 / 39916800.0,
                                     1 / 362880.0,
                                     -1 / 5040.0,
                                     1 / 120.0,
                                     -1 / 6.0}; // of factorials
    const double away = x - 0.5, angle = 6.283185307179586476925 * (0.25 - (away < 0 ? -away : away));
    double sum = 0;
    for (int i = 0; i < 10; i++) sum = (sum + inverse[i]) * (angle * angle);
    return -(angle + angle * sum);
}

// The square of a standard normal number, with its sign, from 128 random bits (Box-Muller, one of the pair).
static inline double rng_normal_square(uint64_t a, uint64_t b) {
    const double u = (rng_double_53(a >> 11) + 1) * 0x1p-53, v = rng_double_53(b >> 11) * 0x1p-53;
    const double cosine = rng_cosine(v), square = -2 * rng_log(u) * (cosine * cosine);
    return cosine < 0 ? -square : square;
}

static inline double rng_signed_root(double square) { return square < 0 ? -sqrt(-square) : sqrt(square); }

// Writes the standard normal numbers [first, first + count) of a stream.
static inline void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, size_t count, double *values) {
    for (size_t i = 0; i < count; i++) {
        const uint64_t index = first + i;
        uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
        uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
        philox4x32(counter, key, out);
        values[i] = rng_normal_square((uint64_t)out[1] << 32 | out[0], (uint64_t)out[3] << 32 | out[2]);
    }
    for (size_t i = 0; i < count; i++) values[i] = rng_signed_root(values[i]);
}

static inline double rng_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    double value;
    rng_normals(seed, stream, index, 1, &value);
    return value;
}
