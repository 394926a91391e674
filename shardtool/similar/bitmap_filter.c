// The bitmap of a set of hashes.
#include "shardtool/similar/bitmap_filter.h"

void bitmap_filter_set(uint8_t *bitmap, const uint8_t *hashes, uint64_t count) {
    const size_t bytes = bitmap_filter_bytes(count);
    memset(bitmap, 0, bytes);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bit = get_u64(hashes + i * sizeof bit) & (bytes * 8 - 1);
        bitmap[bit / 8] |= (uint8_t)(1 << bit % 8);
    }
}

uint64_t bitmap_filter_shared_most(const uint8_t *a, uint64_t a_count, const uint8_t *b, uint64_t b_count) {
    if (a_count > b_count) return bitmap_filter_shared_most(b, b_count, a, a_count);
    const size_t a_bytes = bitmap_filter_bytes(a_count), b_bytes = bitmap_filter_bytes(b_count);
    uint64_t a_most = a_count, b_most = b_count;
    for (size_t at = 0; at < a_bytes; at += sizeof(uint64_t)) {
        const uint64_t a_bits = get_u64(a + at);
        uint64_t b_bits = 0;
        for (size_t part = at; part < b_bytes; part += a_bytes) b_bits |= get_u64(b + part);
        a_most -= (uint64_t)__builtin_popcountll(a_bits & ~b_bits);
        b_most -= (uint64_t)__builtin_popcountll(b_bits & ~a_bits);
    }
    return a_most < b_most ? a_most : b_most;
}
