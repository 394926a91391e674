"""Receipts of runs: `trainer replay --receipt` and `--check`, and the second checker, millrace_loader.receipt. A forger changes a run of
six segments and repairs whatever needs no training: hashes of checkpoints, the chain, and the receipt, which it writes with the
program itself; or it changes what the receipt covers, and repairs its root. FORGERIES=1000 sets the number of each kind, SEED=1 which
ones, KIND=word takes the kinds with that word in their name."""
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from fractions import Fraction
from math import comb

import numpy as np
import runner
import test_audit as audit
import xxhash
from millrace_loader import receipt as checker

TRAINER = audit.TRAINER
ENDS = 2, 4, 6, 8, 10, 12
OPTIONS = "--eval_interval=2", "--lr_decay_iters=12", "--checkpoint_interval=0"


def call(folder, *options, env=None):
    return subprocess.run([TRAINER, "replay", "--quiet", "--threads=1", *map(str, options)], cwd=folder, capture_output=True, encoding="latin-1", env={**os.environ, **(env or {})})


def write(folder, name="receipt.json"):
    path = pathlib.Path(folder) / name
    path.unlink(missing_ok=True)
    done = call(folder, "--receipt", name, "run")
    assert done.returncode == 0, done.stderr
    return path


def check(folder, *options, name="receipt.json", env=None):
    return call(folder, "--check", name, "run", "--data_timeout=20", *options, env=env)


def check_python(folder, *options, name="receipt.json"):
    return subprocess.run([sys.executable, checker.__file__, name, *options], cwd=folder, capture_output=True, text=True, timeout=60)


def accepted(folder, count):
    """Both checkers accept the run."""
    done, second = check(folder), check_python(folder, "run")
    assert done.returncode == 0 and done.stdout.count(": accepted") == count, (done.stdout, done.stderr)
    assert second.returncode == 0 and second.stdout.count("are the lines of its segment") == count, (second.stdout, second.stderr)


def seed_of(path, number):
    """A seed that draws this segment alone."""
    receipt = checker.Receipt(str(path))
    return next(seed for seed in itertools.count() if receipt.draw(1, seed) == [number])


def honest(folder, ends=ENDS, options=()):
    """A run of these segments, with a checkpoint at the end of each: a run keeps three, so the others are put aside meanwhile."""
    folder = pathlib.Path(folder)
    audit.make_dataset(folder, audit.text())
    for step in ends:
        audit.train(folder, *OPTIONS, *options, f"--max_iters={step}")
        shutil.copytree(audit.checkpoint(folder, step), folder / f"kept/ckpt-{step:08d}", dirs_exist_ok=True)
    for step in ends:
        shutil.copytree(folder / f"kept/ckpt-{step:08d}", audit.checkpoint(folder, step), dirs_exist_ok=True)
    shutil.rmtree(folder / "kept")
    audit.KEPT = ends
    return folder


WHOLE = {}


def setup():
    WHOLE["run"] = honest(os.path.abspath("whole"))
    write(WHOLE["run"])


def copy(folder):
    folder = pathlib.Path(folder)
    shutil.copytree(WHOLE["run"], folder, dirs_exist_ok=True)
    metrics = folder / "run/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace(str(WHOLE["run"]), str(folder)))
    return folder


def test_a_receipt_is_small_and_both_checkers_accept_it(folder):
    folder = copy(folder)
    path = folder / "receipt.json"
    assert path.stat().st_size <= 10000
    accepted(folder, 6)
    found = checker.Receipt(str(path))
    assert [end["end"] for end in found.ends] == list(ENDS)
    lines = {line["step"]: line["chain"] for line in audit.read_lines(folder) if "loss" in line}
    assert {end["end"]: end["link"] for end in found.ends} == {step: lines[step] for step in ENDS}
    for step, end in zip(ENDS, found.ends):
        assert runner.call("sha256sum", audit.checkpoint(folder, step) / "model.safetensors").stdout.split()[0].decode() == end["weights"]
    configs = [line["config"] for line in map(json.loads, found.plan) if "config" in line]
    assert [config["max_iters"] for config in configs] == [str(step) for step in ENDS] and all(len(config) == 1 for config in configs[1:])
    before = path.read_bytes()
    assert call(folder, "--receipt", "receipt.json", "run").returncode == 73 and path.read_bytes() == before
    assert write(folder).read_bytes() == before


