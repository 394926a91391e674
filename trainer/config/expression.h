// Values of Python configuration files: numbers with + - * / // % ** and parentheses, int() and float(), strings, True,
// False, names, and "x if CONDITION else y" of these.
#pragma once

#include "common/arena.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum { VALUE_NUMBER, VALUE_FLAG, VALUE_TEXT } ValueType;

typedef struct {
    ValueType type;
    double number;
    bool whole; // the number is a Python int
    bool flag;
    const char *text;
} Value;

typedef struct {
    bool (*find)(void *names, const char *name, size_t length, Value *value); // the value of a name
    void *names;
    Arena *strings;    // where the text of values is stored
    char error[128];   // set by expression_read: "" when the text is not an expression at all
    const char *where; // of the error
} ExpressionReader;

// Reads the expression at `at`. Returns the first byte after it, or NULL with `error` and `where`.
const char *expression_read(ExpressionReader *reader, const char *at, Value *value);
