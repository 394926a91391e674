// Dynamic loss scaling.
#include "trainer/optim/loss_scaler.h"
#include <math.h>

enum { GROW_AFTER = 2000 };

void scaler_open(Scaler *scaler, bool fp16) {
    if (!fp16)
        *scaler = (Scaler){0};
    else if (!(scaler->scale > 0))
        *scaler = (Scaler){.scale = 0x1p16f};
}

void scaler_step(Scaler *scaler, bool finite_loss, bool finite_gradients) {
    if (!(scaler->scale > 0)) return;
    if (finite_loss && finite_gradients) {
        scaler->excused = 0;
        if (++scaler->good < GROW_AFTER) return;
        if (isfinite(2 * scaler->scale)) scaler->scale *= 2;
    } else {
        scaler->excused += finite_loss && scaler->scale > 1;
        scaler->scale = fmaxf(scaler->scale / 2, 1);
    }
    scaler->good = 0;
}
