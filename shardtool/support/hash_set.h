// A set of 64-bit hashes, by open addressing.
#pragma once

#include "common/bytes.h"

// Zero it before the first use.
typedef struct {
    Buffer slots; // u64; 0 is an empty slot
    size_t mask;
    bool has_zero;
} HashSet;

void hash_set_clear(HashSet *set, size_t room); // and makes room for so many hashes
void hash_set_close(HashSet *set);

// The slot of a hash, or the empty one that it would take.
static inline uint64_t *hash_set_slot(const HashSet *set, uint64_t hash) {
    uint64_t *const slots = (uint64_t *)(void *)set->slots.data;
    size_t at = hash & set->mask;
    while (slots[at] && slots[at] != hash) at = (at + 1) & set->mask;
    return &slots[at];
}

static inline bool hash_set_has(const HashSet *set, uint64_t hash) {
    return hash ? *hash_set_slot(set, hash) != 0 : set->has_zero;
}

// Whether it was not in the set before.
static inline bool hash_set_add(HashSet *set, uint64_t hash) {
    const bool has = hash_set_has(set, hash);
    if (!hash)
        set->has_zero = true;
    else if (!has)
        *hash_set_slot(set, hash) = hash;
    return !has;
}
