// Conditions on documents, as `--where "language = 'en' and score >= 3"` gives them: one or more NAME OP VALUE, all of
// which a document must meet. NAME is a column of Parquet or a key of a JSON line.
//
// A name or a value is in quotes, of which two within it are one, or ends at a space or a sign. A name takes double
// quotes only.
#pragma once

#include "common/bytes.h"
#include "common/cli/cli.h"

enum { WHERE_MAX = 32, WHERE_WORD_BYTES = 256, WHERE_WHY_BYTES = 768 };

typedef enum {
    WHERE_LESS_EQUAL,
    WHERE_GREATER_EQUAL,
    WHERE_EQUAL,
    WHERE_NOT_EQUAL,
    WHERE_LESS,
    WHERE_GREATER
} WhereOperator;

typedef enum {
    WHERE_NULL, // or absent
    WHERE_BOOL, // the number 0 or 1
    WHERE_INTEGER,
    WHERE_SINGLE,
    WHERE_DOUBLE,
    WHERE_TEXT,
    WHERE_OTHER // cannot be compared
} WhereType;

typedef struct {
    WhereType type;
    Bytes text;
    long double number; // every integer of 64 bits is exact
} WhereValue;

typedef struct {
    const char *text; // the argument of --where, borrowed
    char name[WHERE_WORD_BYTES];
    WhereOperator op;
    char value[WHERE_WORD_BYTES];
    bool quoted;
    bool is_number, is_bool; // how `value` can be read
    // The number, for values of each type. An integer is compared with the `whole` part, and lies before or after the
    // number if `beyond` is 1 or -1, unless the number `is_real`: it has an exponent, or is NaN or infinite.
    long double single, real, whole;
    int beyond;
    bool is_real;
} Where;

typedef struct {
    Where items[WHERE_MAX];
    unsigned count;
} WhereList;

// Parses the arguments of --where. 2 with the position of what is wrong, and what was expected.
int where_parse(WhereList *list, const StringList *arguments);
// Whether the condition can be compared with values of this type. Else `why` is the reason, in which `is` names the
// type. A number cannot be compared with a text: quotes make the number a text.
bool where_fits(const Where *where, WhereType type, const char *is, char why[WHERE_WHY_BYTES]);
// Whether a value of a type that fits meets the condition, as in DuckDB: a null never does, a NaN is equal to NaN and
// greater than all numbers, -0.0 is 0, texts are compared byte by byte. A number that is compared with a value of 32
// bits is rounded to it first, so that x = 0.1 finds it, unless it has an exponent.
bool where_holds(const Where *where, const WhereValue *value);
