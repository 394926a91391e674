// Evaluation: the mean loss over the first samples of a split, in order, inside the training footprint.
#pragma once

#include "trainer/model/network.h"
#include "trainer/run/batch_stream.h"

// Sums sequence by sequence in fixed order, so that the loss does not depend on how many are taken at a time.
FeedResult evaluate(Network *network, const BatchSource *source, int split, uint64_t samples, const volatile int *stop,
                    double *loss);

// The shapes of an evaluation of so many samples once, over no data (step.h: step_warm_up).
void evaluate_warm_up(Network *network, uint64_t samples);

// How many samples an evaluation reads of a split of so many tokens; 0 when it has not one.
uint64_t evaluate_samples(const Config *config, uint64_t split_tokens);
