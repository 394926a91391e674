// The word table of one encoder: two open hash tables of fixed-size entries, grown to a cap and then overwritten.
//
// An entry lives in one of four places: those that differ from its hash in the two lowest bits. When all are taken, one
// is overwritten. Memory: 32 MB of small and 16 MB of large entries at most, half of each while it grows.
#include "tokenizer/words.h"
#include "common/err.h"
#include "tokenizer/merge.h"
#include "tokenizer/split.h"
#include <stdlib.h>
#include <sys/mman.h>

enum {
    SMALL_KEY = 2, // words of 8 bytes in a key; the key's last byte is the word's length
    LARGE_KEY = 4,
    SMALL_BYTES = 8 * SMALL_KEY - 1,
    LARGE_BYTES = 8 * LARGE_KEY - 1,
    WAYS = 4,
    GROWTH = 16,
    // A new encoder fits into the second-level cache; the largest still finds 98 % of all words, and 64 MB a thread
    // is what a machine of many cores can give.
    SMALL_FIRST = 1 << 12,
    SMALL_LAST = 1 << 20,
    LARGE_FIRST = 1 << 10,
    LARGE_LAST = 1 << 18,
    HUGE_PAGE = 2 << 20,
    DEAD_FIRST = 64 // 4 KiB pieces
};

static size_t entry_bytes(unsigned words) { return 16 * words; }

static uint64_t *entries_open(size_t count, unsigned words) {
    size_t bytes = count * entry_bytes(words);
    if (bytes < HUGE_PAGE) {
        uint64_t *entries = aligned_alloc(64, bytes);
        if (!entries) die(EX_MEMORY, "no memory for %zu bytes of word table", bytes);
        return memset(entries, 0, bytes);
    }
    uint64_t *entries = aligned_alloc(HUGE_PAGE, bytes);
    if (!entries) die(EX_MEMORY, "no memory for %zu bytes of word table", bytes);
    madvise(entries, bytes,
            MADV_HUGEPAGE); // before the first touch: a table in small pages misses the TLB at each word
    return memset(entries, 0, bytes);
}

static void table_open(WordTable *table, size_t first, size_t last, unsigned words) {
    *table = (WordTable){entries_open(first, words), first - 1, 0, last, words};
}

void words_open(Words *words, const Vocab *vocab) {
    words->vocab = vocab;
    table_open(&words->small, SMALL_FIRST, SMALL_LAST, SMALL_KEY);
    table_open(&words->large, LARGE_FIRST, LARGE_LAST, LARGE_KEY);
    words->dead_words = DEAD_FIRST;
    words->dead = malloc(DEAD_FIRST * sizeof *words->dead);
    if (!words->dead) die(EX_MEMORY, "no memory for an encoder");
}

void words_close(Words *words) {
    free(words->small.entries);
    free(words->large.entries);
    free(words->dead);
}

// The key of a word of at most 8*words - 1 bytes; reads 8*words.
__attribute__((always_inline)) static inline void key_load(uint64_t *key, const uint8_t *word, size_t size,
                                                           unsigned words) {
    for (unsigned i = 0; i < words; i++) {
        size_t left = size > 8 * i ? size - 8 * i : 0;
        key[i] = left >= 8 ? get_u64(word + 8 * i) : left ? get_u64(word + 8 * i) & ~0ull >> (64 - 8 * left) : 0;
    }
    key[words - 1] |= (uint64_t)size << 56;
}

