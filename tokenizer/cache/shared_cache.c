// Words that encoders share. Insert-only: an entry is written into room that is its encoder's alone, then published by
// one store into the index, and never changes. So who reads takes no lock, and sees an entry whole or not at all.
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
_Static_assert(ENTRIES / LEXICON_ALIGN == 1 << PLACE_BITS, "a place fits a slot");

struct Lexicon {
    const Vocab *vocab;
    bool asked; // or only written to
    _Atomic uint32_t *index;
    uint8_t *entries;
    atomic_size_t used; // bytes of entries
    size_t loaded;      // of them, before any encoder ran
};

Lexicon *lexicon_open(const Vocab *vocab, unsigned threads) {
    Lexicon *lexicon = calloc(1, sizeof *lexicon);
    if (!lexicon) die(EX_MEMORY, "no memory for a lexicon");
    lexicon->vocab = vocab;
    lexicon->asked = threads >= LEXICON_THREADS;
    lexicon->index = hugepages_map(LINES * LINE * sizeof *lexicon->index);
    lexicon->entries = hugepages_map(ENTRIES);
    lexicon->used = lexicon->loaded = CHUNK;
    return lexicon;
}

void lexicon_close(Lexicon *lexicon) {
    if (!lexicon) return;
    hugepages_unmap((void *)lexicon->index, LINES * LINE * sizeof *lexicon->index);
    hugepages_unmap(lexicon->entries, ENTRIES);
    free(lexicon);
}

const Vocab *lexicon_vocab(const Lexicon *lexicon) { return lexicon->vocab; }

LexiconPlace lexicon_place(const Lexicon *lexicon, const uint8_t *word, size_t size) {
    uint64_t hash = XXH3_64bits(word, size);
    LexiconPlace place = {lexicon->index + hash % LINES * LINE, (uint32_t)(hash >> (64 - TAG_BITS))};
    __builtin_prefetch((const void *)place.line);
    return place;
}

// The entry a slot speaks of, if that is the word's.
static const uint8_t *slot_entry(const Lexicon *lexicon, uint32_t slot, uint32_t tag, const uint8_t *word,
                                 size_t size) {
    if (slot >> PLACE_BITS != tag) return NULL;
    const uint8_t *entry = lexicon->entries + (size_t)LEXICON_ALIGN * (slot & ((1u << PLACE_BITS) - 1));
    return entry[0] == size && !memcmp(entry + 2 + 2 * entry[1], word, size) ? entry : NULL;
}

size_t lexicon_find(const Lexicon *lexicon, LexiconPlace place, const uint8_t *word, size_t size, uint16_t *ids) {
    for (unsigned i = 0; lexicon->asked && i < LINE; i++) {
        uint32_t slot = atomic_load_explicit(&place.line[i], memory_order_acquire);
        if (!slot) break;
        const uint8_t *entry = slot_entry(lexicon, slot, place.tag, word, size);
        if (!entry) continue;
        memcpy(ids, entry + 2, 2 * entry[1]);
        return entry[1];
    }
    return 0;
}

static size_t used_bytes(const Lexicon *lexicon) {
    size_t used = atomic_load_explicit(&lexicon->used, memory_order_relaxed);
    return used < ENTRIES ? used : ENTRIES;
}

static bool room_get(Lexicon *lexicon, LexiconRoom *room, size_t bytes) {
    if ((size_t)(room->end - room->at) >= bytes) return true;
    if (used_bytes(lexicon) == ENTRIES) return false; // and the count cannot overflow
    size_t begin = atomic_fetch_add_explicit(&lexicon->used, CHUNK, memory_order_relaxed);
    if (begin >= ENTRIES) return false;
    *room = (LexiconRoom){lexicon->entries + begin, lexicon->entries + begin + CHUNK};
    return true;
}

// Takes the first free slot of the line, unless another thread has brought the word in.
static bool entry_publish(Lexicon *lexicon, LexiconPlace place, const uint8_t *entry, const uint8_t *word,
                          size_t size) {
    uint32_t slot = place.tag << PLACE_BITS | (uint32_t)((size_t)(entry - lexicon->entries) / LEXICON_ALIGN);
    for (unsigned i = 0; i < LINE; i++) {
        uint32_t found = atomic_load_explicit(&place.line[i], memory_order_acquire);
        if (!found && atomic_compare_exchange_strong_explicit(&place.line[i], &found, slot, memory_order_release,
                                                              memory_order_acquire))
            return true;
        if (slot_entry(lexicon, found, place.tag, word, size)) return false;
    }
    return false;
}

void lexicon_add(Lexicon *lexicon, LexiconPlace place, LexiconRoom *room, const uint8_t *word, size_t size,
                 const uint16_t *ids, size_t count) {
    if (count > LEXICON_COUNT) return;
    size_t bytes = lexicon_entry_bytes(size, count);
    if (!room_get(lexicon, room, bytes)) return;
    uint8_t *entry = room->at;
    entry[0] = (uint8_t)size, entry[1] = (uint8_t)count;
    memcpy(entry + 2, ids, 2 * count);
    memcpy(entry + 2 + 2 * count, word, size);
    if (entry_publish(lexicon, place, entry, word, size))
        room->at += bytes;
    else
        memset(entry, 0, bytes);
}

void lexicon_loaded(Lexicon *lexicon) { lexicon->loaded = used_bytes(lexicon); }

const uint8_t *lexicon_next(const Lexicon *lexicon, const uint8_t *entry, bool loaded) {
    size_t end = loaded ? lexicon->loaded : used_bytes(lexicon);
    size_t at = entry ? (size_t)(entry - lexicon->entries) + lexicon_entry_bytes(entry[0], entry[1]) : CHUNK;
    while (at < end && !lexicon->entries[at]) at += CHUNK - at % CHUNK; // the rest of a chunk is empty
    return at < end ? lexicon->entries + at : NULL;
}
