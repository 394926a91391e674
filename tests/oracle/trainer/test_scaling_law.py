"""The scaling law: its table against fit_grid.py and another minimization over the committed cells, and what `plan --until` chooses against the law
in Python. The choice is read for a card, whose rates no clock measures."""
import collections
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
CELLS, WARM_STEPS, SHORT_STEPS = os.path.join(DATA, "grid.jsonl"), 150, 110
PLAN = ["--dataset=data", "--block_size=128", "--card=RTX 3060"]


Law = collections.namedtuple("Law", "scale E A alpha beta repeats worth D0 learning_rate deviation growth most_flop least_N most_N least_D most_D most_fall")


def read_laws(text):
    return {name.lower(): Law(*map(float, numbers.split(","))) for name, numbers in re.findall(r"^LAW\((\w+), (.*)\)", text, re.M)}


def laws():
    with open(os.path.join(ROOT, "trainer/plan/scaling_law.def"), encoding="utf-8") as file:
        return read_laws(file.read())


def loss(law, N, D):
    """Of N and D in millions, as a multiple of P."""
    return law.scale * (law.E + law.A * N**-law.alpha + (law.worth * D + law.D0) ** -law.beta)


def once(law, D, U):
    """The tokens, read once, that are worth as much as D out of U."""
    epochs = np.maximum(D / U, 1)
    return np.minimum(D, U) * (1 + law.repeats * (1 - np.exp(-(epochs - 1) / law.repeats)))


def layers(depth):
    return 12 * depth * (64 * depth) ** 2 / 1e6


def setup():
    pick = random.Random(1)
    words = ["".join(pick.choice("abcdefghijklmnop") for _ in range(pick.randint(2, 7))) for _ in range(400)]
    with open("text.txt", "w") as file:
        lines = [pick.choices(words, range(400, 0, -1), k=12) for _ in range(100000)]
        file.writelines(" ".join(line) + "\n" for line in lines)
    with open("large.txt", "w") as file:
        file.writelines([" ".join(line) + "\n" for line in lines] * 8)
    with open("few.txt", "w") as file:
        file.writelines(" ".join(line) + "\n" for line in lines[:1400])
    with open("records.txt", "w") as file:
        file.writelines(f"Package {a} Version {len(b)} Section {c[0]} Depends {b} Description {a} {d} {b} {d} {a}\n" for a, b, c, d, *_ in lines)
    runner.call(f"{BIN}/shardtool", "train-vocabulary", "-q", "-V", "1000", "-o", "words", "text.txt")
    for name, vocabulary in (("data", "words"), ("small", "chars"), ("whole", "words"), ("records", "words"), ("few", "words"), ("large", "words")):
        if name == "small":
            with open("chars", "wb") as file:
                file.write(runner.call(f"{BIN}/shardtool", "train-vocabulary", "--characters", "text.txt").stdout)
        runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0" if name == "whole" else "0.2", "--vocabulary", vocabulary, "-o", name,
                    f"{name}.txt" if name in ("records", "few", "large") else "text.txt")  # fmt: skip


def plan(*options, code=0):
    return runner.call(f"{BIN}/trainer", "plan", *PLAN, *options, code=code)


def number(text):
    value, unit = re.fullmatch(r"([\d.]+) ?([kMGT]?)", text.strip()).groups()
    return float(value) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]


ROW = re.compile(r"^# ([* ]) +(\d+) +(adamw|muon) +[\d.]+ ?[kMG]? +[\d.]+ [KMG]?i?B +\d+ +(\d+) +([\d.]+ ?[kMG]?) +([\d.]+)  ([\d.]+) \(([\d.]+) to ([\d.]+)\)$", re.M)


