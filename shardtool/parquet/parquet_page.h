// The pages of a column chunk, one at a time: header, checksum, decompression, and where levels and values lie in it.
//
// Memory: one stored and one decompressed page. A header's sizes are checked against the chunk before anything is
// allocated; a page over 64 MiB must fit into the size that the footer declares, one over 256 MiB be at most 100 times
// its stored size.
#pragma once

#include "shardtool/parquet/parquet_codec.h"

typedef struct {
    bool dictionary;                       // its body is values; otherwise a data page
    uint64_t offset;                       // of its header in the file, for messages
    uint32_t values;                       // nulls included
    int64_t nulls;                         // -1 when the header does not say
    ParquetEncoding encoding;              // of the body
    bool levels_packed, repetition_packed; // as BIT_PACKED, not RLE
    Bytes repetition;                      // repetition levels, empty in a column that is not repeated
    Bytes levels;                          // definition levels, empty in a required column
    Bytes body;                            // borrowed until the next page, as the levels
} ParquetPage;

typedef struct {
    Stream *stream; // borrowed
    ParquetChunk chunk;
    unsigned max_definition, max_repetition;
    uint64_t at;   // of the next page, a file offset
    Buffer window; // stored bytes from file offset window_at on
    uint64_t window_at;
    Buffer plain; // the decompressed page
    ParquetDecompressor decompressor;
} ParquetPageReader;

// Starts a chunk; the buffers of the previous chunk are reused, its decompressor is not. The reader is zeroed first.
void parquet_pages_begin(ParquetPageReader *reader, Stream *stream, const ParquetChunk *chunk, unsigned max_definition,
                         unsigned max_repetition);
int parquet_pages_next(ParquetPageReader *reader, ParquetPage *page); // 1, 0 at the end of the chunk, -1 after fail()
void parquet_pages_close(ParquetPageReader *reader);                  // accepts a zeroed struct

unsigned parquet_level_width(unsigned max_level); // in bits
