// Global gradient norm and AdamW.
#pragma once

#include "common/rng.h"
#include "kernels/adamw_scalars.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/ops/pack.h"

enum {
    NORM_RUN = 4096, // summed in fp32 before it goes to a double
    ADAMW_PIECE = 65536
};

TEAM_LOOP(add_gradients, size_t, (float *, sums), (const float *, part)) {
    for (size_t i = first; i < end; i += W) {
        const int left = end - i < W ? (int)(end - i) : W;
        v_store_part(sums + i, v_load_part(sums + i, left) + v_load_part(part + i, left), left);
    }
}

static void cpu_add_gradients(Grad *sums, const Grad *part, size_t count) {
    add_gradients(count, ADAMW_PIECE, (float *)sums, (const float *)part);
}

TEAM_LOOP(round_to_bf16, size_t, (float *, values)) {
    for (size_t i = first; i < end; i++) values[i] = bf16_value(bf16_of(values[i]));
}

static void cpu_round_to_bf16(Grad *values, size_t count) { round_to_bf16(count, ADAMW_PIECE, (float *)values); }

TEAM_LOOP(square_sums, size_t, (double *, sums), (const float *, gradients)) {
    for (size_t start = first; start < end; start += NORM_PIECE) {
        const size_t stop = start + NORM_PIECE < end ? start + NORM_PIECE : end;
        double sum = 0;
        for (size_t run = start; run < stop; run += NORM_RUN) {
            const float *g = gradients + run;
            const int n = stop - run < NORM_RUN ? (int)(stop - run) : NORM_RUN;
            const int pairs = n / (2 * LANES) * LANES;
            LaneSum even = {0}, odd = {0};
            EACH_VECTOR(k, part, 0, pairs) {
                const float *row = g + k / LANES * LANES + k;
                const V a = v_load(row), b = v_load(row + LANES);
                even.part[part] = v_fma(a, a, even.part[part]), odd.part[part] = v_fma(b, b, odd.part[part]);
            }
            EACH_VECTOR(k, part, 2 * pairs, n) {
                const V a = v_load_part(g + k, n - k);
                even.part[part] = v_fma(a, a, even.part[part]);
            }
            for (int part = 0; part < PARTS; part++) even.part[part] += odd.part[part];
            sum += (double)lanes_sum(even);
        }
        sums[start / NORM_PIECE] = sum;
    }
}

static void cpu_square_sums(double *sums, const Grad *gradients, size_t count) {
    square_sums(count, NORM_PIECE, sums, (const float *)gradients);
}

static void cpu_gradient_norm(float *norm, const double *sums, size_t count, const float *divisor) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += sums[i];
    *norm = (float)(sqrt(sum) / (double)*divisor);
}

// Sixteen random bits an element, by its index, the step and `stream`, whatever the threads and vectors: Philox gives
// eight elements theirs.
static inline VW random_bits(const AdamW *hyper, size_t start, uint32_t stream) {
    uint32_t bits[W], words[4];
    size_t group = SIZE_MAX;
    for (size_t lane = 0; lane < W; lane++) {
        const size_t element = start + lane;
        if (element / 8 != group) {
            group = element / 8;
            philox4x32((uint32_t[]){(uint32_t)group, (uint32_t)(group >> 32), hyper->step, stream}, hyper->seed, words);
        }
        bits[lane] = words[element % 8 / 2] >> element % 2 * 16 & 0xffff;
    }
    return *(const VWAnywhere *)bits;
}

// bf16 in the upper halves: up with the probability of the part that is cut off, so that small changes are not lost.
static inline VW round_randomly(V value, VW random) {
    const VW bits = (VW)value, exponent = v_word(0x7f800000), infinite = (VW)((bits & exponent) == exponent);
    return (bits + (random & ~infinite)) & v_word(0xffff0000);
}

static inline V moment_load_part(const Moment *moments, size_t i, int left, bool narrow) {
    if (!narrow) return v_load_part((const float *)moments + i, left);
    uint16_t part[W] = {0};
    memcpy(part, (const uint16_t *)moments + i, (size_t)left * sizeof *part);
    return (V)(__builtin_convertvector(*(const VHAnywhere *)part, VW) << 16);
}
static inline void moment_store_part(Moment *moments, size_t i, V value, int left, bool narrow, const AdamW *hyper,
                                     size_t element, uint32_t stream) {
    if (!narrow) {
        v_store_part((float *)moments + i, value, left);
        return;
    }
    uint16_t part[W];
    *(VHAnywhere *)part =
        __builtin_convertvector(round_randomly(value, random_bits(hyper, element, stream)) >> 16, VHAnywhere);
    memcpy((uint16_t *)moments + i, part, (size_t)left * sizeof *part);
}

// The factor of the gradients.
static inline float gradient_scale(const AdamW *hyper, float norm, float divisor) {
    const float clip = hyper->max_norm > 0 && norm > hyper->max_norm ? hyper->max_norm / (norm + 1e-6f) : 1;
    return clip / divisor;
}

enum { RANDOM_PARAMS, RANDOM_FIRST, RANDOM_SECOND }; // streams of random bits

