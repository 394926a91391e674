// The classifier's loss and gradient, row by row in place.
#pragma once

#include "common/id_array.h"
#include "common/math/portable_math.h"
#include "kernels/backend.h"
#include "kernels/cpu/act.h"

// A logit as the softmax sees it, and the factor of its gradient.
static inline V capped(V x, float cap) { return cap > 0 ? v_set(cap) * v_tanh(x * v_set(1 / cap)) : x; }
static inline V cap_slope(V of_capped, float cap) {
    const V t = of_capped * v_set(1 / cap);
    return v_set(1) - t * t;
}

static inline __attribute__((always_inline)) V softmax_gradient(V x, V m, V share, float cap) {
    const V seen = capped(x, cap), d = v_exp(seen - m) * share;
    return cap > 0 ? d * cap_slope(seen, cap) : d;
}

// The sum of e^(x - top) of a row. In parts: small terms that are added one by one to a large sum are all rounded the
// same way, which moved a loss over 50,257 columns by up to 8e-5.
static inline __attribute__((always_inline)) float sum_of_exponentials(const Number *x, int vocab, float top,
                                                                       float cap) {
    enum { RUN = 64 * LANES };
    const V m = v_set(top);
    LaneSum total = {0};
    for (int first = 0; first < vocab; first += RUN) {
        const int end = first + RUN < vocab ? first + RUN : vocab, whole = first + (end - first) / LANES * LANES;
        LaneSum sum = {0};
        EACH_VECTOR(k, part, first, whole) sum.part[part] += v_exp(capped(act_load(x + k), cap) - m);
        EACH_VECTOR(k, part, whole, end)
        sum.part[part] += v_first(v_exp(capped(act_load_part(x + k, end - k), cap) - m), end - k);
        for (int part = 0; part < PARTS; part++) total.part[part] += sum.part[part];
    }
    return lanes_sum(total);
}

// Rows begin .. end-1 of logits. cap: the loss's, or a constant 0
static inline __attribute__((always_inline)) void cross_entropy_as(int begin, int end, Number *logits, float *losses,
                                                                   const void *rows, const CrossEntropy *loss,
                                                                   float cap) {
    const int first = loss->first, T = loss->T, vocab = loss->vocab, columns = loss->V;
    const bool gradient = loss->gradient;
    const float z_loss = loss->z_loss, scale = gradient ? loss->scale * *loss->loss_scale : 0;
    const unsigned bytes = id_bytes((unsigned)vocab);
    for (int i = begin; i < end; i++) {
        Number *x = logits + (size_t)i * (size_t)columns;
        const int n = first + i, whole = vocab / W * W, rest = vocab - whole;
        if (loss->counted && !loss->counted[n]) {
            losses[n] = 0;
            if (gradient) memset(x, 0, (size_t)columns * sizeof *x);
            continue;
        }
        const uint32_t target = id_at(rows, (size_t)(n / T) * ((size_t)T + 1) + (size_t)(n % T) + 1, bytes);
        V largest = v_set(-INFINITY);
        for (int k = 0; k < whole; k += W) largest = v_max(largest, act_load(x + k));
        float top = v_largest(largest);
        for (int k = whole; k < vocab; k++) top = top > number_float(x[k]) ? top : number_float(x[k]);
        top = capped(v_set(top), cap)[0];
        const V seen = capped(v_set(number_float(x[target])), cap);
        const float total = sum_of_exponentials(x, vocab, top, cap), hit = seen[0],
                    log_sum = (float)portable_log((double)total) + top;
        losses[n] = log_sum - hit;
        if (z_loss > 0) losses[n] += z_loss * log_sum * log_sum;
        if (!gradient) continue;
        const float more = z_loss > 0 ? 1 + 2 * z_loss * log_sum : 1;
        const V m = v_set(top), share = v_set(scale / total * more);
        for (int k = 0; k < whole; k += W) act_store(x + k, softmax_gradient(act_load(x + k), m, share, cap));
        if (rest) act_store_part(x + whole, softmax_gradient(act_load_part(x + whole, rest), m, share, cap), rest);
        memset(x + vocab, 0, (size_t)(columns - vocab) * sizeof *x);
        const float slope = cap > 0 ? cap_slope(seen, cap)[0] : 1;
        x[target] = number_of((v_exp(seen - m)[0] / total * more - 1) * scale * slope);
    }
}

TEAM_LOOP(cross_entropy_rows, int, (Number *, logits), (float *, losses), (const void *, rows),
          (const CrossEntropy *, loss)) {
    if (loss->softcap > 0)
        cross_entropy_as(first, end, logits, losses, rows, loss, loss->softcap);
    else
        cross_entropy_as(first, end, logits, losses, rows, loss, 0);
}

static void cpu_cross_entropy(Act *logits, float *losses, const void *rows, const CrossEntropy *loss) {
    cross_entropy_rows(loss->M, 1, (Number *)logits, losses, rows, loss);
}

static void cpu_sum_losses(double *total, const float *losses, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)losses[i];
    *total += sum;
}
