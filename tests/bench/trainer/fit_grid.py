"""fit_grid.py CELLS.jsonl: the table trainer/plan/scaling_law.def from the cells and probes of bench_grid.py, on standard output.

bits per byte = scale P (E + A N^-alpha + (D + D0)^-beta): N parameters of the layers and D tokens, both in millions, and P the bits per byte of the
corpus's probe (Hoffmann et al. 2022, arXiv:2203.15556). The logarithms of the cells are fitted, each corpus with its own level, by the Gauss-Newton
method with damping (Levenberg-Marquardt); scale P is the mean of the levels. Small runs leave much free: of what fits them about as well, the law is near
PRIOR, which has the exponents of Hoffmann et al. A factor e from a number of PRIOR weighs as much as HOLD in the logarithm of one cell. The deviation is that of a corpus's
cells from the law of the other corpora and its own probe, each corpus with the same weight. Beyond the work of the longest cells it grows with the
logarithm of the work, by what the law of the shorter cells misses of the longest, which have three times their work. The last number is the most that the
loss of a probe falls below the mean of its steps 31 to 50. --cells prints what the law of the others misses of each cell."""
import json
import sys

import numpy as np

from bench_grid import RATES

PRIOR, HOLD = np.log([0.5, 0.05, 0.34, 0.28, 0.05]), 0.02
WARM_STEPS = 150  # cells of fewer steps are mostly warm-up


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return {row["corpus"]: row for row in rows if "probe" in row}, [row for row in rows if "probe" not in row and row["steps"] >= WARM_STEPS]


def columns(rows, probes):
    """N and D in millions, and the logarithm of the loss as a multiple of the probe's."""
    N = np.array([12 * row["depth"] * (64 * row["depth"]) ** 2 / 1e6 for row in rows])
    return N, np.array([row["tokens"] / 1e6 for row in rows]), np.log([row["bits_per_byte"] / probes[row["corpus"]]["bits_per_byte"] for row in rows])


def law(p, N, D):
    """Its logarithm, without the scale; p holds the logarithms of E, A, alpha, beta and D0."""
    E, A, alpha, beta, D0 = np.exp(p)
    return np.log(E + A * N**-alpha + (D + D0) ** -beta)


def fit(rows, probes):
    """The logarithms of E, A, alpha, beta, D0 and of the scale."""
    N, D, y = columns(rows, probes)
    corpora = sorted({row["corpus"] for row in rows})
    member = np.array([[row["corpus"] == corpus for corpus in corpora] for row in rows], float)

    def levels(p):
        return member.T @ (y - law(p, N, D)) / member.sum(0)

    def errors(p):
        return np.concatenate([law(p, N, D) + member @ levels(p) - y, HOLD * (p - PRIOR)])

    p, damping = PRIOR, 1e-2
    while damping < 1e9:
        r = errors(p)
        J = np.stack([(errors(p + 1e-6 * unit) - r) / 1e-6 for unit in np.eye(len(p))], 1)
        tried = p - np.linalg.solve(J.T @ J + damping * np.diag(np.diag(J.T @ J)), J.T @ r)
        better = np.sum(errors(tried) ** 2) < r @ r * (1 - 1e-12)
        p, damping = (tried, damping / 3) if better else (p, damping * 10)
    return p, levels(p).mean()


def residuals(rows, fitted, probes):
    p, scale = fitted
    N, D, y = columns(rows, probes)
    return law(p, N, D) + scale - y


def unseen(rows, probes):
    """The residuals of the cells of each corpus, by the law of the others."""
    return {corpus: residuals([row for row in rows if row["corpus"] == corpus], fit([row for row in rows if row["corpus"] != corpus], probes), probes)
            for corpus in sorted({row["corpus"] for row in rows})}  # fmt: skip


def rms(values):
    return np.sqrt(np.mean(np.square(values)))


def growth(rows, probes):
    """The deviation for each factor e of work, from the cells of a size that are not its longest to that one."""
    longest = {depth: max(row["steps"] for row in rows if row["depth"] == depth) for depth in {row["depth"] for row in rows}}
    fitted = fit([row for row in rows if row["steps"] < longest[row["depth"]]], probes)
    return rms(residuals([row for row in rows if row["steps"] == longest[row["depth"]]], fitted, probes)) / np.log(3)


def main(path, *options):
    probes, cells = read(path)
    print("// LAW(optimizer, scale, E, A, alpha, beta, D0: of N and D in millions, learning rate, deviation, its growth, FLOP to,")
    print("//     N from, to, D from, to, fall of a short run to), by tests/bench/trainer/fit_grid.py tests/data/grid.jsonl")
    for optimizer in sorted({row["optimizer"] for row in cells}):
        rows = [row for row in cells if row["optimizer"] == optimizer]
        p, scale = fit(rows, probes)
        missed = unseen(rows, probes)
        deviation = rms([rms(of_corpus) for of_corpus in missed.values()])
        N, D, _ = columns(rows, probes)
        print(f"// {len(rows)} cells of {', '.join(missed)}")
        flop = max(6 * row["parameters"] * row["tokens"] for row in rows)
        errors = [deviation, growth(rows, probes), flop]
        fall = max(1 - probes[corpus]["loss"] / probes[corpus]["early_loss"] for corpus in missed)
        numbers = [np.exp(scale), *np.exp(p), RATES[optimizer], *errors, 1e6 * N.min(), 1e6 * N.max(), 1e6 * D.min(), 1e6 * D.max(), fall]
        print(f"LAW({optimizer.upper()}, {', '.join(f'{number:.5g}' for number in numbers)})")
        for corpus in missed if "--cells" in options else ():
            print(f"// {corpus}: {', '.join(f'{100 * one:+.1f}' for one in missed[corpus])} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
