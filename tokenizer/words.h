// The word table: what each word was encoded to before. Text repeats its words; 98 in 100 are answered from here.
#pragma once

#include "tokenizer/vocab.h"

// Entries of 32 bytes hold words of up to 15 bytes with up to 7 ids, entries of 64 bytes words of up to 31 bytes with
// up to 15 ids. Longer ones are merged each time.
typedef struct {
    uint64_t *entries; // an entry is `words` words of key, the rest ids, and the count of ids in its last 16 bits
    size_t mask;       // entries - 1
    size_t used, limit;
    unsigned words;
} WordTable;

typedef struct {
    const Vocab *vocab;
    WordTable small, large;
    uint64_t *dead; // scratch of merge
    size_t dead_words;
} Words;

void words_open(Words *words, const Vocab *vocab);
void words_close(Words *words);

// Encodes the pieces text[starts[i] .. starts[i + 1]) for i < count <= SPLIT_BATCH. Reads 32 bytes from each start,
// whatever the length; writes up to 16 ids past those it returns the count of.
size_t words_encode(Words *words, const uint8_t *text, const uint32_t *starts, size_t count, uint16_t *ids);
