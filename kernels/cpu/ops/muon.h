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
            v_transpose(tile);
            for (int i = 0; i < smaller(W, cols - col); i++)
                act_store_part((Number *)transposed + (size_t)(col + i) * (size_t)rows + row, (V)tile[i], rows - row);
        }
}

static void cpu_muon_operand(Act *out, Act *transposed, const Grad *in, int rows, int cols, const float *norm) {
    muon_operand_rows(rows, W, out, transposed, in, rows, cols, norm ? 1 / fmaxf(*norm, MUON_EPSILON) : 1);
}

typedef struct {
    const Symmetric *out, *a, *b;
    int n;
    bool polynomial;
    bool apart; // the diagonals of a and b are not in the product
} SymmetricProduct;

static inline float element_of(const Grad *whole, size_t at) { return ((const float *)whole)[at]; }

static float diagonal_element(const SymmetricProduct *p, int i) {
    const size_t at = (size_t)i * ((size_t)p->n + 1);
    float product = element_of(p->out->whole, at);
    if (p->apart) product += element_of(p->a->whole, at) * element_of(p->b->whole, at);
    return p->polynomial ? MUON_A + MUON_B * element_of(p->a->whole, at) + MUON_C * product : product;
}

// The elements from (row,col) on, but not those of the diagonal.
static inline void symmetric_tile(VW tile[W], const SymmetricProduct *p, int row, int col) {
    const size_t n = (size_t)p->n;
    const int rows = smaller(W, p->n - row), cols = p->n - col;
    float diagonal[W] = {0};
    for (int i = 0; p->apart && i < smaller(W, cols); i++)
        diagonal[i] = element_of(p->b->whole, (size_t)(col + i) * (n + 1));
    for (int i = 0; i < rows; i++) {
        const size_t at = (size_t)(row + i) * n + (size_t)col;
        V v = v_load_part((const float *)p->out->whole + at, cols);
        if (p->apart) {
            const float left = element_of(p->a->whole, (size_t)(row + i) * (n + 1));
            v = v_fma(v_set(left), v_load_part((const float *)p->b->whole + at, cols), v);
            v = v_fma(v_load_part((const float *)p->a->whole + at, cols), v_load(diagonal), v);
        }
        if (p->polynomial)
            v = v_fma(v_set(MUON_C), v, v_set(MUON_B) * v_load_part((const float *)p->a->whole + at, cols));
        tile[i] = (VW)v;
    }
}

// A tile on the diagonal, from the elements above it.
static void mirror_tile(VW tile[W], const SymmetricProduct *p, int row) {
    float x[W][W];
    for (int i = 0; i < W; i++) v_store(x[i], (V)tile[i]);
    for (int i = 0; i < smaller(W, p->n - row); i++) {
        for (int j = 0; j < i; j++) x[i][j] = x[j][i];
        x[i][i] = diagonal_element(p, row + i);
        tile[i] = (VW)v_load(x[i]);
    }
}

static inline void store_tile(const SymmetricProduct *p, const VW tile[W], int row, int col) {
    for (int i = 0; i < smaller(W, p->n - row); i++) {
        const size_t at = (size_t)(row + i) * (size_t)p->n + (size_t)col;
        v_store_part((float *)p->out->whole + at, (V)tile[i], p->n - col);
        if (p->out->beside == (const void *)p->out->whole) continue;
        act_store_part((Number *)p->out->beside + at, (V)tile[i], p->n - col);
        if (row == col) ((Number *)p->out->beside)[at + (size_t)i] = 0;
    }
}

// Tiles of W x W from the diagonal on, and their images.
TEAM_LOOP(muon_symmetric_rows, int, (const SymmetricProduct *, p)) {
    for (int row = first; row < end; row += W)
        for (int col = row; col < p->n; col += W) {
            VW tile[W] = {0};
            symmetric_tile(tile, p, row, col);
            if (row == col) mirror_tile(tile, p, row);
            store_tile(p, tile, row, col);
            if (row == col) continue;
            v_transpose(tile);
            store_tile(p, tile, col, row);
        }
}

static void cpu_muon_symmetric(const Symmetric *out, const Symmetric *a, const Symmetric *b, int n, bool polynomial) {
    const bool apart = a && a->beside != (const void *)a->whole;
    muon_symmetric_rows(n, W, &(const SymmetricProduct){out, a, b, n, polynomial, apart});
}

TEAM_LOOP(muon_diagonal_rows, int, (float *, x), (const Grad *, whole), (int, rows), (int, cols), (float, scale)) {
    const bool wide = cols > rows;
    const size_t next = (size_t)(wide ? rows : cols) + 1; // on the diagonal
    for (int row = first; row < end; row++)
        for (int col = 0; col < cols; col += W) {
            float *at = x + (size_t)row * (size_t)cols + (size_t)col, by[W] = {0};
            for (int i = 0; i < smaller(W, cols - col); i++)
                by[i] = scale * element_of(whole, (size_t)(wide ? row : col + i) * next);
            v_store_part(at, v_load_part(at, cols - col) * v_load(by), cols - col);
        }
}

static void cpu_muon_diagonal(Grad *x, const Grad *whole, int rows, int cols, const float *norm) {
    muon_diagonal_rows(rows, W, (float *)x, whole, rows, cols, norm ? 1 / fmaxf(*norm, MUON_EPSILON) : 1);
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
