"""The hash chain of a run is that of its specification, and `trainer replay` accepts no forged run. A forger flips one bit
of the data, the configuration, a checkpoint or metrics.jsonl, and then repairs what needs no training: the hashes of a
dataset, of a checkpoint, and the whole chain. FORGERIES=1000 sets their number, SEED=1 which ones."""
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess

import runner
import chain
import xxhash

BIN = pathlib.Path(os.environ["BIN"])
TRAINER, SHARDTOOL = BIN / "trainer", BIN / "shardtool"
KEPT = 3, 6  # steps with a checkpoint
CONFIG = """n_layer = 1
n_head = 2
n_embd = 16
block_size = 16
batch_size = 2
gradient_accumulation_steps = 2
learning_rate = 1e-2
warmup_iters = 2
max_iters = 6
lr_decay_iters = 6
eval_interval = 3
eval_iters = 2
sample_tokens = 0
threads = 1
device = 'cpu'
dtype = 'float32'
checkpoint_interval = 0
"""
# Members of metrics.jsonl about times, memory and the disk, which no replay can give again.
TIMES = "ms tok_s product_share wait arena_bytes world answer_share version machine saved_step save_ms save_wait_ms step_time_ratio processor_lost".split()


def text():
    return "".join(f"line {i} of a text about mills, rivers and {'water' if i % 3 else 'bread'}\n\n" for i in range(60))


def make_dataset(folder, lines):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text(lines)
    if not (folder / "abc.txt").exists():
        (folder / "abc.txt").write_text("\n" + "".join(map(chr, range(32, 127))))
    shutil.rmtree(folder / "data", ignore_errors=True)
    runner.call(SHARDTOOL, "tokenize", "-q", "--docs", "paragraphs", "--val", "0.2", "--vocabulary", folder / "abc.txt", "-o", folder / "data", folder / "text.txt")


def train(folder, *options, run="run", launcher=()):
    (pathlib.Path(folder) / "run.conf").write_text(CONFIG)
    return subprocess.run([*launcher, TRAINER, "train", "--quiet", "run.conf", "--dataset=data", f"--out_dir={run}", *options], cwd=folder, capture_output=True, text=True, check=True)


def replay(folder, *options):
    return subprocess.run([TRAINER, "replay", "--quiet", "run", "--threads=1", *options], cwd=folder, capture_output=True, encoding="latin-1")


def read_lines(folder):
    return [json.loads(line) for line in (pathlib.Path(folder) / "run/metrics.jsonl").read_text().splitlines()]


def checkpoint(folder, step):
    return pathlib.Path(folder) / f"run/ckpt-{step:08d}"


def chain_of(folder, lines=None):
    state = json.loads((checkpoint(folder, KEPT[-1]) / "state.json").read_text())
    weights = {step: chain.weights(checkpoint(folder, step)) for step in KEPT}
    ids = chain.train_ids(SHARDTOOL, pathlib.Path(folder) / "data")
    return chain.Chain(lines or read_lines(folder), bytes.fromhex(state["vocabulary"]), ids, weights)


def honest(folder, *options):
    make_dataset(folder, text())
    train(folder, *options)
    return folder


def test_the_chain_is_that_of_its_specification(folder):
    for i, options in enumerate([(), ("--sampling=shifted",), ("--sampling=documents", "--seed=5"), ("--batch_size=1", "--gradient_accumulation_steps=3")]):
        place = pathlib.Path(folder) / str(i)
        honest(place, *options)
        recorded = {line["step"]: line["chain"] for line in read_lines(place) if "loss" in line}
        links = dict(chain_of(place).links()) if i != 2 else None
        if links is None:  # the end-of-text id is that of the vocabulary
            own = chain_of(place)
            eot = json.loads(runner.call(SHARDTOOL, "info", "--json", place / "data").stdout)["eot_id"]
            row = chain.sampling.row
            chain.sampling.row = lambda *arguments, **place: row(*arguments, eot=eot, **place)
            links = dict(own.links())
            chain.sampling.row = row
        assert links == recorded, (options, links, recorded)
        for step in KEPT:
            assert json.loads((checkpoint(place, step) / "state.json").read_text())["chain"] == recorded[step]
        assert replay(place).returncode == 0


