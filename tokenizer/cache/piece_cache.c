// The word table of one encoder: open hash tables of fixed-size entries, grown to a cap and then overwritten.
//
// An entry lives in one of eight places: those that differ from its hash in the three lowest bits. When all are taken,
// one is overwritten. Memory: 32 MB of small, 16 MB of large and 16 MB of whole entries at most.
#include "tokenizer/cache/piece_cache.h"
#include "common/err.h"
#include "common/hugepages.h"
#include "tokenizer/bpe.h"
#include "tokenizer/cache/piece_cache_entry.h"
#include "tokenizer/pretokenize.h"
#include <stdlib.h>

enum {
    GROWTH = 16,
    SEED_AHEAD = 16,
    SWAP = 16,      // times that a word is found elsewhere, on average, until it moves to where it is looked for first
    DEAD_WORDS = 64 // scratch for pieces of less than 4 KiB
};

// A new encoder fits into the second-level cache; the largest still finds nearly every word, and 64 MB a thread is what
// a machine of many cores can give.
static const struct {
    unsigned words;
    size_t first, last;
} sizes[PIECE_SIZES] = {
    {SMALL_KEY, 1 << 12, 1 << 20},
    {LARGE_KEY, 1 << 10, 1 << 18},
    {WHOLE_KEY, 1 << 8,  1 << 16}
};

const uint8_t piece_cache_reserve[2 * PIECE_READ] = {[0 ... PIECE_READ - 1] = 0xFF};

static size_t table_bytes(const PieceTable *table) { return (table->mask + 1) * 16 * table->words; }

static void table_map(PieceTable *table, size_t count) {
    table->mask = count - 1;
    table->used = 0;
    table->entries = hugepages_alloc_or_die(table_bytes(table));
}

static void table_unmap(PieceTable *table) { hugepages_free(table->entries); }

void piece_cache_open(PieceCache *words, const Vocab *vocab, SharedCache *shared_cache, Isa isa) {
    words->vocab = vocab;
    words->shared_cache = shared_cache;
    words->encode = isa == ISA_AVX512 ? piece_cache_encode_avx512 : piece_cache_encode_portable;
    words->merge = isa == ISA_AVX512 ? bpe_merge_avx512 : bpe_merge;
    for (unsigned i = 0; i < PIECE_SIZES; i++) {
        words->tables[i] = (PieceTable){.words = sizes[i].words, .limit = sizes[i].last};
        table_map(&words->tables[i], sizes[i].first);
    }
    words->dead = malloc(DEAD_WORDS * sizeof *words->dead);
    if (!words->dead) die(EX_MEMORY, "no memory for an encoder");
}

void piece_cache_close(PieceCache *words) {
    for (unsigned i = 0; i < PIECE_SIZES; i++) table_unmap(&words->tables[i]);
    free(words->dead);
}

// Where a new entry of this hash goes, or one that takes a line.
static uint64_t *table_place(PieceTable *table, uint64_t hash, bool wide) {
    unsigned words = table->words, step = wide ? 2 : 1;
    for (unsigned way = 0; way < WAYS; way += step) {
        uint64_t *entry = entry_at(table, wide ? (hash & ~1ull) ^ way : hash ^ way, words);
        if (entry_count(entry, words) || (wide && entry_count(entry + 2 * words, words))) continue;
        table->used += step;
        return entry;
    }
    unsigned in_line = entries_in_line(words);
    uint64_t *line = entry_at(table, (hash & ~(uint64_t)(in_line - 1)) ^ ((hash >> 60) % WAYS & ~(in_line - 1)), words);
    return memset(line, 0, 16 * words * in_line);
}

// Takes in an entry of another table of this size, with its second half if it is wide.
static void table_put(PieceTable *table, const uint64_t *entry) {
    uint64_t key[WHOLE_KEY];
    memcpy(key, entry, 8 * table->words);
    key[table->words - 1] &= ~NOTE;
    bool wide = entry_is_wide(entry, table->words);
    memcpy(table_place(table, key_hash(key, table->words), wide), entry, 16 * table->words << wide);
}