__attribute__((always_inline)) static inline uint64_t key_hash(const uint64_t *key, unsigned words) {
    uint64_t hash = 0;
    for (unsigned i = 0; i < words; i += 2) {
        __uint128_t product = (__uint128_t)(key[i] ^ 0x9E3779B97F4A7C15 ^ hash) * (key[i + 1] ^ 0xD6E8FEB86659FD93);
        hash = (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return hash;
}

__attribute__((always_inline)) static inline bool key_equal(const uint64_t *a, const uint64_t *b, unsigned words) {
    uint64_t differ = 0;
    for (unsigned i = 0; i < words; i++) differ |= a[i] ^ b[i];
    return !differ;
}

__attribute__((always_inline)) static inline uint64_t *entry_at(const WordTable *table, size_t index, unsigned words) {
    return table->entries + (index & table->mask) * 2 * words;
}
static inline const uint16_t *entry_ids(const uint64_t *entry, unsigned words) {
    return (const uint16_t *)(entry + words);
}
__attribute__((always_inline)) static inline unsigned entry_count(const uint64_t *entry, unsigned words) {
    return (unsigned)(entry[2 * words - 1] >> 48);
}

// Where a new entry of this hash goes.
static uint64_t *table_place(WordTable *table, uint64_t hash) {
    for (unsigned way = 0; way < WAYS; way++) {
        uint64_t *entry = entry_at(table, hash ^ way, table->words);
        if (!entry_count(entry, table->words)) {
            table->used++;
            return entry;
        }
    }
    return entry_at(table, hash ^ hash >> 60 % WAYS, table->words);
}

static void table_grow(WordTable *table) {
    WordTable old = *table;
    size_t count = (old.mask + 1) * GROWTH;
    table->entries = entries_open(count, old.words);
    table->mask = count - 1;
    table->used = 0;
    for (size_t i = 0; i <= old.mask; i++) {
        const uint64_t *entry = entry_at(&old, i, old.words);
        if (entry_count(entry, old.words))
            memcpy(table_place(table, key_hash(entry, old.words)), entry, entry_bytes(old.words));
    }
    free(old.entries);
}

static void table_add(WordTable *table, const uint64_t *key, uint64_t hash, const uint16_t *ids, size_t count) {
    if (table->used > table->mask / 2 && table->mask + 1 < table->limit) table_grow(table);
    uint64_t *entry = table_place(table, hash);
    memset(entry, 0, entry_bytes(table->words));
    memcpy(entry, key, table->words * 8);
    memcpy(entry + table->words, ids, count * 2);
    entry[2 * table->words - 1] |= (uint64_t)count << 48;
}

// Looks where the fast path does not. What is found moves to the first place, where it does.
static const uint64_t *table_find(WordTable *table, const uint64_t *key, uint64_t hash) {
    uint64_t *first = entry_at(table, hash, table->words);
    for (unsigned way = 0; way < WAYS; way++) {
        uint64_t *entry = entry_at(table, hash ^ way, table->words);
        if (!key_equal(entry, key, table->words)) continue;
        for (unsigned i = 0; i < 2 * table->words; i++) {
            uint64_t word = entry[i];
            entry[i] = first[i];
            first[i] = word;
        }
        return first;
    }
    return NULL;
}

static size_t encode_merged(Words *words, const uint8_t *piece, size_t size, uint16_t *ids) {
    if (size / 64 + 1 > words->dead_words) {
        // a piece of more than 4 KiB: rare, and its scratch is not kept
        uint64_t *dead = malloc((size / 64 + 1) * sizeof *dead);
        if (!dead) die(EX_MEMORY, "no memory for a word of %zu bytes", size);
        size_t count = merge(words->vocab, piece, size, ids, dead);
        free(dead);
        return count;
    }
    return merge(words->vocab, piece, size, ids, words->dead);
}

// Any piece, known or not, and learns it.
__attribute__((noinline)) static size_t encode_one(Words *words, const uint8_t *piece, size_t size, uint16_t *ids) {
    if (size > LARGE_BYTES) return encode_merged(words, piece, size, ids);
    WordTable *tables[] = {&words->small, &words->large};
    uint64_t key[LARGE_KEY], hash = 0;
    size_t count = 0;
    for (unsigned i = size > SMALL_BYTES; i < 2; i++) {
        key_load(key, piece, size, tables[i]->words);
        hash = key_hash(key, tables[i]->words);
        const uint64_t *entry = table_find(tables[i], key, hash);
        if (entry) {
            count = entry_count(entry, tables[i]->words);
            memcpy(ids, entry_ids(entry, tables[i]->words), count * 2);
            return count;
        }
        // a small word is in the large table only if it has too many ids for the small one, which needs 8 bytes
        if (size <= SMALL_BYTES / 2) break;
    }
    count = encode_merged(words, piece, size, ids);
    bool small = size <= SMALL_BYTES && count < 4 * SMALL_KEY;
    if (small) {
        key_load(key, piece, size, SMALL_KEY);
        hash = key_hash(key, SMALL_KEY);
    }
    if (count < 4 * LARGE_KEY) table_add(small ? &words->small : &words->large, key, hash, ids, count);
    return count;
}

size_t words_encode(Words *words, const uint8_t *text, const uint32_t *starts, size_t count, uint16_t *ids) {
    uint32_t hashes[SPLIT_BATCH];
    uint64_t key[LARGE_KEY];
    uint16_t *out = ids;
    // first all hashes, so that the table's lines are on their way when they are needed
    for (size_t i = 0; i < count; i++) {
        size_t size = starts[i + 1] - starts[i];
        if (size <= SMALL_BYTES) {
            key_load(key, text + starts[i], size, SMALL_KEY);
            hashes[i] = (uint32_t)key_hash(key, SMALL_KEY);
            __builtin_prefetch(entry_at(&words->small, hashes[i], SMALL_KEY));
        } else if (size <= LARGE_BYTES) {
            key_load(key, text + starts[i], size, LARGE_KEY);
            hashes[i] = (uint32_t)key_hash(key, LARGE_KEY);
            __builtin_prefetch(entry_at(&words->large, hashes[i], LARGE_KEY));
        }
    }
    for (size_t i = 0; i < count; i++) {
        const uint8_t *piece = text + starts[i];
        size_t size = starts[i + 1] - starts[i];
        if (size <= SMALL_BYTES) {
            key_load(key, piece, size, SMALL_KEY);
            const uint64_t *entry = entry_at(&words->small, hashes[i] & ~1u, SMALL_KEY);
            bool second = key_equal(entry + 2 * SMALL_KEY, key, SMALL_KEY);
            bool first = key_equal(entry, key, SMALL_KEY);
            if (first | second) {
                entry += second * 2 * SMALL_KEY;
                memcpy(out, entry + SMALL_KEY, 16); // all seven and the count: one store, no loop
                out += entry_count(entry, SMALL_KEY);
                continue;
            }
        } else if (size <= LARGE_BYTES) {
            key_load(key, piece, size, LARGE_KEY);
            const uint64_t *entry = entry_at(&words->large, hashes[i], LARGE_KEY);
            if (key_equal(entry, key, LARGE_KEY)) {
                memcpy(out, entry + LARGE_KEY, 32);
                out += entry_count(entry, LARGE_KEY);
                continue;
            }
        }
        out += encode_one(words, piece, size, out);
    }
    return (size_t)(out - ids);
}
