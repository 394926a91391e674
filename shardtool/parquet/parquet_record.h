// Rows as JSON objects: lists, structs and maps are put together again from the levels of their columns, as Dremel's
// paper describes it ("Dremel: Interactive Analysis of Web-Scale Datasets", 2010, finite state machines).
//
// A list is an array, a struct an object, a map with texts as keys an object, a text a string, and a column of the type
// JSON what its text holds. What JSON has no type for is an empty object: it is there, and is not a text.
#pragma once

#include "shardtool/parquet/parquet_column.h"
#include <jansson.h>

typedef struct {
    ParquetColumnReader reader;
    ParquetColumn column;
    ParquetValue value; // the next one, if `held`
    bool held;
} ParquetLeaf;

// Zero before the first field is added.
typedef struct {
    const ParquetSchema *schema;
    Buffer fields; // uint32_t, their elements of the schema
    ParquetLeaf *leaves;
    uint32_t *leaf_of; // of each column
    size_t leaf_count;
    size_t text_bytes, value_count; // of this row
    char column[104];               // of the last error
} ParquetRecord;

// The names of all columns as a row has them, each list with one value, and each text empty.
json_t *parquet_outline(const ParquetSchema *schema);
void parquet_record_open(ParquetRecord *record, const ParquetSchema *schema);
// Adds a child of the root with all of its columns.
void parquet_record_add(ParquetRecord *record, uint32_t element);
// Finds the pages of all columns in a row group; with `begin`, starts reading them. As parquet_record_next, a failure
// leaves the name of the column in `column`.
int parquet_record_find_group(ParquetRecord *record, const ParquetFooter *footer, size_t group, bool begin);
// The next row, a new reference; NULL after fail(): 65 when the columns do not fit to each other, or a row has more
// than 256 MiB.
json_t *parquet_record_next(ParquetRecord *record);
void parquet_record_close(ParquetRecord *record); // accepts a zeroed struct
