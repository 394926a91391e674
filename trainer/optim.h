// Optimizers: a table; a row updates the flat range of parameters from the flat range of gradients.
#pragma once

#include "trainer/network.h"

typedef struct {
    const char *name;
    int moments; // ranges of fp32 state, as long as the parameters
    // Computes the gradients' norm into the plan's numbers, clips, updates unless the norm is not finite, and packs.
    // `update` counts those before this one.
    void (*update)(Network *network, const Config *config, double learning_rate, uint64_t update);
} Optimizer;

const Optimizer *optimizer_find(const char *name); // NULL when there is none