static void table_grow(PieceTable *table) {
    PieceTable old = *table;
    table_map(table, (old.mask + 1) * GROWTH);
    for (size_t i = 0; i <= old.mask; i++) {
        const uint64_t *entry = entry_at(&old, i, old.words);
        if (entry_count(entry, old.words) && !entry_is_second(entry, old.words)) table_put(table, entry);
    }
    table_unmap(&old);
}

// How many ids a word may have in this table.
static size_t table_room(const PieceTable *table) {
    return table->words == SMALL_KEY ? 2 * (4 * SMALL_KEY - 1) : 4 * table->words - 1;
}

// Without ids it is a note.
static void table_add(PieceTable *table, const uint64_t *key, const uint16_t *ids, size_t count) {
    if (table->used > table->mask / 2 && table->mask + 1 < table->limit) table_grow(table);
    size_t words = table->words, inner = 4 * words - 1;
    bool wide = count > inner;
    uint64_t *entry = table_place(table, key_hash(key, table->words), wide);
    memcpy(entry, key, 8 * words);
    if (!count) entry[words - 1] |= NOTE;
    memcpy(entry + words, ids, 2 * (wide ? inner : count));
    entry[2 * words - 1] |= (uint64_t)(count ? count : 1) << 48; // 0 is an empty entry
    if (!wide) return;
    entry += 2 * words;
    entry[words - 1] = SECOND_HALF;
    memcpy(entry + words, ids + inner, 2 * (count - inner));
    entry[2 * words - 1] |= 1ull << 48;
}

// Looks in all places that are taken, for the word or a note of it.
ENTRY_INLINE uint64_t *table_find(const PieceTable *table, const uint64_t *key, unsigned words) {
    uint64_t hash = key_hash(key, words);
    for (unsigned way = 0; way < WAYS; way++) {
        uint64_t *entry = entry_at(table, hash ^ way, words);
        if (!entry_count(entry, words)) {
            // a wide entry passes by a line that has one place left
            if (words == SMALL_KEY && entry_count(entry_at(table, hash ^ way ^ 1, words), words)) continue;
            break;
        }
        uint64_t differs = key_differs(entry, key, words);
        if (!differs || (differs == NOTE && entry_is_note(entry, words))) return entry;
    }
    return NULL;
}

// The key of a piece for its table, and its entry there or NULL.
ENTRY_INLINE uint64_t *key_find(const PieceTable *table, uint64_t *key, const uint8_t *piece, size_t size,
                                unsigned words) {
    key_load(key, piece, size, words);
    return table_find(table, key, words);
}

static uint64_t *word_entry(const PieceCache *words, unsigned i, uint64_t *key, const uint8_t *piece, size_t size) {
    const PieceTable *table = &words->tables[i];
    switch (table->words) { // constants, so that the loops over a key unroll
    case SMALL_KEY:
        return key_find(table, key, piece, size, SMALL_KEY);
    case LARGE_KEY:
        return key_find(table, key, piece, size, LARGE_KEY);
    default:
        return key_find(table, key, piece, size, WHOLE_KEY);
    }
}

static size_t encode_merged(PieceCache *words, const uint8_t *piece, size_t size, uint16_t *ids) {
    if (size < 64 * DEAD_WORDS) return words->merge(words->vocab, piece, size, ids, words->dead);
    uint64_t *dead = malloc((size / 64 + 1) * sizeof *dead); // rare, and not worth keeping
    if (!dead) die(EX_MEMORY, "no memory for a word of %zu bytes", size);
    size_t count = words->merge(words->vocab, piece, size, ids, dead);
    free(dead);
    return count;
}