def rows(text):
    return [(mark, int(depth), name, int(steps), number(D), *map(float, rest)) for mark, depth, name, steps, D, *rest in ROW.findall(text)]


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
    U = unique_tokens()
    text = plan("--until=20s").stdout.decode()
    found, level = rows(text), float(re.search(r"reached ([\d.]+) bits per byte", text)[1])
    bits, fall = short_run("data")
    assert abs(level - bits) < 6e-4
    assert all(fall < law.most_fall for law in laws().values()) and "In the short run" not in text, fall
    assert len(found) >= 6, text
    for mark, depth, name, steps, D, epochs, bits, low, high in found:
        law, D = laws()[name], steps * 1024
        assert math.isclose(epochs, D / U, rel_tol=0.02)
        assert math.isclose(bits, level * loss(law, layers(depth), once(law, D, U) / 1e6), rel_tol=2e-3), (depth, bits)
        flop = 6 * D * (layers(depth) * 1e6 + 1000 * 64 * depth + 2 * depth * 64 * depth * 128)
        spread = 2 * math.hypot(law.deviation, law.growth * max(0, math.log(flop / law.most_flop)))
        assert abs(high - bits * (1 + spread)) < 0.012 * bits and math.isclose(high - bits, bits - low, abs_tol=2e-3), (depth, spread, low, high)
        assert (mark == "*") <= (bits == min(row[6] for row in found))
        if mark == "*":  # its steps are those of the run, and what repetition costs is printed
            assert f"\n# run        until 20s: about {steps} steps, " in text, text
            times, new, repeated = map(float, re.search(r"read ([\d.]+) times.* would bring ([\d.]+) bits per byte instead of ([\d.]+), by the law of\n# rep", text).groups())
            assert math.isclose(times, D / U, abs_tol=0.06) and repeated == bits
            assert math.isclose(new, level * loss(law, layers(depth), D / 1e6), rel_tol=2e-3), (new, bits)
    assert sum(row[0] == "*" for row in found) == 1


def update_flop(depth):
    """Of Muon's products in a step: each symmetric one is computed in half, with n^3 operations. Five steps in parts of 2, 1 and 2: a part makes X X^T
    and multiplies X; a step makes a polynomial of R; a second one multiplies two polynomials, and R twice."""
    half, n = (lambda rows, between: rows * rows * between), 64 * depth

    def matrix(n, m):
        return sum(half(n, m) + steps * half(n, n) + (steps - 1) * 3 * half(n, n) + 2 * n * n * m for steps in (2, 1, 2))

    return depth * (4 * matrix(n, n) + 2 * matrix(n, 4 * n))


@runner.ci
def test_an_optimizer_that_is_set_is_taken_and_otherwise_the_better_one_of_each_depth():
    one = {name: json.loads(plan("--json", "--until=20s", *options).stdout) for name, options in
           (("both", []), ("adamw", ["--optimizer=adamw"]), ("muon", ["--optimizer=muon"]))}  # fmt: skip
    taken = set()
    for both, *each in zip(*(plans["candidates"] for plans in one.values())):
        adamw, muon = each
        assert (adamw["optimizer"], muon["optimizer"]) == ("adamw", "muon")
        depth, parameters = adamw["depth"], adamw["parameters"]
        flop = 6144 * (layers(depth) * 1e6 + 1000 * 64 * depth + 2 * depth * 64 * depth * 128)
        both_fit = adamw["fits"] and muon["fits"]
        assert not both_fit or math.isclose(adamw["tokens_per_s"] / muon["tokens_per_s"], 1 + update_flop(depth) / flop, rel_tol=0.03), (depth, parameters)
        predicted = [candidate["bits_per_byte"] for candidate in each if "bits_per_byte" in candidate]
        assert ("bits_per_byte" in both) == bool(predicted)
        if predicted:
            assert both["bits_per_byte"] == min(predicted), (both, each)
            taken.add(both["optimizer"])
    best = min((candidate for candidate in one["both"]["candidates"] if "bits_per_byte" in candidate), key=lambda candidate: candidate["bits_per_byte"])
    assert best["chosen"] and one["both"]["config"]["optimizer"] == best["optimizer"]
    for plans in one.values():
        assert float(plans["config"]["learning_rate"]) == laws()[plans["config"]["optimizer"]].learning_rate and plans["unlike_the_law"] == ["block_size"], plans["config"]
    assert taken


@runner.ci
def test_a_rate_of_a_card_counts_what_is_computed_again():
    options = ("--until=20s", "--depth=5", "--optimizer=adamw")
    whole, less = (json.loads(plan("--json", *options, *more).stdout)["candidates"][0] for more in ([], ["--mem_limit=165MiB"]))
    again = float(re.search(r"predicted time \+([\d.]+) %", plan(*options, "--mem_limit=165MiB").stdout.decode())[1])
    assert again > 1 and math.isclose(whole["tokens_per_s"] / less["tokens_per_s"], 1 + again / 100, rel_tol=1e-3), (whole, less, again)


