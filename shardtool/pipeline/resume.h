// Where each split of a run continues: the documents and ids that finished shards hold already.
#pragma once

#include "shardtool/pipeline/shard_sink.h"

typedef struct {
    InputPosition after[SPLIT_COUNT]; // finished shards, or the pending ids, hold the documents of a split before it
    uint64_t drop[SPLIT_COUNT];       // ids of the document at `after` that a finished shard holds
} Resume;

void resume_init(Resume *resume, const JournalResume *journal); // NULL: a new run
// Adds the pending ids of the documents before the start, which are not read again. *tokens is increased by their
// number.
int resume_add_pending(Resume *resume, const ShardSinkOptions *options, ShardSink *sink, uint64_t *tokens);
// Whether a document need not be tokenized. Thread-safe, once the pending ids were added.
bool resume_is_finished(const Resume *resume, InputPosition position, int split);
// Advances over the next ids of a split that a finished shard holds.
size_t resume_drop(Resume *resume, int split, size_t count);
bool resume_is_past(const Resume *resume, InputPosition last); // whether `last` ends the documents before all positions
