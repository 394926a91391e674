// Applies a function to the text of each document, in threads, and hands the results over in the order of the
// documents.
#pragma once

#include "shardtool/support/documents.h"

enum { TEXT_TOKENS_MAX = 1 << 24 }; // documents of more ids are handed over without a result

typedef struct {
    uint64_t number; // over all inputs, train before val, from 0
    uint64_t tokens; // with the end-of-text id
    int split;
    InputPosition position;
    Bytes row;              // where it came from (dataset/provenance.h), while it is taken
    Bytes notes;            // of `wants`, while it is taken
    bool is_wanted;         // its text is decoded
    DocumentCursor *cursor; // of a document that is too long, in place of its ids; else NULL
} TextDocument;

typedef struct {
    const DocumentInputs *inputs;
    const Output *output; // says which splits; NULL: --split or both
    const Vocab *vocab;   // of the ids
    bool without_markers; // special ids are line ends in the texts, so that those of a conversation are no words
    unsigned threads;     // 0 = one per core
    uint64_t first, end;  // only the documents of these numbers; `end` 0: all
    void *context;        // of the functions:
    // Whether the text is needed; appends notes for `work` and `take`. In one thread, in order. NULL: always, none.
    bool (*wants)(void *context, const TextDocument *document, Buffer *notes);
    // Appends the result for a text to `out`. In threads, `worker` in 0 .. threads - 1. -1 after fail().
    int (*work)(void *context, unsigned worker, Bytes notes, Bytes text, Buffer *out);
    // Takes the result, {NULL, 0} for a document that is not wanted or too long, and the ids. In one thread, in order.
    int (*take)(void *context, const TextDocument *document, Bytes result, Bytes ids);
} TextMap;

// Adds a document to the output, which may be NULL.
int text_document_copy(const TextDocument *document, const DocumentInputs *inputs, Bytes ids, Output *output);

int text_map_run(const TextMap *map);
unsigned text_map_threads(const TextMap *map);
