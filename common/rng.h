// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). The same on every machine and without state:
// number i of a stream is a pure function of (key, i).
#pragma once

#include <math.h>
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

// Standard normal (Box-Muller, one of the pair).
static inline double rng_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    philox4x32(counter, key, out);
    double u = ((double)(((uint64_t)out[1] << 32 | out[0]) >> 11) + 1) * 0x1p-53;
    double v = (double)(((uint64_t)out[3] << 32 | out[2]) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586476925 * v);
}
