// The layout of an entry of the piece cache.
//
// An entry is `width` u64 of key and as many of value. The key is the piece, zeros, and its size in the last byte, so
// that equal keys are equal pieces. The value is ids, in units of 16 bits, and in its last 16 bits the count of these;
// 0 marks an empty entry.
// `width` is a constant wherever speed matters, and everything here is inlined.
//
// make bench-tokenizer (mixed text, one core of a Xeon with AVX-512, 2026-11-21): prefetching the output IDS_AHEAD ids
// early gives 1.07x when the output is not in the processor's caches; masking by a table instead of a branch on the
// size avoids a misprediction a piece.
#pragma once

#include "tokenizer/cache/piece_cache.h"

enum {
    SMALL_KEY = 2, // widths of the three tables
    LARGE_KEY = 4,
    WHOLE_KEY = 16,
    SMALL_BYTES = 8 * SMALL_KEY - 1, // largest piece of each
    LARGE_BYTES = 8 * LARGE_KEY - 1,
    WHOLE_BYTES = 8 * WHOLE_KEY - 1,
    WAYS = 8,       // slots an entry may be in: those whose index differs from its hash in the three lowest bits
    IDS_AHEAD = 512 // how far ahead of the output to prefetch
};

#define ENTRY_INLINE __attribute__((always_inline)) static inline

// 0xFF bytes, then zeros: from piece_cache_masks + PIECE_READ - n it is a mask of n bytes.
extern const uint8_t piece_cache_masks[2 * PIECE_READ];

// Makes the key of a piece of at most 8 * width - 1 bytes; reads 8 * width.
ENTRY_INLINE void key_load(uint64_t *key, const uint8_t *piece, size_t size, unsigned width) {
    const uint8_t *mask = piece_cache_masks + PIECE_READ - size;
    for (unsigned i = 0; i < width; i++) key[i] = get_u64(piece + 8 * i) & get_u64(mask + 8 * i);
    key[width - 1] |= (uint64_t)size << 56;
}

// Small keys are hashed with products of 32 by 32 bits, which vector units have; larger ones with folded products of 64
// by 64 bits. In keys wider than LARGE_KEY only the first 32 bytes and the size count: pieces that share them compete
// for the same slots.
static const uint32_t small_salt[2 * SMALL_KEY] = {0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F};

ENTRY_INLINE uint64_t half_product(uint64_t key, const uint32_t salt[2]) {
    return (uint64_t)((uint32_t)key + salt[0]) * ((uint32_t)(key >> 32) + salt[1]);
}

ENTRY_INLINE uint64_t key_hash(const uint64_t *key, unsigned width) {
    if (width == SMALL_KEY) {
        uint64_t sum = half_product(key[0], small_salt) + half_product(key[1], small_salt + 2);
        return sum ^ sum >> 32;
    }
    uint64_t hash = width == WHOLE_KEY ? key[WHOLE_KEY - 1] >> 56 : 0;
    for (unsigned i = 0; i < LARGE_KEY; i += 2) {
        __uint128_t product = (__uint128_t)(key[i] ^ 0x9E3779B97F4A7C15 ^ hash) * (key[i + 1] ^ 0xD6E8FEB86659FD93);
        hash = (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return hash;
}

// 0 when the keys are equal, else the bits in which they differ.
ENTRY_INLINE uint64_t key_differs(const uint64_t *a, const uint64_t *b, unsigned width) {
    uint64_t differs = 0;
    for (unsigned i = 0; i < width; i++) differs |= a[i] ^ b[i];
    return differs;
}

ENTRY_INLINE uint64_t *entry_at(const PieceTable *table, size_t index, unsigned width) {
    return table->entries + (index & table->mask) * 2 * width;
}
ENTRY_INLINE uint64_t *entry_next(uint64_t *entry, unsigned width) { return entry + 2 * width; }
ENTRY_INLINE void *entry_ids(uint64_t *entry, unsigned width) { return entry + width; }
ENTRY_INLINE unsigned entry_count(const uint64_t *entry, unsigned width) {
    return (unsigned)(entry[2 * width - 1] >> 48);
}
ENTRY_INLINE void entry_set_count(uint64_t *entry, unsigned width, size_t count) {
    entry[2 * width - 1] |= (uint64_t)count << 48;
}
ENTRY_INLINE size_t entry_ids_max(unsigned width) { return 4 * width - 1; }

// A bucket is one line of the processor's caches. Wider entries occupy one or several lines each.
enum { BUCKET_BYTES = 64 };
ENTRY_INLINE unsigned bucket_entries(unsigned width) { return width == SMALL_KEY ? 2 : 1; }

// A small entry with 8 to 14 ids is wide: it occupies both slots of a bucket. The second slot's key equals no piece's.
#define SECOND_HALF (~0ull)

// A piece with more ids than its table can hold leaves a forward mark there and is stored in the next table. The key of
// a forward mark is the piece's with a size that no piece has.
#define FORWARD_MARK (1ull << 63)

ENTRY_INLINE bool entry_is_forward(const uint64_t *entry, unsigned width) {
    return (entry[width - 1] & FORWARD_MARK) && entry[width - 1] != SECOND_HALF;
}
ENTRY_INLINE bool entry_is_second(const uint64_t *entry, unsigned width) { return entry[width - 1] == SECOND_HALF; }
ENTRY_INLINE bool entry_is_wide(const uint64_t *entry, unsigned width) {
    return width == SMALL_KEY && entry_count(entry, width) > entry_ids_max(width);
}

// Copies as many ids as an entry can have, which needs neither a loop nor a branch, and returns how many are valid.
ENTRY_INLINE size_t entry_emit(const uint64_t *entry, unsigned width, uint16_t *ids) {
    memcpy(ids, entry + width, 8 * width);
    size_t count = entry_count(entry, width);
    if (width == SMALL_KEY && __builtin_expect(count > entry_ids_max(SMALL_KEY), 0))
        memcpy(ids + entry_ids_max(SMALL_KEY), entry + 3 * SMALL_KEY, 8 * SMALL_KEY);
    return count;
}

// Prefetches the bucket where a piece of more than SMALL_BYTES is looked for first. Returns its offset in tables[1], in
// bytes, or 0.
ENTRY_INLINE uint32_t piece_prefetch(const PieceCache *cache, const uint8_t *piece, size_t size) {
    uint64_t key[WHOLE_KEY];
    if (size <= LARGE_BYTES) {
        const PieceTable *table = &cache->tables[1];
        key_load(key, piece, size, LARGE_KEY);
        const size_t index = key_hash(key, LARGE_KEY) & table->mask;
        __builtin_prefetch(entry_at(table, index, LARGE_KEY));
        return (uint32_t)(index * 16 * LARGE_KEY);
    }
    if (size <= WHOLE_BYTES) {
        memcpy(key, piece, 8 * LARGE_KEY);
        key[WHOLE_KEY - 1] = (uint64_t)size << 56;
        uint64_t hash = key_hash(key, WHOLE_KEY);
        for (unsigned line = 0; line < 2 * WHOLE_KEY / 8; line++)
            __builtin_prefetch(entry_at(&cache->tables[2], hash, WHOLE_KEY) + 8 * line);
    }
    return 0;
}
