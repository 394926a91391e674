// The second level of the word table: what one encoder of a process has merged, for the others and for later runs.
//
// An entry is u8 size, u8 count, u16 ids[count], the word's bytes, and zeros up to a multiple of 8; in memory and in a
// file alike.
#pragma once

#include "tokenizer/vocab.h"

enum { SHARED_CACHE_PIECE_MAX = 127, SHARED_CACHE_IDS_MAX = 63, SHARED_CACHE_ALIGN = 8 };

// Where one encoder writes its next entries. Zeroed to begin with.
typedef struct {
    uint8_t *at, *end;
} SharedCacheChunk;

// Where the index speaks of a word, of 1 to SHARED_CACHE_PIECE_MAX bytes. Asks for that memory: there is something to
// do until it comes.
typedef struct {
    _Atomic uint32_t *line;
    uint32_t tag;
} SharedCacheBucket;
SharedCacheBucket shared_cache_bucket(const SharedCache *shared_cache, const uint8_t *word, size_t size);

// The count of ids, or 0 if the word is not known. ids has room for SHARED_CACHE_IDS_MAX. Both are safe from all
// threads.
size_t shared_cache_find(const SharedCache *shared_cache, SharedCacheBucket place, const uint8_t *word, size_t size,
                         uint16_t *ids);
// Does nothing if the word is there already, has more than SHARED_CACHE_IDS_MAX ids, or its line is full.
void shared_cache_add(SharedCache *shared_cache, SharedCacheBucket place, SharedCacheChunk *room, const uint8_t *word,
                      size_t size, const uint16_t *ids, size_t count);

static inline size_t shared_cache_entry_bytes(size_t size, size_t count) {
    return (2 + 2 * count + size + SHARED_CACHE_ALIGN - 1) & ~(size_t)(SHARED_CACHE_ALIGN - 1);
}

const Vocab *shared_cache_vocab(const SharedCache *shared_cache);
// The entry behind this one, the first for NULL; NULL at the end. All of them while no thread adds, or those loaded.
const uint8_t *shared_cache_next(const SharedCache *shared_cache, const uint8_t *entry, bool loaded);
void shared_cache_set_loaded(SharedCache *shared_cache); // says that those are all there are by now
// Of a file's content; name is for errors.
int shared_cache_load_bytes(SharedCache *shared_cache, Bytes file, const char *name);
