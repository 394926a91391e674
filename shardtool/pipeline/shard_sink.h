// The second half of the pipeline: cuts ordered ids into frames, compresses them in workers, appends them to shards.
#pragma once

#include "common/machine/pool.h"
#include "dataset/dataset_build.h"
#include "shardtool/pipeline/journal.h"

typedef struct {
    unsigned threads;          // 0 = all cores
    const DatasetBuild *build; // NULL: one shard on standard output, without validation split
    uint64_t shard_tokens;     // whole frames; 0 = all in one shard
    ShardParams params;
    Journal *journal;            // of `build`; NULL with standard output
    const JournalResume *resume; // of a run that continues, or NULL
} ShardSinkOptions;

typedef struct ShardSink ShardSink;
// Borrows all arguments. NULL after fail().
ShardSink *shard_sink_open(const ShardSinkOptions *options, const Inputs *inputs, Dataset *dataset);
// The row of the next document that begins (dataset/provenance.h), not later than its first ids.
void shard_sink_row(ShardSink *sink, int split, Bytes row);
// The same from its place in the inputs and its kept values, before any of its ids: only the first ones have a row.
void shard_sink_place(ShardSink *sink, int split, InputPosition position, Bytes kept);
// Adds the next ids of one document, of id_bytes(params.vocab_size) each. source_bytes is the size of the document with
// its last ids, else 0.
int shard_sink_add(ShardSink *sink, int split, const void *ids, size_t count, InputPosition position,
                   uint64_t source_bytes);
void shard_sink_continue(ShardSink *sink, int split); // before the first add: it continues the document before
int shard_sink_finish(ShardSink *sink);               // writes the last, shorter frames and shards
void shard_sink_close(ShardSink *sink);               // removes an unfinished shard; accepts NULL
