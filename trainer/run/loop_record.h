// The output and records of the training loop (metrics.jsonl).
#pragma once

#include "trainer/engine/steps.h"
#include "trainer/run/run.h"

// Writes the printed lines. When stdout cannot be written (closed, or a full disk), warns once and drops later lines.
void loop_flush_lines(void);

// The line of an evaluation on stdout.
void loop_print_evaluation(const Engine *engine, const Evaluation evaluations[SPLIT_COUNT], bool best);

void loop_record_step(Run *run, const ComputedStep *step);
void loop_warn_of_spike(Run *run, const ComputedStep *step);

// The text that the model wrote when the run ended, of a long one the beginning.
void loop_record_sample(Run *run, Bytes text);

// Warns when steps become slower, once until they are fast again. `ns` excludes the wait for data.
void loop_record_speed(Run *run, uint64_t ns);
