// The word table: what each word was encoded to before. Text repeats its words; 98 in 100 are answered from here.
#pragma once

#include "common/cpu.h"
#include "tokenizer/cache/shared_cache.h"

// Entries of 32 bytes hold words of up to 15 bytes and 7 ids (nine words in ten), entries of 64 bytes words of up to 31
// bytes and 15 ids, entries of 256 bytes up to 127 bytes and 63 ids. What is beyond is merged each time.
enum { PIECE_SIZES = 3, PIECE_READ = 128 };

typedef struct {
    uint64_t *entries; // an entry is `words` words of key, the rest ids, and the count of ids in its last 16 bits
    size_t mask;       // entries - 1
    size_t used, limit;
    unsigned words;
} PieceTable;

typedef struct PieceCache {
    const Vocab *vocab;
    PieceTable tables[PIECE_SIZES];
    size_t (*encode)(struct PieceCache *words, const uint8_t *text, const uint32_t *starts, size_t count,
                     uint16_t *ids);
    size_t (*merge)(const Vocab *vocab, const uint8_t *piece, size_t size, uint16_t *ids, uint64_t *dead);
    uint64_t *dead;            // scratch of merge
    SharedCache *shared_cache; // where other threads' words are, and ours go; may be NULL
    unsigned found;            // not at once, since the last swap
    SharedCacheChunk room;
    bool seeded;     // has the words that the shared_cache was loaded with
    uint64_t merged; // words that nobody knew
} PieceCache;

void piece_cache_open(PieceCache *words, const Vocab *vocab, SharedCache *shared_cache, Isa isa);
void piece_cache_close(PieceCache *words);

// Takes in what the shared_cache was loaded with. In the encoder's own thread: it takes 50 ns a word.
void piece_cache_seed(PieceCache *words);

// Encodes the pieces text[starts[i] .. starts[i + 1]) for i < count <= PRETOKENIZE_BATCH. Reads PIECE_READ bytes from
// each start, whatever the length, and 16 starts past the last; writes up to 64 ids past those it returns the count of.
static inline size_t piece_cache_encode(PieceCache *words, const uint8_t *text, const uint32_t *starts, size_t count,
                                        uint16_t *ids) {
    return words->encode(words, text, starts, count, ids);
}

// Any one piece, known or not, and learns it.
size_t piece_cache_encode_one(PieceCache *words, const uint8_t *piece, size_t size, uint16_t *ids);

size_t piece_cache_encode_portable(PieceCache *words, const uint8_t *text, const uint32_t *starts, size_t count,
                                   uint16_t *ids);
size_t piece_cache_encode_avx512(PieceCache *words, const uint8_t *text, const uint32_t *starts, size_t count,
                                 uint16_t *ids);
