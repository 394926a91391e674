// The documents of a shard file or of one split of a dataset, in order, found through the document indexes.
#pragma once

#include "dataset/token_reader.h"

typedef struct {
    uint64_t number; // in the split, from 0
    uint64_t first;  // index of its first token
    uint64_t tokens; // with the end-of-text id
    bool has_end;    // it ends with an end-of-text id; only the last document may lack it
    bool is_cut;     // a part of a document: an end of this shard, which was opened alone, is within it
} Document;

// Zero it before the first call. `lengths` holds the index of one shard.
typedef struct {
    Buffer lengths;
    Cursor rest;
    uint64_t left;            // tokens of that shard that are not yet assigned to documents
    bool open_end;            // the last document of that shard continues in the next
    uint64_t number, member;  // of the next shard to read: file, and shard in that file
    uint64_t first, document; // of the next document
} DocumentReader;

// The next document: 1, 0 after the last, -1 after fail() (65 when an index does not match its shard). A document that
// spans several shards is one document. `tokens` must be the same reader in all calls.
int document_reader_next(DocumentReader *reader, TokenReader *tokens, Document *document);
void document_reader_close(DocumentReader *reader); // accepts a zeroed struct

// Calls `visit` with each document. Stops at a status other than 0 and returns it.
typedef int DocumentVisit(void *context, const Document *document);
int document_reader_visit(TokenReader *tokens, DocumentVisit *visit, void *context);
