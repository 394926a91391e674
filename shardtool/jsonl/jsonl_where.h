// The conditions of --where on a JSON line. An absent key is a null.
#pragma once

#include "shardtool/jsonl/key_path.h"
#include "shardtool/where/where.h"

// Zero before it is opened.
typedef struct {
    WhereList list;
    KeyPath paths[WHERE_MAX];
    struct {
        WhereType type; // of its value in the line
        bool holds;
    } found[WHERE_MAX];
    Buffer text; // of a string that the reader does not capture
    size_t text_at;
} JsonlWhere;

int jsonl_where_open(JsonlWhere *where, const StringList *arguments); // 2 with the reason
void jsonl_where_begin(JsonlWhere *where);                            // a line
// Takes each event after the reader, which has set json->capture, and does not empty the buffer within the string.
void jsonl_where_take(JsonlWhere *where, JsonEvents *json, JsonEvent event);
// At the end of the line: whether it meets all conditions, and in *why NULL, or why it is bad.
bool jsonl_where_met(const JsonlWhere *where, char why[WHERE_WHY_BYTES], const char **bad);
void jsonl_where_close(JsonlWhere *where);
