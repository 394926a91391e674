// Predicted times of a training step, from the rates of each kind of operation: for choices between plans.
#pragma once

#include "trainer/plan/memory_plan.h"

// Seconds for each token of the forward and backward passes that keep all activations.
double step_cost_passes(const ModelShape *shape, const Backend *backend);

// The addition of recompute to them, as a fraction. layers: as recompute_layers, 0 = all.
double step_cost_recompute(const ModelShape *shape, const Backend *backend, Recompute level, int layers);

// The addition of reduce_order = fixed to them, as a fraction, for any number of processes: each micro-batch but the
// first of a step is added to the sums as a whole, and products may have the bits of any processor.
double step_cost_order(const Model *model, const Backend *backend, const Config *config);

// Of the matrix products of an optimizer's update.
double step_cost_update_flops(const Model *model, const Config *config);

// A micro-batch has a cost beside its tokens: launches on a GPU, on which 4 sequences of 1024 tokens of 124M run at
// half the speed of 64; packing of weights and ends of parallel loops on a CPU. Returns it in tokens.
double step_cost_fixed(const Backend *backend);

const char *step_cost_source(const Backend *backend); // where the rates are from, for people