@runner.ci
def test_candidates_have_no_offload_and_each_without_a_loss_has_the_reason():
    done = [plan("--json", "--until=20s", "--mem_limit=150MiB", *more) for more in ([], ["--offload=none"])]
    candidates, without = (json.loads(one.stdout)["candidates"] for one in done)
    assert candidates == without
    for candidate in candidates:
        reason = candidate.get("not_predicted")
        assert (reason is None) == ("bits_per_byte_at_most" in candidate) and candidate["fits"] == (reason != "does not fit"), candidate
    assert {"does not fit", None} <= {candidate.get("not_predicted") for candidate in candidates}
    assert done[0].stderr.count(b"for 150 MiB: ") <= 1, done[0].stderr  # of the chosen one alone


@runner.ci
def test_keys_that_are_given_stay_and_the_lines_are_a_configuration():
    most = round(1.1 * unique_tokens() / (2 * 3 * 128))
    options = ("--until=20s", "--depth=3", "--learning_rate=5e-4", "--batch_size=2", "--gradient_accumulation_steps=3", f"--max_iters={most}")
    text = plan(*options).stdout.decode()
    keys = dict(re.findall(r"^(\w+) = (.*)$", text, re.M))
    assert keys["max_iters"] == str(most) and not {"depth", "lr_schedule", "lr_decay_iters"} & keys.keys(), keys
    given = {"n_layer": "3", "n_embd": "192", "block_size": "128", "learning_rate": "0.0005", "batch_size": "2", "gradient_accumulation_steps": "3"}
    assert {key: keys[key] for key in given} == given and keys["beta2"] == "0.99", keys
    ((_, _, name, steps, _, _, bits, _, high),) = rows(text)
    law = laws()[name]
    assert keys["optimizer"] == f"'{name}'"
    assert steps == most and "The data is read" not in text  # repetition costs less than 1 %
    assert abs(high / bits - 1 - 2 * law.deviation) < 2e-3  # max_iters ends it first, within the grid
    one = json.loads(plan("--json", *options).stdout)
    (candidate,) = one["candidates"]
    assert candidate["chosen"] and candidate["steps"] == most and abs(candidate["bits_per_byte"] - bits) < 6e-4 and one["fits"]
    assert 0 < one["short_run_fall"] < law.most_fall and not one["faster_than_the_law"]
    assert one["unlike_the_law"] == ["learning_rate", "block_size"] and "other values of learning_rate, block_size, and" in text
    assert 1 < candidate["bits_per_byte"] / candidate["bits_per_byte_without_repetition"] < 1.01
    assert abs(candidate["bits_per_byte"] + candidate["interval"] - candidate["bits_per_byte_at_most"]) < 2e-6
    assert abs(candidate["bits_per_byte_at_most"] - high) < 1.1e-3 and {key: one["config"][key] for key in given} == given
    with open("chosen.conf", "w") as file:
        file.write(text)
    assert "n_layer = 3 # chosen.conf" in re.sub(" +", " ", runner.call(f"{BIN}/trainer", "plan", "chosen.conf", "--print_config").stdout.decode())


@runner.ci
def test_keys_of_muon_and_heads_stay_out_of_the_short_run_and_heads_leave_out_the_depths_that_they_do_not_divide():
    whole, grouped = (json.loads(plan("--json", "--until=20s", *more).stdout) for more in ([], ["--n_kv_head=3", "--muon_learning_rate=0.02"]))
    assert grouped["short_run_bits_per_byte"] == whole["short_run_bits_per_byte"]
    for candidate in grouped["candidates"]:
        divided, reason = candidate["depth"] % 3 == 0, candidate.get("not_predicted")
        assert reason != "not with n_kv_head" if divided else reason, candidate
    muon = ["muon_learning_rate"] if grouped["config"]["optimizer"] == "muon" else []
    assert grouped["unlike_the_law"] == [*muon, "block_size", "n_kv_head"] and int(grouped["config"]["n_layer"]) % 3 == 0 and grouped["config"]["n_kv_head"] == "3"


