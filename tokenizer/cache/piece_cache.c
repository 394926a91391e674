// Open-addressing hash tables of fixed-size entries, which grow up to a limit and then overwrite old entries.
//
// An entry is in one of eight slots: those whose index differs from its hash in the three lowest bits. When all are
// taken, one bucket is overwritten. Memory: at most 32 MB of small, 16 MB of large and 16 MB of whole entries. A new
// cache fits into the processor's second-level cache; the largest holds nearly every piece of a text, and a machine
// with many cores has 64 MB a thread to spare.
#include "tokenizer/cache/piece_cache.h"
#include "common/machine/hugepages.h"
#include "tokenizer/cache/piece_cache_entry.h"
#include "tokenizer/merge/bpe.h"
#include <stdlib.h>

enum {
    GROWTH = 8,
    SWAP_INTERVAL = 16, // every so many hits outside the first slot, the entry moves to its first slot
    DEAD_U64S = 64      // scratch of merge for pieces of less than 4 KiB
};

static const struct {
    unsigned width;
    size_t first, small, last; // entries at the start, and at most: after piece_cache_keep_small, and without it
} sizes[PIECE_SIZES] = {{SMALL_KEY, 1 << 12, 1 << 19, 1 << 20},
                        {LARGE_KEY, 1 << 10, 1 << 16, 1 << 18},
                        {WHOLE_KEY, 1 << 8, 1 << 13, 1 << 16}};

const uint8_t piece_cache_masks[2 * PIECE_READ] = {[0 ... PIECE_READ - 1] = 0xFF};

static void table_alloc(PieceTable *table, size_t count) {
    table->mask = count - 1;
    table->used = 0;
    table->entries = hugepages_alloc_or_die(count * 16 * table->width);
}

void piece_cache_open(PieceCache *cache, const Vocab *vocab, Isa isa) {
    cache->vocab = vocab;
    cache->encode = isa == ISA_AVX512 ? ON_X86(piece_cache_encode_avx512, piece_cache_encode_portable)
                                      : piece_cache_encode_portable;
    cache->merge = isa == ISA_AVX512 && vocab->small ? ON_X86(bpe_merge_avx512, bpe_merge) : bpe_merge;
    for (unsigned i = 0; i < PIECE_SIZES; i++) {
        cache->tables[i] = (PieceTable){.width = sizes[i].width, .limit = sizes[i].last};
        table_alloc(&cache->tables[i], sizes[i].first);
    }
    cache->dead = allocate_zeroed(DEAD_U64S, sizeof *cache->dead);
}

void piece_cache_keep_small(PieceCache *cache) {
    for (unsigned i = 0; i < PIECE_SIZES; i++) cache->tables[i].limit = sizes[i].small;
}

void piece_cache_close(PieceCache *cache) {
    for (unsigned i = 0; i < PIECE_SIZES; i++) hugepages_free(cache->tables[i].entries);
    free(cache->dead);
}

// Returns a free slot for a new entry of this hash (two slots of one bucket if it is wide), after clearing a bucket
// when all are taken.
static uint64_t *table_slot(PieceTable *table, uint64_t hash, bool wide) {
    unsigned width = table->width, step = wide ? 2 : 1;
    for (unsigned way = 0; way < WAYS; way += step) {
        uint64_t *entry = entry_at(table, wide ? (hash & ~1ull) ^ way : hash ^ way, width);
        if (entry_count(entry, width) || (wide && entry_count(entry_next(entry, width), width))) continue;
        table->used += step;
        return entry;
    }
    unsigned in_bucket = bucket_entries(width);
    uint64_t victim = (hash & ~(uint64_t)(in_bucket - 1)) ^ ((hash >> 60) % WAYS & ~(in_bucket - 1));
    return memset(entry_at(table, victim, width), 0, 16 * width * in_bucket);
}

// Inserts an entry of another table of this width, with its second half if it is wide.
static void table_insert(PieceTable *table, const uint64_t *entry) {
    uint64_t key[WHOLE_KEY];
    memcpy(key, entry, 8 * table->width);
    key[table->width - 1] &= ~FORWARD_MARK;
    bool wide = entry_is_wide(entry, table->width);
    memcpy(table_slot(table, key_hash(key, table->width), wide), entry, 16 * table->width << wide);
}

static void table_grow(PieceTable *table) {
    PieceTable old = *table;
    size_t count = (old.mask + 1) * GROWTH;
    table_alloc(table, count < table->limit ? count : table->limit);
    for (size_t i = 0; i <= old.mask; i++) {
        const uint64_t *entry = entry_at(&old, i, old.width);
        if (entry_count(entry, old.width) && !entry_is_second(entry, old.width)) table_insert(table, entry);
    }
    hugepages_free(old.entries);
}

// The largest number of ids that a piece in this table may have.
static size_t table_ids_max(const PieceTable *table) {
    return entry_ids_max(table->width) * bucket_entries(table->width);
}

