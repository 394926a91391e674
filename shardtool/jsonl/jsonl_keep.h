// The values of --keep in a JSON line: a string as its text, a number, true and false as they are written. An absent
// key and a null have none.
#pragma once

#include "shardtool/ingest/source_options.h"
#include "shardtool/jsonl/key_path.h"

// Zero before it is opened.
typedef struct {
    const StringList *keys;
    KeyPath paths[KEEP_MAX];
    struct {
        enum { KEEP_NONE, KEEP_TEXT, KEEP_OTHER } type;
        Buffer text;
    } found[KEEP_MAX]; // in the line
    Buffer text;       // of a string that neither the reader nor a condition captures
    size_t text_at;
    Buffer row; // the values of the last whole line
} JsonlKeep;

int jsonl_keep_open(JsonlKeep *keep, const StringList *keys);             // 2 with the reason; the list is borrowed
void jsonl_keep_begin(JsonlKeep *keep);                                   // a line
void jsonl_keep_take(JsonlKeep *keep, JsonEvents *json, JsonEvent event); // each event, as jsonl_where_take, after it
// At the end of a line: makes `row` (Part.kept). NULL, or why the line is bad.
const char *jsonl_keep_end(JsonlKeep *keep, SourceOptions *options, char why[KEEP_WHY_BYTES]);
void jsonl_keep_close(JsonlKeep *keep);
