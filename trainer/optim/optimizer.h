// Optimizers: a table; a row updates the flat range of parameters from the flat range of gradients.
#pragma once

#include "trainer/model/network.h"

typedef struct {
    const char *name;
    int moments; // ranges of fp32 state, as long as the parameters
    // What the update will read of the plan's numbers, before they go to the device. `update` counts those before.
    void (*prepare)(StepScalars *numbers, const Config *config, double learning_rate, uint64_t update);
    // Computes the gradients' norm into the plan's numbers, clips, updates unless the norm is not finite, and packs:
    // operations alone, the same at every step, but for the copies of a state that is offloaded.
    void (*update)(Network *network);
} Optimizer;

const Optimizer *optimizer_find(const char *name); // NULL when there is none
