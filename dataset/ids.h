// Searches in token ids, with the vectors that every processor of an architecture has.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Both take ids of `bytes` each (common/id_array.h).
size_t ids_find(const void *ids, unsigned bytes, size_t count, uint32_t id);       // index of the first `id`, or count
bool ids_are_below(const void *ids, unsigned bytes, size_t count, uint32_t limit); // whether each id is below `limit`
