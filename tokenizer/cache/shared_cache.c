// PieceCache that encoders share. Insert-only: an entry is written into room that is its encoder's alone, then
// published by one store into the index, and never changes. So who reads takes no lock, and sees an entry whole or not
// at all.
//
// Memory: 8 MB of index and 32 MB of entries, taken as they fill. A word whose line of the index is full, or that comes
// when there is no more room, is not taken in.
#include "tokenizer/cache/shared_cache.h"
#include "common/err.h"
#include "common/hugepages.h"
#include <stdatomic.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    ENTRIES = 32 << 20,
    CHUNK = 4 << 10, // of entries, for one encoder to fill; the first one stays empty, as 0 is no place
    LINE = 16,       // slots in a line of the cache: a word is in one of those
    LINES = 1 << 17,
    PLACE_BITS = 22,
    TAG_BITS = 10 // of a slot: the entry's place / 8, and some of the hash
};
_Static_assert(ENTRIES / SHARED_CACHE_ALIGN == 1 << PLACE_BITS, "a place fits a slot");

struct SharedCache {
    const Vocab *vocab;
    bool asked; // or only written to
    _Atomic uint32_t *index;
    uint8_t *entries;
    atomic_size_t used; // bytes of entries
    size_t loaded;      // of them, before any encoder ran
};

SharedCache *shared_cache_open(const Vocab *vocab, unsigned threads) {
    SharedCache *shared_cache = calloc(1, sizeof *shared_cache);
    if (!shared_cache) die(EX_MEMORY, "no memory for a shared_cache");
    shared_cache->vocab = vocab;
    shared_cache->asked = threads >= SHARED_CACHE_THREADS;
    shared_cache->index = hugepages_alloc_or_die(LINES * LINE * sizeof *shared_cache->index);
    shared_cache->entries = hugepages_alloc_or_die(ENTRIES);
    shared_cache->used = shared_cache->loaded = CHUNK;
    return shared_cache;
}

void shared_cache_close(SharedCache *shared_cache) {
    if (!shared_cache) return;
    hugepages_free((void *)shared_cache->index);
    hugepages_free(shared_cache->entries);
    free(shared_cache);
}

const Vocab *shared_cache_vocab(const SharedCache *shared_cache) { return shared_cache->vocab; }

SharedCacheBucket shared_cache_bucket(const SharedCache *shared_cache, const uint8_t *word, size_t size) {
    uint64_t hash = XXH3_64bits(word, size);
    SharedCacheBucket place = {shared_cache->index + hash % LINES * LINE, (uint32_t)(hash >> (64 - TAG_BITS))};
    __builtin_prefetch((const void *)place.line);
    return place;
}

// The entry a slot speaks of, if that is the word's.
static const uint8_t *slot_entry(const SharedCache *shared_cache, uint32_t slot, uint32_t tag, const uint8_t *word,
                                 size_t size) {
    if (slot >> PLACE_BITS != tag) return NULL;
    const uint8_t *entry = shared_cache->entries + (size_t)SHARED_CACHE_ALIGN * (slot & ((1u << PLACE_BITS) - 1));
    return entry[0] == size && !memcmp(entry + 2 + 2 * entry[1], word, size) ? entry : NULL;
}

size_t shared_cache_find(const SharedCache *shared_cache, SharedCacheBucket place, const uint8_t *word, size_t size,
                         uint16_t *ids) {
    for (unsigned i = 0; shared_cache->asked && i < LINE; i++) {
        uint32_t slot = atomic_load_explicit(&place.line[i], memory_order_acquire);
        if (!slot) break;
        const uint8_t *entry = slot_entry(shared_cache, slot, place.tag, word, size);
        if (!entry) continue;
        memcpy(ids, entry + 2, 2 * entry[1]);
        return entry[1];
    }
    return 0;
}

static size_t used_bytes(const SharedCache *shared_cache) {
    size_t used = atomic_load_explicit(&shared_cache->used, memory_order_relaxed);
    return used < ENTRIES ? used : ENTRIES;
}

static bool room_get(SharedCache *shared_cache, SharedCacheChunk *room, size_t bytes) {
    if ((size_t)(room->end - room->at) >= bytes) return true;
    if (used_bytes(shared_cache) == ENTRIES) return false; // and the count cannot overflow
    size_t begin = atomic_fetch_add_explicit(&shared_cache->used, CHUNK, memory_order_relaxed);
    if (begin >= ENTRIES) return false;
    *room = (SharedCacheChunk){shared_cache->entries + begin, shared_cache->entries + begin + CHUNK};
    return true;
}

// Takes the first free slot of the line, unless another thread has brought the word in.
static bool entry_publish(SharedCache *shared_cache, SharedCacheBucket place, const uint8_t *entry, const uint8_t *word,
                          size_t size) {
    uint32_t slot = place.tag << PLACE_BITS | (uint32_t)((size_t)(entry - shared_cache->entries) / SHARED_CACHE_ALIGN);
    for (unsigned i = 0; i < LINE; i++) {
        uint32_t found = atomic_load_explicit(&place.line[i], memory_order_acquire);
        if (!found && atomic_compare_exchange_strong_explicit(&place.line[i], &found, slot, memory_order_release,
                                                              memory_order_acquire))
            return true;
        if (slot_entry(shared_cache, found, place.tag, word, size)) return false;
    }
    return false;
}

void shared_cache_add(SharedCache *shared_cache, SharedCacheBucket place, SharedCacheChunk *room, const uint8_t *word,
                      size_t size, const uint16_t *ids, size_t count) {
    if (count > SHARED_CACHE_IDS_MAX) return;
    size_t bytes = shared_cache_entry_bytes(size, count);
    if (!room_get(shared_cache, room, bytes)) return;
    uint8_t *entry = room->at;
    entry[0] = (uint8_t)size, entry[1] = (uint8_t)count;
    memcpy(entry + 2, ids, 2 * count);
    memcpy(entry + 2 + 2 * count, word, size);
    if (entry_publish(shared_cache, place, entry, word, size))
        room->at += bytes;
    else
        memset(entry, 0, bytes);
}

void shared_cache_set_loaded(SharedCache *shared_cache) { shared_cache->loaded = used_bytes(shared_cache); }

const uint8_t *shared_cache_next(const SharedCache *shared_cache, const uint8_t *entry, bool loaded) {
    size_t end = loaded ? shared_cache->loaded : used_bytes(shared_cache);
    size_t at = entry ? (size_t)(entry - shared_cache->entries) + shared_cache_entry_bytes(entry[0], entry[1]) : CHUNK;
    while (at < end && !shared_cache->entries[at]) at += CHUNK - at % CHUNK; // the rest of a chunk is empty
    return at < end ? shared_cache->entries + at : NULL;
}
