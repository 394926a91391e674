// A set of hashes.
#include "shardtool/support/hash_set.h"

void hash_set_clear(HashSet *set, size_t room) {
    size_t slots = 16;
    while (slots < 2 * room) slots *= 2;
    set->slots.size = 0, set->mask = slots - 1, set->has_zero = false;
    buffer_reserve(&set->slots, slots * sizeof(uint64_t));
    memset(set->slots.data, 0, slots * sizeof(uint64_t));
}

void hash_set_close(HashSet *set) { buffer_close(&set->slots); }
