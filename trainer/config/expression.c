// Values of Python configuration files: a recursive-descent parser that evaluates as it reads. Each function reads one
// level of Python's grammar and returns the first byte after it, or NULL.
#include "trainer/config/expression.h"
#include "common/math/portable_math.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 }; // of parentheses and signs

typedef struct {
    ExpressionReader *reader;
    int depth;
} Parser;

static const char *read_choice(Parser *parser, const char *at, Value *value);

static const char *skip_blank(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\r') at++;
    return at;
}

__attribute__((format(printf, 3, 4))) static const char *error(Parser *parser, const char *at, const char *format,
                                                               ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(parser->reader->error, sizeof parser->reader->error, format, list);
    va_end(list);
    parser->reader->where = at;
    return NULL;
}

static Value number(double value, bool whole) { return (Value){.type = VALUE_NUMBER, .number = value, .whole = whole}; }

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

// Python's 1_000, .5, 1e-3. Hexadecimal numbers are not read.
static const char *read_number(Parser *parser, const char *at, Value *value) {
    char text[64], *end;
    size_t length = 0;
    if (at[0] == '0' && (at[1] == 'x' || at[1] == 'X')) return NULL;
    const char *from = at;
    for (; is_name(*at) || *at == '.' || ((*at == '+' || *at == '-') && (at[-1] == 'e' || at[-1] == 'E')); at++) {
        if (*at == '_') continue;
        if (length + 1 == sizeof text) return error(parser, from, "the number has more than %zu digits", length);
        text[length++] = *at;
    }
    text[length] = 0;
    *value = number(strtod(text, &end), !strpbrk(text, ".eE"));
    return *end ? NULL : at;
}

static const char *read_text(Parser *parser, const char *at, Value *value) {
    const char quote = *at, *from = at++;
    char *out = arena_push(parser->reader->strings, strlen(at) + 1);
    *value = (Value){.type = VALUE_TEXT, .text = out};
    while (*at != quote) {
        if (!*at) return error(parser, from, "the string has no closing quote");
        if (*at == '\\' && at[1]) {
            static const char codes[] = "ntr\\'\"", bytes[] = "\n\t\r\\'\"";
            const char *found = strchr(codes, *++at);
            if (!found) *out++ = '\\';
            *out++ = found ? bytes[found - codes] : *at;
            at++;
        } else
            *out++ = *at++;
    }
    *out = 0;
    return at + 1;
}

// The end of a word at `at`, or NULL.
static const char *skip_word(const char *at, const char *word) {
    const size_t length = strlen(word);
    return !strncmp(at, word, length) && !is_name(at[length]) ? at + length : NULL;
}

static const char *read_parenthesis(Parser *parser, const char *at, Value *value) {
    const char *end = read_choice(parser, skip_blank(at + 1), value);
    if (!end) return NULL;
    end = skip_blank(end);
    return *end == ')' ? end + 1 : error(parser, at, "the parenthesis is not closed");
}

// Python's int and float of a number. Returns NULL without an error at any other text.
static const char *read_conversion(Parser *parser, const char *at, Value *value) {
    const bool whole = skip_word(at, "int");
    const char *open = whole ? skip_word(at, "int") : skip_word(at, "float");
    if (!open || *open != '(') return NULL;
    const char *end = read_parenthesis(parser, open, value);
    if (end && value->type != VALUE_NUMBER) return error(parser, at, "only numbers can be computed with");
    if (end) *value = number(whole ? trunc(value->number) : value->number, whole);
    return end;
}

static const char *read_name(Parser *parser, const char *at, Value *value) {
    const char *end = at;
    while (is_name(*end)) end++;
    size_t length = (size_t)(end - at);
    if ((length == 4 && !memcmp(at, "True", 4)) || (length == 5 && !memcmp(at, "False", 5))) {
        *value = (Value){.type = VALUE_FLAG, .flag = *at == 'T'};
        return end;
    }
    if (parser->reader->find(parser->reader->names, at, length, value)) return end;
    return error(parser, at, "the name '%.*s' is not set above", length < 64 ? (int)length : 64, at);
}

static const char *read_atom(Parser *parser, const char *at, Value *value) {
    if (*at == '"' || *at == '\'') return read_text(parser, at, value);
    if (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1])))
        return read_number(parser, at, value);
    if (*at == '(') return read_parenthesis(parser, at, value);
    const char *end = read_conversion(parser, at, value);
    return end || *parser->reader->error || !is_name(*at) ? end : read_name(parser, at, value);
}

