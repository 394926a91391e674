"""fit_grid.py CELLS.jsonl: the table trainer/plan/scaling_law.def from the cells and probes of bench_grid.py, on standard output.

bits per byte = scale P (E + A N^-alpha + (worth D + D0)^-beta): N parameters of the layers and D tokens, both in millions, and P the bits per byte of
the corpus's probe (Hoffmann et al. 2022, arXiv:2203.15556). Optimizers differ in what a token is worth, 1 with AdamW, and in D0, the tokens of the
warm-up. D of a corpus that is read more than once are the tokens of one epoch U (1 + repeats (1 - exp(-(epochs - 1) / repeats))) (Muennighoff et al. 2023,
arXiv:2305.16264, equation 5). The logarithms of all cells are fitted together, each corpus with its own level, by the Gauss-Newton method with damping (Levenberg-Marquardt);
scale P is the mean of the levels. Small runs leave much free: of what fits them about as well, the law is near PRIOR, which has the exponents of Hoffmann
et al. A factor e from a number of PRIOR weighs as much as HOLD in the logarithm of one cell. The deviation is that of a corpus's cells from the law of the
other corpora and its own probe, each corpus with the same weight. Beyond the work of the longest cells it grows with the logarithm of the work, by what
the law of the shorter cells misses of the longest, which have three times their work. The last number is the most that the loss of a probe falls below the
mean of its steps 31 to 50. --cells prints what the law of the others misses of each cell."""
import json
import sys

import numpy as np

from bench_grid import RATES

FIRST = "adamw"  # a token is worth 1 with it
PRIOR, HOLD = {"E": 0.5, "A": 0.05, "alpha": 0.34, "beta": 0.28, "repeats": 15.39}, 0.02
PRIOR_OF_OPTIMIZER = {"worth": 1, "D0": 0.05}
WARM_STEPS = 150  # cells of fewer steps are mostly warm-up


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return {row["corpus"]: row for row in rows if "probe" in row}, [row for row in rows if "probe" not in row and row["steps"] >= WARM_STEPS]


def columns(rows, probes):
    """N, D and the tokens of an epoch in millions, the optimizer, and the logarithm of the loss as a multiple of the probe's."""
    N = np.array([12 * row["depth"] * (64 * row["depth"]) ** 2 / 1e6 for row in rows])
    y = np.log([row["bits_per_byte"] / probes[row["corpus"]]["bits_per_byte"] for row in rows])
    D, U = (np.array([row.get(key, np.inf) / 1e6 for row in rows]) for key in ("tokens", "unique"))
    return N, D, U, np.array([row["optimizer"] for row in rows]), y


def names(optimizers):
    """Of the parameters: those of all optimizers, then worth and D0 of each, but the worth of FIRST."""
    own = [(name, optimizer) for optimizer in sorted(set(optimizers)) for name in PRIOR_OF_OPTIMIZER]
    return [*PRIOR, *(name for name in own if name != ("worth", FIRST))]


def once(repeats, D, U):
    """The tokens, read once, that are worth as much as D out of U."""
    U = np.minimum(U, D)
    return U * (1 + repeats * (1 - np.exp(-(D / U - 1) / repeats)))


def law(parameters, N, D, U, optimizers):
    """Its logarithm, without the scale."""
    E, A, alpha, beta, repeats = (parameters[name] for name in PRIOR)
    worth, D0 = (np.array([parameters.get((name, optimizer), 1) for optimizer in optimizers]) for name in PRIOR_OF_OPTIMIZER)
    return np.log(E + A * N**-alpha + (worth * once(repeats, D, U) + D0) ** -beta)