@runner.ci
def test_a_text_that_is_learnt_faster_than_those_of_the_law_is_named():
    (bits, fall), law = short_run("records"), laws()["adamw"]
    options = ("--until=20s", "--depth=1", "--max_iters=400", "--dataset=records", "--optimizer=adamw")
    text = plan(*options).stdout.decode()
    most = 100 * law.most_fall
    assert fall > law.most_fall and f"fell by {100 * fall:.1f} %, that of the law's texts by at most {most:.1f} %: " in text, (fall, text)
    (candidate,) = json.loads(plan("--json", *options).stdout)["candidates"]
    assert not rows(text) and f"  at most {candidate['bits_per_byte_at_most']:.3f}\n" in text and "bits_per_byte" not in candidate, (text, candidate)
    expected = bits * loss(law, layers(1), 400 * 1024 / 1e6) * (1 + 2 * law.deviation)
    assert math.isclose(candidate["bits_per_byte_at_most"], expected, rel_tol=5e-3), (candidate, expected)


def test_what_the_law_does_not_reach_is_2_and_has_no_number():
    large = "--batch_size=128"
    for options, words in ((["--until=20m", "--dataset=large"], "more than 10 times what the scaling law was measured for"),
                           (["--until=1s", "--warmup_iters=50000"], r"is too short: the smallest candidate has time for \d+ steps of 1024 tokens, and 100000 are needed"),
                           (["--until=20s", large], "measured with 1024 tokens a step, and these are"),
                           (["--until=1m", "--dataset=few"], r"reads the \d+ training tokens of 'few' more than 10 times with each .* needs more text, or less time"),
                           (["--until=20s", "--dataset=few", "--batch_size=64"], r"'few' has \d+ training tokens, and the scaling law needs 122880: those of 150 steps, read 10 times"),
                           (["--until=20s", "--world=2"], "that of one process, not of 2"),
                           (["--until=20s", "--dtype=float32"], "the rates of cards are those of 16 bits"),
                           (["--until=20s", "--offload=optimizer"], "the rates of cards are those without offload"),
                           (["--until=20s", "--max_iters=100"], "max_iters is 100, and the scaling law is for 150 steps and more"),
                           (["--until=20s", "--dataset=small"], "measured with a vocabulary of 8192 ids")):  # fmt: skip
        done = plan(*options, code=2)
        assert re.search(f"{words}.*: set the shape, which is then planned without a loss", done.stderr.decode()) and not done.stdout, done
        assert not plan(*options, "--json", code=2).stdout
        text = plan(*options, "--depth=1").stdout.decode()
        assert "no loss is predicted: " in text and "set the shape" not in text and not rows(text) and "model " in text, text
        steps = {"--dtype=float32": "the steps are not known before it", large: r"\d+ to \d+ steps, at 0"}.get(options[-1], r"(about )?\d+ (to \d+ )?steps, ")
        if "max_iters" not in options[-1]:
            assert re.search(f"run        {options[0][2:].replace('=', ' ')}: {steps}", text), text
    assert "of runs from the start, and init_from is 'resume'" in plan("--until=20s", "--init_from=resume", code=2).stderr.decode()
    assert "has passed" in plan("--until=2020-01-01 08:00", code=2).stderr.decode()
    assert "missing" in plan("--until=1m", "--dataset=missing", code=66).stderr.decode()
    assert "the validation data of 'whole' has 0 tokens" in plan("--until=20s", "--dataset=whole", code=2).stderr.decode()