// a ** b without libm: a learning rate has the same bits everywhere.
static double power(double a, double b) {
    if (fabs(b) > 1 << 20 || b != floor(b)) return portable_exp(b * portable_log(a));
    const double whole = portable_power(a, (uint64_t)fabs(b));
    return b < 0 ? 1 / whole : whole;
}

// Applies `operation` (its first byte, 'p' for **, 'f' for //) to *left.
static bool apply(Parser *parser, const char *at, char operation, Value *left, const Value *right) {
    if (left->type != VALUE_NUMBER || right->type != VALUE_NUMBER)
        return error(parser, at, "only numbers can be computed with"), false;
    double a = left->number, b = right->number;
    bool whole = left->whole && right->whole;
    if (b == 0 && strchr("/f%", operation)) return error(parser, at, "division by zero"), false;
    switch (operation) {
    case '+':
        return *left = number(a + b, whole), true;
    case '-':
        return *left = number(a - b, whole), true;
    case '*':
        return *left = number(a * b, whole), true;
    case '/':
        return *left = number(a / b, false), true;
    case 'f':
        return *left = number(floor(a / b), whole), true;
    case '%':
        return *left = number(a - b * floor(a / b), whole), true;
    default:
        return *left = number(power(a, b), whole && b >= 0), true;
    }
}

// A sign binds less than ** to its right: -2 ** 2 is -4.
static const char *read_power(Parser *parser, const char *at, Value *value) {
    if (parser->depth++ == DEPTH_MAX) return error(parser, at, "the expression is nested too deeply");
    const char *end;
    if (*at == '-' || *at == '+') {
        const Value sign = number(*at == '-' ? -1 : 1, true);
        end = read_power(parser, skip_blank(at + 1), value);
        if (end && !apply(parser, at, '*', value, &sign)) end = NULL;
    } else {
        end = read_atom(parser, at, value);
        const char *next = end ? skip_blank(end) : NULL;
        if (next && next[0] == '*' && next[1] == '*') {
            Value exponent;
            end = read_power(parser, skip_blank(next + 2), &exponent);
            if (end && !apply(parser, next, 'p', value, &exponent)) end = NULL;
        }
    }
    parser->depth--;
    return end;
}

static const char *read_product(Parser *parser, const char *at, Value *value) {
    const char *end = read_power(parser, at, value);
    while (end) {
        const char *next = skip_blank(end);
        if (!*next || !strchr("*/%", *next)) break;
        bool floors = next[0] == '/' && next[1] == '/';
        Value right;
        end = read_power(parser, skip_blank(next + 1 + floors), &right);
        if (end && !apply(parser, next, floors ? 'f' : *next, value, &right)) return NULL;
    }
    return end;
}

static const char *read_sum(Parser *parser, const char *at, Value *value) {
    const char *end = read_product(parser, at, value);
    while (end) {
        const char *next = skip_blank(end);
        if (*next != '+' && *next != '-') break;
        Value right;
        end = read_product(parser, skip_blank(next + 1), &right);
        if (end && !apply(parser, next, *next, value, &right)) return NULL;
    }
    return end;
}

static bool is_true(const Value *value) {
    if (value->type == VALUE_TEXT) return *value->text;
    return value->type == VALUE_FLAG ? value->flag : value->number != 0;
}

// Python's x if CONDITION else y, if the condition is a value.
static const char *read_choice(Parser *parser, const char *at, Value *value) {
    const char *end = read_sum(parser, at, value), *from = end ? skip_word(skip_blank(end), "if") : NULL;
    if (!from) return end;
    if (parser->depth++ == DEPTH_MAX) return error(parser, at, "the expression is nested too deeply");
    Value condition, other;
    from = skip_blank(from), end = read_sum(parser, from, &condition);
    end = end ? skip_word(skip_blank(end), "else") : NULL;
    if (!end) return error(parser, from, "the condition has no value here: write the value that is meant");
    end = read_choice(parser, skip_blank(end), &other);
    if (end && !is_true(&condition)) *value = other;
    parser->depth--;
    return end;
}

const char *expression_read(ExpressionReader *reader, const char *at, Value *value) {
    Parser parser = {reader, 0};
    reader->error[0] = 0, reader->where = at;
    return read_choice(&parser, at, value);
}
