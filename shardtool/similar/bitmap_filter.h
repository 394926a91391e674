// An upper bound of what two sets of hashes share, from a bitmap of 2 to 4 bits a hash. It refuses most pairs that
// share a band, without their texts.
//
// The bitmap of n distinct hashes has B(n) bits, the least power of two that is at least 2 n and 64. A hash h sets bit
// h mod B(n). The OR of the parts of a bitmap is the bitmap with fewer bits, so two are compared with the bits of the
// smaller set. For sets c and d with the Jaccard similarity J:
//
//     |c and d| <= s = min(|c| - bits of c that d lacks, |d| - bits of d that c lacks)
//     J <= s / (|c| + |d| - s)
//
// Proof: each bit of c that d lacks was set by a hash of c. This hash is not in d, or d would have the bit, and it set
// no other bit. So at least as many hashes of c are not in d; the same holds for d. J = i / (|c| + |d| - i) grows with
// i = |c and d|, and so do its rounded values: a pair with a computed J of at least X has no bound below X.
//
// The bound of Sandes, Teodoro and Melo (Bitmap Filter, Information Systems 88, 2020), (|c| + |d| - bits that differ)
// / 2, is the mean of the two of which s is the least.
#pragma once

#include "common/bytes.h"

// Bytes of the bitmap of so many distinct hashes.
static inline size_t bitmap_filter_bytes(uint64_t count) {
    size_t bytes = sizeof(uint64_t);
    while (bytes * 8 < 2 * count) bytes *= 2;
    return bytes;
}

// Sets `bitmap`, of bitmap_filter_bytes, to that of `count` distinct u64 hashes.
void bitmap_filter_set(uint8_t *bitmap, const uint8_t *hashes, uint64_t count);

// s of the sets of `a_count` and `b_count` hashes with these bitmaps.
uint64_t bitmap_filter_shared_most(const uint8_t *a, uint64_t a_count, const uint8_t *b, uint64_t b_count);
