// Documents to shards:
//
//   source | tokenize in workers | ids in order, frames of fixed length | compress in workers | append in order
//
// One thread reads the documents, orders the batches and writes the shards, so the bytes do not depend on the number of
// workers.
#pragma once

#include "common/log.h"
#include "shardtool/ingest/source.h"
#include "shardtool/pipeline/text_batch.h"

typedef struct {
    ShardSinkOptions shards; // `threads` tokenize, and as many compress
    TextOptions text;
    Progress *progress;
    const Dataset *base; // appended to, or NULL
    Skips *skips;        // for documents with characters that the vocabulary lacks
    uint64_t max_tokens; // the run ends with the document that reaches it; 0 = no limit
} PipelineOptions;

enum { REPLACED_INPUTS_MAX = 16 };
typedef struct {
    uint64_t file, places;
    uint64_t record; // of the first (dataset/provenance.h)
    uint64_t member_record;
    char member[PATH_MAX_BYTES]; // of an archive; else ""
} ReplacedInput;

typedef struct {
    uint64_t replaced;                              // number of U+FFFD written for invalid UTF-8
    uint64_t replaced_inputs;                       // files that have such places
    ReplacedInput replaced_in[REPLACED_INPUTS_MAX]; // the first of them
    bool is_full;                                   // max_tokens was reached
} PipelineResult;

// Tokenizes all documents of source and adds each finished shard to dataset.
int pipeline_run(const PipelineOptions *options, const Inputs *inputs, Source *source, Dataset *dataset,
                 PipelineResult *result);
