// The free memory of this machine.
#pragma once

#include <stdint.h>

// In bytes, at most what the control groups of this process have free, and its address space (ulimit -v) has left. 0: not known.
// `where` (may be NULL) receives which of the three it is, for messages: "the memory that is free on this machine".
uint64_t host_memory_free(const char **where);
