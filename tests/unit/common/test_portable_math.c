// The errors that portable_math.h states, against the C library's functions of long double, which is wider.
#include "common/math/portable_math.h"
#include "common/rng.h"
#include "tests/test.h"
#include <math.h>

enum { POINTS = 200000 };

static double between(double low, double high, uint64_t i) { return low + (high - low) * rng_uniform(1, 0, i); }

static double ulps(double got, long double want) {
    const double near = fabs((double)want);
    return (double)(fabsl((long double)got - want) / (long double)(nextafter(near, INFINITY) - near));
}

TEST(portable_math_has_the_errors_it_states) {
    double exponential = 0, logarithm = 0, tangent = 0, turned = 0;
    for (uint64_t i = 0; i < POINTS; i++) {
        const double wide = between(-700, 700, i), small = between(-1, 1, i), angle = i % 2 ? 1e6 * small : 7 * small;
        exponential = fmax(exponential, ulps(portable_exp(wide), expl((long double)wide)));
        exponential = fmax(exponential, ulps(portable_exp(small), expl((long double)small)));
        const double positive = portable_exp(wide), near_one = 1 + small / 2;
        logarithm = fmax(logarithm, ulps(portable_log(positive), logl((long double)positive)));
        logarithm = fmax(logarithm, ulps(portable_log(near_one), logl((long double)near_one)));
        tangent = fmax(tangent, ulps(portable_tanh(4 * small), tanhl(4 * (long double)small)));
        turned = fmax(turned, (double)fabsl((long double)portable_sin(angle) - sinl((long double)angle)));
        turned = fmax(turned, (double)fabsl((long double)portable_cos(angle) - cosl((long double)angle)));
    }
    CHECK(exponential < 1.2);
    CHECK(logarithm < 1);
    CHECK(tangent < 16);
    CHECK(turned < 0x1p-52);
}

TEST(portable_math_keeps_to_its_edges) {
    CHECK(portable_exp(0) == 1 && portable_exp(-745) == 0x1p-1074 && portable_exp(-1e9) == 0);
    CHECK(portable_exp(-INFINITY) == 0 && portable_exp(1e9) == INFINITY && isnan(portable_exp(NAN)));
    CHECK(portable_log(1) == 0 && portable_log(0) == -INFINITY && portable_log(INFINITY) == INFINITY);
    CHECK(isnan(portable_log(-1)) && isnan(portable_log(NAN)));
    CHECK(ulps(portable_log(0x1p-1074), -1074 * logl(2)) < 1);
    CHECK(portable_tanh(0) == 0 && portable_tanh(1e9) == 1 && portable_tanh(-1e9) == -1 && isnan(portable_tanh(NAN)));
    CHECK(portable_sin(0) == 0 && portable_cos(0) == 1);
    CHECK(portable_power(0.5, 60) == 0x1p-60 && portable_power(3, 0) == 1 && portable_power(0.9, UINT64_MAX) == 0);
    CHECK(ulps(portable_power(0.999, 1000), powl((long double)0.999, 1000)) < 1000);
}
