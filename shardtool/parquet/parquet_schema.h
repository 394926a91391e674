// The columns of a Parquet file. A column is a leaf of the schema, known by its dotted path.
#pragma once

#include "common/bytes.h"
#include "shardtool/parquet/parquet_format.h"
#include "shardtool/parquet/thrift_compact.h"

enum { PARQUET_DEPTH_MAX = 64 }; // of the schema

typedef struct {
    ParquetType type;
    const char *logical; // "STRING", "DECIMAL", ..., NULL without annotation
    bool is_unsigned;    // of an integer column
    bool repeated;       // a list, a map, or inside one: any number of values a row, which cannot be read
    uint32_t index;      // of the leaf: the same in every row group
    unsigned max_definition;
    uint32_t element; // of the schema
} ParquetColumn;

typedef struct {
    Bytes name; // borrowed from the footer
    uint32_t parent;
} ParquetSchemaElement;

typedef struct {
    const char *file; // for messages, borrowed
    Buffer elements;  // ParquetSchemaElement
    Buffer columns;   // ParquetColumn
} ParquetSchema;

// Reads the list of elements, whose bytes are borrowed. The schema is zeroed but for `file`. A malformed list leaves
// the Thrift reader failed; -1 after fail (65) when its tree is impossible.
int parquet_schema_read(ParquetSchema *schema, ThriftReader *thrift, ThriftType list);
void parquet_schema_close(ParquetSchema *schema); // accepts a zeroed struct

uint32_t parquet_column_count(const ParquetSchema *schema);
// Finds the column of a dotted path. 65, with the columns that exist, when none or two have this path, or when it names
// a group, a list or a map.
int parquet_find_column(const ParquetSchema *schema, const char *path, ParquetColumn *column);
bool parquet_is_text(const ParquetColumn *column); // BYTE_ARRAY, annotated as a string or not at all
bool parquet_is_null(const ParquetColumn *column); // of the type null: pyarrow writes it if all values are null
void parquet_column_path(const ParquetSchema *schema, const ParquetColumn *column, Buffer *path); // appends
