// Parses a condition, fits it to a column's type, and applies it to values.
#include "shardtool/parquet/where.h"
#include "common/err.h"
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert(LDBL_MANT_DIG >= 64, "where_holds compares 64-bit integers with a long double");

static bool take_operator(const char **at, WhereOperator *op) {
    static const char *const words[] = {
        "<=", ">=", "==", "!=", "<", ">"}; // of WhereOperator; a prefix after the longer
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(*at, words[i], strlen(words[i]))) {
            *op = (WhereOperator)i, *at += strlen(words[i]);
            return true;
        }
    return false;
}

static Bytes trim(const char *begin, const char *end) {
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    return (Bytes){(const uint8_t *)begin, (size_t)(end - begin)};
}

static bool is_quoted(Bytes literal) {
    const uint8_t first = literal.size >= 2 ? literal.data[0] : 0;
    return (first == '"' || first == '\'') &&
           memchr(literal.data + 1, first, literal.size - 1) == literal.data + literal.size - 1;
}

// A literal without quotes that has an operator or a space: a second condition, as other tools write it, or a mistake.
static bool is_several(Bytes literal) {
    for (size_t i = 0; i < literal.size; i++)
        if (isspace(literal.data[i]) || strchr("<>=!&|", literal.data[i])) return true;
    return false;
}

int where_parse(Where *where, const char *text) {
    *where = (Where){.text = text};
    const char *at = text + strcspn(text, "<>=!");
    Bytes column = trim(text, at);
    if (!take_operator(&at, &where->op) || (*at && strchr("<>=", *at)) || !column.size ||
        column.size >= sizeof where->column)
        return fail(EX_USAGE,
                    "--where '%s' is not NAME OP VALUE with one of < <= > >= == !=, as in 'language_score>=0.65'",
                    text);
    memcpy(where->column, column.data, column.size);
    Bytes literal = trim(at, at + strlen(at));
    where->quoted = is_quoted(literal);
    if (where->quoted)
        literal.data++, literal.size -= 2;
    else if (!literal.size)
        return fail(EX_USAGE, "--where '%s' has no value; an empty string is \"\"", text);
    else if (is_several(literal))
        return fail(EX_USAGE, "--where '%s': quote the value '%.*s', or give each condition its own --where", text,
                    (int)literal.size, (const char *)literal.data);
    where->literal = literal;
    return 0;
}

static bool is_comparable(const ParquetColumn *column) {
    switch (column->type) {
    case PARQUET_BYTE_ARRAY:
        return parquet_is_text(column);
    case PARQUET_INT32:
    case PARQUET_INT64:
        return !column->logical; // neither a date nor a decimal
    case PARQUET_FLOAT:
    case PARQUET_DOUBLE:
        return true;
    default:
        return false;
    }
}

int where_bind(WhereTest *test, const Where *where, const ParquetColumn *column) {
    *test = (WhereTest){where->op, column->type, column->is_unsigned, where->literal, 0};
    if (!is_comparable(column))
        return fail(EX_DATA, "--where '%s': column '%s' is %s; only strings, integers and floats can be compared",
                    where->text, where->column,
                    column->logical ? column->logical : parquet_type_name((int)column->type));
    char number[128], *end = number;
    if (where->literal.size < sizeof number) {
        memcpy(number, where->literal.data, where->literal.size);
        number[where->literal.size] = '\0';
        test->number = column->type == PARQUET_FLOAT    ? (long double)strtof(number, &end)
                       : column->type == PARQUET_DOUBLE ? (long double)strtod(number, &end)
                                                        : strtold(number, &end);
    }
    const bool is_number = end != number && !*end;
    if (column->type == PARQUET_BYTE_ARRAY && is_number && !where->quoted && number[strcspn(number, "0123456789")])
        return fail(EX_USAGE,
                    "--where '%s': column '%s' is text, which is compared byte by byte: quote the value, \"%s\", to "
                    "compare it so",
                    where->text, where->column, number);
    if (is_number || column->type == PARQUET_BYTE_ARRAY) return 0;
    return fail(EX_USAGE, "--where '%s': '%.*s' is not a number, and column '%s' is %s", where->text,
                (int)where->literal.size, (const char *)where->literal.data, where->column,
                parquet_type_name((int)column->type));
}

static int compare_bytes(Bytes a, Bytes b) {
    size_t shorter = a.size < b.size ? a.size : b.size;
    int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

// Whether a value whose difference from the literal has this sign meets the condition.
static bool fits(WhereOperator op, int sign) {
    switch (op) {
    case WHERE_LESS:
        return sign < 0;
    case WHERE_LESS_EQUAL:
        return sign <= 0;
    case WHERE_GREATER:
        return sign > 0;
    case WHERE_GREATER_EQUAL:
        return sign >= 0;
    case WHERE_EQUAL:
        return sign == 0;
    case WHERE_NOT_EQUAL:
        return sign != 0;
    }
    return false;
}

bool where_holds(const WhereTest *test, const ParquetValue *value) {
    if (value->null) return false;
    if (test->type == PARQUET_BYTE_ARRAY) return fits(test->op, compare_bytes(value->bytes, test->bytes));
    long double number = test->type == PARQUET_FLOAT || test->type == PARQUET_DOUBLE ? (long double)value->real
                         : test->is_unsigned ? (long double)(uint64_t)value->integer
                                             : (long double)value->integer;
    if (isnan(number) || isnan(test->number)) return test->op == WHERE_NOT_EQUAL;
    return fits(test->op, (number > test->number) - (number < test->number));
}
