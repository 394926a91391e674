// Arrays of ids in memory and in files: 2 bytes each if there are at most 65,536 different ones, else 4, so that the
// number of ids tells the width. Files and messages have them little-endian.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { IDS_SMALL = 1 << 16, IDS_MAX = 1 << 20 }; // the largest number of ids that take 2 bytes; of all

static inline unsigned id_bytes(uint64_t count) { return count > IDS_SMALL ? 4 : 2; } // of `count` different ones

static inline uint32_t id_at(const void *ids, size_t i, unsigned bytes) {
    return bytes == 2 ? ((const uint16_t *)ids)[i] : ((const uint32_t *)ids)[i];
}

static inline void id_put(void *ids, size_t i, unsigned bytes, uint32_t id) {
    if (bytes == 2)
        ((uint16_t *)ids)[i] = (uint16_t)id;
    else
        ((uint32_t *)ids)[i] = id;
}
