// The learning rate of a step.
#include "trainer/optim/schedule.h"
#include <math.h>

double schedule_rate(const Config *config, uint64_t step) {
    double highest = config->learning_rate, lowest = config->min_lr, at = (double)step;
    double warmup = (double)config->warmup_iters, end = (double)config->lr_decay_iters;
    if (!config->decay_lr) return highest;
    if (at < warmup) return highest * (at + 1) / (warmup + 1);
    if (config->lr_schedule == LR_CONSTANT) return highest;
    if (at >= end || end <= warmup) return lowest;
    double part = (at - warmup) / (end - warmup); // 0 after the warmup, 1 at the end
    double left = config->lr_schedule == LR_LINEAR ? 1 - part : 0.5 * (1 + cos(3.14159265358979323846 * part));
    return lowest + left * (highest - lowest);
}