// A range of parameters and the operands of their update. Parameters are fp32 here and their own master.
typedef struct {
    float *params;
    const float *gradients;
    Moment *m, *v;
    size_t first, decayed; // the flat number of element 0; elements of this range that decay
    const AdamW *hyper;
    float scale; // of the gradients
} AdamWRange;

// Elements start .. end-1. narrow: moments are bf16; rounded: parameters are kept to values that bf16 has.
static inline __attribute__((always_inline)) void update_as(const AdamWRange *u, size_t start, size_t end, bool narrow,
                                                            bool rounded) {
    const AdamW *hyper = u->hyper;
    const V rate = v_set(hyper->rate), root = v_set(hyper->root), epsilon = v_set(hyper->epsilon);
    const V keep1 = v_set(hyper->beta1), take1 = v_set(1 - hyper->beta1);
    const V keep2 = v_set(hyper->beta2), take2 = v_set(1 - hyper->beta2), scale = v_set(u->scale);
    for (size_t k = start, stop; k < end; k = stop) {
        const bool decays = k < u->decayed;
        stop = decays && u->decayed < end ? u->decayed : end;
        const V shrink = v_set(decays ? hyper->shrink : 1);
        for (size_t i = k; i < stop; i += W) {
            const int left = stop - i < W ? (int)(stop - i) : W;
            V g = v_load_part(u->gradients + i, left) * scale;
            V mean = v_fma(g, take1, moment_load_part(u->m, i, left, narrow) * keep1);
            V square = v_fma(g * g, take2, moment_load_part(u->v, i, left, narrow) * keep2);
            V change = mean / v_fma(v_sqrt(square), root, epsilon);
            V p = v_load_part(u->params + i, left) * shrink - change * rate;
            if (rounded) p = (V)round_randomly(p, random_bits(hyper, u->first + i, RANDOM_PARAMS));
            moment_store_part(u->m, i, mean, left, narrow, hyper, u->first + i, RANDOM_FIRST);
            moment_store_part(u->v, i, square, left, narrow, hyper, u->first + i, RANDOM_SECOND);
            v_store_part(u->params + i, p, left);
        }
    }
}

static void update(const AdamWRange *u, size_t start, size_t end) {
    if (cpu_optimizer_state == STATE_FP32)
        update_as(u, start, end, false, false);
    else if (cpu_optimizer_state == STATE_BF16)
        update_as(u, start, end, true, false);
    else
        update_as(u, start, end, true, true);
}

TEAM_LOOP(update_range, size_t, (const AdamWRange *, u)) { update(u, first, end); }

// Updates and packs w (rows,cols) tile by tile.
TEAM_LOOP(update_and_pack, int, (const AdamWRange *, u), (int, rows), (int, cols), (const Packing *, to)) {
    for (int tile = first; tile < end; tile++) {
        const int row = tile_row(cols, to, tile), col = tile_col(cols, to, tile);
        for (int i = row; i < row + to->tile_rows; i++) {
            const size_t start = (size_t)i * (size_t)cols;
            update(u, start + (size_t)col, start + (size_t)smaller(cols, col + to->tile_cols));
        }
        pack_tile(u->params, rows, cols, to, row, col);
    }
}

TEAM_LOOP(average_range, size_t, (float *, average), (const float *, params), (float, take)) {
    for (size_t i = first; i < end; i += W) {
        const int left = end - i < W ? (int)(end - i) : W;
        const V kept = v_load_part(average + i, left);
        v_store_part(average + i, v_fma(v_load_part(params + i, left) - kept, v_set(take), kept), left);
    }
}

static void cpu_average(float *average, const Update *of, const float *take) {
    if (isfinite(*of->norm)) average_range(of->count, ADAMW_PIECE, average, (const float *)of->params, *take);
}

TEAM_LOOP(average_swap_range, size_t, (float *, average), (float *, params)) {
    for (size_t i = first; i < end; i++) {
        const float kept = average[i];
        average[i] = params[i], params[i] = kept;
    }
}

static void cpu_average_swap(float *average, const Update *of) {
    average_swap_range(of->count, ADAMW_PIECE, average, (float *)of->params);
}

static void cpu_adamw(Moment *m, Moment *v, const Update *of, const AdamW *hyper) {
    if (!isfinite(*of->norm)) return;
    const AdamWRange u = {.params = (float *)of->params,
                          .gradients = (const float *)of->gradients,
                          .m = m,
                          .v = v,
                          .first = of->first,
                          .decayed = of->decay_count > of->first ? of->decay_count - of->first : 0,
                          .hyper = hyper,
                          .scale = gradient_scale(hyper, *of->norm, *of->divisor)};
    const Weight *weight = of->weight;
    Packing packing;
    if (weight && matmul_packing(weight, &packing)) {
        update_and_pack(tile_count(weight->rows, weight->cols, &packing), 1, &u, weight->rows, weight->cols, &packing);
        return;
    }
    update_range(of->count, ADAMW_PIECE, &u);
    if (weight) cpu_pack(weight);
}
