// Builds values of JSON: those that users and other programs write. The grammar is that of json_events.h; of two equal
// keys the last counts. Jansson, whose own grammar is narrower, holds the values.
#pragma once

#include "common/json_events.h"
#include <jansson.h>

// Called once, before there is another thread. Without memory the JSON library then ends the program (82). By itself it
// reports an error of the text, or leaves members out of what it writes.
void json_end_without_memory(void);

// A value that is built of the events of a text; zero before the first.
typedef struct {
    json_t *root;                     // NULL before the first event
    json_t *open[JSON_DEPTH_MAX + 1]; // borrowed: the object or array with elements at this depth
    Buffer text;
} JsonTree;
// An integer beyond int64_t is a real number, NaN and what is beyond a double the largest double of its sign.
void json_tree_add(JsonTree *tree, JsonEvents *json, JsonEvent event);
void json_tree_clear(JsonTree *tree); // for the next text
void json_tree_close(JsonTree *tree);

// JSON_ANY_TEXT: strings may have NUL and bytes that are not UTF-8, for callers that take their lengths into account.
// JSON_REJECT_DUPLICATES: equal keys are refused. NULL with text and line in *error.
enum { JSON_ANY_TEXT = 1 << 16 };
json_t *json_parse(Bytes text, size_t flags, json_error_t *error);
