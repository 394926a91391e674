// Predicted times of a training step, from the rates of each kind of operation: for choices between plans.
#pragma once

#include "trainer/plan/memory_plan.h"

// Seconds for each token of the forward and backward passes that keep all activations.
double step_cost_passes(const ModelShape *shape, const Backend *backend);

// What recompute adds to them, as a fraction. layers: as recompute_layers, 0 = all.
double step_cost_recompute(const ModelShape *shape, const Backend *backend, Recompute level, int layers);

// What reduce_order = fixed adds to them, as a fraction, for any number of processes: each micro-batch but the first of a
// step is added to the sums as a whole.
double step_cost_sums(const Model *model, const Backend *backend, const Config *config);

const char *step_cost_source(const Backend *backend); // where the rates are from, for people
