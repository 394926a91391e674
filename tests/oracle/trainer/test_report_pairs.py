# peers: scipy
"""The figures of `report A B` about items, beside SciPy's for the same answers."""
import html
import json
import os
import re

import numpy as np
import runner
from scipy import stats

TRAINER = os.path.join(os.environ["BIN"], "trainer")
TASKS = {"four": (4, 900), "two": (2, 120), "greedy": (1, 300), "equal": (2, 50)}  # choices, items


def write(run, answers):
    os.makedirs(run)
    with open(f"{run}/metrics.jsonl", "w") as file:
        file.write('{"step": 1, "loss": 2.0}\n')
    with open(f"{run}/items-00000001.jsonl", "w") as file:
        print(json.dumps({"format": "millrace items 1", "items_sha256": "ab", "step": 1, "block": 8, "rule": "r"}), file=file)
        for task, (right, losses) in answers.items():
            choices = TASKS[task][0]
            for i, (is_right, loss) in enumerate(zip(right, losses)):
                print(json.dumps({"task": task, "id": i, "kind": "greedy" if choices == 1 else "choice", "label": choices - 1,
                                  "right": int(is_right), "losses": [1.0] * (choices - 1) + [loss], "bytes": [3] * choices}), file=file)


def draw(rng, edge):
    """Right or wrong, and the loss of the right ending, with much in common for one state of `rng`."""
    own = np.random.default_rng(int(edge * 1000) + 1)
    answers = {}
    for task, (_, items) in TASKS.items():
        common = rng.uniform(size=items)
        mixed = np.where(own.uniform(size=items) < 0.3, own.uniform(size=items), common)
        answers[task] = (common if task == "equal" else mixed) < 0.4 + (task != "equal") * edge, 5 * common + own.normal(size=items) - edge
    return answers


def interval(text):
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+", text)]


def check(got, want, digits):
    assert len(got) == len(want) and all(abs(g - w) <= 0.5001 * 10**-digits for g, w in zip(got, want)), (got, want)


def of_test(test):
    low, high = test.confidence_interval()
    return [(low + high) / 2, low, high]


def test_the_page_has_the_figures_of_scipy(home):
    os.chdir(home)
    a, b = (draw(np.random.default_rng(7), edge) for edge in (0, 0.06))
    write("a", a), write("b", b)
    printed = runner.call(TRAINER, "report", "a", "b").stdout.decode()
    rows = [[html.unescape(cell) for cell in re.findall("<td>(.*?)</td>", row)] for row in open("runs.html") if row.startswith("<tr><td>")]
    rows = {row[0]: row[1:] for row in rows}
    p = {task: stats.binomtest(int((b[task][0] & ~a[task][0]).sum()), max(1, int((b[task][0] != a[task][0]).sum()))).pvalue for task in TASKS}
    p["equal"], least, mean, coins, shares = 1, 0, 0, [], {}
    for rank, task in enumerate(sorted(p, key=p.get)):
        p[task] = least = max(least, min(1, p[task] * (len(p) - rank)))
    for task, (choices, items) in TASKS.items():
        (before, first), (now, second) = a[task], b[task]
        row, change = rows[task], now.astype(float) - before
        chance = 1 / choices if choices > 1 else 0
        assert row[0] == str(items) and row[1] == f"{100 * chance:.1f}"
        for right, cell, ends in ((before, 2, 3), (now, 4, 5)):
            check([float(row[cell])], [100 * right.mean()], 2)
            check(interval(row[ends]), 100 * np.array(stats.binomtest(int(right.sum()), items).proportion_ci(method="wilson")), 2)
        none = stats.binomtest(0, items).proportion_ci(method="wilson").high
        want = [0, -none, none] if task == "equal" else of_test(stats.ttest_rel(now.astype(float), before.astype(float)))
        check(interval(row[6]), 100 * np.array(want), 2)
        check([float(row[8].strip("<"))], [max(p[task], 1e-4)], 4)
        assert row[9:11] == [str(int((now & ~before).sum())), str(int((before & ~now).sum()))]
        check(interval(row[11]), of_test(stats.ttest_rel(second / 3, first / 3)), 5)
        needed = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2 * change.var(ddof=1) / 0.01**2
        assert row[12] == (f"{np.ceil(needed):.0f}" if needed else ""), (row[12], needed)
        mean += change.mean() / (1 - chance) / len(TASKS)
        more = 2 * (task == "equal")  # whose items have the greatest weight
        coins += [1 / items / (1 - chance) / len(TASKS)] * (int(np.abs(change).sum()) + more)
        shares[task] = np.square(coins).sum() - sum(shares.values())
    variance = np.square(coins).sum()
    line = ", ".join(f"{task} {100 * share / variance:.0f} % ({TASKS[task][1]} items)" for task, share in shares.items() if share > variance * 2 / len(TASKS))
    assert line and f"\nOf the variance of the mean: {line}.\n" in printed, (line, printed)
    row = rows["mean above chance"]
    check(interval(row[6]), 100 * np.array([mean, *stats.norm.interval(0.95, mean, variance**0.5)]), 2)
    check([float(row[8].strip("<"))], [max(2 * stats.norm.sf(abs(mean) / variance**0.5), 1e-4)], 4)


def test_equal_answers_are_no_difference(home):
    os.chdir(home)
    answers = draw(np.random.default_rng(7), 0)
    write("a", answers), write("b", answers)
    assert b"\nBeyond items: no. " in runner.call(TRAINER, "report", "a", "b").stdout
