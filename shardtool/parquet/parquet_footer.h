// Parquet's footer: the schema, and where each row group keeps the pages of a column.
//
//   "PAR1"  pages ...  FileMetaData (Thrift)  u32 its length  "PAR1"
#pragma once

#include "shardtool/ingest/stream.h"
#include "shardtool/parquet/parquet_schema.h"

// The pages of one column in one row group: file bytes [begin, end), inside the file and before the footer.
typedef struct {
    uint64_t begin, end;
    uint64_t values;             // nulls included
    uint64_t uncompressed_bytes; // of all pages, as declared
    ParquetCodec codec;
} ParquetChunk;

typedef struct {
    uint64_t rows;
    size_t columns_at; // of the list of its columns, in the footer's bytes
} ParquetRowGroup;

typedef struct {
    Stream *stream;
    Buffer bytes;   // the Thrift part
    uint64_t begin; // file offset of it: no page reaches beyond
    ParquetSchema schema;
    Buffer groups; // ParquetRowGroup
    uint64_t rows;
} ParquetFooter;

// Reads and checks the footer of a stream that has read_at. 65 when it is cut short, malformed or encrypted; the
// stream is borrowed. Nothing is allocated that the file could not hold.
int parquet_footer_open(ParquetFooter *footer, Stream *stream);
void parquet_footer_close(ParquetFooter *footer); // accepts a zeroed struct

size_t parquet_group_count(const ParquetFooter *footer);
const ParquetRowGroup *parquet_group(const ParquetFooter *footer, size_t group);

// Where a row group keeps a column. 65 when it is encrypted, in another file, of another type than in the schema, or
// outside the file.
int parquet_find_chunk(const ParquetFooter *footer, size_t group, const ParquetColumn *column, ParquetChunk *chunk);
