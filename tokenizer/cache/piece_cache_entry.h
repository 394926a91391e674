// What an entry of the word table looks like, for the paths that read it.
//
// The key is the word, zeros, and its length in the last byte, so equal keys are equal words. `words` is a constant
// wherever speed matters, and everything here is inlined.
#pragma once

#include "tokenizer/cache/piece_cache.h"

enum {
    SMALL_KEY = 2, // words of 8 bytes
    LARGE_KEY = 4,
    WHOLE_KEY = 16,
    SMALL_BYTES = 8 * SMALL_KEY - 1,
    LARGE_BYTES = 8 * LARGE_KEY - 1,
    WHOLE_BYTES = 8 * WHOLE_KEY - 1,
    WAYS = 8,       // places an entry may be in
    IDS_AHEAD = 512 // where the ids go is asked for early: 1.07x when it is not in the caches
};

#define ENTRY_INLINE __attribute__((always_inline)) static inline

extern const uint8_t
    piece_cache_reserve[2 * PIECE_READ]; // from piece_cache_reserve + PIECE_READ - n: n bytes of 0xFF, then zeros

// The key of a word of at most 8*words - 1 bytes; reads 8*words. Masked by table: a branch on the size guesses wrong.
ENTRY_INLINE void key_load(uint64_t *key, const uint8_t *word, size_t size, unsigned words) {
    const uint8_t *keep = piece_cache_reserve + PIECE_READ - size;
    for (unsigned i = 0; i < words; i++) key[i] = get_u64(word + 8 * i) & get_u64(keep + 8 * i);
    key[words - 1] |= (uint64_t)size << 56;
}

// Of small keys: products of 32 by 32 bits, which vectors have. Of larger ones: products of 64 by 64 bits, folded; of
// whole words the first 32 bytes and the length must do, more that are alike only push each other out.
static const uint32_t small_salt[2 * SMALL_KEY] = {0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F};

ENTRY_INLINE uint64_t half_product(uint64_t key, const uint32_t salt[2]) {
    return (uint64_t)((uint32_t)key + salt[0]) * ((uint32_t)(key >> 32) + salt[1]);
}

ENTRY_INLINE uint64_t key_hash(const uint64_t *key, unsigned words) {
    if (words == SMALL_KEY) {
        uint64_t sum = half_product(key[0], small_salt) + half_product(key[1], small_salt + 2);
        return sum ^ sum >> 32;
    }
    uint64_t hash = words == WHOLE_KEY ? key[WHOLE_KEY - 1] >> 56 : 0;
    for (unsigned i = 0; i < LARGE_KEY; i += 2) {
        __uint128_t product = (__uint128_t)(key[i] ^ 0x9E3779B97F4A7C15 ^ hash) * (key[i + 1] ^ 0xD6E8FEB86659FD93);
        hash = (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return hash;
}

ENTRY_INLINE uint64_t key_differs(const uint64_t *a, const uint64_t *b, unsigned words) {
    uint64_t differs = 0;
    for (unsigned i = 0; i < words; i++) differs |= a[i] ^ b[i];
    return differs;
}

ENTRY_INLINE uint64_t *entry_at(const PieceTable *table, size_t index, unsigned words) {
    return table->entries + (index & table->mask) * 2 * words;
}
ENTRY_INLINE unsigned entry_count(const uint64_t *entry, unsigned words) {
    return (unsigned)(entry[2 * words - 1] >> 48);
}

ENTRY_INLINE unsigned entries_in_line(unsigned words) { return words == SMALL_KEY ? 2 : 1; }

// A word of up to 15 bytes with 8 to 14 ids takes both places of a line. The key of the second is no word's.
#define SECOND_HALF (~0ull)

// A word with more ids than its table has room for leaves a note there and goes into the next one. A note's key is the
// word's with a length that no word has.
#define NOTE (1ull << 63)

ENTRY_INLINE bool entry_is_note(const uint64_t *entry, unsigned words) {
    return (entry[words - 1] & NOTE) && entry[words - 1] != SECOND_HALF;
}
ENTRY_INLINE bool entry_is_second(const uint64_t *entry, unsigned words) { return entry[words - 1] == SECOND_HALF; }
ENTRY_INLINE bool entry_is_wide(const uint64_t *entry, unsigned words) {
    return words == SMALL_KEY && entry_count(entry, words) >= 4 * words;
}

// All ids an entry may have are copied, which takes no loop and no branch. Returns how many count.
ENTRY_INLINE size_t entry_emit(const uint64_t *entry, unsigned words, uint16_t *ids) {
    memcpy(ids, entry + words, 8 * words);
    size_t count = entry_count(entry, words);
    if (words == SMALL_KEY && __builtin_expect(count >= 4 * SMALL_KEY, 0))
        memcpy(ids + 4 * SMALL_KEY - 1, entry + 3 * SMALL_KEY, 8 * SMALL_KEY);
    return count;
}

// Asks for the memory of a word's entry.
ENTRY_INLINE void piece_prefetch(const PieceCache *words, const uint8_t *word, size_t size) {
    uint64_t key[WHOLE_KEY];
    if (size <= SMALL_BYTES) {
        key_load(key, word, size, SMALL_KEY);
        __builtin_prefetch(entry_at(&words->tables[0], key_hash(key, SMALL_KEY), SMALL_KEY));
    } else if (size <= LARGE_BYTES) {
        key_load(key, word, size, LARGE_KEY);
        __builtin_prefetch(entry_at(&words->tables[1], key_hash(key, LARGE_KEY), LARGE_KEY));
    } else if (size <= WHOLE_BYTES) {
        memcpy(key, word, 8 * LARGE_KEY);
        key[WHOLE_KEY - 1] = (uint64_t)size << 56;
        uint64_t hash = key_hash(key, WHOLE_KEY);
        for (unsigned line = 0; line < 2 * WHOLE_KEY / 8; line++)
            __builtin_prefetch(entry_at(&words->tables[2], hash, WHOLE_KEY) + 8 * line);
    }
}
