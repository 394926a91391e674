// The fast path of the word table in AVX-512: one comparison for a line of two words.
#include "tokenizer/split.h"
#include "tokenizer/words_entry.h"
#include <immintrin.h>

size_t words_encode_avx512(Words *words, const uint8_t *text, const uint32_t *starts, size_t count, uint16_t *ids) {
    __m128i keys[SPLIT_BATCH]; // keeping them is 1.1 times as fast as making them twice
    uint32_t hashes[SPLIT_BATCH];
    // first all hashes, so that the table's lines are on their way when they are needed
    for (size_t i = 0; i < count; i++) {
        const uint8_t *word = text + starts[i];
        size_t size = starts[i + 1] - starts[i];
        if (__builtin_expect(size > SMALL_BYTES, 0)) {
            keys[i] = _mm_set1_epi8(0x7F); // is not in this table
            hashes[i] = word_ask_large(words, word, size);
            continue;
        }
        __m128i key = _mm_maskz_loadu_epi8((__mmask16)_bzhi_u32(0x7FFF, (unsigned)size), word);
        keys[i] = key = _mm_insert_epi8(key, (int)size, SMALL_BYTES);
        uint64_t halves[] = {(uint64_t)_mm_cvtsi128_si64(key), (uint64_t)_mm_extract_epi64(key, 1)};
        hashes[i] = word_ask_small(words, halves);
    }
    uint16_t *out = ids;
    for (size_t i = 0; i < count; i++) {
        __builtin_prefetch(out + IDS_AHEAD, 1);
        const uint64_t *line = entry_at(&words->tables[0], hashes[i] & ~1u, SMALL_KEY);
        unsigned differs = _mm512_cmpneq_epi64_mask(_mm512_load_si512(line), _mm512_broadcast_i32x4(keys[i]));
        unsigned first = !(differs & 0x03), second = !(differs & 0x30);
        __asm__("" : "+r"(first), "+r"(second)); // which of the two it is must not become a branch: twice as slow
        if (__builtin_expect(first | second, 1))
            out += entry_emit(line + 2 * SMALL_KEY * second, SMALL_KEY, out);
        else
            out += word_encode_rest(words, text + starts[i], starts[i + 1] - starts[i], hashes[i], out);
    }
    return (size_t)(out - ids);
}