// Adds a piece; with count = 0 a forward mark.
static void table_add(PieceTable *table, const uint64_t *key, const uint16_t *ids, size_t count) {
    if (table->used > table->mask / 2 && table->mask + 1 < table->limit) table_grow(table);
    unsigned width = table->width;
    size_t first = entry_ids_max(width); // ids in the first half of a wide entry
    bool wide = count > first;
    uint64_t *entry = table_slot(table, key_hash(key, table->width), wide);
    memcpy(entry, key, 8 * width);
    if (!count) entry[width - 1] |= FORWARD_MARK;
    memcpy(entry_ids(entry, width), ids, 2 * (wide ? first : count));
    entry_set_count(entry, width, count ? count : 1);
    if (!wide) return;
    entry = entry_next(entry, width);
    entry[width - 1] = SECOND_HALF;
    memcpy(entry_ids(entry, width), ids + first, 2 * (count - first));
    entry_set_count(entry, width, 1);
}

// Finds the piece or its forward mark among all ways.
ENTRY_INLINE uint64_t *table_find(const PieceTable *table, const uint64_t *key, unsigned width) {
    uint64_t hash = key_hash(key, width);
    for (unsigned way = 0; way < WAYS; way++) {
        uint64_t *entry = entry_at(table, hash ^ way, width);
        if (!entry_count(entry, width)) {
            // a wide entry skips a bucket that has only one free slot, so that entries may follow a free slot
            if (width == SMALL_KEY && entry_count(entry_at(table, hash ^ way ^ 1, width), width)) continue;
            break;
        }
        uint64_t differs = key_differs(entry, key, width);
        if (!differs || (differs == FORWARD_MARK && entry_is_forward(entry, width))) return entry;
    }
    return NULL;
}

// Makes the key of a piece and finds its entry, or NULL.
ENTRY_INLINE uint64_t *key_find(const PieceTable *table, uint64_t *key, const uint8_t *piece, size_t size,
                                unsigned width) {
    key_load(key, piece, size, width);
    return table_find(table, key, width);
}

static uint64_t *piece_find(const PieceTable *table, uint64_t *key, const uint8_t *piece, size_t size) {
    switch (table->width) { // constants, so that the loops over a key unroll
    case SMALL_KEY:
        return key_find(table, key, piece, size, SMALL_KEY);
    case LARGE_KEY:
        return key_find(table, key, piece, size, LARGE_KEY);
    default:
        return key_find(table, key, piece, size, WHOLE_KEY);
    }
}

static size_t encode_merged(PieceCache *cache, const uint8_t *piece, size_t size, uint16_t *ids) {
    const unsigned units = cache->vocab->id_bytes / 2;
    if (cache->vocab->whole) {
        const unsigned id = token_names_find(cache->vocab->whole, piece, size);
        if (id != NO_TOKEN) return id_put(ids, 0, cache->vocab->id_bytes, id), units;
    }
    if (size < 64 * DEAD_U64S) return units * cache->merge(cache->vocab, piece, size, ids, cache->dead);
    uint64_t *dead = allocate_zeroed(size / 64 + 1, sizeof *dead); // too rare to keep
    size_t count = cache->merge(cache->vocab, piece, size, ids, dead);
    free(dead);
    return units * count;
}

// Swaps an entry with the one in its first slot, where the fast path finds it. The first entry to arrive is usually the
// most frequent, so that moving every entry up on a hit is slower; but when a frequent piece has lost its first slot
// (" the", in one text of 20), the encoder is 10 % slower until it is back.
static void table_swap(PieceTable *table, uint64_t *entry, const uint64_t *key) {
    unsigned width = table->width;
    uint64_t *home = entry_at(table, key_hash(key, width), width), saved[2 * WHOLE_KEY];
    if (entry == home || entry_is_wide(entry, width)) return;
    if (!entry_count(home, width) || entry_is_wide(home, width) || entry_is_second(home, width)) return;
    memcpy(saved, home, 16 * width);
    memcpy(home, entry, 16 * width);
    memcpy(entry, saved, 16 * width);
}

// Adds a piece to the first table, from table i on, that can hold its ids, and forward marks to those before.
static void piece_cache_add(PieceCache *cache, unsigned i, const uint8_t *piece, size_t size, const uint16_t *ids,
                            size_t count) {
    for (; i < PIECE_SIZES; i++) {
        PieceTable *table = &cache->tables[i];
        uint64_t key[WHOLE_KEY];
        bool fits = count <= table_ids_max(table);
        key_load(key, piece, size, table->width);
        table_add(table, key, ids, fits ? count : 0);
        if (fits) return;
    }
}

// The table where pieces of this size are looked for first; PIECE_SIZES when they are in none.
static unsigned first_table(size_t size) {
    unsigned first = 0;
    while (first < PIECE_SIZES && size >= 8 * sizes[first].width) first++;
    return first;
}

size_t piece_cache_encode_one(PieceCache *cache, const uint8_t *piece, size_t size, uint16_t *ids) {
    uint64_t keys[PIECE_SIZES][WHOLE_KEY];
    unsigned first = first_table(size), missing;
    for (missing = first; missing < PIECE_SIZES; missing++) {
        PieceTable *table = &cache->tables[missing];
        uint64_t *entry = piece_find(table, keys[missing], piece, size);
        if (!entry) break;
        if (entry_is_forward(entry, table->width)) continue;
        size_t count = entry_emit(entry, table->width, ids);
        if (++cache->slow_hits % SWAP_INTERVAL == 0) table_swap(table, entry, keys[missing]);
        return count;
    }
    size_t count = encode_merged(cache, piece, size, ids);
    piece_cache_add(cache, missing, piece, size, ids, count);
    return count;
}