def test_a_checkpoint_of_another_step_is_no_part_of_a_run(folder):
    folder = honest(pathlib.Path(folder))
    for step in 5, 6:
        if step < 6:
            shutil.copytree(checkpoint(folder, 6), checkpoint(folder, step))
        change_state(folder, step, '"step": 6', f'"step": {step}')
        change_state(folder, step, '"evaluated": true', '"evaluated": ' + ("true" if step < 6 else "false"))
        done = replay(folder)
        assert done.returncode == 1 and f"step {step}: " in done.stderr, (step, done.stdout, done.stderr)
        shutil.rmtree(checkpoint(folder, step))


def test_the_chain_of_several_processes_has_the_same_definition(folder):
    if not shutil.which("mpirun") or not (BIN.parent / "lib/millrace/mpi.so").exists():
        raise runner.Skip("built without MPI, or mpirun is not installed")
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                      OMPI_MCA_btl_vader_single_copy_mechanism="none")  # fmt: skip
    make_dataset(folder, text())
    train(folder, "--gradient_accumulation_steps=6", launcher=("mpirun", "-n", "3"))
    recorded = {line["step"]: line["chain"] for line in read_lines(folder) if "loss" in line}
    assert dict(chain_of(folder).links()) == recorded


class MixtureChain(chain.Chain):
    """That of a mixture with a schedule [(from, weights), ...]; by rule 1 each link has the fingerprint of the whole schedule."""

    def open(self, mixture, datasets, schedule, rule):
        self.sources = [chain.train_ids(SHARDTOOL, data) for data in datasets]
        self.at, self.schedule, self.rule = mixture.at, schedule, rule
        own = [bytes.fromhex(json.loads((data / "dataset.jsonl").read_text().splitlines()[0])["fingerprint"]) for data in datasets]
        self.fingerprints = mixture.fingerprints(own, schedule)
        return self

    def row(self, sample):
        place, number = self.at(self.schedule, sample)
        return super().row(number, self.sources[place], place)

    def fingerprint_at(self, sample):
        holds = sum(begin <= sample for begin, _ in self.schedule)
        return self.fingerprints[holds - 1 if self.rule == 2 else -1]


def test_the_chain_of_a_mixture_has_the_weights_of_its_samples_and_an_earlier_run_keeps_its_rule(folder):
    import test_loader_mixture as mixture  # which needs what the Python client needs

    folder = pathlib.Path(folder)
    make_dataset(folder, text())
    make_dataset(folder / "other", text().replace("mills", "hills"))
    datasets = folder / "data", folder / "other/data"
    (folder / "schedule").write_text("10 1 3\n1000 1 1\n")
    schedule = [(0, (3, 1)), (10, (1, 3)), (1000, (1, 1))]
    options = "--dataset=", "--loader=ipc://place", "--vocabulary=abc.txt"
    here = os.getcwd()
    os.chdir(folder)
    try:
        with mixture.client.Loader("ipc://place", "data:3", ["other/data:1", "--schedule", "schedule"]) as loader:
            train(folder, *options)
            for rule in 2, 1:
                lines = read_lines(folder)
                state = json.loads((checkpoint(folder, KEPT[-1]) / "state.json").read_text())
                assert state.get("chain_rule", 1) == rule
                weights = {step: chain.weights(checkpoint(folder, step)) for step in KEPT}
                own = MixtureChain(lines, bytes.fromhex(state["vocabulary"]), None, weights)
                recorded = {line["step"]: line["chain"] for line in lines if "loss" in line}
                assert dict(own.open(mixture, datasets, schedule, rule).links()) == recorded, rule
                done = replay(folder, "--loader=ipc://place")
                assert done.returncode == 0 and (", by rule 1" in done.stdout) == (rule == 1), (done.stdout, done.stderr)
                if rule == 1:
                    break
                # As a run of an earlier version, which goes on; and its loader has further weights then.
                shutil.rmtree(checkpoint(folder, 6))
                links = dict(own.open(mixture, datasets, schedule, 1).links())
                metrics = (folder / "run/metrics.jsonl").read_text()
                for step in recorded:
                    metrics = metrics.replace(recorded[step], links[step])
                (folder / "run/metrics.jsonl").write_text(metrics)
                change_state(folder, 3, recorded[3], links[3])
                change_state(folder, 3, ' "chain_rule": 2,\n', "")
                train(folder, *options)
            (folder / "schedule").write_text("10 1 3\n1000 1 1\n2000 5 1\n")
            loader.kill()
            loader.start()
            assert replay(folder, "--loader=ipc://place", "--steps=2..5").returncode == 0
            (folder / "schedule").write_text("10 1 3\n12 1 1\n")
            loader.kill()
            loader.start()
            assert replay(folder, "--loader=ipc://place").returncode == 66  # other weights than the run had
    finally:
        os.chdir(here)


