// Parquet's DELTA_BINARY_PACKED: integers as a first value and bit-packed differences, in blocks of miniblocks.
#pragma once

#include "common/bytes.h"

typedef struct {
    Cursor cursor;              // the bytes after the current miniblock
    uint64_t left;              // values not yet returned
    uint64_t miniblock_values;  // a multiple of 32
    unsigned miniblock_count;   // per block
    unsigned type_bits;         // 32 or 64
    bool first;                 // the next value is in the header
    uint64_t value, difference; // the value before; the smallest difference of the block
    const uint8_t *widths;      // in bits, of the block's miniblocks
    unsigned miniblock;         // the next one
    Bytes bits;                 // of the current miniblock
    uint64_t bit, miniblock_left;
} DeltaReader;

// Reads the header. False when it is malformed. type_bits is 32 or 64; the bytes are borrowed.
bool delta_open(DeltaReader *delta, Bytes bytes, unsigned type_bits);
bool delta_next(DeltaReader *delta, int64_t *value); // false after the last value or when the bytes are malformed
// The bytes after all of the values, whatever has been read. False when they are malformed.
bool delta_rest(const DeltaReader *delta, Bytes *rest);
