// Searches in token ids, with the vectors that every processor of an architecture has.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t ids_find(const uint16_t *ids, size_t count, uint32_t id);       // index of the first `id`, or count
bool ids_are_below(const uint16_t *ids, size_t count, uint32_t limit); // whether each id is below `limit`
