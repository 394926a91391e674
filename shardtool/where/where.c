// Parses conditions, and applies them to values.
#include "shardtool/where/where.h"
#include "common/err.h"
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

_Static_assert(LDBL_MANT_DIG >= 64, "where_holds compares 64-bit integers as long double");

static void skip_spaces(const char **at) {
    while (isspace((unsigned char)**at)) ++*at;
}

static bool take_operator(const char **at, WhereOperator *op) {
    static const struct {
        const char *word;
        WhereOperator op;
    } words[] = {// a prefix after the longer
                 {"<=", WHERE_LESS_EQUAL}, {">=", WHERE_GREATER_EQUAL}, {"==", WHERE_EQUAL}, {"!=", WHERE_NOT_EQUAL},
                 {"<>", WHERE_NOT_EQUAL},  {"=", WHERE_EQUAL},          {"<", WHERE_LESS},   {">", WHERE_GREATER}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(*at, words[i].word, strlen(words[i].word))) {
            *op = words[i].op, *at += strlen(words[i].word);
            return true;
        }
    return false;
}

// Reads a word, in one of these quotes or without. NULL, or what was expected at *at: "" where there is no word.
static const char *take_word(const char **at, const char *quotes, char word[WHERE_WORD_BYTES], bool *quoted) {
    size_t size = 0;
    const char quote = **at, *const begin = *at;
    *quoted = quote && strchr(quotes, quote);
    if (*quoted) ++*at;
    for (;; ++*at) {
        if (*quoted && !**at) return *at = begin, "a closing quote";
        if (*quoted && **at == quote && *++*at != quote) break;
        if (!*quoted && (!**at || isspace((unsigned char)**at) || strchr("<>=!&|()'\"", **at))) break;
        if (size == WHERE_WORD_BYTES - 1) return *at = begin, "at most 255 bytes";
        word[size++] = **at;
    }
    word[size] = '\0';
    return *quoted || size ? NULL : "";
}

static void read_number(Where *where) {
    const char *const value = where->value;
    where->is_bool = !strcasecmp(value, "true") || !strcasecmp(value, "false");
    if (where->is_bool) {
        where->is_number = true;
        where->single = where->real = where->whole = *value == 't' || *value == 'T';
        return;
    }
    char *end, whole[WHERE_WORD_BYTES];
    where->single = (long double)strtof(value, NULL);
    where->real = (long double)strtod(value, &end);
    where->is_number = end != value && !*end && !isspace((unsigned char)*value);
    where->is_real = value[strspn(value, "+-.0123456789")];
    const size_t point = strcspn(value, ".");
    snprintf(whole, sizeof whole, "%.*s", (int)point, value);
    where->whole = strtold(whole, NULL);
    const bool fraction = value[point] && value[point + 1 + strspn(value + point + 1, "0")];
    where->beyond = !fraction ? 0 : *value == '-' ? -1 : 1;
}

// Reads NAME OP VALUE. NULL, or what was expected at *at.
static const char *take_comparison(const char **at, Where *where) {
    bool named;
    const char *expected = take_word(at, "\"", where->name, &named);
    if (expected || !*where->name) return expected && *expected ? expected : "the name of a column or key";
    skip_spaces(at);
    if (!take_operator(at, &where->op)) return "one of = == != <> < <= > >=";
    skip_spaces(at);
    expected = take_word(at, "'\"", where->value, &where->quoted);
    if (expected) return *expected ? expected : "a value: a number, true, false, or a text in quotes";
    read_number(where);
    return NULL;
}

static bool take_and(const char **at) {
    if (strncasecmp(*at, "and", 3) || (!isspace((unsigned char)(*at)[3]) && (*at)[3] != '"')) return false;
    *at += 3;
    return true;
}

static int parse_argument(WhereList *list, const char *text) {
    const char *at = text, *expected = NULL;
    do {
        if (list->count == WHERE_MAX) return fail(EX_USAGE, "--where: more than %d comparisons", WHERE_MAX);
        Where *where = &list->items[list->count++];
        *where = (Where){.text = text};
        skip_spaces(&at);
        expected = take_comparison(&at, where);
        skip_spaces(&at);
    } while (!expected && take_and(&at));
    if (!expected && *at) expected = "'and' or the end; a text with spaces or signs is in quotes";
    if (!expected) return 0;
    return fail(EX_USAGE, "--where '%s', character %zu: expected %s", text, (size_t)(at - text) + 1, expected);
}

int where_parse(WhereList *list, const StringList *arguments) {
    list->count = 0;
    for (size_t i = 0; i < arguments->count; i++)
        if (parse_argument(list, arguments->items[i]) < 0) return -1;
    return 0;
}

bool where_fits(const Where *where, WhereType type, const char *is, char why[WHERE_WHY_BYTES]) {
    const bool is_word = !where->is_number || (!where->is_bool && !where->value[strcspn(where->value, "0123456789")]);
    const bool fits = type == WHERE_NULL    ? true
                      : type == WHERE_OTHER ? false
                      : type == WHERE_TEXT
                          ? where->quoted || is_word
                          : where->is_number && (type == WHERE_BOOL || !where->is_bool || !where->quoted);
    if (fits) return true;
    const int size = snprintf(why, WHERE_WHY_BYTES, "--where '%.256s': '%s' is %s", where->text, where->name, is);
    const size_t used = size < WHERE_WHY_BYTES ? (size_t)size : WHERE_WHY_BYTES - 1;
    snprintf(why + used, WHERE_WHY_BYTES - used,
             type == WHERE_OTHER  ? "; only texts, numbers, true and false can be compared"
             : type == WHERE_TEXT ? ", which is compared byte by byte: quote the value, '%s', to compare it so"
                                  : ", and '%s' is not a number",
             where->value);
    return false;
}

static int compare_bytes(Bytes a, Bytes b) {
    size_t shorter = a.size < b.size ? a.size : b.size;
    int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_numbers(long double a, long double b) {
    return isnan(a) || isnan(b) ? (isnan(a) != 0) - (isnan(b) != 0) : (a > b) - (a < b);
}

// The sign of the value's difference from the one of the condition.
static int compare(const Where *where, const WhereValue *value) {
    if (value->type == WHERE_TEXT) return compare_bytes(value->text, bytes_of_text(where->value));
    if (value->type == WHERE_DOUBLE) return compare_numbers(value->number, where->real);
    if (value->type == WHERE_SINGLE)
        return compare_numbers(value->number, where->is_real && !where->quoted ? where->real : where->single);
    if (where->is_real) return compare_numbers((long double)(double)value->number, where->real);
    const int sign = compare_numbers(value->number, where->whole);
    return sign ? sign : -where->beyond;
}

bool where_holds(const Where *where, const WhereValue *value) {
    if (value->type == WHERE_NULL) return false;
    const int sign = compare(where, value);
    switch (where->op) {
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
