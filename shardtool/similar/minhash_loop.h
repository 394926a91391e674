// The loop of MinhashValues, which the compiler turns into vectors of each instruction set. The values of LANES
// permutations stay in registers.
#pragma once

#include "shardtool/similar/minhash.h"

#define PERMUTATION(factor, summand) factor,
static const uint64_t minhash_factors[MINHASH_PERMUTATIONS] = {
#include "shardtool/similar/permutations.def"
};
#undef PERMUTATION
#define PERMUTATION(factor, summand) summand,
static const uint64_t minhash_summands[MINHASH_PERMUTATIONS] = {
#include "shardtool/similar/permutations.def"
};
#undef PERMUTATION

static inline int64_t minhash_value(size_t permutation, uint64_t hash) {
    const int64_t prime = (1ll << 61) - 1;
    const uint64_t product = minhash_factors[permutation] * hash + minhash_summands[permutation];
    // below 2^61 + 7, so that one subtraction is enough
    const int64_t value = (int64_t)((product & (uint64_t)prime) + (product >> 61));
    return value - (value >= prime ? prime : 0);
}

static inline void minhash_loop(const uint64_t *hashes, size_t count, uint64_t *values) {
    enum { LANES = 16 };
    for (size_t first = 0; first < MINHASH_PERMUTATIONS; first += LANES) {
        int64_t least[LANES];
        for (size_t k = 0; k < LANES; k++) least[k] = INT64_MAX;
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < LANES; k++) {
                const int64_t value = minhash_value(first + k, hashes[i]);
                least[k] = value < least[k] ? value : least[k];
            }
        for (size_t k = 0; k < LANES; k++) values[first + k] = (uint64_t)least[k];
    }
}
