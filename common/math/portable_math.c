// Series of Taylor, after the argument is reduced.
#include "common/math/portable_math.h"
#include <math.h>
#include <string.h>

#define TERMS(series) ((int)(sizeof(series) / sizeof *(series)))

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// By adding 1.5 * 2^52, which rounds to a whole number; |x| < 2^51
static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

static double polynomial(const double *series, int terms, double x) {
    double sum = series[terms - 1];
    for (int i = terms - 2; i >= 0; i--) sum = sum * x + series[i];
    return sum;
}

static double power_of_two(int n) { return double_of((uint64_t)(n + 1023) << 52); }

// ln 2 in two parts; the product of the first with an exponent is exact.
static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;

double portable_exp(double x) {
    static const double series[] = {
        1,          1,           1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    if (!(x > -746)) return x <= -746 ? 0 : x;
    if (x > 710) return INFINITY;
    const double n = nearest(x * 0x1.71547652b82fep+0), r = (x - n * ln2_high) - n * ln2_low;
    const int half = (int)n / 2; // 2^n may be beyond the range where the result is not
    return polynomial(series, TERMS(series), r) * power_of_two(half) * power_of_two((int)n - half);
}

// ln x = e ln 2 + 2 artanh s, s = (m - 1) / (m + 1), for x = m 2^e with sqrt(1/2) <= m < sqrt 2
double portable_log(double x) {
    static const double series[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                    1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
    if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
    if (x == INFINITY) return x;
    const int scaled = x < 0x1p-1022 ? 54 : 0;
    uint64_t bits;
    memcpy(&bits, &(double){scaled ? x * 0x1p54 : x}, sizeof bits);
    const uint64_t from_root = bits - 0x3fe6a09e667f3bcd; // of sqrt(1/2)
    const int e = (int)((int64_t)from_root >> 52);
    const double m = double_of(bits - ((uint64_t)e << 52)), f = m - 1, s = f / (m + 1), square = s * s;
    // 2 s = f - s f, so that the series adds to an exact f
    const double rest = s * (f - 2 * square * polynomial(series, TERMS(series), square));
    const double exponent = e - scaled;
    return exponent * ln2_high + (f - (rest - exponent * ln2_low));
}

double portable_tanh(double x) {
    static const double series[] = {-1.0 / 3, 2.0 / 15, -17.0 / 315, 62.0 / 2835, -1382.0 / 155925, 21844.0 / 6081075};
    if (!(fabs(x) >= 0.1)) return x + x * (x * x) * polynomial(series, TERMS(series), x * x);
    return 1 - 2 / (portable_exp(2 * x) + 1);
}

// The quarter turns in x, and the rest of at most pi / 4. pi / 2 in three parts: products with the first two are exact.
static int64_t reduce(double x, double *rest) {
    const double n = nearest(x * 0x1.45f306dc9c883p-1);
    *rest = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    return (int64_t)n;
}

// sin (x + quarters * pi / 2)
static double turned_sin(double x, int64_t quarters) {
    static const double sine[] = {-1.0 / 6,
                                  1.0 / 120,
                                  -1.0 / 5040,
                                  1.0 / 362880,
                                  -1.0 / 39916800,
                                  1.0 / 6227020800.0,
                                  -1.0 / 1307674368000.0,
                                  1.0 / 355687428096000.0};
    static const double cosine[] = {-1.0 / 2,
                                    1.0 / 24,
                                    -1.0 / 720,
                                    1.0 / 40320,
                                    -1.0 / 3628800,
                                    1.0 / 479001600,
                                    -1.0 / 87178291200.0,
                                    1.0 / 20922789888000.0,
                                    -1.0 / 6402373705728000.0};
    const double square = x * x;
    const double value = quarters & 1 ? 1 + square * polynomial(cosine, TERMS(cosine), square)
                                      : x + x * (square * polynomial(sine, TERMS(sine), square));
    return quarters & 2 ? -value : value;
}

double portable_sin(double x) {
    double rest;
    const int64_t quarters = reduce(x, &rest);
    return turned_sin(rest, quarters);
}

double portable_cos(double x) {
    double rest;
    const int64_t quarters = reduce(x, &rest);
    return turned_sin(rest, quarters + 1);
}

double portable_power(double x, uint64_t n) {
    double power = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1) power *= x;
    return power;
}
