// Evaluation: the mean loss over the first samples of a split, in order, inside the memory of the training pass.
#pragma once

#include "loader/client/batch_stream.h"
#include "trainer/model/network.h"

// Sums sequence by sequence in a fixed order, so that the loss does not depend on the evaluation batch size (on AVX2 it
// does in the last bits: products round there by their number of rows).
FeedResult evaluate(Network *network, const BatchSource *source, int split, uint64_t samples, const atomic_int *stop,
                    double *loss);

// Runs the shapes of an evaluation of `samples` samples once, over zeros (see step_warm_up in step.h).
void evaluate_warm_up(Network *network, uint64_t samples);

// The number of samples that an evaluation reads from a split of `split_tokens` tokens; 0: the split has none.
uint64_t evaluate_samples(const Config *config, uint64_t split_tokens);
