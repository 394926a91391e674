// Appends to a finished dataset: the new dataset links its shards, except the last, shorter one of each split,
// whose ids are written again followed by the ids of the new documents. So the shards are the same as after one run
// over all inputs.
#pragma once

#include "shardtool/pipeline/shard_sink.h"

// Links the full shards of `base` that `dataset` does not have yet, and adds them to the journal.
int append_link(Dataset *dataset, const Dataset *base, uint64_t shard_tokens, Journal *journal);
// Makes the places of the last shards positions in `inputs`. Before shard_sink_open.
void append_places(const Dataset *base, Inputs *inputs);
// Adds the ids of the last shards of `base` to the sink, unless `dataset` has them in a shard already. *tokens is
// increased by their number.
int append_last(ShardSink *sink, const Dataset *dataset, const Dataset *base, const Inputs *inputs,
                uint64_t shard_tokens, uint64_t *tokens);
