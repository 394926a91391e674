// Statistics of comparisons. All distributions but the normal one are the regularized incomplete beta function.
#include "common/statistics.h"
#include "common/bytes.h"
#include <math.h>
#include <stdlib.h>

static const double normal_975 = 1.959963984540054, normal_80 = 0.8416212335729143; // quantiles

// ---- distributions

// log(gamma(z)) without its leading terms: (z - 1/2) log(z) - z + log(2 pi) / 2 (DLMF 5.11.1).
static double stirling_rest(double z) {
    static const double terms[] = {1 / 12., -1 / 360., 1 / 1260., -1 / 1680., 1 / 1188., -691 / 360360.};
    if (z < 16) return lgamma(z) - ((z - 0.5) * log(z) - z + 0.5 * log(2 * M_PI));
    double sum = 0, power = 1 / z;
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++, power /= z * z) sum += terms[i] * power;
    return sum;
}

// The continued fraction of I_x(a, b) (DLMF 8.17.22), by the method of Lentz (Applied Optics 15, 1976).
static double beta_fraction(double x, double a, double b) {
    double ratio = 1, inverse = 0, value = 1;
    for (int i = 1; i < 1000000 && fabs(ratio * inverse - 1) > 1e-15; i++) {
        const double m = i / 2;
        const double term = i % 2 ? -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
                                  : m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        inverse = 1 / (1 + term * inverse);
        ratio = 1 + term / ratio;
        value *= ratio * inverse;
    }
    return 1 / value;
}

// I_x(a, b) for x <= (a + 1) / (a + b + 2), where the fraction converges fast; y = 1 - x. The factor before it has no
// difference of large logarithms (Didonato and Morris, ACM TOMS 18, 1992, algorithm 708).
static double beta_below(double x, double y, double a, double b) {
    const double sum = a + b;
    const double log_factor = a * log(x * sum / a) + b * log(y * sum / b) + 0.5 * log(a * b / (2 * M_PI * sum)) +
                              stirling_rest(sum) - stirling_rest(a) - stirling_rest(b);
    return x > 0 ? exp(log_factor) * beta_fraction(x, a, b) / a : 0;
}

static double beta_share(double x, double y, double a, double b) {
    return x > (a + 1) / (a + b + 2) ? 1 - beta_below(y, x, b, a) : beta_below(x, y, a, b);
}

// The p value of a t, with two sides.
static double student_p(double t, double degrees) {
    if (isinf(degrees)) return erfc(fabs(t) / M_SQRT2);
    const double sum = degrees + t * t;
    return beta_share(degrees / sum, t * t / sum, degrees / 2, 0.5);
}

// The t whose p value with two sides is 0.05.
static double student_975(double degrees) {
    if (isinf(degrees)) return normal_975;
    double low = 1, high = 2;
    while (student_p(high, degrees) > 0.05) low = high, high *= 2;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (student_p(middle, degrees) > 0.05)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

// ---- estimates

void series_add(Series *series, double value) {
    const double distance = value - series->mean;
    series->mean += distance / (double)++series->count;
    series->squares += distance * (value - series->mean);
}

double series_variance(const Series *series) {
    return series->count > 1 ? series->squares / (double)(series->count - 1) : NAN;
}

Estimate estimate_of(double value, double error, double degrees) {
    if (!isfinite(value) || !isfinite(error) || error <= 0) return (Estimate){value, NAN, NAN, NAN, NAN};
    const double width = student_975(degrees) * error;
    return (Estimate){value, error, value - width, value + width, student_p(value / error, degrees)};
}

Estimate estimate_mean(const Series *series) {
    const double count = (double)series->count;
    return estimate_of(series->mean, sqrt(series_variance(series) / count), count - 1);
}

Estimate estimate_welch(const Series *from, const Series *to) {
    const double a = series_variance(from) / (double)from->count, b = series_variance(to) / (double)to->count;
    const double degrees = (a + b) * (a + b) / (a * a / ((double)from->count - 1) + b * b / ((double)to->count - 1));
    return estimate_of(to->mean - from->mean, sqrt(a + b), degrees);
}

// By the means of so many blocks at the end of the values.
static Estimate estimate_blocks(const double *values, size_t count, size_t blocks) {
    const size_t length = count / blocks;
    Series means = {0};
    double before = 0, products = 0;
    values += count - blocks * length;
    double *block = allocate_zeroed(blocks, sizeof *block);
    for (size_t i = 0; i < blocks * length; i++) block[i / length] += values[i] / (double)length;
    for (size_t i = 0; i < blocks; i++) series_add(&means, block[i]);
    for (size_t i = 0; i < blocks; before = block[i++] - means.mean) products += before * (block[i] - means.mean);
    free(block);
    const double n = (double)blocks, found = means.squares > 0 ? products / means.squares : 0;
    const double r = fmax(found + (1 + 3 * fmax(found, 0)) / n, 0), independent = fmax(n * (1 - r) / (1 + r), 3);
    return estimate_of(means.mean, sqrt(series_variance(&means) / independent), independent - 1);
}

Estimate estimate_correlated(const double *values, size_t count) {
    if (count < SERIES_LEAST) return (Estimate){NAN, NAN, NAN, NAN, NAN};
    const Estimate few = estimate_blocks(values, count, 8), many = estimate_blocks(values, count, 16);
    return few.high - few.low > many.high - many.low ? few : many;
}

void wilson_interval(uint64_t found, uint64_t count, double *low, double *high) {
    const double n = (double)count, z = normal_975, share = count ? (double)found / n : 0.5;
    const double middle = (share + z * z / (2 * n)) / (1 + z * z / n);
    const double width = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
    *low = found ? middle - width : 0, *high = found < count ? middle + width : 1;
}

double mcnemar_p(uint64_t better, uint64_t worse) {
    const double few = (double)(better < worse ? better : worse), many = (double)(better < worse ? worse : better);
    return better == worse ? 1 : fmin(1, 2 * beta_share(0.5, 0.5, many, few + 1));
}

void holm_correct(double *p, size_t count) {
    double *found = allocate_zeroed(count, sizeof *found), *scaled = allocate_zeroed(count, sizeof *scaled);
    size_t tests = 0;
    for (size_t i = 0; i < count; i++) tests += isnan(found[i] = p[i]) ? 0 : 1;
    for (size_t i = 0; i < count; i++) {
        size_t below = 0;
        for (size_t k = 0; k < count; k++) below += found[k] < found[i];
        scaled[i] = fmin(1, found[i] * (double)(tests - below));
    }
    for (size_t i = 0; i < count; i++) // the largest of those that are not above
        for (size_t k = 0; k < count; k++)
            if (found[k] <= found[i]) p[i] = fmax(p[i], scaled[k]);
    free(found);
    free(scaled);
}

double items_needed(double variance, double difference) {
    const double quantiles = normal_975 + normal_80;
    return ceil(quantiles * quantiles * variance / (difference * difference));
}
