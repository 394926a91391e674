// The rows of the documents of a split of a dataset (provenance.h), by their numbers, and their counts.
#pragma once

#include "dataset/dataset.h"

// Zero it, then set `dataset` and `split`.
typedef struct {
    const Dataset *dataset;
    int split;
    bool is_open;
    uint64_t shard, first; // the open shard; the number of its first document in the split
    char path[PATH_MAX_BYTES];
    Buffer bytes, row;
    ProvenanceTable table;
} ProvenanceReader;

// The row of a document, valid until the next call. Empty if nothing is known, as of a shard file (dataset->path NULL).
int provenance_at(ProvenanceReader *reader, uint64_t document, Bytes *row);
void provenance_reader_close(ProvenanceReader *reader); // accepts a zeroed struct

// ---- the documents and tokens of a dataset by the inputs that they came from

typedef struct {
    const char *name; // NULL: of documents of which nothing is known
    uint64_t documents, tokens;
    double share; // of the tokens of the dataset
} InputCount;

typedef struct {
    Arena arena;
    InputCount *inputs; // those with the most tokens first
    size_t count;       // 0: no shard has a table
} InputCounts;

// Counts both splits. Below the folder that all inputs share, a folder counts as one input: data/a/1 and data/a/2 as
// data/a if there is data/b. If there are more than `most` inputs, the last of `most` rows counts the others.
int input_counts_read(InputCounts *counts, const char *path, size_t most);
void input_counts_close(InputCounts *counts); // accepts a zeroed struct
