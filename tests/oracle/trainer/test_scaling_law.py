"""The scaling law: its table against fit_grid.py and another minimization over the committed cells, and what `plan --until` chooses against the law
in Python. The choice is read for a card, whose rates no clock measures."""
import json
import math
import os
import random
import re
import sys

import numpy as np

import runner

BIN, DATA = os.environ["BIN"], os.environ["DATA"]
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(DATA)))
CELLS, WARM_STEPS, REPEATS, SHORT_STEPS = os.path.join(DATA, "grid.jsonl"), 150, 15.39, 110
PLAN = ["--dataset=data", "--block_size=128", "--card=RTX 3060"]


def read_laws(text):
    return {name.lower(): [float(number) for number in numbers.split(",")] for name, numbers in re.findall(r"^LAW\((\w+), (.*)\)", text, re.M)}


def laws():
    with open(os.path.join(ROOT, "trainer/plan/scaling_law.def"), encoding="utf-8") as file:
        return read_laws(file.read())


def loss(law, N, D):
    """Of N and D in millions, without the scale."""
    A, alpha, beta, D0 = law
    return A * N**-alpha + (D + D0) ** -beta


def layers(depth):
    return 12 * depth * (64 * depth) ** 2 / 1e6


def setup():
    pick = random.Random(1)
    words = ["".join(pick.choice("abcdefghijklmnop") for _ in range(pick.randint(2, 7))) for _ in range(400)]
    with open("text.txt", "w") as file:
        lines = [pick.choices(words, range(400, 0, -1), k=12) for _ in range(8000)]
        file.writelines(" ".join(line) + "\n" for line in lines)
    with open("few.txt", "w") as file:
        file.writelines(" ".join(line) + "\n" for line in lines[:200])
    with open("records.txt", "w") as file:
        file.writelines(f"Package {a} Version {len(b)} Section {c[0]} Depends {b} Description {a} {d} {b} {d} {a}\n" for a, b, c, d, *_ in lines)
    runner.call(f"{BIN}/shardtool", "train-vocabulary", "-q", "-V", "1000", "-o", "words", "text.txt")
    for name, vocabulary in (("data", "words"), ("small", "chars"), ("whole", "words"), ("records", "words"), ("few", "words")):
        if name == "small":
            with open("chars", "wb") as file:
                file.write(runner.call(f"{BIN}/shardtool", "train-vocabulary", "--characters", "text.txt").stdout)
        runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0" if name == "whole" else "0.2", "--vocabulary", vocabulary, "-o", name,
                    "records.txt" if name == "records" else "few.txt" if name == "few" else "text.txt")  # fmt: skip


def plan(*options, code=0):
    return runner.call(f"{BIN}/trainer", "plan", *PLAN, *options, code=code)


def number(text):
    value, unit = re.fullmatch(r"([\d.]+) ?([kMGT]?)", text.strip()).groups()
    return float(value) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]


ROW = re.compile(r"^([* ]) +(\d+) +[\d.]+ ?[kMG]? +[\d.]+ [KMG]?i?B +\d+ +(\d+) +([\d.]+ ?[kMG]?) +([\d.]+)  ([\d.]+) \(([\d.]+) to ([\d.]+)\)$", re.M)


def rows(text):
    return [(mark, int(depth), int(steps), number(D), *map(float, rest)) for mark, depth, steps, D, *rest in ROW.findall(text)]


def unique_tokens():
    text = runner.call(f"{BIN}/shardtool", "info", "data").stdout.decode()
    return int(re.search(r"train_tokens +(\d+)", text)[1])


