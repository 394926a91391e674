"""Makes tests/data/statistics_scipy.txt: what SciPy gives for the functions of common/statistics.h, with small, large and extreme
numbers. A line has a function, its arguments, `=`, and the results.

usage: make_statistics.py > tests/data/statistics_scipy.txt      (needs scipy)
"""
import numpy as np
from scipy import stats

rng = np.random.default_rng(1)


def line(function, arguments, results):
    print(function, *(repr(float(x)).removesuffix(".0") for x in arguments), "=", *(f"{x:.15g}" for x in results))


def estimate(value, error, degrees):
    return value, error, *stats.t.interval(0.95, degrees, value, error), 2 * stats.t.sf(abs(value / error), degrees)


for degrees in (1, 1.5, 2, 3, 7.25, 30, 99, 1000, 1e5, 1e7, np.inf):
    for t in (1e-9, 0.01, 0.7, 1.2, 1.959963984540054, 5, 30, 1e4):
        line("of", (-t * 0.3, 0.3, degrees), estimate(-t * 0.3, 0.3, degrees))
for better, worse in [(0, 0), (0, 1), (1, 0), (5, 0), (7, 7), (0, 1000), (99000, 100500), (50, 100000), *rng.integers(0, 60, (40, 2)),
                      *rng.integers(900, 1100, (20, 2)), *rng.integers(40000, 41000, (20, 2))]:
    p = stats.binomtest(int(better), int(better + worse)).pvalue if better + worse else 1
    line("mcnemar", (better, worse), (p,))
for count in (1, 2, 32, 100, 1172, 10042, 10**7):
    for found in {0, 1, count // 3, count // 2, count - 1, count}:
        line("wilson", (found, count), stats.binomtest(found, count).proportion_ci(method="wilson"))
for count in [2, 3, 5, 12] * 10:
    values = rng.normal(rng.normal(), 10 ** rng.uniform(-3, 3), count) * 10 ** rng.uniform(-6, 6)
    test = stats.ttest_1samp(values, 0)
    line("mean", values, (values.mean(), stats.sem(values), *test.confidence_interval(), test.pvalue))
for _ in range(40):
    a, b = (rng.normal(rng.normal(), 10 ** rng.uniform(-2, 2), rng.integers(2, 7)) for _ in "ab")
    test = stats.ttest_ind(b, a, equal_var=False)
    error = np.sqrt(stats.sem(a) ** 2 + stats.sem(b) ** 2)
    line("welch", (len(a), *a, *b), (b.mean() - a.mean(), error, *test.confidence_interval(), test.pvalue))
for count in [1, 2, 5, 22] * 5:  # by the definition: step down until one stays
    found = np.round(rng.uniform(size=count) ** rng.integers(1, 9), 4)
    corrected, least = np.empty(count), 0
    for rank, i in enumerate(np.argsort(found, kind="stable")):
        least = corrected[i] = max(least, min(1, found[i] * (count - rank)))
    line("holm", found, corrected)
for variance in (0.02, 0.25, 0.5):
    for difference in (0.001, 0.01, 0.07, -0.01):
        wanted = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2 * variance / difference**2
        line("items", (variance, difference), (np.ceil(wanted),))
for phi in (0, 0.5, 0.95, 1):
    values = rng.normal(size=261)
    for i in range(1, len(values)):
        values[i] += phi * values[i - 1]
    values = np.round(values + 0.3, 6)
    widest = None
    for blocks in (8, 16):
        means = values[len(values) % blocks:].reshape(blocks, -1).mean(1)
        apart = means - means.mean()
        r = (apart[1:] * apart[:-1]).sum() / (apart**2).sum()
        r = max(r + (1 + 3 * max(r, 0)) / blocks, 0)
        independent = max(blocks * (1 - r) / (1 + r), 3)
        found = estimate(means.mean(), means.std(ddof=1) / np.sqrt(independent), independent - 1)
        if widest is None or found[3] - found[2] > widest[3] - widest[2]:
            widest = found
    line("correlated", values, widest)
