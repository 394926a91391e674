// Dynamic loss scaling.
#include "trainer/optim/loss_scaler.h"
#include <math.h>

enum { GROW_AFTER = 2000 };

void loss_scaler_init(LossScaler *scaler, bool scaled) {
    if (!scaled)
        *scaler = (LossScaler){0};
    else if (!(scaler->scale > 0))
        *scaler = (LossScaler){.scale = 0x1p16f};
}

void loss_scaler_step(LossScaler *scaler, bool finite_loss, bool finite_gradients) {
    if (!(scaler->scale > 0)) return;
    if (finite_loss && finite_gradients) {
        scaler->overflow_streak = 0;
        if (++scaler->good < GROW_AFTER) return;
        if (isfinite(2 * scaler->scale)) scaler->scale *= 2;
    } else {
        scaler->overflow_streak += finite_loss && scaler->scale > 1;
        scaler->scale = fmaxf(scaler->scale / 2, 1);
    }
    scaler->good = 0;
}