def test_a_check_needs_the_checkpoints_and_the_lines_of_its_segments_alone(folder):
    folder = copy(folder)
    whole = checker.Receipt(str(folder / "receipt.json"))
    seed = next(seed for seed in range(99) if whole.draw(2, seed) == [2, 5])
    page = (pathlib.Path(__file__).parents[3] / "docs/receipt.md").read_text()
    (script,) = re.findall("awk .*'(.*)' metrics.jsonl", page)
    metrics = folder / "run/metrics.jsonl"
    parts = [runner.call("awk", "-F[:,]", "-v", f"a={a}", "-v", f"b={b}", script, metrics).stdout.decode().splitlines(True) for a, b in ((2, 4), (8, 10))]
    text = "".join(line for line in metrics.read_text().splitlines(True) if line in parts[0] + parts[1])
    metrics.write_text(text)
    for step in 6, 12:
        shutil.rmtree(audit.checkpoint(folder, step))
    done = check(folder, "--segments=2", f"--seed={seed}")
    assert done.returncode == 0 and done.stdout.count("accepted") == 2, (done.stdout, done.stderr)
    assert check_python(folder, "run", "--segments=2", f"--seed={seed}").stdout.count("are the lines of its segment") == 2
    done = check(folder)
    assert done.returncode == 66 and done.stdout.count("not checked: there is no checkpoint of step") == 3, (done.stdout, done.stderr)
    assert "1 of 6: 0.6667" in done.stdout  # of the two that were checked
    for key in '"config"', '"fingerprint"':
        metrics.write_text("".join(line for line in text.splitlines(True) if key not in line))
        done, second = check(folder, "--segments=2", f"--seed={seed}"), check_python(folder, "run")
        assert done.returncode == 66 and "chance" not in done.stdout and second.returncode == 66, (done.stdout, second.stderr)


def test_the_chance_to_miss_is_the_share_of_draws_that_do(folder):
    folder = copy(folder)
    audit.flip(audit.checkpoint(folder, 4) / "model.safetensors", random.Random(1), [20000])
    found = checker.Receipt(str(folder / "receipt.json"))
    missed, seeds = {}, {tuple(found.draw(2, seed)): seed for seed in range(400)}
    assert sorted(seeds) == list(itertools.combinations(range(1, 7), 2))
    for drawn, seed in seeds.items():
        done = check(folder, "--segments=2", f"--seed={seed}")
        assert done.returncode in (0, 65) and [int(number) for number in re.findall("^segment (\\d)", done.stdout, re.M)] == list(drawn)
        missed[drawn] = done.returncode == 0
        if missed[drawn]:
            printed = {int(forged): float(chance) for forged, chance in re.findall("(\\d+) of 6: ([\\d.]+)", done.stdout)}
            assert printed == {forged: float(f"{comb(6 - forged, 2) / comb(6, 2):.4g}") for forged in (1, 2, 4)}
    share = Fraction(sum(missed.values()), len(missed))  # a checkpoint is the end of a segment and the start of the next
    assert share == Fraction(comb(4, 2), comb(6, 2))


def test_a_run_of_two_processes_has_a_receipt_unless_its_sums_depend_on_their_number(folder):
    if not shutil.which("mpirun") or not (audit.BIN.parent / "lib/millrace/mpi.so").exists():
        raise runner.Skip("built without MPI, or mpirun is not installed")
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                      OMPI_MCA_btl_vader_single_copy_mechanism="none")  # fmt: skip
    audit.make_dataset(folder, audit.text())
    for order, code in ("fixed", 0), ("fast", 2):
        audit.train(folder, f"--reduce_order={order}", "--gradient_accumulation_steps=4", launcher=("mpirun", "-n", "2"))
        done = call(folder, "--receipt", f"{order}.json", "run")
        assert done.returncode == code, (order, done.stderr)
        assert code or check(folder, name="fixed.json").returncode == 0
        shutil.rmtree(pathlib.Path(folder) / "run")
    assert "reduce_order=fast and 2 processes" in done.stderr and not (pathlib.Path(folder) / "fast.json").exists()


