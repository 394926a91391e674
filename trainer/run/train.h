// The training loop.
#pragma once

#include "trainer/records/evaluation.h"
#include "trainer/run/run.h"

// Trains until max_iters. Returns 0, or -1 after fail() (69, 75, 76, 81, ...) with a checkpoint of the last good step.
int train(Run *run);

// One round of its loop: an evaluation or a step. -1 after fail().
int train_round(Run *run);

// Writes report.html. A failure is a warning, at most once a minute.
void train_report(Run *run);

// Evaluates both splits. Does not change the state of the run.
FeedResult train_evaluate(Run *run, Evaluation evaluations[SPLIT_COUNT]);
