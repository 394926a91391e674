// Prints rows of named facts to standard output: as JSON objects, one per line, or as text. The text of a list has a
// line "key value" per fact and an empty line between rows; a table has a line per row and a column per fact.
#pragma once

#include "common/bytes.h"

typedef struct {
    bool json;
    int key_width;    // of a list; 0: a table
    uint64_t rows;    // printed so far
    const char *name; // of the row of a table, printed last
    Buffer row;
} RowPrinter;
#define ROW_JSON(printer)                                                                                              \
    { OPT_FLAG, "json", &(printer)->json, NULL, "print one JSON object per line" }

// Begins a row. `name`, such as a path, is its first fact, and the last column of a table; borrowed. NULL: no name.
void row_begin(RowPrinter *printer, const char *key, const char *name);
// `width` is a table column's; a list ignores it.
void row_add_number(RowPrinter *printer, const char *key, int width, uint64_t value);
void row_add_text(RowPrinter *printer, const char *key, int width, const char *value);
void row_add_ratio(RowPrinter *printer, const char *key, double value, int decimals, const char *unit); // list only
void row_add_none(RowPrinter *printer, const char *key, int width); // of a number that is not known: null, or -
void row_add_hex(RowPrinter *printer, const char *key, const void *data, size_t size); // list only
void row_add_quoted(RowPrinter *printer, const char *key,
                    Bytes value);  // any bytes, as a JSON string in text too; table only
void row_end(RowPrinter *printer); // prints the row