def test_both_checkers_accept_runs_that_were_resumed_and_continued(folder):
    folder = pathlib.Path(folder)
    audit.make_dataset(folder, audit.text())
    for steps in 0, 4, 8:  # the first process made no step, and the second replaces it
        audit.train(folder, *OPTIONS, f"--max_iters={steps}")
    shutil.rmtree(audit.checkpoint(folder, 8))  # as if it had been killed before its end
    audit.train(folder, *OPTIONS, "--max_iters=8")
    assert [line["step"] for line in audit.read_lines(folder) if "config" in line][:2] == [0, 0]
    write(folder)
    accepted(folder, 2)
    shutil.copytree(folder / "run", folder / "kept")
    audit.train(folder, *OPTIONS, "--max_iters=10", "--eval_interval=5")
    for path in (folder / "kept").glob("ckpt-*"):
        shutil.copytree(path, folder / "run" / path.name, dirs_exist_ok=True)
    accepted(folder, 2)  # with later lines and checkpoints
    state = audit.checkpoint(folder, 10) / "state.json"
    text = state.read_bytes()
    state.write_bytes(text[:100])
    accepted(folder, 2)  # of these the receipt says nothing
    state.write_bytes(text)
    write(folder)
    accepted(folder, 3)


def test_a_receipt_has_the_initial_model(folder):
    base = copy(pathlib.Path(folder) / "base")
    folder = pathlib.Path(folder)
    shutil.copytree(audit.checkpoint(base, 12), folder / "model")
    folder = honest(folder, (2, 4), ("--init_from=model",))
    path = write(folder)
    assert json.loads(path.read_text().splitlines()[0])["initial"] == hashlib.sha256((folder / "model/model.safetensors").read_bytes()).hexdigest()
    accepted(folder, 2)
    body = body_of(folder)
    for claim in hashlib.sha256(b"").hexdigest().encode(), b"scratch":  # the receipt names another model
        path.write_bytes(rooted(re.sub(b'(?<="initial": ")\\w+', claim, body)))
        done = check(folder, "--segments=1", f"--seed={seed_of(path, 1)}")
        assert done.returncode == 65 and "not the initial model of the receipt" in done.stdout, done.stdout
    path.write_bytes(rooted(body))
    for step in 2, 4:  # the forger hides the model: a run from scratch with these settings has other weights
        state = (audit.checkpoint(folder, step) / "state.json").read_text()
        audit.change_state(folder, step, re.search(' "init_from": .*\n', state)[0], "")
    done = check(folder)
    assert done.returncode == 65 and done.stdout.count("refused") == 2, done.stdout
    assert '"initial": "scratch"' in write(folder).read_text()
    assert check_python(folder, "run").returncode == 0
    done = check(folder, "--segments=1", f"--seed={seed_of(path, 1)}")
    assert done.returncode == 65 and "refused: step 0: val_loss" in done.stdout, done.stdout


@runner.ci
def test_a_run_with_more_checkpoints_than_fit_has_segments_of_equal_length(folder):
    folder = honest(folder, range(1, 27), ("--eval_interval=100",))
    receipt = checker.Receipt(str(write(folder)))
    steps = [0] + [end["end"] for end in receipt.ends]
    assert 15 < len(steps) <= 21 and steps[-1] == 26 and {b - a for a, b in zip(steps, steps[1:])} <= {1, 2}
    assert (folder / "receipt.json").stat().st_size <= 10000
    accepted(folder, len(receipt.ends))


# ---- forgers of runs. Each returns the number of a segment that must be refused; 0: one of them


def other_data(folder, own):
    audit.forge_text(folder, own)
    audit.repair_chain(folder)
    return 0


def other_weights(folder, own):
    step = own.choice(ENDS)
    path = audit.checkpoint(folder, step) / f"{own.choice(('model', 'optimizer'))}.safetensors"
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    audit.flip(path, own, range(8 + length, path.stat().st_size))
    audit.change_state(folder, step, *audit.repair_tensors(path))
    audit.repair_chain(folder)
    return ENDS.index(step) + 1


def skipped_steps(folder, own):
    """Checkpoints of a run that left out updates: the state of an earlier checkpoint, with the names of a later one."""
    at = own.randrange(1, len(ENDS))
    for name in "model.safetensors", "optimizer.safetensors":
        old, new = (audit.checkpoint(folder, ENDS[i]) / name for i in (at - 1, at))
        headers = [xxhash.xxh3_128_hexdigest(path.read_bytes()[8 : 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]]) for path in (new, old)]
        shutil.copy(old, new)
        audit.change_state(folder, ENDS[at], *headers)
    scale = own.uniform(0.98, 1.02)
    forge_lines(folder, lambda line: line.update(loss=line["loss"] * scale) if line["step"] > ENDS[at - 1] else None)
    return at + 1


