// The user's options for all readers of inputs, and the checks of their limits.
#pragma once

#include "common/cli/cli.h"
#include "shardtool/ingest/skips.h"
#include "shardtool/ingest/stream.h"

enum { INPUT_FORMATS_MAX = 16 }; // rows of input_formats.def
enum { KEEP_MAX = 16, KEEP_WHY_BYTES = 384 };

typedef enum { DOCS_FILE, DOCS_LINES, DOCS_PARAGRAPHS } SourceDocs;

typedef struct {
    SourceDocs docs;         // how plain text is cut into documents
    const char *text_field;  // dotted path of the text in a JSON line
    const char *text_column; // dotted path of the text in a Parquet file
    StringList where;        // conditions (where.h); rows of Parquet and JSON lines that do not meet all are left out
    StringList keep;         // keys of JSON lines and columns of Parquet whose values go with a document (Part.kept)
    uint32_t keep_found;     // bits of those that a document had
    bool turns;              // JSON lines and Parquet may have conversations (conversation.h); no other format is read
    const struct ConversationKeys *turns_keys; // of --turns-keys; NULL: the usual ones
    uint32_t turns_found;                      // bits of the keys it names that a line had
    bool items;         // of JSON lines that are items of a grade, the right texts alone (jsonl_items.h)
    bool replaces;      // with turns: bytes that are not UTF-8 become U+FFFD; else they are refused
    unsigned format;    // 0 = choose by content, else the number of the row among the INPUT_DOCUMENTS rows
    uint64_t max_depth; // levels of containers; a compressed archive is one level
    uint64_t max_ratio; // output per byte of input, 0 = no limit
    unsigned threads;   // that decode compressed members of archives ahead; 0 = one per core
    Bytes head;         // of standard input: what was read of it before
    Skips skips;
    const struct InputFilter *filter;        // of the members of archives; NULL: all
    struct AccessPoints *points;             // of the input files, for a run that may be continued; else NULL
    bool records_warned;                     // that a text looks like JSON, JSON lines or a table; once a run
    uint64_t about;                          // files and members that input_is_about has left out
    uint64_t left_out;                       // rows and lines that do not meet `where`
    uint64_t replaced;                       // places that `replaces` has replaced
    StringList ignored;                      // keys beside conversations that were not read; the first ones, owned
    uint64_t inputs_read[INPUT_FORMATS_MAX]; // files and members read, by row of the table
} SourceOptions;

// Adds the value of key `number` of --keep to `row`. -1 with the reason: what it `is` cannot be kept (NULL: a text), or
// it is too long.
int keep_add(SourceOptions *options, size_t number, const char *is, Bytes value, Buffer *row, char why[KEEP_WHY_BYTES]);

// A container's checks: 65 when the stream is nested deeper than --max-depth, or when `out_bytes` of output from
// `in_bytes` of input exceed --max-ratio.
int level_check(const Stream *stream, const SourceOptions *options);
int ratio_check(const char *name, const SourceOptions *options, uint64_t in_bytes, uint64_t out_bytes);
// Formats whose documents have neither columns nor keys refuse conditions (65), which would be ignored without a
// message.
int refuse_conditions(const Stream *stream, const SourceOptions *options);
