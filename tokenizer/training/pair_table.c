// The hash table of pairs and the pool of their lists.
#include "tokenizer/training/pair_table.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/hugepages.h"
#include <assert.h>

enum { FIRST_SLOTS = 1 << 12 };

static int fail_memory(const PairTable *table) {
    char text[16];
    return fail(EX_MEMORY,
                "the pairs of tokens need more than %s of memory: raise --memory, or leave out rare pieces "
                "with --min-count",
                human_bytes(text, (double)table->memory));
}

int pair_table_open(PairTable *table, uint64_t memory, uint64_t pool_words) {
    *table = (PairTable){.memory = memory, .pool_words = pool_words};
    table->pool = hugepages_alloc_or_die(pool_words * sizeof *table->pool);
    return 0;
}

void pair_table_close(PairTable *table) {
    hugepages_free(table->slots);
    hugepages_free(table->pool);
    *table = (PairTable){0};
}

static TokenPair *find_slot(const PairTable *table, uint64_t key) {
    uint64_t mask = table->slot_count - 1, slot = (key * 0x9E3779B97F4A7C15) >> 29 & mask;
    while (table->slots[slot].places && table->slots[slot].key != key) slot = (slot + 1) & mask;
    return &table->slots[slot];
}

TokenPair *pair_find(const PairTable *table, uint64_t key) {
    TokenPair *pair = find_slot(table, key);
    return pair->count ? pair : NULL;
}

int pair_table_reserve(PairTable *table, uint64_t more) {
    const uint64_t wanted = table->used + more;
    if (table->slot_count && wanted <= table->slot_count / 8 * 5) return 0;
    uint64_t live = 0;
    for (uint64_t i = 0; i < table->slot_count; i++) live += table->slots[i].count > 0;
    PairTable old = *table;
    table->slot_count = FIRST_SLOTS;
    while (live + more > table->slot_count / 2) table->slot_count *= 2;
    const uint64_t bytes = (old.slot_count + table->slot_count) * sizeof *table->slots;
    if (bytes + table->pool_words * sizeof *table->pool > table->memory) {
        *table = old;
        return fail_memory(table);
    }
    table->slots = hugepages_alloc_or_die(table->slot_count * sizeof *table->slots);
    table->used = live;
    for (uint64_t i = 0; i < old.slot_count; i++)
        if (old.slots[i].count) *find_slot(table, old.slots[i].key) = old.slots[i];
    hugepages_free(old.slots);
    return 0;
}

TokenPair *pair_add(PairTable *table, uint64_t key, uint64_t count, uint32_t places) {
    TokenPair *pair = find_slot(table, key);
    assert(!pair->places && places);
    table->used++;
    *pair = (TokenPair){.key = key, .count = count, .places = places};
    if (places == 1) return pair;
    uint32_t *head = table->pool + table->pool_used;
    head[0] = pair_left(key), head[1] = pair_right(key), head[2] = places;
    pair->list = (uint32_t)(table->pool_used + LIST_HEAD);
    table->pool_used += LIST_HEAD + places;
    assert(table->pool_used <= table->pool_words);
    return pair;
}

// Moves a list down to `to`, without its stale places. Returns the new number of places.
static uint32_t move_places(const uint32_t *symbols, const uint32_t *lengths, const uint32_t *head, uint32_t *to) {
    const uint32_t left = head[0], right = head[1], count = head[2];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = head[LIST_HEAD + i];
        if (symbols[place] == left && symbols[place + lengths[left]] == right) to[LIST_HEAD + kept++] = place;
    }
    to[0] = left, to[1] = right, to[2] = kept;
    return kept;
}

static void remove_stale(PairTable *table, const TrainingText *text, const uint32_t *lengths, uint64_t keep) {
    uint64_t to = 0;
    for (uint64_t at = 0; at < table->pool_used;) {
        uint32_t *head = table->pool + at, *moved = table->pool + to;
        const uint32_t places = head[2];
        const uint64_t key = pair_key(head[0], head[1]), next = at + LIST_HEAD + places;
        TokenPair *pair = pair_find(table, key);
        if (pair && key == keep) {
            memmove(moved, head, (LIST_HEAD + places) * sizeof *head);
        } else if (pair) {
            pair->places = move_places(text->symbols, lengths, head, moved);
        }
        at = next;
        if (!pair) continue;
        pair->list = (uint32_t)(to + LIST_HEAD);
        if (pair->places == 1)
            pair->list = moved[LIST_HEAD]; // nothing stays in the pool
        else
            to += LIST_HEAD + pair->places;
    }
    table->pool_used = to;
}

int pair_lists_reserve(PairTable *table, const TrainingText *text, const uint32_t *lengths, uint64_t words,
                       uint64_t keep) {
    if (table->pool_used + words <= table->pool_words) return 0;
    remove_stale(table, text, lengths, keep);
    // A pool that stays nearly full would be searched for stale places again and again.
    return table->pool_used + words <= table->pool_words / 8 * 7 ? 0 : fail_memory(table);
}