def swapped_segments(folder, own):
    """The results of two segments, and the checkpoints at their ends, change places."""
    a, b = sorted(own.sample(range(len(ENDS)), 2))
    lines = {line["step"]: line for line in audit.read_lines(folder) if "loss" in line}
    for name in "model.safetensors", "optimizer.safetensors":
        paths = [audit.checkpoint(folder, ENDS[i]) / name for i in (a, b)]
        data = [path.read_bytes() for path in paths]
        hashes = [xxhash.xxh3_128_hexdigest(text[8 : 8 + struct.unpack("<Q", text[:8])[0]]) for text in data]
        for i, other in ((0, 1), (1, 0)):
            paths[i].write_bytes(data[other])
            audit.change_state(folder, ENDS[(a, b)[i]], hashes[i], hashes[other])
    moved = {ENDS[x] - i: ENDS[y] - i for x, y in ((a, b), (b, a)) for i in range(2)}
    forge_lines(folder, lambda line: line.update(loss=lines[moved[line["step"]]]["loss"], norm=lines[moved[line["step"]]]["norm"]) if line["step"] in moved else None)
    return own.choice((a, b)) + 1


def another_program(folder, own):
    """One that rounds otherwise: the losses and norms of all steps from one on differ in their last bit."""
    first = own.randint(1, 12)

    def change(line):
        if line["step"] >= first:
            line["loss"] = float(np.nextafter(line["loss"], own.choice((0.0, 9.0))))

    forge_lines(folder, change)
    return (first + 1) // 2


def another_seed(folder, own):
    seed = str(own.randrange(1, 1 << 31))
    if seed == "1337":
        seed = "1"
    metrics = folder / "run/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"seed": "1337"', f'"seed": "{seed}"'))
    for step in ENDS:
        audit.change_state(folder, step, '"seed": "1337"', f'"seed": "{seed}"')
    audit.repair_chain(folder)
    return own.randint(1, 6)


def forge_lines(folder, change):
    path = folder / "run/metrics.jsonl"
    lines = []
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if "loss" in line:
            old = dict(line)
            change(line)
            for key in "loss", "norm":
                text = re.sub(f'("{key}": )[^,]*', rf"\g<1>{line[key]:.17g}", text) if old[key] != line[key] else text
        lines.append(text + "\n")
    path.write_text("".join(lines))
    audit.repair_chain(folder)


def another_result(folder, own):
    """A second evaluation, a spike or a repeated step, anywhere, also behind the last step of a segment."""
    path = folder / "run/metrics.jsonl"
    lines = path.read_text().splitlines(True)
    at = own.choice([i for i, line in enumerate(lines) if re.search('"(loss|val_loss)"', line)])
    step = json.loads(lines[at])["step"]
    evaluation = own.choice([line for line in lines if "val_loss" in line])
    lines.insert(at + 1, own.choice((re.sub('"step": \\d+', f'"step": {step}', evaluation), lines[at], f'{{"step": {step}, "spike": "warn", "z": 7}}\n')))
    path.write_text("".join(lines))
    return max(step + 1, 1) // 2 or 1


RUN_KINDS = other_data, other_weights, skipped_steps, swapped_segments, another_program, another_seed, another_result


# ---- forgers of a receipt, or of what it covers. Each returns the same, of a receipt that was not written again


def rooted(body):
    return body + b'{"root": "%s"}\n' % hashlib.sha256(body).hexdigest().encode()


def body_of(folder):
    text = (folder / "receipt.json").read_bytes()
    return text[: text.rindex(b'{"root"')]


def put(folder, body, line):
    """Segment of a changed line: a check takes the ends of the segments that were not drawn as they are."""
    (folder / "receipt.json").write_bytes(rooted(body))
    return max(line - (body_of(WHOLE["run"]).count(b"\n") - len(ENDS)) + 1, 1)


def any_byte(folder, own):
    body = bytearray(body_of(folder))
    at = own.randrange(len(body) - 1)
    body[at] ^= 1 << own.randrange(8)
    return put(folder, bytes(body), bytes(body[:at]).count(b"\n"))