# tests/data/config_75497fde.json is "config" in state.json of a run by commit 75497fde, before decay_lr and eval_iters became
# lr_schedule and eval_tokens: CONFIG with max_iters=3 decay_lr=False optimizer_state=bf16 recompute=block position=rope
# rope_theta=500 gelu=tanh spike_action=skip spike_z=50. Version 0.1.0 had other words for two of them.
def test_a_run_that_an_earlier_version_began_goes_on_replays_and_evaluates_with_equal_bits(folder):
    model = "--position=rope:500", "--mlp=gelu:tanh", "--optimizer_state=bf16", "--recompute=block", "--spike_action=skip:50"
    config = (pathlib.Path(__file__).parents[2] / "data/config_75497fde.json").read_text()
    for i, words in enumerate([{}, {'"bf16"': '"m8"', '"block"': '"5"'}]):
        place = pathlib.Path(folder) / str(i)
        make_dataset(place, text())
        train(place, *model, "--lr_schedule=constant", "--warmup_iters=0", "--max_iters=3")
        shutil.copytree(place / "run", place / "whole")
        earlier = json.loads(re.sub("|".join(words) or "$^", lambda word: words[word[0]], config))
        state = json.loads((checkpoint(place, 3) / "state.json").read_text())
        assert earlier.keys() - state["config"].keys() == {"decay_lr", "eval_iters"} and earlier["eval_tokens"] == "0"
        (checkpoint(place, 3) / "state.json").write_text(json.dumps({**state, "config": earlier}, indent=1)[:-2] + "\n}\n")
        repair_state(checkpoint(place, 3) / "state.json")
        record = place / "run/metrics.jsonl"
        record.write_text(re.sub(r'"config": {[^}]*}', f'"config": {json.dumps(earlier)}', record.read_text()))
        found = [subprocess.run([TRAINER, "eval", "--quiet", "--json", "--dataset=data", f"--out_dir={run}", "--threads=1"], cwd=place, capture_output=True, check=True).stdout
                 for run in ("run", "whole")]  # fmt: skip
        assert found[0] == found[1]
        train(place, *model, "--lr_schedule=constant", "--warmup_iters=0", run="whole")
        train(place, *model, "--decay_lr=False")
        for name in "model.safetensors", "optimizer.safetensors":
            assert (checkpoint(place, 6) / name).read_bytes() == (place / "whole" / checkpoint(place, 6).name / name).read_bytes()
        states = [json.loads((place / run / checkpoint(place, 6).name / "state.json").read_text()) for run in ("run", "whole")]
        assert states[0] == states[1]
        done = replay(place)
        assert done.returncode == 0, done.stderr
        subprocess.run([TRAINER, "report", "-o", "runs.html", "run", "whole"], cwd=place, capture_output=True, check=True)
        for page in "runs.html", "run/report.html":
            assert not re.search("decay_lr|eval_iters", (place / page).read_text())


