// A value of a JSON line at a path of keys: "a.b" is the key "a.b" of the line, or else the key "b" of its object "a".
// Of two equal keys the last wins.
#pragma once

#include "common/json_events.h"
#include <jansson.h>

enum { PATH_KEYS_MAX = 16 };

typedef struct {
    const char *whole;
    const char *keys[PATH_KEYS_MAX];
    size_t key_bytes[PATH_KEYS_MAX];
    unsigned count;
    // Of the line that is read
    unsigned matched; // number of path keys on the current nesting
    bool at_whole;    // the current key of the line is the whole path, dots included
    bool has_whole;   // there was one, which counts before nested keys
} KeyPath;

bool key_path_open(KeyPath *path, const char *text); // false if it is not a path; the text is borrowed
void key_path_begin(KeyPath *path);                  // a line
// After EVENT_KEY: whether its value is on the path or at its end. A value that was found before does not count then.
bool key_path_enter(KeyPath *path, const JsonEvents *json);
bool key_path_ends(const KeyPath *path, unsigned depth); // whether a value whose key is at `depth` is at its end
const json_t *key_path_value(const KeyPath *path, const json_t *line); // NULL without one
