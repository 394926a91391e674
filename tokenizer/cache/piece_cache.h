// The piece cache of one encoder: the ids of the pieces it has encoded before. Text repeats its words, so 98 of 100
// pieces are answered from here. Used by one thread.
#pragma once

#include "common/machine/cpu.h"
#include "tokenizer/merge/vocab_internal.h"

// Three tables by the size of a piece: entries of 32 bytes hold up to 15 bytes and 7 ids (nine pieces in ten), entries
// of 64 bytes up to 31 bytes and 15 ids, entries of 256 bytes up to 127 bytes and 63 ids. Longer pieces are merged each
// time.
enum { PIECE_SIZES = 3, PIECE_READ = 128 };

typedef struct {
    uint64_t *entries; // see piece_cache_entry.h
    size_t mask;       // entry count - 1
    size_t used, limit;
    unsigned width; // of a key, in u64; an entry is twice as wide
} PieceTable;

typedef struct PieceCache {
    const Vocab *vocab;
    PieceTable tables[PIECE_SIZES];
    // The ids are in units of 16 bits: an id of 4 bytes is two of them.
    size_t (*encode)(struct PieceCache *cache, const uint8_t *text, const uint32_t *starts, size_t count,
                     uint16_t *ids);
    size_t (*merge)(const Vocab *vocab, const uint8_t *piece, size_t size, void *ids, uint64_t *dead); // (bpe.h)
    uint64_t *dead;     // scratch of merge
    unsigned slow_hits; // pieces found outside the bucket that the fast path probes, modulo SWAP_INTERVAL
} PieceCache;

// Exits (82) when there is no memory.
void piece_cache_open(PieceCache *cache, const Vocab *vocab, Isa isa);
void piece_cache_close(PieceCache *cache);
// Bounds a new cache to 22 MB instead of 64.
void piece_cache_keep_small(PieceCache *cache);

// Encodes the pieces text[starts[i] .. starts[i + 1]) for i < count <= PRETOKENIZE_BATCH and returns the number of
// units of ids.
// Reads PIECE_READ bytes from each start, whatever the piece's size, and 16 starts past the last; writes up to 64 ids
// past the last.
static inline size_t piece_cache_encode(PieceCache *cache, const uint8_t *text, const uint32_t *starts, size_t count,
                                        uint16_t *ids) {
    return cache->encode(cache, text, starts, count, ids);
}

// Encodes one piece: looks into all tables, then merges and adds the piece.
size_t piece_cache_encode_one(PieceCache *cache, const uint8_t *piece, size_t size, uint16_t *ids);

// The fast paths over a batch, one for each instruction set (piece_cache_batch.h).
size_t piece_cache_encode_portable(PieceCache *cache, const uint8_t *text, const uint32_t *starts, size_t count,
                                   uint16_t *ids);
size_t piece_cache_encode_avx512(PieceCache *cache, const uint8_t *text, const uint32_t *starts, size_t count,
                                 uint16_t *ids);
