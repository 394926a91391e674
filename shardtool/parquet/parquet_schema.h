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
    uint32_t index;      // of the leaf: the same in every row group
    unsigned max_definition;
    unsigned max_repetition; // above 0: a list, a map, or inside one, with any number of values a row
    uint32_t element;        // of the schema
} ParquetColumn;

typedef struct {
    Bytes name;           // borrowed from the footer
    uint32_t parent, end; // end: the element behind those in it
    const char *logical;  // as of a column: "LIST", "MAP"
    bool repeated;
    unsigned definition, repetition;   // the levels at which it has a value
    uint32_t first_column, column_end; // its leaves; a leaf is one itself
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
const ParquetColumn *parquet_columns(const ParquetSchema *schema);
uint32_t parquet_element_count(const ParquetSchema *schema);
const ParquetSchemaElement *parquet_elements(const ParquetSchema *schema); // depth-first; the first is the root
// Finds the column of a dotted path. 65, with the columns that exist, when none or two have this path, or when it names
// a group, a list or a map.
int parquet_find_column(const ParquetSchema *schema, const char *path, ParquetColumn *column);
bool parquet_is_text(const ParquetColumn *column); // BYTE_ARRAY, annotated as a string or not at all
bool parquet_is_null(const ParquetColumn *column); // of the type null: pyarrow writes it if all values are null
void parquet_column_path(const ParquetSchema *schema, const ParquetColumn *column, Buffer *path); // appends
