// The scalars of an AdamW step as the operation reads them, from backend memory: a recorded update is replayed with the
// scalars of another step.
#pragma once

#include <stdint.h>

typedef struct AdamW {
    float rate, root; // learning rate / (1 - beta1^step), 1 / sqrt(1 - beta2^step)
    float shrink;     // 1 - learning rate * weight decay
    float beta1, beta2, epsilon;
    float max_norm;         // of the gradients; 0: no limit
    uint32_t step, seed[2]; // of stochastic rounding, if there is any
} AdamW;

typedef struct {
    double learning_rate, beta1, beta2, epsilon, weight_decay, max_norm;
    uint64_t step; // from 1
    uint64_t seed;
} AdamWSettings;

AdamW adamw_init(const AdamWSettings *settings);