# ---- forgers: each changes one bit of a copy of an honest run, and returns what it did


def flip(path, random, places=None):
    data = bytearray(path.read_bytes())
    at, bit = random.choice(places) if places else random.randrange(len(data)), random.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {at} of {path.name}"


def files(folder, pattern):
    return sorted(path for path in pathlib.Path(folder).glob(pattern) if path.is_file() and path.stat().st_size and path.name != ".lock")


def repair_state(path):
    """The last key is the hash of the text before it."""
    state = path.read_text(encoding="latin-1")
    body = state[: state.rindex(',\n "hash"')]
    path.write_text(body + f',\n "hash": "{xxhash.xxh3_128_hexdigest(body.encode("latin-1"))}"\n}}\n', encoding="latin-1")


def change_state(folder, step, old, new):
    path = checkpoint(folder, step) / "state.json"
    path.write_text(path.read_text().replace(old, new))
    repair_state(path)


def repair_chain(folder):
    """Every link of the run as the forged lines have it, in the lines and in the checkpoints."""
    lines = read_lines(folder)
    path = pathlib.Path(folder) / "run/metrics.jsonl"
    old = {line["step"]: line["chain"] for line in lines if "loss" in line}
    new = dict(chain_of(folder, lines).links())
    metrics = path.read_text()
    for step in old:
        metrics = metrics.replace(old[step], new[step])
    path.write_text(metrics)
    for step in KEPT:
        change_state(folder, step, old[step], new[step])


def forge_data(folder, random):
    return flip(random.choice(files(folder, "data/**/*")), random)


