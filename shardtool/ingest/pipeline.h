// Documents to shards:
//
//   source | tokenize in workers | ids in order, frames of fixed length | compress in workers | append in order
//
// One thread reads, orders and writes; the bytes do not depend on how many others there are.
#pragma once

#include "common/log.h"
#include "shardtool/format/dataset.h"
#include "shardtool/ingest/source.h"
#include "tokenizer/tokenizer.h"

typedef struct {
    unsigned threads;      // 0 = all cores
    const char *directory; // NULL: one shard on standard output, all of it train
    const Vocab *vocab;
    SharedCache *shared_cache; // of all workers; may be NULL
    InvalidUtf8 invalid;
    double val; // share of documents that go to validation
    uint64_t val_seed;
    uint64_t shard_tokens; // whole frames; 0 = all in one shard
    ShardParams params;
    Progress *progress;
} PipelineOptions;

// Packs all documents of source and adds each finished shard to dataset. *replaced counts the U+FFFD for invalid UTF-8.
int pipeline_run(const PipelineOptions *options, const Inputs *inputs, Source *source, Dataset *dataset,
                 uint64_t *replaced);
