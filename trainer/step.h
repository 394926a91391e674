// One optimizer step: micro-batches, their gradients, one update.
#pragma once

#include "trainer/optim.h"
#include "trainer/stream.h"

typedef struct {
    double loss; // mean over the step's tokens, natural log
    float norm;  // of the gradients before clipping
    double learning_rate;
    bool finite; // false: the update was not applied
} StepResult;

// Takes gradient_accumulation_steps micro-batches from the stream. FEED_BATCH: done, see `result`. Else nothing was
// applied, and the stream stands somewhere inside the step. `update` counts the updates applied before; `stop` may be
// NULL and is looked at between micro-batches.
FeedResult step_run(Network *network, const Config *config, const Optimizer *optimizer, Stream *stream, uint64_t step,
                    uint64_t update, const volatile int *stop, StepResult *result);
