// The pretokenizer in AVX-512 (VBMI, VBMI2): characters of two bytes, and characters of three bytes in blocks of one
// class, are looked up 64 bytes at a time.
//
// make bench-tokenizer (mixed text, one core of a Xeon with AVX-512, 2026-11-21): always writing 32 starts, although
// most blocks have 8 to 24, gives 1.08x over a branch at 16, which mispredicts.
#define PRETOKENIZE_TABLE pretokenize_avx512
#include "tokenizer/merge/pretokenize_patterns.h"
#include <immintrin.h>

static inline uint64_t mask_range(__m512i bytes, uint8_t first, uint8_t last) {
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8((char)first)),
                                  _mm512_set1_epi8((char)(last - first)));
}
static inline uint64_t mask_equal(__m512i bytes, uint8_t byte) {
    return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8((char)byte));
}

static inline uint64_t mask_from(__m512i bytes, uint8_t first) {
    return _mm512_cmpge_epu8_mask(bytes, _mm512_set1_epi8((char)first));
}

// For each byte: whether table[index] has the bit `bit` (a byte with one bit set); for tables of 128 and of 256 bytes.
static inline uint64_t look_up_128(const uint8_t *table, __m512i index, __m512i bit) {
    return _mm512_test_epi8_mask(
        _mm512_permutex2var_epi8(_mm512_loadu_si512(table), index, _mm512_loadu_si512(table + 64)), bit);
}
static inline uint64_t look_up_256(const uint8_t *table, __m512i index, __m512i bit) {
    uint64_t upper = _mm512_movepi8_mask(index);
    return (look_up_128(table, index, bit) & ~upper) | (look_up_128(table + 128, index, bit) & upper);
}

// The index and bit of each first byte in tables of 8 by 32 bits: the low bits of the first byte and the top three of
// the second, which are the number of eight code points (of two bytes) or of eight blocks (of three bytes).
BLOCK_INLINE void low_index(__m512i bytes, __m512i next, __m512i *index, __m512i *bit) {
    const __m512i powers = _mm512_set1_epi64((long long)0x8040201008040201);
    *index = _mm512_or_si512(_mm512_and_si512(_mm512_slli_epi16(bytes, 3), _mm512_set1_epi8((char)0xF8)),
                             _mm512_and_si512(_mm512_srli_epi16(next, 3), _mm512_set1_epi8(7)));
    *bit = _mm512_shuffle_epi8(powers, _mm512_and_si512(next, _mm512_set1_epi8(7)));
}

BLOCK_INLINE void classify_beyond(PretokenizeBlock *block, const uint8_t *at, __m512i bytes, uint64_t beyond,
                                  const PretokenizeBlock *before, bool *invalid) {
    const __m512i next = _mm512_loadu_si512(at + 1);
    __m512i index, bit;
    low_index(bytes, next, &index, &bit);
    uint64_t leads = mask_from(bytes, 0xC0), three = mask_from(bytes, 0xE0), four = mask_from(bytes, 0xF0);
    uint64_t two = leads & ~three, mixed = four, bad = mask_range(bytes, 0xC0, 0xC1);
    three &= ~four;
    if (two) {
        block->letter |= two & look_up_256(unicode_low_letters, index, bit);
        block->number |= two & look_up_256(unicode_low_numbers, index, bit);
        block->space2 = mask_equal(bytes, 0xC2) & (mask_equal(next, 0x85) | mask_equal(next, 0xA0));
    }
    if (three) {
        const __m512i in_half = _mm512_and_si512(index, _mm512_set1_epi8(0x7F));
        block->letter |= three & look_up_128(unicode_letter_blocks, in_half, bit);
        mixed |= three & look_up_128(unicode_mixed_blocks, in_half, bit);
        // overlong forms and surrogates
        uint64_t fromA0 = mask_from(next, 0xA0);
        bad |= (mask_equal(bytes, 0xE0) & ~fromA0) | (mask_equal(bytes, 0xED) & fromA0);
    }
    if (four) { // overlong forms, and beyond U+10FFFF
        uint64_t from90 = mask_from(next, 0x90);
        bad |= (mask_equal(bytes, 0xF0) & ~from90) | (mask_equal(bytes, 0xF4) & from90) | mask_from(bytes, 0xF5);
    }
    uint64_t follow = beyond & ~leads;
    *invalid |= bad || !block_is_valid(block, before, follow, leads, three, four);
    block_look_up(block, at, mixed);
    block_spread(block, before, follow);
}