def short_run(data):
    """Bits per byte and fall of a run of train with the keys of short_run.c."""
    keys = {"dataset": data, "out_dir": data + ".run", "device": "cpu", "depth": 2, "optimizer": "muon", "learning_rate": 2e-3, "min_lr": 0, "beta2": 0.99,
            "warmup_iters": 20, "max_iters": SHORT_STEPS, "lr_decay_iters": SHORT_STEPS, "lr_schedule": "wsd:22", "block_size": 128, "batch_size": 8,
            "gradient_accumulation_steps": 1, "eval_tokens": 32768, "eval_interval": 1000, "sample_tokens": 0}  # fmt: skip
    runner.call(f"{BIN}/trainer", "train", *(f"--{key}={value}" for key, value in keys.items()))
    with open(f"{data}.run/metrics.jsonl", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    last = [line for line in lines if "val_bpb" in line][-1]
    return last["val_bpb"], 1 - last["val_loss"] / np.mean([line["loss"] for line in lines if "norm" in line and 31 <= line["step"] <= 50])


def test_each_candidate_has_the_loss_of_the_law_and_its_interval_and_the_least_is_chosen():
    law, U = laws()["adamw"], unique_tokens()
    scale, p, deviation, growth, most_flop = law[0], law[1:5], law[6], law[7], law[8]
    text = plan("--until=20s").stdout.decode()
    found, level = rows(text), float(re.search(r"reached ([\d.]+) bits per byte", text)[1])
    bits, fall = short_run("data")
    assert abs(level - bits) < 6e-4
    assert fall < law[13] and "In the short run" not in text, fall
    assert len(found) >= 6, text
    for mark, depth, steps, D, epochs, bits, low, high in found:
        D = steps * 1024
        assert math.isclose(epochs, D / U, rel_tol=0.02)
        worth = D if D <= U else U * (1 + REPEATS * (1 - math.exp(-(D / U - 1) / REPEATS)))
        assert math.isclose(bits, level * scale * loss(p, layers(depth), worth / 1e6), rel_tol=2e-3), (depth, bits)
        flop = 6 * D * (layers(depth) * 1e6 + 1000 * 64 * depth + 2 * depth * 64 * depth * 128)
        spread = 2 * math.hypot(deviation, growth * max(0, math.log(flop / most_flop)))
        assert abs(high - bits * (1 + spread)) < 0.012 * bits and math.isclose(high - bits, bits - low, abs_tol=2e-3), (depth, spread, low, high)
        assert (mark == "*") <= (bits == min(row[5] for row in found))
        if mark == "*":  # its steps are those of the run, and what repetition costs is printed
            assert f"\nrun        until 20s: about {steps} steps, " in text, text
            times, new, repeated = map(float, re.search(r"read ([\d.]+) times.* would bring ([\d.]+) bits per byte instead of ([\d.]+), by the law of\nrep", text).groups())
            assert math.isclose(times, D / U, abs_tol=0.06) and repeated == bits
            assert math.isclose(new, level * scale * loss(p, layers(depth), D / 1e6), rel_tol=2e-3), (new, bits)
    assert sum(row[0] == "*" for row in found) == 1


@runner.ci
def test_keys_that_are_given_stay_and_the_lines_are_a_configuration():
    options = ("--until=20s", "--depth=3", "--learning_rate=5e-4", "--batch_size=2", "--gradient_accumulation_steps=3", "--max_iters=400")
    text = plan(*options).stdout.decode()
    keys = dict(re.findall(r"^(\w+) = (.*)$", text, re.M))
    given = {"n_layer": "3", "n_embd": "192", "block_size": "128", "learning_rate": "0.0005", "batch_size": "2", "gradient_accumulation_steps": "3"}
    assert {key: keys[key] for key in given} == given and keys["beta2"] == "0.99", keys
    ((_, _, steps, _, _, bits, _, high),) = rows(text)
    assert steps == 400 and "The data is read" not in text  # repetition costs less than 1 %
    assert abs(high / bits - 1 - 2 * laws()["adamw"][6]) < 2e-3  # max_iters ends it first, within the grid
    one = json.loads(plan("--json", *options).stdout)
    (candidate,) = one["candidates"]
    assert candidate["chosen"] and candidate["steps"] == 400 and abs(candidate["bits_per_byte"] - bits) < 6e-4 and one["fits"]
    assert 0 < one["short_run_fall"] < laws()["adamw"][13] and not one["faster_than_the_law"]
    assert one["unlike_the_law"] == ["learning_rate", "block_size"] and "other values of learning_rate, block_size, and" in text
    assert 1 < candidate["bits_per_byte"] / candidate["bits_per_byte_without_repetition"] < 1.01
    assert abs(candidate["bits_per_byte"] + candidate["interval"] - candidate["bits_per_byte_at_most"]) < 2e-6
    assert abs(candidate["bits_per_byte_at_most"] - high) < 1.1e-3 and {key: one["config"][key] for key in given} == given
    with open("chosen.conf", "w") as file:
        file.writelines(f"{key} = {value}\n" for key, value in keys.items())
    runner.call(f"{BIN}/trainer", "plan", "chosen.conf", "--print_config")


@runner.ci
def test_a_text_that_is_learnt_faster_than_those_of_the_law_is_named():
    (_, fall), most = short_run("records"), laws()["adamw"][13]
    options = ("--until=20s", "--depth=1", "--max_iters=400", "--dataset=records")
    text = plan(*options).stdout.decode()
    assert fall > most and f"fell by {100 * fall:.0f} %, that of the law's texts by at most {100 * most:.0f} %: " in text, (fall, text)
    (candidate,) = json.loads(plan("--json", *options).stdout)["candidates"]
    assert not rows(text) and f"  at most {candidate['bits_per_byte_at_most']:.3f}\n" in text and "bits_per_byte" not in candidate, (text, candidate)
    p, (bits, _) = laws()["adamw"], short_run("records")
    expected = bits * p[0] * loss(p[1:5], layers(1), 400 * 1024 / 1e6) * (1 + 2 * p[6])
    assert math.isclose(candidate["bits_per_byte_at_most"], expected, rel_tol=5e-3), (candidate, expected)


def test_what_the_law_does_not_reach_is_2_and_has_no_number():
    large = "--batch_size=64"
    for options, words in ((["--until=9d"], "more than 10 times what the scaling law was measured for"),
                           (["--until=1s", "--batch_size=2", "--max_iters=30"], "is too short: the smallest candidate"),
                           (["--until=20s", large], "measured with 1024 tokens a step, and these are"),
                           (["--until=20s", "--dataset=few"], r"reads the \d+ training tokens of 'few' \d\d+ times, after which .* does not hold for so little text"),
                           (["--until=20s", "--dataset=small"], "measured with a vocabulary of 8192 ids"),
                           (["--until=20s", "--optimizer=muon"], "no cells of optimizer muon")):  # fmt: skip
        if words.endswith("muon") and "muon" in laws():
            continue
        done = plan(*options, code=2)
        assert re.search(f"{words}.*: set the shape, which is then planned without a loss", done.stderr.decode()) and not done.stdout, done
        assert not plan(*options, "--json", code=2).stdout
        text = plan(*options, "--depth=1").stdout.decode()
        assert text.startswith("no loss is predicted: ") and "set the shape" not in text and not rows(text) and "model " in text, text
        if "max_iters" not in options[-1]:
            assert f"run        {options[0][2:].replace('=', ' ')}: the steps are not known before it" in text, text
    assert "has passed" in plan("--until=2020-01-01 08:00", code=2).stderr.decode()
    assert "missing" in plan("--until=1m", "--dataset=missing", code=66).stderr.decode()
    assert "the validation data of 'whole' has 0 tokens" in plan("--until=20s", "--dataset=whole", code=2).stderr.decode()


def read_cells(optimizer):
    with open(CELLS, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    probes = {line["corpus"]: line["bits_per_byte"] for line in lines if "probe" in line}
    fall = max(1 - line["loss"] / line["early_loss"] for line in lines if "probe" in line)
    cells = [cell for cell in lines if cell.get("optimizer") == optimizer and cell["steps"] >= WARM_STEPS]
    return cells, fall, *(np.array(values) for values in zip(*((layers(cell["depth"]), cell["tokens"] / 1e6, math.log(cell["bits_per_byte"] / probes[cell["corpus"]]),
                                                          cell["corpus"]) for cell in cells)))  # fmt: skip


def minimize(N, D, y, corpora):
    """A, alpha, beta and D0 of the least squares, each corpus with its own mean, by a coordinate search in logarithms."""

    def squares(p):
        rest = y - np.log(loss(np.exp(p), N, D))
        return sum(np.sum((rest[corpora == name] - rest[corpora == name].mean()) ** 2) for name in set(corpora))

    p, step = np.log([0.1, 0.5, 0.2, 0.1]), 0.5
    directions = [*np.eye(4), np.array([1, 1, 0, 0]), np.array([1, -1, 0, 0]), np.array([0, 0, 1, 1]), np.array([0, 0, 1, -1]), np.array([1, 0, 1, 0])]
    least = squares(p)
    while step > 1e-3:
        tries = [p + sign * step * direction for direction in directions for sign in (1, -1)]
        values = [squares(one) for one in tries]
        better = min(values) < least
        if better:
            p, least = tries[int(np.argmin(values))], min(values)
        step *= 1.5 if better else 0.5
    rest = y - np.log(loss(np.exp(p), N, D))
    return np.exp(p), np.mean([rest[corpora == name].mean() for name in set(corpora)]), least


def test_the_coefficients_are_those_of_another_minimization_over_the_cells():
    for optimizer, law in laws().items():
        cells, fall, N, D, y, corpora = read_cells(optimizer)
        p, level, least = minimize(N, D, y, corpora)
        rest = y - np.log(law[0] * loss(law[1:5], N, D))
        assert np.sum([np.sum((rest[corpora == name] - rest[corpora == name].mean()) ** 2) for name in set(corpora)]) < least * 1.01, (law, p)
        assert np.allclose(law[0] * loss(law[1:5], N, D), math.exp(level) * loss(p, N, D), rtol=3e-3), (law, p)
        unseen = []
        for name in set(corpora):
            own = corpora == name
            p, level, _ = minimize(N[~own], D[~own], y[~own], corpora[~own])
            unseen.append(np.mean((y[own] - level - np.log(loss(p, N[own], D[own]))) ** 2))
        assert math.isclose(law[6], math.sqrt(np.mean(unseen)), rel_tol=0.03), (law[6], unseen)
        assert (law[9], law[10]) == (1e6 * N.min(), float(f"{1e6 * N.max():.5g}")) and law[11] == float(f"{1e6 * D.min():.5g}"), law
        assert math.isclose(law[13], fall, rel_tol=1e-4)
        assert law[8] == float(f"{max(6 * cell['parameters'] * cell['tokens'] for cell in cells):.5g}")


def test_the_table_is_that_of_fit_grid_over_the_committed_cells():
    printed = read_laws(runner.call(sys.executable, f"{ROOT}/tests/bench/trainer/fit_grid.py", CELLS).stdout.decode())
    assert printed.keys() == laws().keys()
    for optimizer, law in laws().items():
        assert np.allclose(law, printed[optimizer], rtol=1e-3), (optimizer, law, printed)
