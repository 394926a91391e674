// Muon, without its matrix products.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/adamw.h"
#include "kernels/muon_scalars.h"

TEAM_LOOP(muon_momentum, size_t, (float *, direction), (float *, momentum), (const float *, gradients), (float, scale),
          (float, keep)) {
    for (size_t i = first; i < end; i += W) {
        const int left = end - i < W ? (int)(end - i) : W;
        const V g = v_load_part(gradients + i, left) * v_set(scale);
        const V m = v_fma(g, v_set(1 - keep), v_load_part(momentum + i, left) * v_set(keep));
        v_store_part(momentum + i, m, left);
        v_store_part(direction + i, v_fma(g, v_set(1 - keep), m * v_set(keep)), left);
    }
}

static void cpu_muon_momentum(Grad *direction, float *momentum, const Update *of, const Muon *muon) {
    const size_t count = of->count;
    if (!isfinite(*of->norm)) {
        memset(direction, 0, count * sizeof(float));
        return;
    }
    muon_momentum(count, ADAMW_PIECE, (float *)direction, momentum, (const float *)of->gradients,
                  gradient_scale(&muon->adamw, *of->norm, *of->divisor), muon->momentum);
}

// Tiles of W x W, so that both orders are written by vectors.
TEAM_LOOP(muon_operand_rows, int, (Act *, out), (Act *, transposed), (const Grad *, in), (int, rows), (int, cols),
          (float, scale)) {
    for (int row = first; row < end; row += W)
        for (int col = 0; col < cols; col += W) {
            VW tile[W];
            for (int i = 0; i < W; i++) {
                const size_t at = (size_t)(row + i) * (size_t)cols + (size_t)col;
                tile[i] = v_word(0);
                if (row + i >= rows) continue;
                const V v = v_load_part((const float *)in + at, cols - col) * v_set(scale);
                act_store_part((Number *)out + at, v, cols - col);
                tile[i] = (VW)v;
            }
            if (!transposed) continue;
            v_transpose(tile);
            for (int i = 0; i < smaller(W, cols - col); i++)
                act_store_part((Number *)transposed + (size_t)(col + i) * (size_t)rows + row, (V)tile[i], rows - row);
        }
}

static void cpu_muon_operand(Act *out, Act *transposed, const Grad *in, int rows, int cols, const float *norm) {
    muon_operand_rows(rows, W, out, transposed, in, rows, cols, norm ? 1 / fmaxf(*norm, MUON_EPSILON) : 1);
}

TEAM_LOOP(muon_polynomial_rows, int, (Act *, out), (const Grad *, gram), (const Grad *, square), (int, n)) {
    const V b = v_set(MUON_B), c = v_set(MUON_C);
    for (int row = first; row < end; row++) {
        const float *x = (const float *)gram + (size_t)row * (size_t)n,
                    *xx = (const float *)square + (size_t)row * (size_t)n;
        Number *to = (Number *)out + (size_t)row * (size_t)n;
        for (int i = 0; i < n; i += W)
            act_store_part(to + i, v_fma(c, v_load_part(xx + i, n - i), b * v_load_part(x + i, n - i)), n - i);
        to[row] = number_of(MUON_A + MUON_B * x[row] + MUON_C * xx[row]);
    }
}

static void cpu_muon_polynomial(Act *out, const Grad *gram, const Grad *square, int n) {
    muon_polynomial_rows(n, 1, out, gram, square, n);
}

TEAM_LOOP(muon_update, size_t, (const Update *, of), (float, scale), (const Muon *, muon)) {
    const float *direction = (const float *)of->gradients;
    float *params = (float *)of->params;
    const V rate = v_set(scale * muon->rate), shrink = v_set(muon->shrink);
    const bool rounded = cpu_optimizer_state == STATE_BF16_SR;
    for (size_t i = first; i < end; i += W) {
        const int left = end - i < W ? (int)(end - i) : W;
        V p = v_load_part(params + i, left) * shrink - v_load_part(direction + i, left) * rate;
        if (rounded) p = (V)round_randomly(p, random_bits(&muon->adamw, of->first + i, RANDOM_PARAMS));
        v_store_part(params + i, p, left);
    }
}

static void cpu_muon_update(const Update *of, float scale, const Muon *muon) {
    if (isfinite(*of->norm)) muon_update(of->count, ADAMW_PIECE, of, scale, muon);
}
