// Counts of pieces to merges.
#pragma once

#include "common/log.h"
#include "tokenizer/training/bpe_training.h"
#include "tokenizer/training/piece_run.h"

typedef struct {
    const char *folder; // of the run file
    PieceRun run;
    uint64_t min_count; // pieces that occur less often are left out
    uint64_t memory;    // limit in bytes
    uint32_t merges;    // to find
    Progress *progress;
} MergingOptions;

typedef struct {
    BpeMerge *merges;
    uint32_t count;  // fewer than asked for when no pair is left
    uint64_t pieces; // distinct ones that were not left out
} Merging;

int merging_run(const MergingOptions *options, Merging *merging);
void merging_close(Merging *merging); // accepts a zeroed struct
