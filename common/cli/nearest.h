// The one of several names that is most similar to a name that is not one of them, for "did you mean".
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *given;
    const char *name; // borrowed, of `length` bytes; NULL when none is similar
    size_t length, distance;
} Nearest;

bool nearest_same(char a, char b); // letters of names, in which '-' and '_' are equal
Nearest nearest_begin(const char *given);
void nearest_add(Nearest *nearest, const char *name, size_t length);
