// Large blocks of zeroed memory on huge pages if the system has them: random access over a large table would otherwise
// miss the TLB at each lookup.
#pragma once

#include <stddef.h>

// Zeroed memory, aligned to 64 bytes, or to a huge page (2 MiB) when it is larger than half of one; it then takes at
// least a whole one. Pages are taken from the system when they are first written. NULL when the system refuses (no
// error is pending then).
void *hugepages_alloc(size_t bytes);
void *hugepages_alloc_or_die(size_t bytes); // exits (82) instead of returning NULL
void hugepages_free(void *memory);          // accepts NULL
