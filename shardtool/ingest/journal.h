// The journal of an unfinished run, DIR/.journal: with it the same command continues after the last finished shards.
//
// Each line is the CRC32C of its JSON text in hex, a space, and the text. The first describes the run (options,
// vocabulary, inputs), every other one a finished shard (its line of the manifest) and the position after its last
// token. A line is written after the shard has its final name. Lines after a damaged or truncated one do not count.
//
// A run that continues reads all inputs again, but tokenizes a document only if it lies after the position of its
// split.
#pragma once

#include "shardtool/format/dataset.h"
#include "shardtool/ingest/inputs.h"

// A position in the inputs: the file, the document in it, and the ids of that document before the position.
typedef struct {
    uint64_t file, document, token;
} InputPosition;

typedef struct {
    int fd;
    char path[PATH_MAX_BYTES];
} Journal;

// Reads the journal of `dataset` (begun, without shards). 1 when it is of the same run: its shards are added and the
// position of each split is set. 0 when there is no usable journal; the dataset is then as it was. `base` is the
// dataset to which the run appends, or NULL.
int journal_load(Dataset *dataset, const Inputs *inputs, const Dataset *base, InputPosition positions[SPLIT_COUNT]);
// Opens the journal for appending, after journal_load with `continued`, else empty with a first line.
int journal_open(Journal *journal, const Dataset *dataset, const Inputs *inputs, const Dataset *base, bool continued);
// Appends shard `number` of a split, durably.
int journal_add(Journal *journal, int split, uint64_t number, const DatasetShard *shard, InputPosition position);
void journal_close(Journal *journal); // accepts a zeroed struct
