// An insert-only hash table without locks. An encoder writes an entry into a chunk of memory that is its own, then
// publishes it by one store into the index, and the entry never changes. A reader sees an entry whole or not at all.
//
// Memory: 8 MB of index and 32 MB of entries, taken as they fill. A piece whose bucket is full, or that comes when the
// memory is used up, is not added.
#include "tokenizer/cache/shared_cache.h"
#include "common/err.h"
#include "common/machine/hugepages.h"
#include <stdatomic.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    ENTRIES_BYTES = 32 << 20,
    CHUNK_BYTES = 4 << 10, // the first chunk stays empty, because offset 0 means an empty slot
    BUCKETS = 1 << 17,
    BUCKET_SLOTS = 16, // one cache line
    OFFSET_BITS = 22,  // a slot holds an entry's offset / SHARED_CACHE_ALIGN ...
    TAG_BITS = 10      // ... and some bits of its hash
};
_Static_assert(ENTRIES_BYTES / SHARED_CACHE_ALIGN == 1 << OFFSET_BITS, "every offset fits a slot");

struct SharedCache {
    const Vocab *vocab;
    bool readable; // false: encoders only add to it
    _Atomic uint32_t *index;
    uint8_t *entries;
    atomic_size_t used;  // bytes of entries
    size_t loaded_bytes; // of them, loaded before any encoder ran
};

SharedCache *shared_cache_open(const Vocab *vocab, unsigned threads) {
    SharedCache *cache = calloc(1, sizeof *cache);
    if (!cache) die(EX_MEMORY, "out of memory for the BPE cache");
    cache->vocab = vocab;
    cache->readable = threads >= SHARED_CACHE_THREADS;
    cache->index = hugepages_alloc_or_die(BUCKETS * BUCKET_SLOTS * sizeof *cache->index);
    cache->entries = hugepages_alloc_or_die(ENTRIES_BYTES);
    cache->used = cache->loaded_bytes = CHUNK_BYTES;
    return cache;
}

void shared_cache_close(SharedCache *cache) {
    if (!cache) return;
    hugepages_free((void *)cache->index);
    hugepages_free(cache->entries);
    free(cache);
}

const Vocab *shared_cache_vocab(const SharedCache *cache) { return cache->vocab; }

SharedCacheBucket shared_cache_bucket(const SharedCache *cache, const uint8_t *piece, size_t size) {
    uint64_t hash = XXH3_64bits(piece, size);
    SharedCacheBucket bucket = {cache->index + hash % BUCKETS * BUCKET_SLOTS, (uint32_t)(hash >> (64 - TAG_BITS))};
    __builtin_prefetch((const void *)bucket.slots);
    return bucket;
}

// The entry that a slot refers to, if it is the piece's.
static const uint8_t *slot_entry(const SharedCache *cache, uint32_t slot, uint32_t tag, const uint8_t *piece,
                                 size_t size) {
    if (slot >> OFFSET_BITS != tag) return NULL;
    const uint8_t *entry = cache->entries + (size_t)SHARED_CACHE_ALIGN * (slot & ((1u << OFFSET_BITS) - 1));
    return shared_entry_size(entry) == size && !memcmp(shared_entry_piece(entry), piece, size) ? entry : NULL;
}

size_t shared_cache_find(const SharedCache *cache, SharedCacheBucket bucket, const uint8_t *piece, size_t size,
                         uint16_t ids[SHARED_CACHE_IDS_MAX]) {
    for (unsigned i = 0; cache->readable && i < BUCKET_SLOTS; i++) {
        uint32_t slot = atomic_load_explicit(&bucket.slots[i], memory_order_acquire);
        if (!slot) break;
        const uint8_t *entry = slot_entry(cache, slot, bucket.tag, piece, size);
        if (entry) return shared_entry_ids(entry, ids);
    }
    return 0;
}

static size_t used_bytes(const SharedCache *cache) {
    size_t used = atomic_load_explicit(&cache->used, memory_order_relaxed);
    return used < ENTRIES_BYTES ? used : ENTRIES_BYTES;
}

// Makes sure that the chunk has so many bytes left, with a new chunk if need be.
static bool chunk_reserve(SharedCache *cache, SharedCacheChunk *chunk, size_t bytes) {
    if ((size_t)(chunk->end - chunk->at) >= bytes) return true;
    if (used_bytes(cache) == ENTRIES_BYTES) return false; // without this, the counter could overflow in the end
    size_t begin = atomic_fetch_add_explicit(&cache->used, CHUNK_BYTES, memory_order_relaxed);
    if (begin >= ENTRIES_BYTES) return false;
    *chunk = (SharedCacheChunk){cache->entries + begin, cache->entries + begin + CHUNK_BYTES};
    return true;
}

// Stores the entry into the first free slot of its bucket, unless another thread has added the same piece.
static bool entry_publish(SharedCache *cache, SharedCacheBucket bucket, const uint8_t *entry, const uint8_t *piece,
                          size_t size) {
    uint32_t slot = bucket.tag << OFFSET_BITS | (uint32_t)((size_t)(entry - cache->entries) / SHARED_CACHE_ALIGN);
    for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
        uint32_t found = atomic_load_explicit(&bucket.slots[i], memory_order_acquire);
        if (!found && atomic_compare_exchange_strong_explicit(&bucket.slots[i], &found, slot, memory_order_release,
                                                              memory_order_acquire))
            return true;
        if (slot_entry(cache, found, bucket.tag, piece, size)) return false;
    }
    return false;
}

void shared_cache_add(SharedCache *cache, SharedCacheBucket bucket, SharedCacheChunk *chunk, const uint8_t *piece,
                      size_t size, const uint16_t *ids, size_t count) {
    if (count > SHARED_CACHE_IDS_MAX) return;
    size_t bytes = shared_entry_bytes(size, count);
    if (!chunk_reserve(cache, chunk, bytes)) return;
    uint8_t *entry = chunk->at;
    entry[0] = (uint8_t)size, entry[1] = (uint8_t)count;
    memcpy(entry + 2, ids, 2 * count);
    memcpy(entry + 2 + 2 * count, piece, size);
    if (entry_publish(cache, bucket, entry, piece, size))
        chunk->at += bytes;
    else
        memset(entry, 0, bytes);
}

void shared_cache_set_loaded(SharedCache *cache) { cache->loaded_bytes = used_bytes(cache); }

const uint8_t *shared_cache_next(const SharedCache *cache, const uint8_t *entry, bool loaded) {
    size_t end = loaded ? cache->loaded_bytes : used_bytes(cache), at = CHUNK_BYTES;
    if (entry) {
        size_t bytes = shared_entry_bytes(shared_entry_size(entry), shared_entry_count(entry));
        at = (size_t)(entry - cache->entries) + bytes;
    }
    while (at < end && !cache->entries[at]) at += CHUNK_BYTES - at % CHUNK_BYTES; // the rest of the chunk is empty
    return at < end ? cache->entries + at : NULL;
}
