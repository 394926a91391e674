// Small integers of fixed bit width as Parquet stores levels and dictionary indices: runs of one value mixed with runs
// of packed values ("RLE/bit-packing hybrid"), or, in old files, packed values alone with the highest bit first.
#pragma once

#include "common/bytes.h"

// A number of `width` <= 64 bits at bit `at` of data, lowest bit first; all of it must lie inside the data.
uint64_t bits_at(Bytes data, uint64_t at, unsigned width);

typedef struct {
    Cursor cursor;   // the bytes after the current run
    unsigned width;  // in bits, at most 32
    bool high_first; // all values are packed, highest bit first
    uint64_t run_left;
    bool packed; // the run's values are in `bits` from `bit` on; otherwise all are `value`
    uint32_t value;
    Bytes bits;
    uint64_t bit;
} RleReader;

RleReader rle_open(Bytes bytes, unsigned width);        // borrowed
RleReader rle_open_packed(Bytes bytes, unsigned width); // highest bit first
bool rle_next(RleReader *rle, uint32_t *value);         // false at the end of the bytes or when they are malformed
