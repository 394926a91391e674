// The second half of packing: ids that come in order are cut into frames, compressed in workers and appended to shards.
#pragma once

#include "common/pool.h"
#include "shardtool/ingest/pipeline.h"

// Of the inputs: a file, and a document of it.
typedef struct {
    uint64_t file, document;
} InputPosition;

typedef struct ShardSink ShardSink;
ShardSink *shard_sink_open(const PipelineOptions *options, const Inputs *inputs, Dataset *dataset); // NULL after fail()
// Places ids of one document; source_bytes is its length when they are its last, else 0.
int shard_sink_add(ShardSink *writer, int split, const uint16_t *ids, size_t count, InputPosition place,
                   uint64_t source_bytes);
int shard_sink_finish(ShardSink *writer); // the frames and shards that are not full
void shard_sink_close(ShardSink *writer); // removes what is unfinished; accepts NULL
