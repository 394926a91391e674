// Dropout (kernels/dropout_mask.h): masks of a row at a time, W Philox counters at once.
#pragma once

#include "kernels/cpu/act.h"
#include "kernels/cpu/ops/columns.h"
#include "kernels/dropout_mask.h"

enum { MASK_STEP = 8 * W }; // elements that one call of dropout_bits makes

static inline void dropout_bits(uint16_t bits[MASK_STEP], const uint32_t counter[4], const uint32_t seed[2]) {
    VW c0 = v_word(counter[0]) + (VW){COUNTED}, c1 = v_word(counter[1]), c2 = v_word(counter[2]);
    VW c3 = v_word(counter[3]);
    uint32_t k0 = seed[0], k1 = seed[1];
    for (int round = 0; round < 10; round++) {
        VW high0, high1, low0 = v_multiply_wide(c0, 0xD2511F53u, &high0),
                         low1 = v_multiply_wide(c2, 0xCD9E8D57u, &high1);
        c0 = high1 ^ c1 ^ k0, c2 = high0 ^ c3 ^ k1;
        c1 = low1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    // the four words of each counter next to each other
    const VW even[2] = {SHUFFLE(c0, c2, ZIP_LOW), SHUFFLE(c0, c2, ZIP_HIGH)};
    const VW odd[2] = {SHUFFLE(c1, c3, ZIP_LOW), SHUFFLE(c1, c3, ZIP_HIGH)};
    for (int half = 0; half < 2; half++) {
        uint16_t *to = bits + half * (MASK_STEP / 2);
        *(VWAnywhere *)to = SHUFFLE(even[half], odd[half], ZIP_LOW);
        *(VWAnywhere *)(to + MASK_STEP / 4) = SHUFFLE(even[half], odd[half], ZIP_HIGH);
    }
}

// The factors (0 or scale) of columns [col, col + MASK_STEP) of a row; col is a multiple of MASK_STEP.
static inline void dropout_piece(float mask[MASK_STEP], const Dropout *settings, int layer, DropoutSite site,
                                 int sample, int row, int cols, int col) {
    uint32_t counter[4];
    uint16_t bits[MASK_STEP];
    const VW threshold = v_word(settings->threshold), scale = (VW)v_set(settings->scale);
    dropout_counter(counter, settings, layer, site, (uint32_t)sample, (uint32_t)row, (uint32_t)cols, (uint32_t)col);
    dropout_bits(bits, counter, settings->seed);
    for (int k = 0; k < MASK_STEP; k += W) {
        const VW random = __builtin_convertvector(*(const VHAnywhere *)(bits + k), VW);
        v_store(mask + k, (V)(scale & (VW)(random >= threshold)));
    }
}

// partials: NULL without sums of columns
TEAM_LOOP(dropout_chunks, int, (Act *, out), (float *, partials), (const Act *, in), (const Dropout *, settings),
          (int, layer), (DropoutSite, site), (int, N), (int, T), (int, C)) {
    for (int chunk = first; chunk < end; chunk++) {
        float *sum = partials ? partials + (size_t)chunk * (size_t)C : NULL;
        if (sum) memset(sum, 0, (size_t)C * sizeof *sum);
        for (int n = chunk * CHUNK_ROWS; n < smaller(N, (chunk + 1) * CHUNK_ROWS); n++) {
            const Number *from = (const Number *)in + (size_t)n * (size_t)C;
            Number *to = (Number *)out + (size_t)n * (size_t)C;
            for (int start = 0; start < C; start += MASK_STEP) {
                float mask[MASK_STEP];
                const int count = smaller(MASK_STEP, C - start);
                dropout_piece(mask, settings, layer, site, n / T, n % T, C, start);
                for (int k = 0; k < count; k += W) {
                    const V v = act_load_part(from + start + k, count - k) * v_load(mask + k);
                    act_store_part(to + start + k, v, count - k);
                    if (sum) v_store_part(sum + start + k, v_load_part(sum + start + k, count - k) + v, count - k);
                }
            }
        }
    }
}

static void cpu_dropout(Act *out, Grad *dbias, const Act *in, const Dropout *settings, int layer, DropoutSite site,
                        int B, int T, int C, bool add) {
    const int N = B * T;
    float *partials = dbias ? partials_take(N, (size_t)C) : NULL;
    dropout_chunks(chunk_count(N), 1, out, partials, in, settings, layer, site, N, T, C);
    if (dbias) columns_finish((float *)dbias, partials, C, chunk_count(N), (size_t)C, add);
}

TEAM_LOOP(dropout_rows, int, (Res *, x), (const Dropout *, settings), (int, T), (int, C)) {
    for (int n = first; n < end; n++)
        for (int start = 0; start < C; start += MASK_STEP) {
            float mask[MASK_STEP], *at = (float *)x + (size_t)n * (size_t)C + start;
            const int count = smaller(MASK_STEP, C - start);
            dropout_piece(mask, settings, 0, DROPOUT_EMBEDDING, n / T, n % T, C, start);
            for (int k = 0; k < count; k += W)
                v_store_part(at + k, v_load_part(at + k, count - k) * v_load(mask + k), count - k);
        }
}

static void cpu_dropout_residual(Res *x, const Dropout *settings, int B, int T, int C) {
    dropout_rows(B * T, 1, x, settings, T, C);
}