// Gives an entry the place of the one that stands where the fast path looks. Who comes first is met most often, and
// moving up each word that is found elsewhere made things worse; but a frequent word that lost its place (" the", once
// in 20 texts) costs 10 % until it has it again.
static void table_swap(PieceTable *table, uint64_t *entry, const uint64_t *key) {
    unsigned words = table->words;
    uint64_t *home = entry_at(table, key_hash(key, words), words), kept[2 * WHOLE_KEY];
    if (entry == home || entry_is_wide(entry, words)) return;
    if (!entry_count(home, words) || entry_is_wide(home, words) || entry_is_second(home, words)) return;
    memcpy(kept, home, 16 * words);
    memcpy(home, entry, 16 * words);
    memcpy(entry, kept, 16 * words);
}

// Puts a word into the first table with room for its ids, and notes into those before it, from table i on.
static void piece_cache_learn(PieceCache *words, unsigned i, const uint8_t *piece, size_t size, const uint16_t *ids,
                              size_t count) {
    for (; i < PIECE_SIZES; i++) {
        PieceTable *table = &words->tables[i];
        uint64_t key[WHOLE_KEY];
        bool fits = count <= table_room(table);
        key_load(key, piece, size, table->words);
        table_add(table, key, ids, fits ? count : 0);
        if (fits) return;
    }
}

// The table for words of this size.
static unsigned first_table(size_t size) {
    unsigned first = 0;
    while (first < PIECE_SIZES && size >= 8 * sizes[first].words) first++;
    return first;
}

// An entry's word, with room to read on.
static size_t entry_word(const uint8_t *entry, uint8_t word[PIECE_READ]) {
    memcpy(word, entry + 2 + 2 * entry[1], entry[0]);
    memset(word + entry[0], 0, PIECE_READ - entry[0]);
    return entry[0];
}

static void ask_place(const PieceCache *words, const uint8_t *entry) {
    uint8_t word[PIECE_READ];
    size_t size = entry_word(entry, word);
    piece_prefetch(words, word, size);
}

void piece_cache_seed(PieceCache *words) {
    words->seeded = true;
    if (!words->shared_cache) return;
    const uint8_t *asked = shared_cache_next(words->shared_cache, NULL, true);
    unsigned ahead = 0;
    for (const uint8_t *entry = NULL; (entry = shared_cache_next(words->shared_cache, entry, true)); ahead--) {
        for (; asked && ahead < SEED_AHEAD; ahead++) {
            ask_place(words, asked);
            asked = shared_cache_next(words->shared_cache, asked, true);
        }
        uint8_t word[PIECE_READ];
        uint16_t ids[SHARED_CACHE_IDS_MAX];
        size_t size = entry_word(entry, word);
        memcpy(ids, entry + 2, 2 * entry[1]);
        piece_cache_learn(words, first_table(size), word, size, ids, entry[1]);
    }
}

size_t piece_cache_encode_one(PieceCache *words, const uint8_t *piece, size_t size, uint16_t *ids) {
    uint64_t keys[PIECE_SIZES][WHOLE_KEY];
    unsigned first = first_table(size), missing;
    SharedCache *shared_cache = first < PIECE_SIZES ? words->shared_cache : NULL;
    SharedCacheBucket place = {0};
    if (shared_cache) place = shared_cache_bucket(shared_cache, piece, size);
    for (missing = first; missing < PIECE_SIZES; missing++) {
        PieceTable *table = &words->tables[missing];
        uint64_t *entry = word_entry(words, missing, keys[missing], piece, size);
        if (!entry) break;
        if (entry_is_note(entry, table->words)) continue;
        size_t count = entry_emit(entry, table->words, ids);
        if (++words->found % SWAP == 0) table_swap(table, entry, keys[missing]);
        return count;
    }
    size_t count = shared_cache ? shared_cache_find(shared_cache, place, piece, size, ids) : 0;
    if (!count) {
        count = encode_merged(words, piece, size, ids);
        words->merged++;
        if (shared_cache) shared_cache_add(shared_cache, place, &words->room, piece, size, ids, count);
    }
    piece_cache_learn(words, missing, piece, size, ids, count);
    return count;
}
