// CUDA's AdamW with a state of two bytes: every rounding against a second implementation of its random bits.
#include "common/rng.h"
#include "kernels/adamw_scalars.h"
#include "tests/operations/pair.h"
#include <math.h>

static void *offset(void *tensor, size_t bytes) { return (char *)tensor + bytes; }

// The value that a second implementation of the rounding gives: random bits from common/rng.h. Stream 0 is for
// parameters, which have the type of activations, the others are moments.
static double rounded_randomly(double value, size_t element, uint32_t step, uint32_t stream, uint64_t rounding_seed) {
    uint32_t counter[4] = {(uint32_t)(element / 8), 0, step, stream}, bits[4];
    const uint32_t key[2] = {(uint32_t)rounding_seed, (uint32_t)(rounding_seed >> 32)};
    philox4x32(counter, key, bits);
    uint32_t random = bits[element % 8 / 2] >> (element & 1) * 16 & 0xffff;
    const bool fp16 = stream == 0 && pair_backend(TESTED)->act_type == DTYPE_FP16;
    int exponent;
    frexp(value, &exponent);
    double ulp = ldexp(1, fp16 ? exponent < -13 ? -24 : exponent - 11 : exponent - 8);
    double chance = fp16 ? (random >> 3) / 8192.0 : random / 65536.0, size = fabs(value) / ulp;
    return copysign(fmin(floor(size + chance) * ulp, fp16 ? 65504 : INFINITY), value);
}

// All but a few of the numbers are exactly that, and the errors cancel: sums of two fp32 paths differ in the last bit
// at times.
static void check_rounding(const Array *array, uint32_t stream, uint64_t rounding_seed) {
    size_t differ = 0;
    double bias = 0, ulps = 0;
    for (size_t i = 0; i < array->count; i++) {
        double want = array->result[REFERENCE][i], got = array->result[TESTED][i];
        differ += got != rounded_randomly(want, i, 5, stream, rounding_seed);
        if (fabs(want) > 65504) continue;
        bias += got - want, ulps += fabs(want) / 256;
    }
    CHECK(differ < array->count / 500 + 2);
    CHECK(fabs(bias / ulps) < 5 / sqrt((double)array->count));
}

TEST(cuda_update_rounds_randomly_and_without_bias) {
    const size_t n = 8192 + 64, decays = 4096;
    const uint64_t rounding_seed = 0x1234567890abcdefu;
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        pair_optimizer_state = stochastic ? STATE_BF16_SR : STATE_BF16;
        pair_open((Shape){1, 64, 64, 8, 64, 64, 1});
        CHECK_EQUAL(pair_backend(TESTED)->master_bytes, stochastic ? 0 : 4);
        Array *params = array_normal(PARS, n, 0.02, 0), *master = array_normal(FLOATS, n, 0, 0);
        Array *grads = array_normal(GRADS, n, 1e-3, 0), *m = array_normal(MOMENTS, n, 1e-4, 0);
        Array *v = array_filled(MOMENTS, n, 1e-7), *norm = array_filled(FLOATS, 1, 1);
        const AdamW scalars = adamw_init(&(AdamWSettings){1e-3, 0.9, 0.95, 1e-8, 0.1, 0, 5, rounding_seed});
        Array *step = array_bytes(&scalars, sizeof scalars);
        Array *scale = array_filled(FLOATS, 1, 1);
        for (size_t i = 0; i < 256; i++) // small steps from zero, where fp16 is coarse
            params->start[i] = 0, m->start[i] = (double)i * 0x1p-28, grads->start[i] *= 0x1p-10;
        if (stochastic) m->start[n - 1] = -0x1p23; // to some ten millions: more than fp16 has
        memcpy(master->start, params->start, n * sizeof(double));
        ON_BOTH(for (size_t at = 0, end; at < n; at = end) { // CUDA in slices, one of them in both groups
            end = run && at + 3000 < n ? at + 3000 : n;
            const Update update = {.first = at,
                                   .count = end - at,
                                   .decay_count = decays,
                                   .params = offset(AT(params), 2 * at),
                                   .master = offset(run ? AT(master) : AT(params), 4 * at),
                                   .gradients = offset(AT(grads), 4 * at),
                                   .norm = AT(norm),
                                   .divisor = AT(scale)};
            on->adamw(offset(AT(m), 2 * at), offset(AT(v), 2 * at), &update, AT(step));
        });
        check_rounding(m, 1, rounding_seed);
        check_rounding(v, 2, rounding_seed);
        if (stochastic)
            check_rounding(params, 0, rounding_seed);
        else
            CHECK_NEAR(params, rounded_once);
        pair_close();
    }
    pair_optimizer_state = STATE_FP32;
}
