// Statistics of comparisons: means and their errors, intervals of 95 %, tests with two sides. Every figure equals
// SciPy's to 1e-9 (tests/oracle/trainer/make_statistics.py).
#pragma once

#include <stddef.h>
#include <stdint.h>

// Numbers that are added one after the other, by the recurrence of Welford (Technometrics 4, 1962).
typedef struct {
    uint64_t count;
    double mean, squares; // squares: the sum of the squared distances from the mean
} Series;
void series_add(Series *series, double value);
double series_variance(const Series *series); // of the sample, by count - 1; NAN below two numbers

// A value with its standard error, its interval of 95 %, and the p value of "it is 0". Fewer than two numbers, and
// equal ones, tell no error: the others are NAN.
typedef struct {
    double value, error, low, high, p;
} Estimate;
Estimate estimate_of(double value, double error,
                     double degrees);                          // by Student's t; INFINITY: by the normal distribution
Estimate estimate_mean(const Series *series);                  // paired differences: scipy.stats.ttest_1samp
Estimate estimate_welch(const Series *from, const Series *to); // the difference of the means: ttest_ind, not equal_var

// The mean of a series whose neighbours are correlated, as the differences of two runs step by step. It is cut into 8,
// and again into 16 blocks of equal length; numbers at its front that fill no block are left out. r is the correlation
// of neighbouring block means, raised by its bias, (1 + 3 r) / blocks (Kendall, Biometrika 41, 1954), and at least 0.
// They count as blocks * (1 - r) / (1 + r) independent numbers, at least 3. The wider one of the two intervals is the
// estimate. NAN below SERIES_LEAST numbers.
enum { SERIES_LEAST = 256 };
Estimate estimate_correlated(const double *values, size_t count);

// The interval of a share that was found in `count`, by Wilson (JASA 22, 1927); 0 to 1 if the count is 0.
void wilson_interval(uint64_t found, uint64_t count, double *low, double *high);

// The p value of "each of better + worse is equally likely either" (McNemar, Psychometrika 12, 1947, exact).
double mcnemar_p(uint64_t better, uint64_t worse);

// Corrects p values for their number (Holm, Scandinavian Journal of Statistics 6, 1979): reject those below 0.05. NAN
// stays, and does not count.
void holm_correct(double *p, size_t count);

// Items that show a difference of means in 80 of 100 comparisons, by a variance of the paired differences.
double items_needed(double variance, double difference);
