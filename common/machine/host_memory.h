// The free memory of this machine.
#pragma once

#include <stddef.h>
#include <stdint.h>

// In bytes, at most the free memory of this process's control groups and the rest of its address space (ulimit -v). 0:
// not known. `where` (may be NULL) receives which of the three it is, for messages: "the memory that is free on this
// machine".
uint64_t host_memory_free(const char **where);

// For a program that has planned with host_memory_free: of `bytes` bytes of new memory, how many to write to before the
// next call. Another process may have planned with the same free memory. 0 after fail(): 82 when it has taken so much
// that the system may soon end one of the two, 75 when a stop was requested (stop.h).
size_t host_memory_next(size_t bytes);
