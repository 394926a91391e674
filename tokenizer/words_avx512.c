// The fast path of the word table in AVX-512: one comparison for a line of two words.
#include "tokenizer/split.h"
#include "tokenizer/words_entry.h"
#include <immintrin.h>

size_t words_encode_avx512(Words *words, const uint8_t *text, const uint32_t *starts, size_t count, uint16_t *ids) {
    uint32_t hashes[SPLIT_BATCH];
    uint16_t *out = ids;
    // first all hashes, so that the table's lines are on their way when they are needed
    for (size_t i = 0; i < count; i++) hashes[i] = word_find(words, text + starts[i], starts[i + 1] - starts[i]);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *word = text + starts[i];
        size_t size = starts[i + 1] - starts[i];
        // a word that is too long for this table gets a key that is not in it
        __m128i key = _mm_maskz_loadu_epi8((__mmask16)_bzhi_u32(0x7FFF, (unsigned)size), word);
        key = _mm_insert_epi8(key, size > SMALL_BYTES ? 0x7F : (int)size, SMALL_BYTES);
        const uint64_t *line = entry_at(&words->tables[0], hashes[i] & ~1u, SMALL_KEY);
        unsigned differs = _mm512_cmpneq_epi64_mask(_mm512_load_si512(line), _mm512_broadcast_i32x4(key));
        unsigned first = !(differs & 0x03), second = !(differs & 0x30);
        __asm__("" : "+r"(first), "+r"(second)); // which of the two it is must not become a branch
        if (__builtin_expect(first | second, 1)) {
            out += entry_emit(line + 2 * SMALL_KEY * second, SMALL_KEY, out);
            continue;
        }
        out += word_encode_rest(words, word, size, hashes[i], out);
    }
    return (size_t)(out - ids);
}
