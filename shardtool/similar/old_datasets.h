// The datasets of dedup --old: their documents come before those of the PATHs, and all of them stay. What is compared
// of them is in the files of their parts (part_files.h), in the dataset's own directory. A text is read only if that
// leaves the question open. A document is numbered in the order of the datasets, in each train before val, from 0.
#pragma once

#include "common/cli/cli.h"
#include "shardtool/similar/part_files.h"

typedef struct {
    PartSet parts;
    DocumentInputs inputs; // the dataset alone
    uint64_t first;        // number of its first document
} OldDataset;

typedef struct {
    unsigned count;
    uint64_t documents;
    OldDataset *datasets;
    // Of old_datasets_text: the dataset and split that are open, and ids.
    unsigned open_dataset;
    int open_split;
    bool is_open;
    TokenReader tokens;
    Buffer ids;
} OldDatasets;

// Where the text of a document is: its ids without the end-of-text id.
typedef struct {
    uint64_t first, tokens;
    uint32_t dataset;
    int32_t split;
} OldPlace;

// 66 when a dataset has no files of this kind, with the command that makes them. `old` is closed also after -1.
int old_datasets_open(OldDatasets *old, const StringList *paths, PartKind kind, const char *rules);
void old_datasets_close(OldDatasets *old);                                    // accepts a zeroed struct
int old_datasets_check(const OldDatasets *old, const DocumentInputs *inputs); // 65 for another vocabulary
uint64_t old_datasets_digest(const OldDatasets *old);

// Calls `visit` for each document: it reads the entry.
int old_datasets_visit(const OldDatasets *old, int (*visit)(void *context, PartFile *file, uint64_t number),
                       void *context);
// Appends the text at a place.
int old_datasets_text(OldDatasets *old, const OldPlace *place, const Vocab *vocab, Buffer *text);
// The dataset of a document; sets its split and its number there.
const OldDataset *old_datasets_find(const OldDatasets *old, uint64_t number, int *split, uint64_t *document);
