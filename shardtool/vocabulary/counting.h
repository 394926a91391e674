// Documents to counts of distinct pieces:
//
//   source | batches of text | a table of counts in each worker | run files | one run file
//
// A count is a sum, so neither the number of workers nor the contents of tables, batches and run files change it.
#pragma once

#include "common/log.h"
#include "shardtool/ingest/source.h"
#include "shardtool/vocabulary/count_workers.h"

typedef struct {
    CountWorkersOptions workers;
    CountJournal *journal;
    Skips *skips;
    Progress *progress;
} CountingOptions;

// Counts the documents of the sample from state->position on. Then *state is complete: everything is in one run file.
int counting_run(const CountingOptions *options, const Inputs *inputs, Source *source, CountState *state);
