// The word table: what each word was encoded to before. Text repeats its words; 98 in 100 are answered from here.
#pragma once

#include "common/cpu.h"
#include "tokenizer/cache/shared_cache.h"

// Entries of 32 bytes hold words of up to 15 bytes and 7 ids (nine words in ten), entries of 64 bytes words of up to 31
// bytes and 15 ids, entries of 256 bytes up to 127 bytes and 63 ids. What is beyond is merged each time.
enum { WORD_SIZES = 3, WORD_READ = 128 };

typedef struct {
    uint64_t *entries; // an entry is `words` words of key, the rest ids, and the count of ids in its last 16 bits
    size_t mask;       // entries - 1
    size_t used, limit;
    unsigned words;
} WordTable;

typedef struct Words {
    const Vocab *vocab;
    WordTable tables[WORD_SIZES];
    size_t (*encode)(struct Words *words, const uint8_t *text, const uint32_t *starts, size_t count, uint16_t *ids);
    size_t (*merge)(const Vocab *vocab, const uint8_t *piece, size_t size, uint16_t *ids, uint64_t *dead);
    uint64_t *dead;   // scratch of merge
    Lexicon *lexicon; // where other threads' words are, and ours go; may be NULL
    unsigned found;   // not at once, since the last swap
    LexiconRoom room;
    bool seeded;     // has the words that the lexicon was loaded with
    uint64_t merged; // words that nobody knew
} Words;

void words_open(Words *words, const Vocab *vocab, Lexicon *lexicon, Isa isa);
void words_close(Words *words);

// Takes in what the lexicon was loaded with. In the encoder's own thread: it takes 50 ns a word.
void words_seed(Words *words);

// Encodes the pieces text[starts[i] .. starts[i + 1]) for i < count <= SPLIT_BATCH. Reads WORD_READ bytes from each
// start, whatever the length, and 16 starts past the last; writes up to 64 ids past those it returns the count of.
static inline size_t words_encode(Words *words, const uint8_t *text, const uint32_t *starts, size_t count,
                                  uint16_t *ids) {
    return words->encode(words, text, starts, count, ids);
}

// Any one piece, known or not, and learns it.
size_t words_encode_one(Words *words, const uint8_t *piece, size_t size, uint16_t *ids);

size_t words_encode_portable(Words *words, const uint8_t *text, const uint32_t *starts, size_t count, uint16_t *ids);
size_t words_encode_avx512(Words *words, const uint8_t *text, const uint32_t *starts, size_t count, uint16_t *ids);
