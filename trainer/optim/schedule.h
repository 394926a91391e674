// The learning rate of a step: nanoGPT's warmup, then cosine, linear, constant, or constant with a decay at the end
// (wsd).
#pragma once

#include "trainer/config/config.h"

// A decay whose steps were set during the run (key until). It begins with step `begun` and ends before step
// `from + steps`. As its length may be set again, `done` is the part of the decay before step `from`.
typedef struct {
    uint64_t begun; // 0: none
    uint64_t from, steps;
    double done;
    bool at_once; // it began before its time: it is not made longer
} Cooldown;

void schedule_warn(const Config *config); // of values that are probably mistakes

// Of a step, which counts from 0. cooldown: may be NULL.
double schedule_rate(const Config *config, const Cooldown *cooldown, uint64_t step);

// The step before which the rate begins to fall from its highest value, if it does so at once. 0: it does not.
uint64_t schedule_cooldown(const Config *config, const Cooldown *cooldown);
// The number of steps of the run.
uint64_t schedule_end(const Config *config, const Cooldown *cooldown);
bool schedule_ends_uncooled(const Cooldown *cooldown); // it begins, and no time is left for a step of it

// Whether there is an evaluation before a step that is not the last: where `interval` divides it, but in a cooldown not
// before its step `interval`. A short one has the last evaluation alone, as one takes the time of many of its steps.
bool schedule_evaluates(const Cooldown *cooldown, uint64_t step, uint64_t interval);

// What a cooldown is planned from.
typedef struct {
    uint64_t step;       // the next one
    uint64_t most;       // steps of the run (max_iters)
    double seconds;      // left for steps and the evaluations between them; INFINITY: no limit
    double step_s;       // seconds of a step
    double end_s;        // of what follows the last step; `seconds` leaves it out
    double evaluation_s; // of an evaluation, between which there are `interval` steps, 0: none (schedule_evaluates)
    uint64_t interval;
    unsigned measured; // steps of which that is the mean: it says little if they are few, as after a resume
    bool begins_now;   // whether or not it is time
} CooldownTime;

// The mean of the last 5 steps, of which `measured` have been before this one. A step in which the machine or the
// process was paused, whose time says nothing of the next ones, counts as four usual ones at most.
double cooldown_step_s(double mean_s, unsigned measured, double seconds);

// The cooldown at this time. A fifth of all steps, so that it begins when as much time is left as a quarter of the
// steps so far took; sooner, with a third of all steps at most, if it would be less than a tenth of them on a machine
// that becomes half as fast, as in a short run whose evaluation takes a large part of it; in fewer steps if max_iters
// or the time is short. Afterwards its length follows the speed of the steps. One step at least is left while there is
// time; none without, as it would be one at a high rate.
Cooldown cooldown_plan(const Cooldown *now, const CooldownTime *time);
