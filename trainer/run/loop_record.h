// What the training loop prints and records (metrics.jsonl).
#pragma once

#include "trainer/records/evaluation.h"
#include "trainer/run/run.h"

// Writes the printed lines. When stdout cannot be written (closed, or a full disk), warns once and drops later lines.
void loop_flush_lines(void);

// The line of an evaluation on stdout.
void loop_print_evaluation(const Run *run, const Evaluation evaluations[SPLIT_COUNT], bool best);

// Also sets the losses in the state of the run. Returns whether the validation loss is the best so far.
bool loop_record_evaluation(Run *run, const Evaluation evaluations[SPLIT_COUNT]);

// The step began at sample `first_sample` and took `ns`, including `wait_ns` for data, and this process sent `sent` bytes
// to others.
void loop_record_step(Run *run, const StepResult *result, uint64_t first_sample, float loss_scale, uint64_t ns,
                      uint64_t wait_ns, uint64_t sent);
void loop_record_spike(Run *run, const StepResult *result, double score);

// The text that the model wrote when the run ended, of a long one the beginning.
void loop_record_sample(Run *run, Bytes text);

// Warns when steps become slower, once until they are fast again. `ns` excludes the wait for data.
void loop_record_speed(Run *run, uint64_t ns);
