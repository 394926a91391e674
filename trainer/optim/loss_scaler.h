// Dynamic loss scaling by the rule of torch.amp.GradScaler: fp16 gradients of activations are computed times a power of
// two, so that small ones do not underflow to zero. The scale starts at 2^16, is halved after a step whose gradients
// are not finite, and doubled after 2000 finite steps in a row.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    float scale;              // 0: no scaling, as for all other types
    uint32_t good;            // steps since the scale changed
    uint32_t overflow_streak; // consecutive steps skipped because the scale was too large
} LossScaler;

void loss_scaler_init(LossScaler *scaler, bool scaled); // keeps the state that a checkpoint gave

// Call after each step. A finite loss with gradients that are not finite counts as an overflow caused by the scale,
// unless the scale is already 1. If the loss itself is not finite, the scale is not the cause.
void loss_scaler_step(LossScaler *scaler, bool finite_loss, bool finite_gradients);

static inline float loss_scaler_scale(const LossScaler *scaler) { return scaler->scale > 0 ? scaler->scale : 1; }
