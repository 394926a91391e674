// A run that is finished at a time (key until).
#pragma once

#include "trainer/run/run.h"

// Sets and records the time of the run: that of its record, if the key has not changed since, else a new one. -1 after
// fail(): 2 when it has passed.
int run_until_open(Run *run);

// Called before each step. When it is time, saves a checkpoint and begins the cooldown; later changes its length.
// All processes call it. -1 after fail(): 2 when the time is too short for the warmup.
int run_until_look(Run *run);

// Takes the seconds of an evaluation and its report, and of the save between them, which are not those of a step.
void run_until_evaluated(Run *run, double seconds, double save_s);

// Seconds of an evaluation and its report at the speed of the last steps: as many steps as the slowest one took.
double run_until_evaluation(const RunUntil *until);

// Seconds of a sample of so many tokens: the first one takes a pass over the padded text, and each of the next ones
// `next_s` where keys and values are kept. Else (0), and behind the block, each takes a pass over the text.
double run_until_sample(double first_s, double next_s, uint64_t tokens, uint64_t block);

#define RUN_UNTIL_CLOSING_S 0.5 // for what follows the sample

// Seconds to the time; INFINITY without one.
double run_until_left(const Run *run);

// Warns when the run, which has ended, did so after the time.
void run_until_warn_late(const Run *run);
