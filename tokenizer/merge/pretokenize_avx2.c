// The pretokenizer in AVX2. Characters beyond ASCII are looked up one by one.
#define PRETOKENIZE_TABLE pretokenize_avx2
#include "tokenizer/merge/pretokenize_patterns.h"
#include <immintrin.h>

static inline uint64_t to_mask(__m256i low, __m256i high) {
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

// Bytes from first to last, both below 0x80; bytes from 0x80 on are negative and so below every first.
static inline uint64_t mask_range(__m256i low, __m256i high, char first, char last) {
    __m256i below = _mm256_set1_epi8((char)(first - 1)), above = _mm256_set1_epi8((char)(last + 1));
    return to_mask(_mm256_and_si256(_mm256_cmpgt_epi8(low, below), _mm256_cmpgt_epi8(above, low)),
                   _mm256_and_si256(_mm256_cmpgt_epi8(high, below), _mm256_cmpgt_epi8(above, high)));
}

static inline uint64_t mask_equal(__m256i low, __m256i high, char byte) {
    __m256i all = _mm256_set1_epi8(byte);
    return to_mask(_mm256_cmpeq_epi8(low, all), _mm256_cmpeq_epi8(high, all));
}

// Bytes from `first` on, which is at least 0x80: as signed numbers, such bytes have the same order.
static inline uint64_t mask_from(__m256i low, __m256i high, uint8_t first) {
    __m256i below = _mm256_set1_epi8((char)(first - 1)), zero = _mm256_setzero_si256();
    return to_mask(_mm256_and_si256(_mm256_cmpgt_epi8(low, below), _mm256_cmpgt_epi8(zero, low)),
                   _mm256_and_si256(_mm256_cmpgt_epi8(high, below), _mm256_cmpgt_epi8(zero, high)));
}

BLOCK_INLINE void classify_beyond(PretokenizeBlock *block, const uint8_t *at, __m256i low, __m256i high,
                                  const PretokenizeBlock *before, bool *invalid) {
    const __m256i next_low = _mm256_loadu_si256((const __m256i *)(at + 1)),
                  next_high = _mm256_loadu_si256((const __m256i *)(at + 33));
    uint64_t leads = mask_from(low, high, 0xC0), three = mask_from(low, high, 0xE0), four = mask_from(low, high, 0xF0);
    uint64_t follow = to_mask(low, high) & ~leads;
    uint64_t from90 = mask_from(next_low, next_high, 0x90), fromA0 = mask_from(next_low, next_high, 0xA0);
    // overlong forms, surrogates, beyond U+10FFFF
    uint64_t bad = (leads & ~mask_from(low, high, 0xC2)) | mask_from(low, high, 0xF5) |
                   (mask_equal(low, high, (char)0xE0) & ~fromA0) | (mask_equal(low, high, (char)0xED) & fromA0) |
                   (mask_equal(low, high, (char)0xF0) & ~from90) | (mask_equal(low, high, (char)0xF4) & from90);
    *invalid |= bad || !block_is_valid(block, before, follow, leads, three & ~four, four);
    block_look_up(block, at, leads);
    block_spread(block, before, follow);
}

BLOCK_INLINE PretokenizeBlock block_classify(const uint8_t *at, const PretokenizeBlock *before, bool *invalid) {
    const __m256i low = _mm256_loadu_si256((const __m256i *)at), high = _mm256_loadu_si256((const __m256i *)(at + 32));
    const __m256i fold = _mm256_set1_epi8(0x20);
    PretokenizeBlock block = {0};
    block.letter = mask_range(_mm256_or_si256(low, fold), _mm256_or_si256(high, fold), 'a', 'z');
    block.number = mask_range(low, high, '0', '9');
    block.blank = mask_equal(low, high, ' ');
    block.space = block.blank | mask_range(low, high, '\t', '\r');
    for (uint64_t bits = mask_equal(low, high, '\''); bits; bits &= bits - 1) {
        unsigned i = (unsigned)__builtin_ctzll(bits);
        uint8_t first = at[i + 1], second = at[i + 2];
        bool one = first == 's' || first == 'd' || first == 'm' || first == 't';
        bool two = (first == 'l' && second == 'l') || ((first == 'v' || first == 'r') && second == 'e');
        block.short2 |= (uint64_t)one << i;
        block.short3 |= (uint64_t)two << i;
    }
    uint64_t beyond = to_mask(low, high);
    if (beyond | before->owed) classify_beyond(&block, at, low, high, before, invalid);
    return block;
}

// Eight at a time, because most blocks have 8 to 24: writing a few too many costs less than a loop with the exact
// count.
static inline void starts_write(uint32_t *starts, uint64_t bits, uint32_t base) {
    for (int count = __builtin_popcountll(bits); count > 0; count -= 8, starts += 8)
        for (int i = 0; i < 8; i++, bits &= bits - 1) starts[i] = base + (uint32_t)_tzcnt_u64(bits);
}

BLOCK_INLINE uint64_t block_equal(const uint8_t *at, uint8_t byte) {
    return mask_equal(_mm256_loadu_si256((const __m256i *)at), _mm256_loadu_si256((const __m256i *)(at + 32)),
                      (char)byte);
}
BLOCK_INLINE uint64_t block_equal_folded(const uint8_t *at, uint8_t lower) {
    const __m256i fold = _mm256_set1_epi8(0x20);
    return mask_equal(_mm256_or_si256(_mm256_loadu_si256((const __m256i *)at), fold),
                      _mm256_or_si256(_mm256_loadu_si256((const __m256i *)(at + 32)), fold), (char)lower);
}
BLOCK_INLINE uint64_t block_range(const uint8_t *at, uint8_t first, uint8_t last) {
    const __m256i low = _mm256_loadu_si256((const __m256i *)at), high = _mm256_loadu_si256((const __m256i *)(at + 32));
    return mask_range(low, high, (char)first, (char)last);
}
BLOCK_INLINE uint64_t block_beyond(const uint8_t *at) {
    return to_mask(_mm256_loadu_si256((const __m256i *)at), _mm256_loadu_si256((const __m256i *)(at + 32)));
}
BLOCK_INLINE uint64_t block_leads(const uint8_t *at) {
    return mask_from(_mm256_loadu_si256((const __m256i *)at), _mm256_loadu_si256((const __m256i *)(at + 32)), 0xC0);
}
BLOCK_INLINE void block_forms(PatternBlock *block, const uint8_t *at, uint64_t leads) {
    forms_look_up(block, at, leads);
}
