// The scalars of an AdamW step.
#include "kernels/adamw_scalars.h"
#include "common/math/portable_math.h"
#include <math.h>

AdamW adamw_init(const AdamWSettings *settings) {
    return (AdamW){
        .rate = (float)(settings->learning_rate / (1 - portable_power(settings->beta1, settings->step))),
        .root = (float)(1 / sqrt(1 - portable_power(settings->beta2, settings->step))),
        .shrink = (float)(1 - settings->learning_rate * settings->weight_decay),
        .beta1 = (float)settings->beta1,
        .beta2 = (float)settings->beta2,
        .epsilon = (float)settings->epsilon,
        .max_norm = (float)settings->max_norm,
        .step = (uint32_t)settings->step,
        .seed = {(uint32_t)settings->seed, (uint32_t)(settings->seed >> 32)},
    };
}