def any_member(folder, own):
    lines = body_of(folder).decode().splitlines(True)
    at = own.randrange(len(lines))
    places = [match for match in re.finditer('(?<=": )(?:"[^"]*"|\\d+)', lines[at])]
    match = own.choice(places)
    value = json.loads(match[0])
    other = value + own.choice((1, -1, 1 << 40)) if type(value) is int else own.choice((value + "0", value.upper(), value[1:], "", "0" * len(value), None, 1.5))
    if other == value:
        other = "x"
    lines[at] = lines[at][: match.start()] + json.dumps(other) + lines[at][match.end() :]
    return put(folder, "".join(lines).encode(), at)


def more_text(folder, own):
    """A member or a line that no receipt has, one that is repeated or gone, other spaces or escapes."""
    lines = body_of(folder).decode().splitlines(True)
    at = own.randrange(len(lines))
    line = lines[at]
    quoted = own.choice([match.start() for match in re.finditer('"[a-z0-9]', line)]) + 1
    lines[at] = own.choice((line[:-2] + ', "note": "x"}\n', "{" + re.match('{(.*?),', line)[1] + ", " + line[1:], line + line, "", line[:-1] + " \n", line.replace(": ", ":", 1), line[:quoted] + f"\\u{ord(line[quoted]):04x}" + line[quoted + 1 :],
                            line[:-1] + "\r\n", "\ufeff" + line, line[:-1], line + "\n", line[:-2] + ', "\\u0000": 1}\n', line + '{"step": 1, "cooldown_begun": 1, "cooldown_steps": 2, "cooldown_done": 0}\n'))  # fmt: skip
    return put(folder, "".join(lines).encode(), at)