def read_cells():
    with open(CELLS, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {line["corpus"]: line for line in lines if "probe" in line}, [line for line in lines if "optimizer" in line and line["steps"] >= WARM_STEPS]


PRIOR, HOLD = {"E": 0.5, "A": 0.05, "alpha": 0.34, "beta": 0.28, "repeats": 15.39}, 0.02
ADAMW, MUON = {"D0": 0.05}, {"worth": 1, "D0": 0.05}  # a token is worth 1 with AdamW


def sizes(cells):
    """N, D and the tokens of an epoch, in millions."""
    return tuple(np.array(list(map(each, cells))) for each in (lambda cell: layers(cell["depth"]), lambda cell: cell["tokens"] / 1e6,
                                                               lambda cell: cell.get("unique", math.inf) / 1e6))  # fmt: skip


def minimize(cells, probes, p=np.log([*PRIOR.values(), *ADAMW.values(), *MUON.values()])):
    """The laws of the least sum of squares, each corpus with its own mean and logarithms held near PRIOR by HOLD: by a search in random directions, from
    p, the logarithms. And where it ends, and the function that is minimized, of laws."""
    pick, names = np.random.default_rng(1), sorted({cell["corpus"] for cell in cells})
    groups = {}
    for optimizer in laws():
        own = [cell for cell in cells if cell["optimizer"] == optimizer]
        y = np.log([cell["bits_per_byte"] / probes[cell["corpus"]]["bits_per_byte"] for cell in own])
        groups[optimizer] = (*sizes(own), y, [cell["corpus"] for cell in own])
    corpora = np.array([corpus for group in groups.values() for corpus in group[4]])

    def as_laws(p):
        shared, adamw, muon = np.split(np.exp(p), [len(PRIOR), len(PRIOR) + 1])
        base = Law(*[1] * len(Law._fields))._replace(**dict(zip(PRIOR, shared)))
        return {"adamw": base._replace(**dict(zip(ADAMW, adamw))), "muon": base._replace(**dict(zip(MUON, muon)))}

    def means(of):
        rest = np.concatenate([y - np.log(loss(of[optimizer]._replace(scale=1), N, once(of[optimizer], D, U))) for optimizer, (N, D, U, y, _) in groups.items()])
        return rest, [rest[corpora == name].mean() for name in names]

    def squares(of):
        held = [(of["muon"], PRIOR), (of["adamw"], ADAMW), (of["muon"], MUON)]
        rest, levels = means(of)
        fitted = sum(np.sum((rest[corpora == name] - level) ** 2) for name, level in zip(names, levels))
        return fitted + sum((HOLD * math.log(getattr(law, name) / value)) ** 2 for law, prior in held for name, value in prior.items())

    step, least = 0.5, squares(as_laws(p))
    while step > 1e-4:
        for _ in range(60):
            tried = p + step * pick.standard_normal(len(p))
            with np.errstate(all="ignore"):  # a step may be far too long
                value = squares(as_laws(tried))
            if value < least:
                p, least, step = tried, value, step * 1.5
                break
        else:
            step /= 2
    of = as_laws(p)
    return {name: law._replace(scale=math.exp(np.mean(means(of)[1]))) for name, law in of.items()}, p, squares


@runner.ci
def test_the_coefficients_are_those_of_another_minimization_over_the_cells():
    probes, cells = read_cells()
    others, p, squares = minimize(cells, probes)
    assert squares(laws()) < squares(others) * 1.01, others
    without = {name: minimize([cell for cell in cells if cell["corpus"] != name], probes, p)[0] for name in {cell["corpus"] for cell in cells}}
    for optimizer, law in laws().items():
        own = [cell for cell in cells if cell["optimizer"] == optimizer]
        N, D, U = sizes(own)
        assert np.allclose(loss(law, N, once(law, D, U)), loss(others[optimizer], N, once(others[optimizer], D, U)), rtol=3e-3), (law, others)
        corpora = {cell["corpus"] for cell in own}
        unseen = []
        for name in corpora:
            left = [cell for cell in own if cell["corpus"] == name]
            fitted, (N_left, D_left, U_left) = without[name][optimizer], sizes(left)
            predicted = loss(fitted, N_left, once(fitted, D_left, U_left)) * probes[name]["bits_per_byte"]
            unseen.append(np.mean([math.log(one / cell["bits_per_byte"]) ** 2 for one, cell in zip(predicted, left)]))
        assert math.isclose(law.deviation, math.sqrt(np.mean(unseen)), rel_tol=0.03), (law, unseen)
        assert (law.least_N, law.most_N) == (1e6 * N.min(), float(f"{1e6 * N.max():.5g}")) and law.least_D == float(f"{1e6 * D.min():.5g}"), law
        assert math.isclose(law.most_fall, max(1 - probes[name]["loss"] / probes[name]["early_loss"] for name in corpora), rel_tol=1e-4)
        assert law.most_flop == float(f"{max(6 * cell['parameters'] * cell['tokens'] for cell in own):.5g}")


def test_the_table_is_that_of_fit_grid_over_the_committed_cells():
    printed = read_laws(runner.call(sys.executable, f"{ROOT}/tests/bench/trainer/fit_grid.py", CELLS).stdout.decode())
    assert printed.keys() == laws().keys()
    for optimizer, law in laws().items():
        assert np.allclose(law, printed[optimizer], rtol=1e-3), (optimizer, law, printed)
