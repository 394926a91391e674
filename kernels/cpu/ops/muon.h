// Muon, without its matrix products.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/adamw.h"
#include "kernels/muon_scalars.h"

static void cpu_muon_momentum(Grad *direction, float *momentum, const Update *of, const Muon *muon) {
    const size_t count = of->count;
    const float *gradients = (const float *)of->gradients;
    if (!isfinite(*of->norm)) {
        memset(direction, 0, count * sizeof(float));
        return;
    }
    const V scale = v_set(gradient_scale(&muon->adamw, *of->norm, *of->divisor));
    const V keep = v_set(muon->momentum), take = v_set(1 - muon->momentum);
#pragma omp parallel for schedule(static)
    for (size_t start = 0; start < count; start += ADAMW_PIECE) {
        const size_t end = start + ADAMW_PIECE < count ? start + ADAMW_PIECE : count;
        for (size_t i = start; i < end; i += W) {
            const int left = end - i < W ? (int)(end - i) : W;
            const V g = v_load_part(gradients + i, left) * scale;
            const V m = v_fma(g, take, v_load_part(momentum + i, left) * keep);
            v_store_part(momentum + i, m, left);
            v_store_part((float *)direction + i, v_fma(g, take, m * keep), left);
        }
    }
}

// Tiles of W x W, so that both orders are written by vectors.
static void cpu_muon_operand(Act *out, Act *transposed, const Grad *in, int rows, int cols, const float *norm) {
    const V scale = v_set(norm ? 1 / fmaxf(*norm, MUON_EPSILON) : 1);
#pragma omp parallel for schedule(static)
    for (int row = 0; row < rows; row += W)
        for (int col = 0; col < cols; col += W) {
            VW tile[W];
            for (int i = 0; i < W; i++) {
                const size_t at = (size_t)(row + i) * (size_t)cols + (size_t)col;
                tile[i] = v_word(0);
                if (row + i >= rows) continue;
                const V v = v_load_part((const float *)in + at, cols - col) * scale;
                act_store_part((Number *)out + at, v, cols - col);
                tile[i] = (VW)v;
            }
            if (!transposed) continue;
            v_transpose(tile);
            for (int i = 0; i < smaller(W, cols - col); i++)
                act_store_part((Number *)transposed + (size_t)(col + i) * (size_t)rows + row, (V)tile[i], rows - row);
        }
}

static void cpu_muon_polynomial(Act *out, const Grad *gram, const Grad *square, int n) {
    const V b = v_set(MUON_B), c = v_set(MUON_C);
#pragma omp parallel for schedule(static)
    for (int row = 0; row < n; row++) {
        const float *x = (const float *)gram + (size_t)row * (size_t)n,
                    *xx = (const float *)square + (size_t)row * (size_t)n;
        Number *to = (Number *)out + (size_t)row * (size_t)n;
        for (int i = 0; i < n; i += W)
            act_store_part(to + i, v_fma(c, v_load_part(xx + i, n - i), b * v_load_part(x + i, n - i)), n - i);
        to[row] = number_of(MUON_A + MUON_B * x[row] + MUON_C * xx[row]);
    }
}

static void cpu_muon_update(const Update *of, float scale, const Muon *muon) {
    if (!isfinite(*of->norm)) return;
    const size_t first = of->first, count = of->count;
    const float *direction = (const float *)of->gradients;
    float *params = (float *)of->params;
    const V rate = v_set(scale * muon->rate), shrink = v_set(muon->shrink);
    const bool rounded = cpu_optimizer_state == STATE_BF16_SR;
#pragma omp parallel for schedule(static)
    for (size_t start = 0; start < count; start += ADAMW_PIECE) {
        const size_t end = start + ADAMW_PIECE < count ? start + ADAMW_PIECE : count;
        for (size_t i = start; i < end; i += W) {
            const int left = end - i < W ? (int)(end - i) : W;
            V p = v_load_part(params + i, left) * shrink - v_load_part(direction + i, left) * rate;
            if (rounded) p = (V)round_randomly(p, random_bits(&muon->adamw, first + i, RANDOM_PARAMS));
            v_store_part(params + i, p, left);
        }
    }
}