def any_line(folder, own):
    """Of metrics.jsonl: a result or a setting is changed, a line is gone, repeated or added."""
    path = folder / "run/metrics.jsonl"
    lines = path.read_text().splitlines(True)
    at = own.choice([i for i, line in enumerate(lines) if re.search('"(loss|val_loss|config|dataset)"', line)])
    line, step = lines[at], json.loads(lines[at])["step"]
    digit = own.choice([match.start() for match in re.finditer("[0-9]", re.sub('"ms".*|"(arena_bytes|world|data)": [^,]*|"machine": "[^"]*|"step": \\d+', lambda match: "x" * len(match[0]), line))])
    lines[at] = own.choice(("", line + line, line[:digit] + str((int(line[digit]) + own.randint(1, 9)) % 10) + line[digit + 1 :]))
    path.write_text("".join(lines))
    return min((step + ("config" in line or "dataset" in line)) // 2 + 1, 6) if "config" in line or "dataset" in line else max(step + 1, 1) // 2 or 1


def any_file(folder, own):
    step = own.choice(ENDS)
    audit.flip(audit.checkpoint(folder, step) / own.choice(("model.safetensors", "optimizer.safetensors", "state.json")), own)
    return ENDS.index(step) + 1


RECEIPT_KINDS = any_byte, any_member, more_text, any_line, any_file


def test_no_forged_receipt_is_accepted(home):
    count, seed, word = int(os.environ.get("FORGERIES", 1)), int(os.environ.get("SEED") or 1), os.environ.get("KIND", "")
    print(f"seed {seed} of test_receipt.py", flush=True)
    forged, codes, wrong = pathlib.Path(home) / "forged", {}, []
    audit.KEPT = ENDS
    for kind, number in itertools.product([kind for kind in RUN_KINDS + RECEIPT_KINDS if word in kind.__name__], range(count)):
        own = random.Random(f"{seed} {kind.__name__} {number}")
        shutil.rmtree(forged, ignore_errors=True)
        copy(forged)
        draw = kind(forged, own)
        path = forged / "receipt.json"
        if kind in RUN_KINDS:  # with the forger's numbers: nothing that needs no training contradicts itself
            write(forged)
            list(checker.check_run(checker.Receipt(str(path)), str(forged / "run")))
            done = check(forged, *(("--segments=1", f"--seed={seed_of(path, draw)}") if draw else ()))
        else:
            second = check_python(forged, "run")
            try:
                options = "--segments=1", f"--seed={seed_of(path, draw)}"
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                options = ()  # it can draw nothing
            done = check(forged, *options)
            lacks = done.returncode == 66 and "lacks step" in done.stdout  # lines that somebody does not have
            if second.returncode not in (65, 66, 0 if lacks else 65) or "Traceback" in second.stderr:
                wrong.append((kind.__name__, number, second.returncode, second.stdout, second.stderr))
        codes.setdefault(kind.__name__, []).append(done.returncode)
        if done.returncode not in (65, 66) or "accepted" in done.stdout and draw or (kind in RUN_KINDS and done.returncode != 65):
            wrong.append((kind.__name__, number, draw, done.returncode, done.stdout, done.stderr))
    print({name: {code: found.count(code) for code in sorted(set(found))} for name, found in codes.items()}, flush=True)
    assert not wrong, (seed, len(wrong), wrong[:5])


# ---- the checkers


def test_both_checkers_refuse_foreign_and_damaged_files_alike(folder):
    folder = copy(folder)
    path = folder / "receipt.json"
    whole, body = path.read_bytes(), body_of(folder)
    for text in (b"", whole[:-9], whole[:-1], whole + b" ", b"x" * 20000, b"[" * 9000, b"{}", body, rooted(b""), rooted(b"[]\n"), rooted(b"[" * 9000 + b"\n"), rooted(b'{"end": "x"}\n' * 30),
                 rooted(body.replace(b'"receipt": 1,', b'"receipt": 2,')), rooted(body.replace(b'"steps": 12', b'"steps": ' + b"9" * 5000)), rooted(body.replace(b"scratch", b"\xff")), rooted(body.replace(b'": "0', b'": "\xc0\xb0'))):  # fmt: skip
        path.write_bytes(text)
        done, second = check(folder), check_python(folder, "run")
        assert done.returncode == 65 and "accepted" not in done.stdout, (text[:80], done.returncode, done.stdout, done.stderr)
        assert second.returncode == 65 and "refused: " in second.stderr and "Traceback" not in second.stderr, (text[:80], second.stderr)
    os.truncate(path, 1 << 42)  # of no bytes on the disk
    assert check(folder).returncode == check_python(folder, "run").returncode == 65
    path.write_bytes(whole)
    for seed in "-1", "1" * 19, "1.0", "x", "", "\u0661":
        assert check(folder, "--segments=1", f"--seed={seed}").returncode == check_python(folder, "--segments=1", f"--seed={seed}").returncode == 2, seed
    for options in ("--segments=1",), ("--seed=1",):  # a draw by a seed that nobody has chosen proves nothing
        assert check(folder, *options).returncode == check_python(folder, *options).returncode == 2, options
    for segments in "7", "x":
        assert check(folder, f"--segments={segments}", "--seed=1").returncode == check_python(folder, f"--segments={segments}", "--seed=1").returncode == 2
    assert [int(number) for number in re.findall("segment (\\d)", check(folder, "--segments=2", "--seed=007").stdout)] == checker.Receipt(str(path)).draw(2, 7)
    assert check(folder, "--ema=0.5").returncode == 2
    metrics = folder / "run/metrics.jsonl"
    lines = metrics.read_bytes()
    for odd in b"[]\n", b"{}\n", b'{"step": "x", "loss": 1}\n', b'{"step": 1, "loss": NaN}\n', b"\xff\n", b'{"step": 0, "arena_bytes": 1, "config": 3}\n', b'{"step": 13, "loss": 1', b"[" * 9000 + b"\n":
        metrics.write_bytes(lines + odd)
        second = check_python(folder, "run")
        assert second.returncode == 65 and "Traceback" not in second.stderr and check(folder).returncode in (65, 66), (odd[:40], second.stderr)
    metrics.write_bytes(lines)
    os.mkfifo(folder / "fifo")
    assert check(folder, name="fifo").returncode == check_python(folder, name="fifo").returncode == 66
    metrics.unlink()
    os.mkfifo(metrics)
    assert check(folder).returncode == check_python(folder, "run").returncode == 66


def test_a_receipt_of_other_bits_or_of_another_machine_is_not_checked(folder):
    folder = copy(folder)
    metrics = folder / "run/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"bits": 2', '"bits": 9'))
    (folder / "receipt.json").write_bytes(rooted(body_of(folder).replace(b'"bits": 2', b'"bits": 9')))
    done = check(folder)
    assert done.returncode == 2 and done.stdout.count("not checked: ") == 6 and "version 9" in done.stdout and "chance" not in done.stdout, done.stdout
    folder = copy(folder / "other")
    machine = json.loads((folder / "receipt.json").read_text().splitlines()[0])["machine"]
    for step in ENDS:
        audit.change_state(folder, step, machine, "cpu: abacus")
    write(folder)
    done = check(folder)
    assert done.returncode == 2 and done.stdout.count("not checked: the run was computed on 'cpu: abacus'") == 6, done.stdout


def test_a_forger_cannot_hide_a_setting_from_the_plan(folder):
    """The run has another setting than its receipt names. Whoever computes a segment again takes the last process before it."""
    folder = pathlib.Path(folder)
    audit.make_dataset(folder, audit.text())
    metrics = folder / "run/metrics.jsonl"
    for steps, interval, key, real_value, value in (4, 2, "learning_rate", "0.02", "0.01"), (3, 1, "seed", "5", "1337"):
        shutil.rmtree(folder / "run", ignore_errors=True)
        audit.train(folder, f"--eval_interval={interval}", f"--{key}={real_value}", f"--max_iters={steps}")
        lines = metrics.read_text().splitlines(True)
        at = lambda step, key: next(i for i, line in enumerate(lines) if re.match(f'{{"step": {step}, "{key}"', line))
        real = lines[at(0, "arena_bytes")].replace('"step": 0', '"step": 3')
        lines = [line.replace(f'"{key}": "{real_value}"', f'"{key}": "{value}"') for line in lines]
        if steps == 4:  # the receipt has the change behind step 3, and the record before step 2
            metrics.write_text("".join(lines[: at(3, "loss") + 1] + [real] + lines[at(3, "loss") + 1 :]))
            path = write(folder)
            forged = lines[: at(2, "loss")] + [real] + lines[at(2, "loss") :]
        else:  # before a second line of the last step
            metrics.write_text("".join(lines))
            path = write(folder)
            claimed = lines[at(0, "arena_bytes")].replace('"step": 0', '"step": 3')
            forged = lines[: at(3, "val_loss") + 1] + [claimed, lines[at(3, "val_loss")], real, lines[at(3, "loss")]]
        metrics.write_text("".join(forged))
        number = len(checker.Receipt(str(path)).ends)
        end = checker.Receipt(str(path)).ends[-1]
        hash = checker.lines_hash([(line.encode(), json.loads(line), list(json.loads(line))[1]) for line in map(str.strip, forged)], steps - interval, steps)
        path.write_bytes(rooted(body_of(folder).replace(end["lines"].encode(), hash.encode())))
        done = check(folder, "--segments=1", f"--seed={seed_of(path, number)}")
        assert done.returncode == 65 and "accepted" not in done.stdout, (steps, done.stdout)
        assert check_python(folder, "run").returncode == 65


def test_a_configuration_has_every_key_of_a_run_and_no_other(folder):
    folder = copy(folder)
    metrics = folder / "run/metrics.jsonl"
    text = metrics.read_text()
    process = re.search('{"step": 4, "arena_bytes".*\n', text)[0].replace('"step": 4', '"step": 5')
    fewer = re.sub('({"step": 5, "loss".*\n)', lambda line: line[0] + process.replace('"learning_rate": "0.01", ', ""), text)
    more = text.replace('"config": {', '"config": {"loader": "ipc://place", "data_timeout": "1", ')  # the loader of a stranger
    for text, step in (fewer, 5), (more, 4):
        metrics.write_text(text)
        done = check(folder, "data", "--segments=1", f"--seed={seed_of(write(folder), 3)}")
        assert done.returncode == 65 and f"configuration of step {step}" in done.stdout, (step, done.stdout)


def test_a_check_reads_no_data_where_the_record_says(folder):
    folder = copy(folder)
    metrics = folder / "run/metrics.jsonl"
    for place in '"loader": "tcp://127.0.0.1:9"', '"data": "http://127.0.0.1:9/data"':
        metrics.write_text(re.sub('"data": "[^"]*"', place, metrics.read_text()))
        done = check(folder, "--segments=1", f"--seed={seed_of(folder / 'receipt.json', 3)}")
        assert done.returncode == 66 and "name the dataset" in done.stdout and "accepted" not in done.stdout, done.stdout
        assert check(folder, "data", "--segments=1", "--seed=1").returncode == 0
        metrics.write_text(metrics.read_text().replace(place, '"data": "x"'))
