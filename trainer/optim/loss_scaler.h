// Dynamic loss scaling, by the rule of torch.amp.GradScaler: gradients of activations in fp16 are computed times a
// power of two, so that small ones do not become zero. It begins at 2^16, halves when the gradients were not finite,
// and doubles after 2000 steps in a row that were.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    float scale;   // 0: none, as for all other types
    uint32_t good; // steps since the scale changed
    uint32_t
        overflow_streak; // of the last steps without a break that were not finite: those that the scale answers for
} LossScaler;

void loss_scaler_init(LossScaler *scaler, bool fp16); // goes on with what a checkpoint gave

// After a step. Finite losses whose gradients were not are the scale's doing, and overflow_streak, until it has come
// down to 1: there, and where the loss itself is not finite, halving it does not help.
void loss_scaler_step(LossScaler *scaler, bool finite_loss, bool finite_gradients);

static inline float loss_scaler_scale(const LossScaler *scaler) { return scaler->scale > 0 ? scaler->scale : 1; }
