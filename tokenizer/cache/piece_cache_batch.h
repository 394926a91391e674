// Shared by the fast paths over a batch of pieces.
//
// A batch goes through five steps, each over all its pieces: make the keys; hash them and prefetch their buckets of the
// small table; probe those buckets, without a branch on the result; prefetch the remaining buckets of all misses
// together; write the ids one after the other.
//
// make bench-tokenizer (mixed text, one core of a Xeon with AVX-512, 2026-11-21): 1 piece in 40 misses its first
// bucket; prefetching the misses together instead of one by one gives 1.1x.
#pragma once

#include "tokenizer/cache/piece_cache_entry.h"
#include "tokenizer/merge/pretokenize.h"

enum { FOUND_IDS = 4 * SMALL_KEY - 1 };

// The value of a small entry. It is copied when it is found, because adding another piece may move the entry.
typedef struct {
    uint16_t ids[FOUND_IDS], count; // above FOUND_IDS: to be looked up by itself
} Found;

typedef struct {
    _Alignas(BUCKET_BYTES) uint64_t keys[PRETOKENIZE_BATCH][SMALL_KEY];
    uint32_t buckets[PRETOKENIZE_BATCH]; // offsets in bytes: in tables[0], of missing large pieces in tables[1]
    Found found[PRETOKENIZE_BATCH];
    uint16_t missing[PRETOKENIZE_BATCH]; // indices of the pieces that are not in their bucket
} PieceBatch;

// Turns 16 bytes of text into a key: a mask of the piece's bytes, and its size for the last byte. Longer pieces have a
// row too, which gives a key that no bucket holds, so that no branch on the size is needed.
typedef struct {
    uint64_t mask[SMALL_KEY], size[SMALL_KEY];
} KeyRow;

#define BYTES_BELOW(n) ((1ull << (n) % 8 * 8) - 1)
#define KEY_ROW(n)                                                                                                     \
    {                                                                                                                  \
        {(n) < 8 ? BYTES_BELOW(n) : ~0ull, (n) < 8 ? 0 : BYTES_BELOW(n)}, { 0, (n + 0ull) << 56 }                      \
    }
#define KEY_ROWS(n) KEY_ROW(n), KEY_ROW(n + 1), KEY_ROW(n + 2), KEY_ROW(n + 3)
_Alignas(BUCKET_BYTES) static const KeyRow key_rows[SMALL_BYTES + 2] = {
    KEY_ROWS(0), KEY_ROWS(4), KEY_ROWS(8), KEY_ROWS(12), {{0}, {0, (SMALL_BYTES + 1ull) << 56}}};

ENTRY_INLINE void batch_prefetch_missing(PieceBatch *batch, const PieceCache *cache, const uint8_t *text,
                                         const uint32_t *starts, size_t missing) {
    const PieceTable *table = &cache->tables[0];
    for (size_t n = 0; n < missing; n++) {
        size_t i = batch->missing[n], size = starts[i + 1] - starts[i];
        batch->found[i].count = FOUND_IDS + 1;
        if (size > SMALL_BYTES)
            batch->buckets[i] = piece_prefetch(cache, text + starts[i], size);
        else
            for (size_t way = bucket_entries(SMALL_KEY); way < WAYS; way += bucket_entries(SMALL_KEY))
                __builtin_prefetch(entry_at(table, batch->buckets[i] / (16 * SMALL_KEY) ^ way, SMALL_KEY));
    }
}

// The ids of a piece that is not in its bucket of the small table, or has more ids than Found.
ENTRY_INLINE size_t batch_emit_missing(PieceCache *cache, const uint8_t *piece, size_t size, uint32_t offset,
                                       const uint64_t *key, uint16_t *ids) {
    if (size <= SMALL_BYTES) {
        const uint64_t *bucket = cache->tables[0].entries + offset / 8;
        if (!key_differs(bucket, key, SMALL_KEY)) return entry_emit(bucket, SMALL_KEY, ids); // a wide entry
    } else if (size <= LARGE_BYTES) {
        const uint64_t *bucket = cache->tables[1].entries + offset / 8;
        uint64_t large[LARGE_KEY];
        key_load(large, piece, size, LARGE_KEY);
        if (!key_differs(bucket, large, LARGE_KEY)) return entry_emit(bucket, LARGE_KEY, ids);
    }
    return piece_cache_encode_one(cache, piece, size, ids);
}

ENTRY_INLINE size_t batch_emit(const PieceBatch *batch, PieceCache *cache, const uint8_t *text, const uint32_t *starts,
                               size_t count, uint16_t *ids) {
    uint16_t *out = ids;
    for (size_t i = 0; i < count; i++) {
        const Found *found = &batch->found[i];
        __builtin_prefetch(out + IDS_AHEAD, 1);
        memcpy(out, found, sizeof *found); // always all of it, so that no loop is needed
        if (__builtin_expect(found->count <= FOUND_IDS, 1))
            out += found->count;
        else
            out += batch_emit_missing(cache, text + starts[i], starts[i + 1] - starts[i], batch->buckets[i],
                                      batch->keys[i], out);
    }
    return (size_t)(out - ids);
}
