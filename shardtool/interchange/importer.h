// The target of a reader of another tool's token files: a dataset, or a shard on standard output.
#pragma once

#include "shardtool/support/output.h"

typedef struct {
    Output output;
    uint32_t vocab_size, end_of_text;
    unsigned id_bytes;      // of an id in the current file; before it is read, in a file of this vocabulary
    bool eot_before;        // the end-of-text id is before each document; the dataset has it after each
    const char *path;       // of the current file
    int split;              // of the current file
    InputPosition position; // of the next id
    // For each split: it has ids; the first one is, the last one is the end-of-text id.
    bool begun[SPLIT_COUNT], begins_with_end[SPLIT_COUNT], has_end[SPLIT_COUNT];
} Importer;

// Adds ids that are `count` * id_bytes bytes at `data`. `first` is the index of the first one in the file, for errors.
// 65 when one is not in the vocabulary.
int importer_add(Importer *importer, const uint8_t *data, uint64_t first, uint64_t count);
int importer_add_end(Importer *importer); // adds the end-of-text id

int importer_add_counted(Importer *importer, Bytes ids, uint64_t count); // 65 when the bytes are not `count` ids
// 65 when a file without a header does not hold ids of id_bytes: by their number of bytes, or as ids of u16 are wider.
int importer_check_width(const Importer *importer, Bytes ids);

// Maps the index of the current file: its name with `end` in place of the last `cut` bytes.
int importer_map_index(const Importer *importer, Bytes *index, size_t cut, const char *end);

int importer_finish(Importer *importer); // adds the end-of-text ids that were before documents; output_finish follows
