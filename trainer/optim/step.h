// One optimizer step: micro-batches, their gradients, one update.
#pragma once

#include "trainer/model/network.h"
#include "trainer/run/batch_stream.h"

// Where a run stands before a step.
typedef struct {
    uint64_t step;    // of the schedule
    uint64_t update;  // steps applied before
    float loss_scale; // gradients are computed times this power of two, 1 unless activations are fp16
} StepPlace;

typedef struct {
    double loss; // mean over the step's tokens, natural log
    float norm;  // of the gradients before clipping
    double learning_rate;
    bool finite; // false: the update was not applied
} StepResult;

// Runs each kind of micro-batch and the update once at full shape, over no data, so that whatever a backend makes when
// it is met first (backend.h: needs_warm_up) is there before step 1. Changes no parameter and no state of the
// optimizer; the gradients are the first micro-batch's to overwrite.
void step_warm_up(Network *network, const Config *config);

// Takes gradient_accumulation_steps micro-batches from the stream. FEED_BATCH: done, see `result`. Else nothing was
// applied, and the stream stands somewhere inside the step. `stop` may be NULL and is looked at between micro-batches.
FeedResult step_run(Network *network, const Config *config, BatchStream *stream, const StepPlace *place,
                    const volatile int *stop, StepResult *result);

// What it is made of, for those that bring their own batches (network_tokens before each). Only step_end waits: for
// the plan's numbers, which are in network->numbers then. scale: 1 / tokens of the step.
void step_begin(Network *network, const Config *config, const StepPlace *place);
void step_micro_batch(Network *network, float scale, bool add);
void step_end(Network *network);
