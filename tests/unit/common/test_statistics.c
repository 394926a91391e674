// Statistics against SciPy (tests/oracle/trainer/make_statistics.py), and simulations of equal models.
#include "common/rng.h"
#include "common/statistics.h"
#include "tests/test.h"
#include "trainer/records/grade_pair.h"
#include <math.h>

typedef struct {
    double values[512];
    size_t count;
} Numbers;

// `scale`: of the result, where it is a difference.
static void check_result(const char *line, double got, double want, double scale) {
    const bool close = fabs(got - want) <= 1e-9 * fmax(fabs(want), scale) + 1e-290;
    if (!close) printf("%.60s: %.15g, not %.15g\n", line, got, want);
    CHECK(close);
}

static Numbers numbers_of(char **text) {
    Numbers numbers = {.count = 0};
    for (char *end; *text; *text = end) {
        const double value = strtod(*text, &end);
        if (end == *text) break;
        numbers.values[numbers.count++] = value;
    }
    return numbers;
}

static Series series_of(const double *values, size_t count) {
    Series series = {0};
    for (size_t i = 0; i < count; i++) series_add(&series, values[i]);
    return series;
}

static Estimate estimate_for(const char *function, const Numbers *a) {
    const size_t first = (size_t)a->values[0];
    const Series all = series_of(a->values, a->count);
    if (!strcmp(function, "of")) return estimate_of(a->values[0], a->values[1], a->values[2]);
    if (!strcmp(function, "mean")) return estimate_mean(&all);
    if (!strcmp(function, "correlated")) return estimate_correlated(a->values, a->count);
    CHECK(!strcmp(function, "welch"));
    const Series from = series_of(a->values + 1, first), to = series_of(a->values + 1 + first, a->count - 1 - first);
    return estimate_welch(&from, &to);
}

static void check_estimate(const char *line, const Estimate *got, const double *want) {
    check_result(line, got->value, want[0], 0);
    check_result(line, got->error, want[1], 0);
    check_result(line, got->low, want[2], got->error);
    check_result(line, got->high, want[3], got->error);
    check_result(line, got->p, want[4], 0);
}

static void check_line(const char *line, const char *function, Numbers *a, const Numbers *want) {
    double got[2], *results = got;
    const uint64_t first = (uint64_t)a->values[0], second = (uint64_t)a->values[1];
    if (!strcmp(function, "mcnemar"))
        *got = mcnemar_p(first, second);
    else if (!strcmp(function, "wilson"))
        wilson_interval(first, second, &got[0], &got[1]);
    else if (!strcmp(function, "items"))
        *got = items_needed(a->values[0], a->values[1]);
    else if (!strcmp(function, "holm"))
        holm_correct(results = a->values, a->count);
    else {
        const Estimate estimate = estimate_for(function, a);
        check_estimate(line, &estimate, want->values);
        return;
    }
    for (size_t i = 0; i < want->count; i++) check_result(line, results[i], want->values[i], 0);
}

TEST(statistics_are_those_of_scipy) {
    char path[4096], *text, *line;
    snprintf(path, sizeof path, "%s/statistics_scipy.txt", test_data);
    size_t size, lines = 0;
    char *rest = text = read_file(path, &size);
    for (; (line = strsep(&rest, "\n")) && *line; lines++) {
        char function[16], *results = strchr(line, '='), *arguments = strchr(line, ' ');
        CHECK(results && sscanf(line, "%15s", function) == 1);
        *results++ = 0;
        Numbers a = numbers_of(&arguments), want = numbers_of(&results);
        check_line(line, function, &a, &want);
    }
    CHECK(lines > 300);
    free(text);
}

TEST(statistics_of_nothing_claim_nothing) {
    const double constant[SERIES_LEAST] = {0};
    const Series none = {0}, one = series_of((double[]){3}, 1), equal = series_of((double[]){0, 0, 0}, 3);
    const Series other = series_of((double[]){1, 1}, 2); // as of runs with one seed
    double low, high, p[] = {0.01, NAN, 0.04};
    CHECK(isnan(estimate_mean(&none).p) && isnan(estimate_mean(&one).low) && isnan(estimate_welch(&one, &equal).p));
    CHECK(isnan(estimate_mean(&equal).p) && isnan(estimate_mean(&equal).low));
    CHECK(isnan(estimate_welch(&equal, &other).p) && isnan(estimate_welch(&equal, &other).high));
    CHECK(isnan(estimate_correlated(constant, SERIES_LEAST).p));
    CHECK(isnan(estimate_correlated(constant, SERIES_LEAST - 1).p));
    wilson_interval(0, 0, &low, &high);
    CHECK(low == 0 && high == 1);
    holm_correct(p, 3);
    CHECK(p[0] == 0.02 && isnan(p[1]) && p[2] == 0.04);
}

// Pairs of models that are right with probability `from` and `to`, and whose answers have much in common: the share of
// 2,000 pairs that is called different.
static double different(uint64_t seed, uint64_t items, double from, double to) {
    enum { PAIRS = 2000 };
    int found = 0;
    for (uint64_t pair = 0; pair < PAIRS; pair++) {
        uint64_t better = 0, worse = 0;
        for (uint64_t i = 0; i < items; i++) {
            const double u = rng_uniform(seed, pair, 2 * i), v = rng_uniform(seed, pair, 2 * i + 1);
            const bool a = u < from, b = v < 0.7 ? u < to : (v - 0.7) / 0.3 < to; // seven of ten share the question
            better += b && !a, worse += a && !b;
        }
        found += mcnemar_p(better, worse) < 0.05;
    }
    return (double)found / PAIRS;
}

