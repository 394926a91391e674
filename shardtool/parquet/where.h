// Conditions on a column, as `--where 'language_score>=0.65'` gives them: NAME OP VALUE with < <= > >= == !=.
#pragma once

#include "shardtool/parquet/parquet_column.h"

typedef enum {
    WHERE_LESS_EQUAL,
    WHERE_GREATER_EQUAL,
    WHERE_EQUAL,
    WHERE_NOT_EQUAL,
    WHERE_LESS,
    WHERE_GREATER
} WhereOperator;

typedef struct {
    const char *text; // as typed, borrowed
    char column[256]; // dotted path
    WhereOperator op;
    Bytes literal; // in text, without spaces around it and without its quotes
    bool quoted;
} Where;

// A condition on a column of known type.
typedef struct {
    WhereOperator op;
    ParquetType type;
    bool is_unsigned;
    Bytes bytes;
    long double number; // every integer of 64 bits is exact
} WhereTest;

int where_parse(Where *where, const char *text); // 2 with the reason
// 65 when the column's values have no order that a number or a string could be compared in, 2 when the value is not a
// number and the column is, or a number without quotes and the column has strings. A number is rounded to the column's
// type first, so that x == 0.1 finds the FLOAT 0.1.
int where_bind(WhereTest *test, const Where *where, const ParquetColumn *column);
// A null meets no condition, a NaN only !=; strings are compared byte by byte.
bool where_holds(const WhereTest *test, const ParquetValue *value);
