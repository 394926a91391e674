// The training loop.
#pragma once

#include "trainer/run/run.h"

// Trains until max_iters. 0: done; else -1 after fail(), everything worth saving saved: 69, 75, 76, 81, ...
int train(Run *run);

// Losses of both splits, once. Does not touch the state of the run.
FeedResult train_evaluate(Run *run, double losses[SPLIT_COUNT]);
