// The steps and evaluations of a run: their results, and their lines of metrics.jsonl.
#pragma once

#include "trainer/engine/engine.h"
#include "trainer/records/evaluation.h"

typedef struct {
    StepResult result;
    uint64_t first_sample;
    float loss_scale;
    double spike;         // standard deviations above the steps before (spike_score)
    uint64_t ns, wait_ns; // of the step, and of it the wait for data
    uint64_t sent;        // bytes that this process has sent to others
} ComputedStep;

// Computes the next step, its link of the chain and the state after it. Anything but FEED_BATCH: nothing of it was
// applied, and the stream is cancelled.
FeedResult engine_step(Engine *engine, ComputedStep *step);

// Whether the next samples are those whose gradients were not finite before a roll-back; skips and records them, which
// engine_step() does, too.
bool engine_skip_due(const Engine *engine);
void engine_skip_samples(Engine *engine);

// Whether an evaluation is to be made before the next step, or after the last.
bool engine_evaluation_due(const Engine *engine);

// Evaluates both splits. Does not change the state.
FeedResult engine_evaluate(Engine *engine, Evaluation evaluations[SPLIT_COUNT]);

// Sets the losses in the state, and records the evaluation. Returns whether the validation loss is the best so far.
bool engine_take_evaluation(Engine *engine, const Evaluation evaluations[SPLIT_COUNT]);

// Appends the members of a step's line, without those about its time; records them alone.
void step_add_members(Buffer *line, const Engine *engine, const ComputedStep *step);
void engine_record_step(Engine *engine, const ComputedStep *step);

// Whether the step's loss or norm is a spike that spike_action does not leave out; its line.
bool step_is_spike(const Engine *engine, const ComputedStep *step);
void engine_record_spike(Engine *engine, const ComputedStep *step);
