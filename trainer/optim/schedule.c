// The learning rate of a step.
#include "trainer/optim/schedule.h"
#include "common/log.h"
#include "common/math/portable_math.h"
#include <math.h>

static double cooldown_steps(const Config *config) {
    return config->cooldown_iters ? (double)config->cooldown_iters : (double)config->lr_decay_iters / 5;
}

// The part of a cooldown before a step.
static double cooldown_done(const Cooldown *cooldown, uint64_t step) {
    if (!cooldown->steps) return cooldown->done;
    return cooldown->done + (1 - cooldown->done) * ((double)(step - cooldown->from) / (double)cooldown->steps);
}

// Warmup, stable, decay: the decay is 1 - sqrt(part of it) (Haegele et al., "Scaling Laws and Compute-Optimal Training
// Beyond Fixed Training Durations", 2024).
static double wsd_left(const Config *config, double at) {
    const double end = (double)config->lr_decay_iters, steps = cooldown_steps(config);
    return at <= end - steps ? 1 : 1 - sqrt((at - (end - steps)) / steps);
}

// The rate of the warmup and behind it.
static double warm_rate(const Config *config, uint64_t step) {
    const double warmup = (double)config->warmup_iters, at = (double)step;
    return at < warmup ? config->learning_rate * (at + 1) / (warmup + 1) : config->learning_rate;
}

// From the rate at which it begins, which may be one of the warmup.
static double cooldown_rate(const Config *config, const Cooldown *cooldown, uint64_t step) {
    const double highest = warm_rate(config, cooldown->begun), lowest = fmin(config->min_lr, highest);
    return lowest + (1 - sqrt(fmin(1, cooldown_done(cooldown, step)))) * (highest - lowest);
}

double schedule_rate(const Config *config, const Cooldown *cooldown, uint64_t step) {
    double highest = config->learning_rate, lowest = config->min_lr, at = (double)step;
    double warmup = (double)config->warmup_iters, end = (double)config->lr_decay_iters;
    if (cooldown && cooldown->begun && step >= cooldown->from) return cooldown_rate(config, cooldown, step);
    if (at < warmup) return warm_rate(config, step);
    if (config->lr_schedule == LR_CONSTANT) return highest;
    if (at >= end || end <= warmup) return lowest;
    double part = (at - warmup) / (end - warmup), left = 0; // part: 0 after the warmup, 1 at the end
    switch (config->lr_schedule) {
    case LR_CONSTANT: // handled above
    case LR_COSINE:
        left = 0.5 * (1 + portable_cos(3.14159265358979323846 * part));
        break;
    case LR_LINEAR:
        left = 1 - part;
        break;
    case LR_WSD:
        left = wsd_left(config, at);
        break;
    }
    return lowest + left * (highest - lowest);
}

uint64_t schedule_cooldown(const Config *config, const Cooldown *cooldown) {
    const double start = (double)config->lr_decay_iters - cooldown_steps(config);
    if (cooldown->begun) return cooldown->begun;
    return config->lr_schedule == LR_WSD && start > (double)config->warmup_iters ? (uint64_t)start : 0;
}

bool schedule_ends_uncooled(const Cooldown *cooldown) {
    return cooldown->begun && cooldown->from == cooldown->begun && !cooldown->steps;
}

uint64_t schedule_end(const Config *config, const Cooldown *cooldown) {
    const uint64_t most = (uint64_t)config->max_iters, end = cooldown->from + cooldown->steps;
    return cooldown->begun && end < most ? end : most;
}

double cooldown_step_s(double mean_s, unsigned measured, double seconds) {
    const unsigned window = 5;
    const double most = 4 * mean_s, taken = measured && seconds > most ? most : seconds;
    return mean_s + (taken - mean_s) / (measured < window ? measured + 1 : window);
}

bool schedule_evaluates(const Cooldown *cooldown, uint64_t step, uint64_t interval) {
    const uint64_t begun = cooldown->begun;
    return step % interval == 0 && (!begun || step <= begun || step >= begun + interval);
}

