// The classifier's loss and gradient, row by row in place.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/act.h"

static void cpu_cross_entropy(Act *logits, float *losses, const uint16_t *rows, int first, int M, int T, int vocab,
                              int columns, float scale, const float *loss_scale, bool gradient) {
    if (gradient) scale *= *loss_scale;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < M; i++) {
        Number *x = (Number *)logits + (size_t)i * (size_t)columns;
        const int n = first + i, whole = vocab / W * W, rest = vocab - whole;
        const int target = rows[(size_t)(n / T) * ((size_t)T + 1) + (size_t)(n % T) + 1];
        V largest = v_set(-INFINITY);
        for (int k = 0; k < whole; k += W) largest = v_max(largest, act_load(x + k));
        float top = v_largest(largest);
        for (int k = whole; k < vocab; k++) top = fmaxf(top, number_float(x[k]));
        V m = v_set(top), sum = v_set(0);
        for (int k = 0; k < whole; k += W) sum += v_exp(act_load(x + k) - m);
        if (rest) sum += v_first(v_exp(act_load_part(x + whole, rest) - m), rest);
        const float total = v_sum(sum), hit = number_float(x[target]);
        losses[n] = logf(total) + top - hit;
        if (!gradient) continue;
        V share = v_set(scale / total);
        for (int k = 0; k < whole; k += W) act_store(x + k, v_exp(act_load(x + k) - m) * share);
        if (rest) act_store_part(x + whole, v_exp(act_load_part(x + whole, rest) - m) * share, rest);
        memset(x + vocab, 0, (size_t)(columns - vocab) * sizeof *x);
        x[target] = number_of((expf(hit - top) / total - 1) * scale);
    }
}

static void cpu_sum_losses(double *total, const float *losses, int n) {
    for (int i = 0; i < n; i++) *total += (double)losses[i];
}
