// In two steps, as AVX2 has no product of 64-bit numbers. An estimate of the upper 32 bits of a value, which may be too
// small by 2, shows whether the value can be less than the least one so far; then the value is computed. First stage of
// make bench-neardup on Zen 3: 0.93 s -> 0.67 s.
#include "shardtool/similar/minhash_loop.h"
#include <immintrin.h>
#include <string.h>

enum { HALF = 8, LANES = 2 * HALF };

// Half of the lanes. Factors and summands are shifted up by 3 bits, as a value has 61.
typedef struct {
    __m256i low, odd, high,
        summand;   // words of the factors, `odd` the low ones of odd lanes; upper words of the summands
    __m256i bound; // the greatest estimate of what may be less than the least value so far
} HalfLanes;

typedef struct {
    size_t first; // permutation
    HalfLanes halves[2];
    int64_t least[LANES];
    uint32_t bounds[LANES];
} MinhashLanes;

#define SIGN (1u << 31) // added to estimates and bounds, as AVX2 compares signed numbers

static inline __m256i load(const uint32_t *words) { return _mm256_loadu_si256((const __m256i *)(const void *)words); }

static inline uint32_t bound_of(int64_t value) {
    const uint64_t bound = (((uint64_t)value + 1) >> 29) + 2;
    return (bound < UINT32_MAX ? (uint32_t)bound : UINT32_MAX) - SIGN;
}

static inline void load_bounds(MinhashLanes *lanes) {
    for (size_t i = 0; i < 2; i++) lanes->halves[i].bound = load(lanes->bounds + i * HALF);
}

static void open_lanes(MinhashLanes *lanes) {
    uint32_t low[LANES], high[LANES], summand[LANES];
    for (size_t k = 0; k < LANES; k++) {
        const uint64_t factor = minhash_factors[lanes->first + k] << 3;
        low[k] = (uint32_t)factor, high[k] = (uint32_t)(factor >> 32);
        // An estimate is that of the value + 1, so that 2^61 - 1, which is 0, has a small one. The lower words, 1 and
        // the upper 3 bits of the product carry 2 at most.
        summand[k] = (uint32_t)(minhash_summands[lanes->first + k] << 3 >> 32) + 2 + SIGN;
        lanes->least[k] = INT64_MAX, lanes->bounds[k] = bound_of(INT64_MAX);
    }
    for (size_t i = 0; i < 2; i++) {
        const __m256i words = load(low + i * HALF);
        lanes->halves[i] = (HalfLanes){.low = words,
                                       .odd = _mm256_srli_epi64(words, 32),
                                       .high = load(high + i * HALF),
                                       .summand = load(summand + i * HALF)};
    }
    load_bounds(lanes);
}

// A bit for each lane whose value may be less than the least one so far.
static inline unsigned half_less(const HalfLanes *half, __m256i low, __m256i high) {
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(half->low, low), 32),
                  odd = _mm256_mul_epu32(half->odd, low);
    const __m256i cross = _mm256_add_epi32(_mm256_mullo_epi32(half->low, high), _mm256_mullo_epi32(half->high, low));
    const __m256i upper = _mm256_add_epi32(_mm256_blend_epi32(even, odd, 0xAA), half->summand);
    const __m256i more = _mm256_cmpgt_epi32(_mm256_add_epi32(cross, upper), half->bound);
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(more)) ^ 0xFF;
}

static inline void add_hash(MinhashLanes *lanes, uint64_t hash) {
    const __m256i both = _mm256_set1_epi64x((int64_t)hash);
    const __m256i low = _mm256_shuffle_epi32(both, 0xA0), high = _mm256_shuffle_epi32(both, 0xF5);
    unsigned less = half_less(&lanes->halves[0], low, high) | half_less(&lanes->halves[1], low, high) << HALF;
    if (!less) return;
    for (; less; less &= less - 1) {
        const unsigned k = (unsigned)__builtin_ctz(less);
        const int64_t value = minhash_value(lanes->first + k, hash);
        if (value < lanes->least[k]) lanes->least[k] = value, lanes->bounds[k] = bound_of(value);
    }
    load_bounds(lanes);
}

void minhash_values_avx2(const uint64_t *hashes, size_t count, uint64_t values[MINHASH_PERMUTATIONS]) {
    for (size_t first = 0; first < MINHASH_PERMUTATIONS; first += LANES) {
        MinhashLanes lanes = {.first = first};
        open_lanes(&lanes);
        for (size_t i = 0; i < count; i++) add_hash(&lanes, hashes[i]);
        memcpy(values + first, lanes.least, sizeof lanes.least);
    }
}
