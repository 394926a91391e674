// Removes near-duplicates: a document goes when an earlier document that stays shares a band of its MinHash and has a
// Jaccard similarity of at least `least`, compared exactly. The first in order stays. The result depends on the order
// of the documents alone.
#pragma once

#include "shardtool/similar/part_files.h"
#include "shardtool/similar/removal_report.h"

typedef struct {
    const DocumentInputs *inputs;
    Output *output;     // NULL: only the report
    const Vocab *vocab; // of the ids
    RemovalReport *report;
    double least;
    unsigned threads;
    uint64_t memory;
    const PartSet *parts; // the bands of the documents; `count` 0: they are computed
    OldDatasets *old;     // documents that come first and stay; may be none
} NearDedup;

#define SIMILAR_LEAST 0.6 // below, too many near-duplicates share no band: at 0.6 83 % do

const char *near_dedup_rules(void);           // that decide the bands of parts, for their files
int near_dedup_check(const NearDedup *dedup); // 2 when there is not enough memory for so many documents
int near_dedup_run(const NearDedup *dedup);

// Writes the bands of the documents of a part; of `dedup`, only inputs, vocab and threads count.
int near_dedup_sign(const NearDedup *dedup, PartWriter *writer);
