// The graded items of two runs, item by item. A run holds them as items-STEP.jsonl, the step in 8 digits: one
// head line, then a line an item, in the order of the graded file.
#pragma once

#include "common/bytes.h"
#include "common/statistics.h"

typedef struct {
    char *name;
    uint64_t items, right[2];
    uint64_t better, worse; // right in the second run alone, in the first alone
    double chance;          // of an answer that is drawn from the choices, mean of the items
    Series right_change;    // the second run's less the first one's
    Series loss_change;     // the same for the loss of the right ending, in nats a byte of it
} TaskPair;

typedef struct {
    TaskPair *tasks;
    size_t count;
    uint64_t steps[2];
    long long blocks[2]; // tokens that an item can have
} GradePair;

// Reads the last step that both have graded, or else the last one of each. 1; 0 with a sentence in `reason` if the runs
// have no items in common; -1 after fail() for a damaged file (65).
int grade_pair_read(GradePair *pair, const char *const runs[2], Buffer *reason);
void grade_pair_close(GradePair *pair); // accepts a zeroed struct

// The mean over the tasks of the change of accuracy, each by what is above chance: d / (1 - chance). Its variance is
// that of equal models, whose items change to right or to wrong by the toss of a coin, and of two such items more of
// the task whose items have the greatest weight: without them, a few items that changed alike would be certain. So
// equal models are called different in about 5 % at most (test_statistics.c). `shares`: of each task in the variance.
Estimate grade_pair_mean(const GradePair *pair, double *shares);
