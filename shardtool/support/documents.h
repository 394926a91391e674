// The documents of datasets and shards, for commands that write some of them again.
#pragma once

#include "dataset/document_reader.h"
#include "dataset/provenance_reader.h"
#include "dataset/val_rule.h"
#include "shardtool/support/output.h"

// The arguments of a command. The documents of shards belong to the train split.
typedef struct {
    Inputs inputs; // paths and digests, for the manifest
    ShardParams params;
    char *val; // of the datasets: "mixed" if their rules differ (val_rule.h), "0" without one
    uint64_t val_seed;
    ValRule rule;   // of the first dataset
    Buffer history; // of the inputs (lineage.h)
    bool mixed;     // a document may be in both splits
    uint64_t tokens[SPLIT_COUNT], documents[SPLIT_COUNT];
} DocumentInputs;

// Checks that all have one vocabulary and begin at the start of a document. "-" is a shard on standard input.
int documents_open(DocumentInputs *inputs, int count, char **paths);
void documents_close(DocumentInputs *inputs); // accepts a zeroed struct

// Walks the documents of one split. Zero it, then set `inputs` and `split`.
typedef struct {
    const DocumentInputs *inputs;
    int split;
    Document document;      // the current one; its numbers count from the start of its input
    InputPosition position; // input, and document in it
    uint64_t passed;        // documents returned so far, over all inputs
    bool is_open;
    ProvenanceReader rows;
    TokenReader tokens;
    DocumentReader reader;
} DocumentCursor;

int documents_next(DocumentCursor *cursor);                                   // 1, 0 after the last, -1 after fail()
int documents_read(DocumentCursor *cursor, TokenVisit *visit, void *context); // visits the ids of the current document
// Where the current document came from (dataset/provenance.h), valid until the next call.
int documents_row(DocumentCursor *cursor, Bytes *row);
typedef struct {
    uint64_t low, high;
} DocumentHash;
int documents_hash(DocumentCursor *cursor, DocumentHash *hash); // XXH3 of the ids of the current document
void documents_end(DocumentCursor *cursor);                     // accepts a zeroed struct

// Begins the document at `position` of the inputs, with its row. Every command that copies documents calls it, and so
// carries their rows along. 65 when the document before it has no end-of-text id: both would be one document.
int documents_begin(Output *output, const DocumentInputs *inputs, int split, InputPosition position, Bytes row);
int documents_copy(DocumentCursor *cursor, Output *output); // adds the current document to the output

// Compares the documents of the training splits with those of the validation splits, unless all inputs have one rule.
// -1 (2) with the first document that is in both.
int documents_check_splits(const DocumentInputs *inputs);

// The plan of an output that is made from the inputs.
OutputPlan documents_plan(const DocumentInputs *inputs, const char *command, const char *settings);
bool documents_has(const Output *output, int split); // whether a split is to be written; `output` NULL: to be read

// All of a command that writes one dataset, or one shard, from the documents of its PATHs: opens both, calls `work` to
// add the documents, and finishes the output. When the output is complete already, only calls `check`, which may be
// NULL.
typedef int DocumentWork(void *context, const DocumentInputs *inputs, Output *output);
typedef int DocumentCheck(const DocumentInputs *inputs);
int documents_run(int count, char **paths, const char *command, const char *settings, DocumentWork *work,
                  DocumentCheck *check, void *context);
// Without an output: `work` receives NULL.
int documents_run_dry(int count, char **paths, DocumentWork *work, void *context);
