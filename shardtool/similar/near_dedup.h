// Removes near-duplicates: a document goes when an earlier document that stays shares a band of its MinHash and has a
// Jaccard similarity of at least `least`, compared exactly. The first in order stays. The result depends on the order
// of the documents alone.
#pragma once

#include "shardtool/similar/removal_report.h"

typedef struct {
    const DocumentInputs *inputs;
    Output *output;     // NULL: only the report
    const Vocab *vocab; // of the ids
    RemovalReport *report;
    double least;
    unsigned threads;
    uint64_t memory;
} NearDedup;

#define SIMILAR_LEAST 0.6 // below, too many near-duplicates share no band: at 0.6 83 % do

int near_dedup_check(const NearDedup *dedup); // 2 when there is not enough memory for so many documents
int near_dedup_run(const NearDedup *dedup);
