// The rows of the documents of a split of a dataset (provenance.h), by their numbers.
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