BLOCK_INLINE PretokenizeBlock block_classify(const uint8_t *at, const PretokenizeBlock *before, bool *invalid) {
    const __m512i bytes = _mm512_loadu_si512(at);
    PretokenizeBlock block = {0};
    block.letter = mask_range(_mm512_or_si512(bytes, _mm512_set1_epi8(0x20)), 'a', 'z');
    block.number = mask_range(bytes, '0', '9');
    block.blank = mask_equal(bytes, ' ');
    block.space = block.blank | mask_range(bytes, '\t', '\r');
    uint64_t apostrophes = mask_equal(bytes, '\'');
    if (apostrophes) {
        const __m512i first = _mm512_loadu_si512(at + 1), second = _mm512_loadu_si512(at + 2);
        block.short2 = apostrophes & (mask_equal(first, 's') | mask_equal(first, 'd') | mask_equal(first, 'm') |
                                      mask_equal(first, 't'));
        block.short3 = apostrophes & ((mask_equal(first, 'l') & mask_equal(second, 'l')) |
                                      ((mask_equal(first, 'v') | mask_equal(first, 'r')) & mask_equal(second, 'e')));
    }
    uint64_t beyond = _mm512_movepi8_mask(bytes);
    if (beyond | before->owed) classify_beyond(&block, at, bytes, beyond, before, invalid);
    return block;
}

static inline void starts_write(uint32_t *starts, uint64_t bits, uint32_t base) {
    static const uint8_t numbers[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                        32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    const __m512i offsets = _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(numbers)),
                  all = _mm512_set1_epi32((int)base);
    _mm512_storeu_si512(starts, _mm512_add_epi32(all, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(offsets))));
    _mm512_storeu_si512(starts + 16,
                        _mm512_add_epi32(all, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(offsets, 1))));
    if (__builtin_popcountll(bits) <= 32) return;
    _mm512_storeu_si512(starts + 32,
                        _mm512_add_epi32(all, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(offsets, 2))));
    _mm512_storeu_si512(starts + 48,
                        _mm512_add_epi32(all, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(offsets, 3))));
}

BLOCK_INLINE uint64_t block_equal(const uint8_t *at, uint8_t byte) { return mask_equal(_mm512_loadu_si512(at), byte); }
BLOCK_INLINE uint64_t block_equal_folded(const uint8_t *at, uint8_t lower) {
    return mask_equal(_mm512_or_si512(_mm512_loadu_si512(at), _mm512_set1_epi8(0x20)), lower);
}
BLOCK_INLINE uint64_t block_range(const uint8_t *at, uint8_t first, uint8_t last) {
    return mask_range(_mm512_loadu_si512(at), first, last);
}
BLOCK_INLINE uint64_t block_beyond(const uint8_t *at) { return _mm512_movepi8_mask(_mm512_loadu_si512(at)); }
BLOCK_INLINE uint64_t block_leads(const uint8_t *at) { return mask_from(_mm512_loadu_si512(at), 0xC0); }
BLOCK_INLINE void block_forms(PatternBlock *block, const uint8_t *at, uint64_t leads) {
    const __m512i bytes = _mm512_loadu_si512(at);
    __m512i index, bit;
    low_index(bytes, _mm512_loadu_si512(at + 1), &index, &bit);
    const uint64_t four = mask_from(bytes, 0xF0), three = mask_from(bytes, 0xE0) & ~four, two = leads & ~(three | four);
    if (two) {
        const uint64_t low = two & look_up_256(unicode_low_forms[0], index, bit),
                       high = two & look_up_256(unicode_low_forms[1], index, bit);
        block->upper |= low & ~high;
        block->lower |= high & ~low;
        block->mark |= low & high;
    }
    uint64_t mixed = four;
    if (three) mixed |= three & look_up_128(unicode_form_blocks, _mm512_and_si512(index, _mm512_set1_epi8(0x7F)), bit);
    forms_look_up(block, at, mixed);
}
