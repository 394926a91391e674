// The learning rate of a step.
#include "trainer/optim/schedule.h"
#include "common/log.h"
#include <math.h>

static double cooldown_steps(const Config *config) {
    return config->cooldown_iters ? (double)config->cooldown_iters : (double)config->lr_decay_iters / 5;
}

// Warmup, stable, decay: the decay is 1 - sqrt(part of it) (Haegele et al., "Scaling Laws and Compute-Optimal Training
// Beyond Fixed Training Durations", 2024).
static double wsd_left(const Config *config, double at) {
    const double end = (double)config->lr_decay_iters, steps = cooldown_steps(config);
    return at <= end - steps ? 1 : 1 - sqrt((at - (end - steps)) / steps);
}

double schedule_rate(const Config *config, uint64_t step) {
    double highest = config->learning_rate, lowest = config->min_lr, at = (double)step;
    double warmup = (double)config->warmup_iters, end = (double)config->lr_decay_iters;
    if (at < warmup) return highest * (at + 1) / (warmup + 1);
    if (config->lr_schedule == LR_CONSTANT) return highest;
    if (at >= end || end <= warmup) return lowest;
    double part = (at - warmup) / (end - warmup), left = 0; // part: 0 after the warmup, 1 at the end
    switch (config->lr_schedule) {
    case LR_CONSTANT: // handled above
    case LR_COSINE:
        left = 0.5 * (1 + cos(3.14159265358979323846 * part));
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
                 steps, end, schedule_rate(config, (uint64_t)steps - 1), config->min_lr, steps);
}
