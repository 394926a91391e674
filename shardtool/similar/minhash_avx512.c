// MinHash with AVX-512.
#include "shardtool/similar/minhash_loop.h"

void minhash_values_avx512(const uint64_t *hashes, size_t count, uint64_t values[MINHASH_PERMUTATIONS]) {
    minhash_loop(hashes, count, values);
}
