// Global gradient norm and AdamW.
#pragma once

enum {
    NORM_PIECES = 4096, // at most; their borders depend on the count alone
    NORM_RUN = 4096,    // summed in fp32 before it goes to a double
    ADAMW_PIECE = 65536
};

static void gradient_norm(float *norm, const Grad *gradients, size_t count) {
    static double squares[NORM_PIECES];
    const size_t piece = round_up((count + NORM_PIECES - 1) / NORM_PIECES, NORM_RUN);
    const int pieces = piece ? (int)((count + piece - 1) / piece) : 0;
#pragma omp parallel for schedule(static)
    for (int p = 0; p < pieces; p++) {
        const size_t start = (size_t)p * piece, end = start + piece < count ? start + piece : count;
        double sum = 0;
        for (size_t run = start; run < end; run += NORM_RUN) {
            const float *g = (const float *)gradients + run;
            const int n = end - run < NORM_RUN ? (int)(end - run) : NORM_RUN;
            V even = v_set(0), odd = v_set(0);
            int k = 0;
            for (; k + 2 * W <= n; k += 2 * W) {
                V a = v_load(g + k), b = v_load(g + k + W);
                even = v_fma(a, a, even), odd = v_fma(b, b, odd);
            }
            for (; k < n; k += W) {
                V a = v_load_part(g + k, n - k);
                even = v_fma(a, a, even);
            }
            sum += (double)v_sum(even + odd);
        }
        squares[p] = sum;
    }
    double sum = 0;
    for (int p = 0; p < pieces; p++) sum += squares[p];
    *norm = (float)sqrt(sum);
}

static void adamw(Par *params, float *master, const Grad *gradients, Moment *first_moment, Moment *second_moment,
                  size_t count, size_t decay_count, const AdamW *hyper, const float *norm, float max_norm) {
    (void)master; // parameters are fp32 here: they are their own master
    float *m = first_moment, *v = second_moment;
    if (!isfinite(*norm)) return;
    const float clip = max_norm > 0 && *norm > max_norm ? max_norm / (*norm + 1e-6f) : 1;
    const double correct1 = 1 - pow((double)hyper->beta1, (double)hyper->step);
    const double correct2 = 1 - pow((double)hyper->beta2, (double)hyper->step);
    const V step = v_set((float)((double)hyper->learning_rate / correct1)), epsilon = v_set(hyper->epsilon);
    const V root = v_set((float)(1 / sqrt(correct2))), scale = v_set(clip);
    const V keep1 = v_set(hyper->beta1), take1 = v_set(1 - hyper->beta1);
    const V keep2 = v_set(hyper->beta2), take2 = v_set(1 - hyper->beta2);
#pragma omp parallel for schedule(static)
    for (size_t start = 0; start < count; start += ADAMW_PIECE) {
        const size_t end = start + ADAMW_PIECE < count ? start + ADAMW_PIECE : count;
        for (size_t k = start, stop; k < end; k = stop) {
            const bool decays = k < decay_count;
            stop = decays && decay_count < end ? decay_count : end;
            const V shrink = v_set(decays ? 1 - hyper->learning_rate * hyper->weight_decay : 1);
            for (size_t i = k; i < stop; i += W) {
                const int left = stop - i < W ? (int)(stop - i) : W;
                float *p = (float *)params + i;
                V g = v_load_part((const float *)gradients + i, left) * scale;
                V first = v_fma(g, take1, v_load_part(m + i, left) * keep1);
                V second = v_fma(g * g, take2, v_load_part(v + i, left) * keep2);
                V change = first / v_fma(v_sqrt(second), root, epsilon);
                v_store_part(m + i, first, left);
                v_store_part(v + i, second, left);
                v_store_part(p, v_load_part(p, left) * shrink - change * step, left);
            }
        }
    }
}