def fit(rows, probes):
    """The parameters by their names, and the logarithm of the scale."""
    N, D, U, optimizers, y = columns(rows, probes)
    corpora = sorted({row["corpus"] for row in rows})
    member = np.array([[row["corpus"] == corpus for corpus in corpora] for row in rows], float)
    named = names(optimizers)
    prior = np.log([PRIOR.get(name) or PRIOR_OF_OPTIMIZER[name[0]] for name in named])

    def logs(p):
        return law(dict(zip(named, np.exp(p))), N, D, U, optimizers)

    def levels(p):
        return member.T @ (y - logs(p)) / member.sum(0)

    def errors(p):
        return np.concatenate([logs(p) + member @ levels(p) - y, HOLD * (p - prior)])

    p, damping = prior, 1e-2
    while damping < 1e9:
        r = errors(p)
        J = np.stack([(errors(p + 1e-6 * unit) - r) / 1e-6 for unit in np.eye(len(p))], 1)
        tried = p - np.linalg.solve(J.T @ J + damping * np.diag(np.diag(J.T @ J)), J.T @ r)
        better = np.sum(errors(tried) ** 2) < r @ r * (1 - 1e-12)
        p, damping = (tried, damping / 3) if better else (p, damping * 10)
    return dict(zip(named, np.exp(p))), levels(p).mean()


def residuals(rows, fitted, probes):
    parameters, scale = fitted
    N, D, U, optimizers, y = columns(rows, probes)
    return law(parameters, N, D, U, optimizers) + scale - y


def unseen(rows, probes):
    """The residuals of the cells of each corpus and optimizer, by the law of the other corpora."""
    missed = {}
    for corpus in sorted({row["corpus"] for row in rows}):
        fitted = fit([row for row in rows if row["corpus"] != corpus], probes)
        for optimizer in {row["optimizer"] for row in rows}:
            own = [row for row in rows if (row["corpus"], row["optimizer"]) == (corpus, optimizer)]
            if own:
                missed.setdefault(optimizer, {})[corpus] = residuals(own, fitted, probes)
    return missed


def rms(values):
    return np.sqrt(np.mean(np.square(values)))


def growth(rows, probes, optimizer):
    """The deviation for each factor e of work, from the cells of a size that are not its longest to that one."""
    most = {}
    for row in rows:
        size = row["optimizer"], row["depth"]
        most[size] = max(most.get(size, 0), row["steps"])
    longest = [row for row in rows if row["steps"] == most[row["optimizer"], row["depth"]]]
    fitted = fit([row for row in rows if row not in longest], probes)
    return rms(residuals([row for row in longest if row["optimizer"] == optimizer], fitted, probes)) / np.log(3)


def main(path, *options):
    probes, cells = read(path)
    print("// LAW(optimizer, scale, E, A, alpha, beta, repeats, worth, D0: of N and D in millions, learning rate, deviation,")
    print("//     its growth, FLOP to, N from, to, D from, to, fall of a short run to), by fit_grid.py tests/data/grid.jsonl")
    parameters, scale = fit(cells, probes)
    missed = unseen(cells, probes)
    for optimizer in sorted(missed):
        rows = [row for row in cells if row["optimizer"] == optimizer]
        deviation = rms([rms(of_corpus) for of_corpus in missed[optimizer].values()])
        N, D, *_ = columns(rows, probes)
        print(f"// {len(rows)} cells of {', '.join(missed[optimizer])}")
        flop = max(6 * row["parameters"] * row["tokens"] for row in rows)
        errors = [deviation, growth(cells, probes, optimizer), flop]
        fall = max(1 - probes[corpus]["loss"] / probes[corpus]["early_loss"] for corpus in missed[optimizer])
        fitted = [np.exp(scale), *(parameters[name] for name in PRIOR), *(parameters.get((name, optimizer), 1) for name in PRIOR_OF_OPTIMIZER)]
        numbers = [*fitted, RATES[optimizer], *errors, 1e6 * N.min(), 1e6 * N.max(), 1e6 * D.min(), 1e6 * D.max(), fall]
        print(f"LAW({optimizer.upper()}, {', '.join(f'{number:.5g}' for number in numbers)})")
        for corpus in missed[optimizer] if "--cells" in options else ():
            print(f"// {corpus}: {', '.join(f'{100 * one:+.1f}' for one in missed[optimizer][corpus])} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
