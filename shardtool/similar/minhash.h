// MinHash of a set of 64-bit hashes, with the permutations of datatrove, and the keys of its bands: two sets with
// Jaccard similarity s share a band with probability 1 - (1 - s^5)^22, which is 99.98 % at 0.8 and 98 % at 0.7.
#pragma once

#include "common/machine/cpu.h"
#include <stddef.h>
#include <stdint.h>

enum { MINHASH_VERSION = 1 }; // of the keys
enum { MINHASH_PERMUTATIONS = 112, MINHASH_BANDS = 22, MINHASH_ROWS = 5 };

// Sets values[p] to the least (factor * hash + summand mod 2^64) mod 2^61 - 1 of permutation p. Of no hash: 2^63 - 1.
typedef void MinhashValues(const uint64_t *hashes, size_t count, uint64_t values[MINHASH_PERMUTATIONS]);
MinhashValues *minhash_values_on(Isa isa); // the same values on each
MinhashValues minhash_values_portable, minhash_values_avx2, minhash_values_avx512;

typedef struct {
    uint64_t key;
    uint32_t check; // 24 further bits
} MinhashBand;

void minhash_bands(const uint64_t values[MINHASH_PERMUTATIONS], MinhashBand bands[MINHASH_BANDS]);
