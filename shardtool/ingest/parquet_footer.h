// Parquet's footer: the columns of the schema, and where each row group keeps the pages of a column.
//
//   "PAR1"  pages ...  FileMetaData (Thrift)  u32 its length  "PAR1"
//
// A column is a leaf of the schema, known by its dotted path. The columns that can be read have at most one value a
// row: no part of the path is repeated, so that lists and maps are refused.
#pragma once

#include "shardtool/ingest/input_format.h"

#define PARQUET_MAGIC           "PAR1"
#define PARQUET_MAGIC_ENCRYPTED "PARE"

typedef enum {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTE_ARRAY,
    PARQUET_FIXED_LEN_BYTE_ARRAY
} ParquetType;

typedef enum {
    PARQUET_UNCOMPRESSED,
    PARQUET_SNAPPY,
    PARQUET_GZIP,
    PARQUET_LZO,
    PARQUET_BROTLI,
    PARQUET_LZ4, // in Hadoop's frames
    PARQUET_ZSTD,
    PARQUET_LZ4_RAW
} ParquetCodec;

typedef enum {
    PARQUET_PLAIN,
    PARQUET_PLAIN_DICTIONARY = 2,
    PARQUET_RLE,
    PARQUET_BIT_PACKED,
    PARQUET_DELTA_BINARY_PACKED,
    PARQUET_DELTA_LENGTH_BYTE_ARRAY,
    PARQUET_DELTA_BYTE_ARRAY,
    PARQUET_RLE_DICTIONARY,
    PARQUET_BYTE_STREAM_SPLIT
} ParquetEncoding;

const char *parquet_type_name(int type);         // "BYTE_ARRAY"; "unknown" for a number without a name
const char *parquet_codec_name(int codec);       // "SNAPPY"
const char *parquet_encoding_name(int encoding); // "DELTA_BYTE_ARRAY"

typedef struct {
    ParquetType type;
    const char *logical; // "STRING", "DECIMAL", ..., NULL without annotation
    bool is_unsigned;    // of an integer column
    bool repeated;       // a list, a map, or inside one
    uint32_t index;      // of the leaf: the same in every row group
    unsigned max_definition;
    uint32_t element; // of the schema
} ParquetColumn;

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
    Bytes name; // borrowed from the footer
    uint32_t parent;
} ParquetSchemaElement;

typedef struct {
    Stream *stream;
    Buffer bytes;    // the Thrift part
    uint64_t begin;  // file offset of it: no page reaches beyond
    Buffer elements; // ParquetSchemaElement
    Buffer columns;  // ParquetColumn
    Buffer groups;   // ParquetRowGroup
    uint64_t rows;
} ParquetFooter;

// Reads and checks the footer of a stream that has read_at. 65 when it is cut short, malformed or encrypted; the
// stream is borrowed. Nothing is allocated that the file could not hold.
int parquet_footer_open(ParquetFooter *footer, Stream *stream);
void parquet_footer_close(ParquetFooter *footer); // accepts a zeroed struct

size_t parquet_group_count(const ParquetFooter *footer);
const ParquetRowGroup *parquet_group(const ParquetFooter *footer, size_t group);

// The column of a dotted path. 65 with the columns that exist when there is none, when two have this path, or when it
// names a group, a list or a map.
int parquet_find_column(const ParquetFooter *footer, const char *path, ParquetColumn *column);
bool parquet_is_text(const ParquetColumn *column); // BYTE_ARRAY, annotated as a string or not at all
void parquet_column_path(const ParquetFooter *footer, const ParquetColumn *column, Buffer *path); // appends

// Where a row group keeps a column. 65 when it is encrypted, in another file, of another type than in the schema, or
// outside the file.
int parquet_find_chunk(const ParquetFooter *footer, size_t group, const ParquetColumn *column, ParquetChunk *chunk);