def forge_text(folder, random):
    """A bit of the text that became tokens: another dataset, whose fingerprint the forger writes wherever the run has it."""
    before = json.loads(runner.call(SHARDTOOL, "info", "--json", folder / "data").stdout)
    config = chain_of(folder).config
    ids = chain.train_ids(SHARDTOOL, folder / "data")
    used = {chain.sampling.epoch(int(config["seed"]), 0, len(ids), 16, sample) // 16 for sample in range(24)}
    for attempt in range(100):
        lines = list(text())
        at = random.randrange(len(lines))
        other = chr(ord(lines[at]) ^ 1 << random.randrange(7))
        if lines[at] == "\n" or not 32 <= ord(other) < 127:
            continue
        lines[at] = other
        make_dataset(folder, "".join(lines))
        now = chain.train_ids(SHARDTOOL, folder / "data")
        if len(now) == len(ids) and any(((now != ids).nonzero()[0] // 16)[0] == block for block in used if (now != ids).any()):
            break
    else:
        raise AssertionError("no token of the run was changed")
    after = json.loads(runner.call(SHARDTOOL, "info", "--json", folder / "data").stdout)
    metrics = folder / "run/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace(before["fingerprint"], after["fingerprint"]))
    for step in KEPT:
        change_state(folder, step, before["fingerprint"], after["fingerprint"])
    if random.random() < 0.8:
        repair_chain(folder)
    return f"character {at} of the text, {text()[at]!r} to {other!r}"


def results(metrics):
    """The bytes of metrics.jsonl that are not times."""
    free = set()
    for match in re.finditer(rb'"(\w+)": ("(?:[^"\\]|\\.)*"|[^,}]*)', metrics):
        if match[1].decode() in TIMES:
            free.update(range(*match.span(2)))
    return [i for i in range(len(metrics)) if i not in free]


def forge_metrics(folder, random):
    path = folder / "run/metrics.jsonl"
    honest = path.read_bytes()
    done = flip(path, random, results(honest))
    flipped = path.read_bytes()
    try:
        repair_chain(folder)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration, OverflowError, struct.error):
        pass  # no JSON any more, or not of a run
    if path.read_bytes() == honest:  # the bit was one of the chain
        path.write_bytes(flipped)
    return done


def forge_checkpoint(folder, random):
    return flip(random.choice(files(folder, "run/ckpt-*/*")), random)


def repair_tensors(path):
    """The hashes of the tensors in the header; returns that of the header before and now."""
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = bytes(data[8 : 8 + length])
    before = xxhash.xxh3_128_hexdigest(header)
    for name, entry in json.loads(header).items():
        if name != "__metadata__":
            tensor = bytes(data[8 + length :][slice(*entry["data_offsets"])])
            header = re.sub(rb'("hash\.%s":")\w+' % re.escape(name).encode(), rb"\g<1>" + xxhash.xxh3_128_hexdigest(tensor).encode(), header)
    data[8 : 8 + length] = header
    path.write_bytes(data)
    return before, xxhash.xxh3_128_hexdigest(header)


def forge_tensor(folder, random):
    """A bit of a tensor, with all hashes of the checkpoint repaired, and the weights of the chain."""
    step, kind = random.choice(KEPT), random.choice(("model", "optimizer"))
    path = checkpoint(folder, step) / f"{kind}.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    done = f"step {step}: " + flip(path, random, range(8 + length, len(data)))
    change_state(folder, step, *repair_tensors(path))
    repair_chain(folder)
    return done


def forge_state(folder, random):
    path = checkpoint(folder, random.choice(KEPT)) / "state.json"
    body = path.read_bytes().rindex(b',\n "hash"')
    done = flip(path, random, range(body))
    repair_state(path)
    return done


def forge_config(folder, random):
    """A bit of a value that steps depend on, wherever the run has it."""
    key = random.choice("learning_rate beta1 beta2 weight_decay min_lr warmup_iters lr_decay_iters seed eval_iters grad_clip".split())
    lines = read_lines(folder)
    old = next(line["config"] for line in lines if "config" in line)[key]
    while True:
        at, bit = random.randrange(len(old)), random.randrange(8)
        new = old[:at] + chr(ord(old[at]) ^ 1 << bit) + old[at + 1 :]
        if new[at] in '0123456789' and (key != "grad_clip" or float(new) < 1):
            break
    pair = f'"{key}": "{old}"', f'"{key}": "{new}"'
    metrics = folder / "run/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace(*pair))
    for step in KEPT:
        change_state(folder, step, *pair)
    repair_chain(folder)
    return f"{key}={new}, was {old}"


FORGERS = forge_data, forge_text, forge_metrics, forge_metrics, forge_checkpoint, forge_tensor, forge_state, forge_config


def test_no_forged_run_is_accepted(home):
    count, seed = int(os.environ.get("FORGERIES", 25)), int(os.environ.get("SEED") or 1)
    print(f"seeds {seed} of test_audit.py", flush=True)
    home = pathlib.Path(home)
    whole, forged = home / "whole", home / "forged"
    honest(whole)
    assert replay(whole).returncode == 0
    accepted, codes = [], {}
    for number in range(count):
        own = random.Random(f"{seed} {number}")
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(whole, forged)
        metrics = forged / "run/metrics.jsonl"
        metrics.write_text(metrics.read_text().replace(str(whole), str(forged)))
        forger = FORGERS[number % len(FORGERS)]
        done = forger(forged, own)
        result = replay(forged, "--data_timeout=20")
        codes.setdefault(forger.__name__, {}).setdefault(result.returncode, []).append(number)
        if result.returncode == 0:
            accepted.append(f"{number}: {forger.__name__}: {done}")
    print({name: {code: len(numbers) for code, numbers in by_code.items()} for name, by_code in codes.items()}, flush=True)
    assert not accepted, (seed, accepted)
