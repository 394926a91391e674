// The values of one column, row by row: levels, dictionaries and encodings undone.
#pragma once

#include "shardtool/parquet/parquet_delta.h"
#include "shardtool/parquet/parquet_page.h"
#include "shardtool/parquet/parquet_rle.h"

typedef struct {
    bool null;
    unsigned definition, repetition; // its levels; a row begins at repetition 0
    union {
        Bytes bytes;     // BYTE_ARRAY, borrowed until the next value
        int64_t integer; // BOOLEAN, INT32, INT64 (of an unsigned INT64, its bits)
        double real;     // FLOAT, DOUBLE
    };
} ParquetValue;

typedef struct {
    ParquetColumn column;
    ParquetPageReader pages;
    uint64_t values_left; // of the chunk, beyond the current page

    // The chunk's dictionary. A page of values of fixed width is kept as it is.
    bool has_dictionary;
    uint32_t dictionary_values;
    Buffer dictionary, offsets; // offsets: u32 of each BYTE_ARRAY's length

    // The current data page
    ParquetPage page;
    uint32_t page_left;
    uint64_t nulls;                        // met so far
    RleReader repetition, levels, indices; // indices: of the dictionary, or values of BOOLEAN
    Cursor plain;         // PLAIN values, the bytes of delta-encoded strings, or the first bytes of split values
    size_t split_stride;  // BYTE_STREAM_SPLIT: from one byte of a value to the next
    DeltaReader numbers;  // DELTA_BINARY_PACKED, and the lengths of strings
    DeltaReader prefixes; // DELTA_BYTE_ARRAY: bytes in common with the value before
    Buffer joined;        // DELTA_BYTE_ARRAY: the value
} ParquetColumnReader;

// Zero the reader first, then begin each chunk in turn. `column` is BYTE_ARRAY, BOOLEAN, INT32, INT64, FLOAT or
// DOUBLE. The stream is borrowed.
void parquet_column_begin(ParquetColumnReader *reader, Stream *stream, const ParquetColumn *column,
                          const ParquetChunk *chunk);
// The next of chunk.values values. 1, 0 after the last, -1 after fail(): 65 with the page's offset.
int parquet_column_next(ParquetColumnReader *reader, ParquetValue *value);
void parquet_column_close(ParquetColumnReader *reader); // accepts a zeroed struct
