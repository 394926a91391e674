// The shared cache: the pieces that the encoders of a process have merged, for its other encoders and, as a file, for
// later runs. It is the second level behind each encoder's piece cache. tokenizer.h has its public half.
#pragma once

#include "tokenizer/vocab.h"

enum { SHARED_CACHE_PIECE_MAX = 127, SHARED_CACHE_IDS_MAX = 63, SHARED_CACHE_ALIGN = 8 };

// An entry, in memory and in a file alike: u8 size, u8 count, u16 ids[count], the piece's bytes, zeros up to a multiple
// of SHARED_CACHE_ALIGN. It never changes after it was published, so all threads may read it.
static inline size_t shared_entry_size(const uint8_t *entry) { return entry[0]; }
static inline size_t shared_entry_count(const uint8_t *entry) { return entry[1]; }
static inline const uint8_t *shared_entry_piece(const uint8_t *entry) { return entry + 2 + 2 * entry[1]; }
static inline size_t shared_entry_bytes(size_t size, size_t count) {
    return (2 + 2 * count + size + SHARED_CACHE_ALIGN - 1) & ~(size_t)(SHARED_CACHE_ALIGN - 1);
}
// Copies the ids and returns their count.
static inline size_t shared_entry_ids(const uint8_t *entry, uint16_t ids[SHARED_CACHE_IDS_MAX]) {
    memcpy(ids, entry + 2, 2 * shared_entry_count(entry));
    return shared_entry_count(entry);
}

// The part of the entries' memory that one encoder writes to. Zeroed at first.
typedef struct {
    uint8_t *at, *end;
} SharedCacheChunk;

// The bucket of the index for a piece of 1 to SHARED_CACHE_PIECE_MAX bytes. Prefetches it: do something else before the
// bucket is used.
typedef struct {
    _Atomic uint32_t *slots;
    uint32_t tag;
} SharedCacheBucket;
SharedCacheBucket shared_cache_bucket(const SharedCache *cache, const uint8_t *piece, size_t size);

// Copies the piece's ids and returns their count, or 0 when the cache does not hold it. Thread-safe.
size_t shared_cache_find(const SharedCache *cache, SharedCacheBucket bucket, const uint8_t *piece, size_t size,
                         uint16_t ids[SHARED_CACHE_IDS_MAX]);

// Adds a piece; does nothing if it is there already, has more than SHARED_CACHE_IDS_MAX ids, or its bucket or the
// memory is full. Thread-safe; each thread has its own chunk.
void shared_cache_add(SharedCache *cache, SharedCacheBucket bucket, SharedCacheChunk *chunk, const uint8_t *piece,
                      size_t size, const uint16_t *ids, size_t count);

const Vocab *shared_cache_vocab(const SharedCache *cache);

// The entry after this one, or the first for NULL; NULL at the end. With `loaded` only the entries that were loaded;
// else all of them, while no thread adds.
const uint8_t *shared_cache_next(const SharedCache *cache, const uint8_t *entry, bool loaded);
void shared_cache_set_loaded(SharedCache *cache); // all entries so far count as loaded

// Loads a file's content; `name` is for the error's text. See shared_cache_load.
int shared_cache_load_bytes(SharedCache *cache, Bytes file, const char *name);