// How many steps of a cooldown fit into the time, beside the evaluations between them. The last evaluation, which
// follows all steps, is not counted.
static double steps_in_time(const CooldownTime *time, uint64_t begun) {
    const uint64_t interval = time->interval;
    if (!interval || !isfinite(time->seconds)) return time->seconds / time->step_s;
    const uint64_t next = (begun + interval > time->step + 1 ? begun + interval : time->step + 1) + interval - 1;
    const double between = (double)interval, first = (double)(next - next % interval - time->step);
    const double until_first = first * time->step_s + time->evaluation_s,
                 each = between * time->step_s + time->evaluation_s;
    if (time->seconds < until_first) return fmin(first, time->seconds / time->step_s);
    const double periods = floor((time->seconds - until_first) / each);
    return first + periods * between + fmin(between, (time->seconds - until_first - periods * each) / time->step_s);
}

static double whole_steps(const CooldownTime *time, uint64_t begun) {
    return fmax(time->seconds < 0 ? 0 : 1, floor(fmin((double)(time->most - time->step), steps_in_time(time, begun))));
}

static double wanted_steps(const CooldownTime *time) { return fmax(1, floor((double)time->step / 4)); }

// Whether it is time. An evaluation before the next step would take its time from a cooldown that begins there.
static bool begins(const CooldownTime *time) {
    CooldownTime soon = *time;
    if (time->interval && (time->step + 1) % time->interval == 0) soon.seconds -= time->evaluation_s;
    const double steps = (double)time->step, fit = whole_steps(&soon, time->step);
    if (fit <= wanted_steps(time)) return true;
    soon.seconds -= time->end_s, soon.step_s *= 2, soon.evaluation_s *= 2; // half as fast from now on
    return fit <= floor(steps / 2) && steps_in_time(&soon, time->step) <= floor(steps / 8);
}

Cooldown cooldown_plan(const Cooldown *now, const CooldownTime *time) {
    const double wanted = wanted_steps(time), room = (double)(time->most - time->step), slack = 16, part = 4;
    const unsigned few = 4;
    const bool measured = time->measured >= few || time->seconds <= 2 * few * time->step_s;
    if (!time->begins_now && !measured && (now->begun || room > wanted)) return *now;
    const double fit = whole_steps(time, now->begun ? now->begun : time->step);
    if (!now->begun) {
        const bool in_time = begins(time);
        if (!in_time && !time->begins_now) return *now;
        return (Cooldown){
            .begun = time->step, .from = time->step, .steps = (uint64_t)(in_time ? fit : wanted), .at_once = !in_time};
    }
    // A change by a sixteenth waits until a quarter of the planned steps are done, so that the changes of a long cooldown
    // on a busy machine are tens; one to less than three quarters does not wait.
    const double left = (double)(now->from + now->steps - time->step), much = floor(left / slack);
    const bool waits = (double)(time->step - now->from) < floor((double)now->steps / part);
    if (waits && fit >= left - floor(left / part)) return *now;
    if (!isfinite(time->seconds) || (fit >= left - much && (now->at_once || fit <= left + much + 1))) return *now;
    return (Cooldown){now->begun, time->step, (uint64_t)fit, cooldown_done(now, time->step), now->at_once};
}

void schedule_warn(const Config *config) {
    const long long warmup = config->warmup_iters, end = config->lr_decay_iters, steps = config->max_iters;
    const bool decays = config->lr_schedule != LR_CONSTANT, is_wsd = config->lr_schedule == LR_WSD;
    if (decays && config->min_lr > config->learning_rate)
        log_warn("the learning rate rises from %g to min_lr %g: set min_lr, or lr_schedule=constant",
                 config->learning_rate, config->min_lr);
    if (decays && warmup >= end)
        log_warn("the warmup of %lld steps ends after lr_decay_iters %lld: the learning rate then falls to min_lr at "
                 "once",
                 warmup, end);
    else if (is_wsd && (double)warmup > (double)end - cooldown_steps(config))
        log_warn("the cooldown of %.0f steps begins before the warmup of %lld steps ends, as lr_decay_iters is %lld",
                 cooldown_steps(config), warmup, end);
    else if (warmup && warmup >= steps)
        log_warn("the warmup of %lld steps is not shorter than the run of %lld: the learning rate stays below %g",
                 warmup, steps, config->learning_rate);
    if (decays && steps && steps < end && end == *(const int64_t *)config_keys[KEY_lr_decay_iters].value)
        log_warn("the run ends at step %lld, and the learning rate falls until lr_decay_iters, %lld: it ends at %.3g, "
                 "not at min_lr %g; set lr_decay_iters=%lld",
                 steps, end, schedule_rate(config, NULL, (uint64_t)steps - 1), config->min_lr, steps);
}
