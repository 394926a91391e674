// The summary of a tokenize run, as lines on stderr and as a JSON object on standard output.
#pragma once

#include "shardtool/pipeline/pipeline.h"

typedef struct {
    const Dataset *dataset, *base; // base: of --append, the dataset as it was; else NULL
    const Inputs *inputs;
    const PipelineResult *result;
    uint64_t done_before; // bytes of text in shards that were finished before
    bool continued;       // after a kill: the inputs are those read since, the documents all of the run
    uint64_t started_ns;  // clock_ns
    uint64_t max_tokens;  // of the options, as `val`
    double val;
    bool json;
} Summary;
void summary_print(const Summary *summary);
