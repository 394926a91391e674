// Arithmetic of sizes and offsets in bytes or elements.
#pragma once

#include <stddef.h>

static inline size_t size_larger(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t size_smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; } // the next multiple of `to`

// Lays out buffers one after the other: returns the offset *end, and advances it by `bytes`, rounded up to `align`.
static inline size_t size_reserve(size_t *end, size_t bytes, size_t align) {
    const size_t offset = *end;
    *end += round_up(bytes, align);
    return offset;
}
