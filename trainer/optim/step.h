// One optimizer step: the gradients of its micro-batches are accumulated, then one update is applied.
#pragma once

#include "loader/client/batch_stream.h"
#include "trainer/model/network.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/spikes.h"

// The position of a run before a step.
typedef struct {
    uint64_t step;             // position in the learning-rate schedule
    uint64_t update;           // updates applied so far
    float loss_scale;          // power of two that gradients are multiplied with; 1 unless activations are fp16
    const SpikeWindow *spikes; // with spike_action = skip: of the steps before; may be NULL
    const Cooldown *cooldown;  // may be NULL
} StepPosition;

typedef struct {
    double loss;      // mean over the step's targets, natural log; NAN without any
    float norm;       // of the gradients before clipping
    uint64_t targets; // that count, of all processes; 0: nothing is applied, and neither value is called not finite
    double learning_rate;
    bool finite;
    bool applied; // the parameters were updated. Not when a value is not finite, or with a spike to skip
} StepResult;

// Runs each kind of micro-batch and the update once at full shape, over zeros, so that a backend with needs_warm_up
// (backend.h) allocates and compiles everything before step 1. Changes neither parameters nor optimizer state; the
// first micro-batch overwrites the gradients.
void step_warm_up(Network *network, const Config *config);

// The gradients of gradient_accumulation_steps micro-batches from the stream, divided by the number of
// network->collective's processes, and network->step_targets. FEED_BATCH: done. Otherwise the stream is at some
// micro-batch of the step. A stop is noticed between micro-batches (stop.h). All processes return the same.
FeedResult step_gradients(Network *network, const Config *config, BatchStream *stream, const StepPosition *position);

// Applies the gradients of all processes, see `result`. -1 when a process has ended: with zero_stage=0 in host memory
// nothing was applied then.
int step_apply(Network *network, const Config *config, const StepPosition *position, StepResult *result);

// Swaps the parameters with their average, of a configuration with `ema`: for an evaluation, and back. All processes
// call it.
void step_swap_average(Network *network);

// The result for all processes from the result of each: an error (pending only where it happened), FEED_STOPPED,
// FEED_CHANGED or FEED_BATCH, the first of these that any process has.
FeedResult step_agree(Collective *ranks, FeedResult found);

// The parts of a step, for callers with their own batches (network_tokens before each micro-batch). Only step_end
// waits for the device; network->scalars then has the results. scale: 1 / tokens of the step.
void step_begin(Network *network, const Config *config, const StepPosition *position);
void step_micro_batch(Network *network, float scale, int micro); // micro: 0 for the first of the step
void step_end(Network *network);
