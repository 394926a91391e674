// Sampling: continues a text token by token, inside the evaluation's footprint.
#pragma once

#include "trainer/model/network.h"

typedef struct {
    double temperature;    // 0: always the likeliest
    uint64_t top_k;        // 0: all
    uint64_t seed, stream; // token i of stream s is drawn with number i of that stream
} Sampler;

// Every shape that sampling meets, once, over no data (step.h: step_warm_up). logits: room for a vocabulary.
void sample_warm_up(Network *network, float *logits);

// Appends up to `count` ids to the `length` in `ids` (room for all of them); stops after END_OF_TEXT. Only the last
// block of ids is seen. `emit` (may be NULL) gets each id as it comes. Returns the new length.
size_t sample(Network *network, const Sampler *sampler, uint16_t *ids, size_t length, size_t count,
              void (*emit)(void *context, uint16_t id), void *context);