TEST(equal_models_are_called_different_in_one_of_twenty_pairs) {
    CHECK(different(1, 100, 0.4, 0.4) <= 0.06);
    CHECK(different(2, 1000, 0.4, 0.4) <= 0.06);
}

TEST_CI(equal_models_are_called_different_in_one_of_twenty_pairs_of_many_items) {
    const double found = different(3, 10000, 0.4, 0.4);
    CHECK(found <= 0.06 && found >= 0.03);
}

// The same of the mean over tasks of so many items each, each of which changes in so many pairs.
static double different_mean(uint64_t seed, const uint64_t *items, size_t count, double changed) {
    enum { PAIRS = 2000, TASKS = 8 };
    int found = 0;
    for (uint64_t pair = 0; pair < PAIRS; pair++) {
        TaskPair tasks[TASKS] = {0};
        double shares[TASKS];
        uint64_t draw = 0;
        for (size_t task = 0; task < count; task++)
            for (tasks[task].chance = 0.25; tasks[task].items < items[task]; tasks[task].items++) {
                const double u = rng_uniform(seed, pair, draw++);
                tasks[task].better += u < changed / 2, tasks[task].worse += u >= changed / 2 && u < changed;
                series_add(&tasks[task].right_change, u < changed / 2 ? 1 : u < changed ? -1 : 0);
            }
        const GradePair grades = {.tasks = tasks, .count = count};
        found += grade_pair_mean(&grades, shares).p < 0.05;
    }
    return (double)found / PAIRS;
}

TEST(equal_models_with_few_items_are_called_different_by_their_mean_in_one_of_twenty_pairs) {
    static const uint64_t items[][8] = {{2, 2, 2},
                                        {2, 3},
                                        {5, 5},
                                        {5, 200},
                                        {2, 100, 100},
                                        {8, 8},
                                        {20, 30},
                                        {1, 1, 1, 1, 1, 1, 1, 1},
                                        {10, 10, 10, 10, 10, 10, 10, 10}};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        for (double changed = 0.1; changed < 1.2; changed *= 3.15) { // 0.1, 0.3, all
            size_t count = 0;
            while (count < 8 && items[i][count]) count++;
            CHECK(different_mean(30 + i, items[i], count, changed) <= 0.06);
        }
}

TEST(three_tasks_of_two_items_that_changed_alike_are_almost_nothing) {
    TaskPair tasks[3];
    double shares[3];
    for (int i = 0; i < 3; i++) tasks[i] = (TaskPair){.items = 2, .better = 2, .right_change = {2, 1, 0}};
    const Estimate all = grade_pair_mean(&(GradePair){.tasks = tasks, .count = 3}, shares);
    CHECK(all.value == 1 && all.low < 0.1 && all.high > 1.9);
    CHECK(all.p > 2 / 64. && all.p < 0.05); // exact: six of six
    for (int i = 0; i < 3; i++) tasks[i].better = 0, tasks[i].right_change.mean = 0;
    const Estimate none = grade_pair_mean(&(GradePair){.tasks = tasks, .count = 3}, shares);
    CHECK(none.value == 0 && none.p == 1 && none.low < -0.3 && none.high > 0.3);
}

// The variance of the differences is 0.3 (0.4 * 0.6 + 0.43 * 0.57) + 0.7 * 0.03, less the square of the difference.
TEST(a_difference_is_found_in_four_of_five_pairs_of_as_many_items_as_it_needs) {
    const double variance = 0.3 * (0.4 * 0.57 + 0.6 * 0.43) + 0.7 * 0.03 - 0.03 * 0.03;
    const double found = different(4, (uint64_t)items_needed(variance, 0.03), 0.4, 0.43);
    CHECK(found >= 0.76 && found <= 0.84);
}

// A mean of 0, with an autoregression of `phi` in the whole or beside independent noise.
static double different_series(uint64_t seed, size_t count, double phi, double noise) {
    enum { PAIRS = 1000, MOST = 1024 };
    double values[MOST];
    int found = 0;
    for (uint64_t pair = 0; pair < PAIRS; pair++) {
        double state = rng_normal(seed, pair, 0);
        for (size_t i = 0; i < count; i++) {
            state = phi * state + sqrt(1 - phi * phi) * rng_normal(seed, pair, 2 * i + 1);
            values[i] = state + noise * rng_normal(seed, pair, 2 * i + 2);
        }
        found += estimate_correlated(values, count).p < 0.05;
    }
    return (double)found / PAIRS;
}

TEST_CI(equal_runs_whose_steps_are_correlated_are_called_different_in_one_of_twenty_pairs) {
    static const struct {
        size_t steps;
        double phi, noise;
    } runs[] = {{256, 0, 0},     {256, 0.5, 0},   {256, 0.9, 0},  {512, 0.95, 0},
                {1024, 0.98, 0}, {1024, 0.99, 0}, {1024, 0.98, 3}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        CHECK(different_series(10 + i, runs[i].steps, runs[i].phi, runs[i].noise) <= 0.06);
}
