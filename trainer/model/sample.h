// Sampling: continues a text token by token, in the memory of the evaluation pass and its cache of keys and values.
#pragma once

#include "trainer/model/network.h"
#include <sys/types.h>

enum { SAMPLE_PADDED = 64 }; // tokens: a text is padded to a multiple, so that few shapes of kernels are used

typedef struct {
    double temperature;    // 0: always the most likely token
    uint64_t top_k;        // 0: all
    double top_p;          // of these the likeliest, until their probabilities sum to top_p; 0: all
    uint64_t seed, stream; // token i is drawn with random number i of that stream
} Sampler;

// Runs every shape that sampling can use once, over zeros (see step_warm_up in step.h). logits: one per vocabulary
// entry.
void sample_warm_up(Network *network, float *logits);

// Appends up to `count` ids to the `length` in `ids`, which must have space for them; stops after the end of text,
// which is not drawn if its embedding was never trained. The context is the last block_size ids. `emit` (may be NULL)
// is called with each new id and returns whether to continue. Returns the new length, or -1 (81) when the logits of a
// token are not finite.
ssize_t sample(Network *network, const Sampler *sampler, void *ids, size_t length, size_t count,
               bool (*emit)(void *context, uint32_t id), void *context);
