// The choice of the instruction set, and the keys of bands.
#include "shardtool/similar/minhash.h"
#include <xxhash.h>

MinhashValues *minhash_values_on(Isa isa) {
    if (isa == ISA_AVX512) return ON_X86(minhash_values_avx512, minhash_values_portable);
    return isa == ISA_AVX2 ? ON_X86(minhash_values_avx2, minhash_values_portable) : minhash_values_portable;
}

void minhash_bands(const uint64_t values[MINHASH_PERMUTATIONS], MinhashBand bands[MINHASH_BANDS]) {
    for (uint64_t band = 0; band < MINHASH_BANDS; band++) {
        const XXH128_hash_t hash =
            XXH3_128bits_withSeed(values + band * MINHASH_ROWS, MINHASH_ROWS * sizeof *values, band);
        bands[band] = (MinhashBand){hash.high64, (uint32_t)(hash.low64 & 0xFFFFFF)};
    }
}
