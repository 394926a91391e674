// The pairs of neighbouring tokens: how often each occurs, and where.
//
// A hash table of 24 bytes a pair. A pair's places are ascending numbers of 32 bits in a list of a common pool; one
// place alone is in the pair itself. A list never grows. A place in it may be stale: its pair was changed by a merge.
// When the pool is full, lists of pairs that occur no more and stale places are removed from it.
#pragma once

#include "tokenizer/training/training_text.h"

typedef struct {
    uint64_t key; // left id << 32 | right id
    uint64_t count;
    uint32_t list;   // index in the pool, or the place if there is one
    uint32_t places; // in the list
} TokenPair;

typedef struct {
    TokenPair *slots; // `places` 0: empty
    uint64_t slot_count, used;
    uint32_t *pool; // for each list its head, then the places
    uint64_t pool_words, pool_used;
    uint64_t memory; // limit of slots and pool together
} PairTable;

enum { LIST_HEAD = 3 }; // left id, right id, number of places

static inline uint64_t pair_key(uint32_t left, uint32_t right) { return (uint64_t)left << 32 | right; }
static inline uint32_t pair_left(uint64_t key) { return (uint32_t)(key >> 32); }
static inline uint32_t pair_right(uint64_t key) { return (uint32_t)key; }

// `pool_words`: size of the pool. -1 after fail() (82).
int pair_table_open(PairTable *table, uint64_t memory, uint64_t pool_words);
void pair_table_close(PairTable *table); // accepts a zeroed struct

// Room for so many more pairs. Moves the pairs. -1 after fail() (82) beyond the limit of memory.
int pair_table_reserve(PairTable *table, uint64_t more);
TokenPair *pair_find(const PairTable *table, uint64_t key); // NULL when the pair never occurred, or occurs no more
// Adds a pair that is not there; its list is filled by the caller.
TokenPair *pair_add(PairTable *table, uint64_t key, uint64_t count, uint32_t places);

// Room in the pool for so many words. Removes stale places of all pairs but `keep`, and moves lists. `lengths`: the
// bytes of each token. -1 after fail() (82).
int pair_lists_reserve(PairTable *table, const TrainingText *text, const uint32_t *lengths, uint64_t words,
                       uint64_t keep);

static inline uint32_t *pair_places(const PairTable *table, TokenPair *pair) {
    return pair->places == 1 ? &pair->list : table->pool + pair->list;
}
