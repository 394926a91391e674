// Binary search over ascending numbers.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The index of the last of `count` ascending numbers that is at most `value`; 0 when all are greater. The numbers have
// a distance of `stride` bytes, so that they may be a member of the structs of an array.
static inline uint64_t floor_index(const uint64_t *numbers, size_t stride, uint64_t count, uint64_t value) {
    uint64_t low = 0, high = count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (*(const uint64_t *)(const void *)((const char *)numbers + middle * stride) <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}
