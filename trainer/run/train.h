// The training loop.
#pragma once

#include "trainer/run/run.h"

// Trains until max_iters. Returns 0, or -1 after fail() (69, 75, 76, 81, ...) with a checkpoint of the last good step.
int train(Run *run);

// Writes report.html. A failure is a warning, at most once a minute.
void train_report(Run *run);
