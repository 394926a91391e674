// The functions of kernels/cpu/simd.h as portable code: all instruction sets have the same bits (tests/operations).
#include "common/rng.h"
#include "kernels/cpu/simd.h"
#include "tests/test.h"

// Any float: also short ones, whose products end halfway between two floats, subnormal and infinite ones.
static float float_at(uint64_t i) {
    const uint64_t random = rng_u64(2, 0, i);
    uint32_t bits = (uint32_t)random;
    float value;
    switch (random >> 60) {
    case 0:
        bits &= 0xff800007;
        break;
    case 1:
        bits &= 0xfff00000;
        break;
    case 2:
        bits &= 0x80000fff;
        break;
    case 3:
    case 4:
    case 5:
        bits = (bits & 0x87f0ffff) | 0x38000000; // of similar exponents
        break;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool equal(float a, float b) { return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)); }

TEST(simd_fma_is_rounded_once) {
    uint64_t twice = 0;
    for (uint64_t i = 0; i < 2000000; i += 4) {
        const float a = float_at(i), b = float_at(i + 1);
        float c = float_at(i + 2);
        if (i % 8)
            c = (float)((double)a * (double)b) * ldexpf(1, (int)(i % 61) - 30); // cancels, or is of a similar size
        const float once = fmaf(a, b, c), got = v_fma(v_set(a), v_set(b), v_set(c))[i / 4 % W];
        if (!equal(got, once)) test_failed("a fused product and sum", __FILE__, __LINE__);
        twice += !equal(once, (float)((double)a * (double)b + (double)c));
    }
    CHECK(twice > 500); // the points reach the case that is rounded twice
}

static double ulps(float got, double want) {
    const float near = fabsf((float)want);
    return fabs((double)got - want) / (double)(nextafterf(near, INFINITY) - near);
}

TEST(simd_functions_have_the_errors_they_state) {
    double exponential = 0, tangent = 0;
    for (uint64_t i = 0; i < 300000; i++) {
        const double share = 2 * rng_uniform(3, 0, i) - 1;
        const float wide = (float)(87 * share), near = (float)(share * (i % 2 ? 10 : 1));
        exponential = fmax(exponential, ulps(v_exp(v_set(wide))[0], exp((double)wide)));
        tangent = fmax(tangent, ulps(v_tanh(v_set(near))[0], tanh((double)near)));
    }
    CHECK(exponential < 1.1);
    CHECK(tangent < 5.1);
    CHECK(v_exp(v_set(0))[0] == 1 && isnan(v_exp(v_set(NAN))[0]) && isnan(v_tanh(v_set(NAN))[0]));
    CHECK(v_exp(v_set(-INFINITY))[0] == v_exp(v_set(-87.3f))[0] && v_exp(v_set(INFINITY))[0] == v_exp(v_set(88))[0]);
}
