// Numbers of two bytes against their definition, scalar and in the CPU's units.
#include "common/machine/cpu.h"
#include "common/rng.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/half.h"
#include "tests/test.h"
#include <math.h>

// Sign, five bits of exponent, ten of fraction.
static double fp16_defined(unsigned half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
}

// The positive fp16 next to a positive value: a search among their definitions, the even one in the middle.
static unsigned fp16_nearest(double value) {
    unsigned low = 0, high = 0x7c00;
    if (value >= 65520) return high;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (fp16_defined(middle) <= value)
            low = middle;
        else
            high = middle;
    }
    double above = high == 0x7c00 ? 65536 : fp16_defined(high), down = value - fp16_defined(low), up = above - value;
    return down < up || (down == up && low % 2 == 0) ? low : high;
}

// What the unit of this instruction set makes of floats, and of the halves it made.
static void check_unit(const float *values, size_t n) {
    const CpuVariant *const units[] = CPU_VARIANTS(fp16), *unit = units[cpu_isa()];
    uint16_t *halves = malloc(n * sizeof *halves);
    float *again = malloc(n * sizeof *again);
    CHECK(halves && again);
    unit->narrow(halves, values, n), unit->widen(again, halves, n);
    for (size_t i = 0; i < n; i++) {
        CHECK(isnan(values[i]) ? (halves[i] & 0x7fff) > 0x7c00 : halves[i] == fp16_of(values[i]));
        CHECK(isnan(values[i]) ? isnan(again[i]) : again[i] == fp16_value(halves[i]));
    }
    free(halves), free(again);
}

TEST_ON_EACH_ISA(half_has_the_values_of_ieee_754) {
    enum { ALL = 1 << 16 };
    float *values = malloc(ALL * sizeof *values);
    CHECK(values);
    for (unsigned half = 0; half < ALL; half++) {
        double want = fp16_defined(half), got = (double)(values[half] = fp16_value((uint16_t)half));
        CHECK(isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want));
        CHECK(isnan(want) ? isnan(fp16_value(fp16_of(values[half]))) : fp16_of(values[half]) == half);
    }
    check_unit(values, ALL);
    for (int i = 0; i < ALL; i++) { // of all magnitudes, and halfway between neighbours, or one bit beside
        unsigned half = (unsigned)i % 0x7c00;
        float middle = (float)((fp16_defined(half) + (half == 0x7bff ? 65536 : fp16_defined(half + 1))) / 2);
        values[i] = i % 3 ? middle : bits_float((uint32_t)rng_u64(1, 2, (uint64_t)i) & 0x7fffffff);
        if (i % 3 == 2) values[i] = bits_float(float_bits(middle) + (i % 2 ? 1 : -1u));
        if (isfinite(values[i])) CHECK_EQUAL(fp16_of(values[i]), fp16_nearest((double)values[i]));
        if (i & 8) values[i] = -values[i];
        if (isfinite(values[i]) && i & 8) CHECK_EQUAL(fp16_of(values[i]), 0x8000 | fp16_nearest(-(double)values[i]));
    }
    check_unit(values, ALL);
    free(values);
}
