"""make combinations: random small configurations over all keys of `trainer train`, and the laws that the documentation promises
for each of them: a run repeats, goes on after kills, and is the same for any number of processes; plan, replay, eval and status
agree with it. KEYS has a row for each key; the words of a key are those of --help, and a key without a row is an error.

    combinations.py BIN_FOLDER SECONDS [SEED]

With a seed: this configuration alone, with its commands. DEVICE=cuda: the CUDA backend in the emulator. All but the moments of
kills follows from the seed. A violation is tried again with fewer keys, and its folder is kept."""
import collections
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

Key = collections.namedtuple("Key", "share values change")
SAME, FIXED, LOGGED = "the results are the same", "a resume is refused", "a resume logs it, and its replay succeeds"
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16, "batch_size": 2, "gradient_accumulation_steps": 2, "learning_rate": 1e-3,
        "warmup_iters": 1, "max_iters": 6, "lr_decay_iters": 6, "eval_interval": 3, "eval_tokens": 200, "sample_tokens": 0, "threads": 1, "device": "cpu"}


def of(keys, *names):
    """The product of these keys."""
    return math.prod({**TINY, **keys}[name] for name in names)


LEVELS = ("gelu", "norm", "mlp", "qkv", "block")
# key: the share of configurations that set it; its values, by default the words of --help; what another value does: in a run from
# the start, or in one that goes on.
KEYS = {
    "max_iters": Key(1, (3, 8, 13, 20, 40), None),
    "seed": Key(0.2, (0, 7, 10**6), FIXED),
    "log_interval": Key(0.2, (1, 2, 10), SAME),
    "tensorboard_log": Key(0.2, None, SAME),
    "always_save_checkpoint": Key(0.3, None, LOGGED),
    "checkpoint_interval": Key(0.8, ("auto", 0, 1, 2, 3, 7), SAME),
    "sample_start": Key(0.1, ("a", "two words"), None),
    "sample_tokens": Key(0.5, (0, 5, 80), None),
    "data_timeout": Key(0.1, (100, 200), SAME),
    "sampling": Key(0.8, None, FIXED),
    "document_mask": Key(0.5, None, LOGGED),
    "on_dataset_change": Key(0.1, None, SAME),
    "depth": Key(0.1, (1, 2), None),  # beside the keys that it would set
    "n_layer": Key(0.8, (1, 2, 3), FIXED),
    "n_head": Key(0.8, (1, 2, 4), FIXED),
    "n_embd": Key(1, lambda rng, keys: of(keys, "n_head") * rng.choice((8, 12, 16)), FIXED),
    "block_size": Key(0.8, (7, 16, 32, 64), FIXED),
    "batch_size": Key(0.8, (1, 2, 3, 4), LOGGED),
    "tokens_per_step": Key(0.2, lambda rng, keys: rng.randint(1, 8) * of(keys, "batch_size", "block_size"), None),
    "gradient_accumulation_steps": Key(0.9, (1, 2, 3, 4, 5, 8), LOGGED),
    "eval_interval": Key(0.9, (0, 1, 2, 3, 5, 7, 10), LOGGED),
    "eval_iters": Key(0.2, (1, 2, 5), None),
    "eval_tokens": Key(0.6, (0, 100, 512, 1000, 3000, 9000), LOGGED),
    "eval_batch_size": Key(0.3, (1, 2, 5, 16), LOGGED),
    "eval_block_size": Key(0.25, lambda rng, keys: rng.randint(1, of(keys, "block_size")), LOGGED),
    "items": Key(0.3, ("../items.jsonl",), None),
    "items_interval": Key(0.5, (0, 1, 2, 5), None),
    "eval_order": Key(0.3, None, LOGGED),
    "bias": Key(0.5, None, FIXED),
    "dropout": Key(0.4, (0.1, 0.3, 0.5), LOGGED),
    "mlp": Key(0.6, ("gelu", "gelu:tanh", "relu2", "swiglu"), FIXED),
    "norm": Key(0.6, None, FIXED),
    "position": Key(0.6, ("learned", "rope", "rope:100", "rope:500000"), FIXED),
    "n_kv_head": Key(0.3, lambda rng, keys: rng.choice([n for n in (1, 2, 4) if of(keys, "n_head") % n == 0]), FIXED),
    "qk_norm": Key(0.5, None, FIXED),
    "tie_embeddings": Key(0.5, None, FIXED),
    "logit_softcap": Key(0.3, (1, 5, 30), FIXED),
    "z_loss": Key(0.3, (1e-4, 0.01, 1), FIXED),
    "learning_rate": Key(0.8, (1e-3, 3e-3, 1e-2, 0.1), LOGGED),
    "decay_lr": Key(0.2, ("True", "False"), None),
    "lr_schedule": Key(0.5, ("cosine", "linear", "constant", "wsd", "wsd:1", "wsd:2", "wsd:3"), LOGGED),
    "warmup_iters": Key(0.8, (0, 2, 5, 100), LOGGED),
    "lr_decay_iters": Key(0.8, (3, 8, 20, 100), LOGGED),
    "min_lr": Key(0.5, (0, 1e-4), LOGGED),
    "optimizer": Key(0.6, None, FIXED),
    "weight_decay": Key(0.2, (0, 0.5), LOGGED),
    "beta1": Key(0.2, (0, 0.5), LOGGED),
    "beta2": Key(0.2, (0, 0.99), LOGGED),
    "grad_clip": Key(0.3, (0, 0.01, 10), LOGGED),
    "muon_learning_rate": Key(0.2, (1e-4, 0.02), LOGGED),
    "muon_momentum": Key(0.2, (0, 0.5, 0.9), LOGGED),
    "optimizer_state": Key(0.6, None, FIXED),
    "ema": Key(0.3, (0.5, 0.9999), FIXED),
    "reduce_order": Key(0.9, ("fixed", "fixed", "fast", "auto"), LOGGED),
    "reduce_dtype": Key(0.4, None, LOGGED),
    "zero_stage": Key(0.4, (0, 1), SAME),
    "dtype": Key(0.9, ("auto", "float32", "float32", "float32:highest", "bfloat16", "float16"), LOGGED),
    "threads": Key(0.2, (1, 2), SAME),
    "mem_limit": Key(0.1, ("1MiB", "2MiB", "100MiB"), None),
    "recompute": Key(0.5, lambda rng, keys: rng.choice(("auto", "none", rng.choice(LEVELS), f"{rng.choice(LEVELS)}:{rng.randint(1, of(keys, 'n_layer'))}")), SAME),
    "grad_checkpoint": Key(0.1, ("True", "False"), SAME),
    "offload": Key(0.2, None, SAME),
    "loss_chunk_rows": Key(0.3, (1, 5, 16, 64, 1000), LOGGED),
    "deterministic": Key(0.1, None, SAME),
    "spike_action": Key(0.5, ("off", "warn", "warn:1", "skip", "skip:1", "skip:1.5", "skip:2"), LOGGED),
    "recheck_interval": Key(0.2, (0, 1, 3), SAME),
    "device_timeout": Key(0.1, (7, 100), SAME),
    "loss_tokens": Key(0.25, None, FIXED),
}
SET_HERE = {"out_dir", "until", "dataset", "vocabulary", "loader", "loader_key", "key_file", "init_from", "vocab_size", "device"}
NANOGPT = {"decay_lr", "eval_iters", "grad_checkpoint"}  # which --help and --print_config do not list: another key has their value
# One configuration in six: losses that are not finite, roll-backs, spikes, loss scales that halve.
HOT = {"learning_rate": (0.3, 1, 10, 100, 1e4, 1e8, 1e30), "max_iters": (20, 40), "lr_decay_iters": (40,), "warmup_iters": (0, 3, 10), "min_lr": (0,),
       "grad_clip": (0, 0, 1), "checkpoint_interval": ("auto", 1, 2, 3, 5)}
# The emulator is slow.
EMULATED = {"n_layer": (1, 2), "block_size": (8, 13, 16), "batch_size": (1, 2), "gradient_accumulation_steps": (1, 2, 3), "max_iters": (2, 3, 4),
            "eval_interval": (0, 2, 3), "eval_iters": (1, 2), "eval_tokens": (16, 50), "sample_tokens": (0,), "threads": (1,), "lr_decay_iters": (4,)}
MEASURED = {"ms", "tok_s", "product_share", "wait", "sent", "save_ms", "gpu_busy", "processor_lost"}
RESULTS = {"loss", "val_loss", "spike", "passed_from"}  # a roll-back goes to the newest checkpoint, which changes nothing else


class Violation(Exception):
    """Of a law, with what was found."""


class Tool:
    """The programs, the datasets, and the keys that the trainer has with their words."""

    def __init__(self, folder, place, emulated=False):
        self.place, self.emulated = pathlib.Path(place), emulated
        self.environment = {**os.environ, "XDG_CACHE_HOME": f"{self.place}/cache", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                            "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}  # fmt: skip
        programs = pathlib.Path(folder).resolve()
        self.has_ranks = shutil.which("mpirun") and (programs.parent / "lib/millrace/mpi.so").exists()
        self.bin = self.place / "bin"  # a trainer starts the loader that lies beside it
        self.bin.mkdir()
        for program in programs.parent / "emulated/trainer" if emulated else programs / "trainer", programs / "loader", programs / "shardtool":
            shutil.copy(program, self.bin)
        (self.place / "lib").symlink_to(programs.parent / "lib")
        self.words = {}
        for key, kind, meaning in re.findall(r"^  (\w+) = (\S+)(.*(?:\n {20}.*)*)", self.call("trainer", "train", "--help"), flags=re.M):
            words = re.findall(r"\(([^()]* \| [^()]*)\)", meaning)
            self.words[key] = kind.split("|") if kind == "True|False" else words[-1].split() if words else []
            self.words[key] = [word for word in self.words[key] if word != "|"]
        if unknown := set(self.words) ^ (set(KEYS) - NANOGPT | SET_HERE):
            sys.exit(f"add to KEYS in combinations.py, or remove there: {' '.join(unknown)}")
        self.make_data()

    def call(self, program, *arguments):
        return subprocess.run([self.bin / program, *arguments], capture_output=True, text=True, cwd=self.place, env=self.environment, check=True).stdout

    def make_data(self):
        rng, self.train_tokens = random.Random(0), {}
        words = ["".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", weights=range(26, 0, -1), k=rng.randint(1, 9))) for _ in range(300)]
        (self.place / "abc").write_text("\n abcdefghijklmnopqrstuvwxyz")
        item = {"task": "a", "kind": "choice", "span": "ending", "begin": False, "texts": [["", "a"], ["", "b"]]}  # also in sequences of one token
        (self.place / "items.jsonl").write_text("".join(json.dumps(item | {"id": i, "label": i % 2}) + "\n" for i in range(9)))
        for name, documents in ("A", 400), ("B", 150), ("T", 12):
            text = "\n\n".join(" ".join(rng.choices(words, weights=range(300, 0, -1), k=rng.randint(3, 120))) for _ in range(documents))
            (self.place / f"{name}.txt").write_text(text)
            self.call("shardtool", "tokenize", "-q", "--docs", "paragraphs", "--val", "0.1", "--vocabulary", "abc", "-o", name, f"{name}.txt")
        with open(self.place / "C.jsonl", "w") as file:  # short, so that most rows have an answer
            for i in range(600):
                prompt, answer = ("".join(rng.choices("etaoin", k=rng.randint(0, most))) for most in (3, 9))
                file.write(json.dumps({"prompt": prompt, "completion": answer} if i % 9 else {"text": f"{prompt} {answer}"}) + "\n")
        self.call("shardtool", "train-vocabulary", "-q", "-V", "257", "-o", "bytes", "T.txt")
        self.call("shardtool", "tokenize", "-q", "--turns", "--val", "0.1", "--vocabulary", "bytes", "-o", "C", "C.jsonl")
        for name in "ABTC":
            self.train_tokens[name] = json.loads(self.call("shardtool", "info", "--json", name))["train_tokens"]

    def draw(self, seed):
        """The keys that a seed sets, and its dataset or mixture."""
        rng, keys = random.Random(seed), {}
        special = EMULATED if self.emulated else HOT if rng.random() < 1 / 6 else {}
        for key, row in KEYS.items():
            value, drawn = self.value(rng, keys, key, special.get(key)), rng.random()
            if key in special or drawn < row.share:
                keys[key] = value
        if "tokens_per_step" in keys:
            keys.pop("gradient_accumulation_steps", 0)
            keys["batch_size"] = rng.choice((of(keys, "batch_size"), "auto"))
        for key, refused in {"grad_checkpoint": "recompute" in keys, "eval_iters": "eval_tokens" in keys, "decay_lr": "lr_schedule" in keys,
                             "recheck_interval": keys.get("deterministic") == "False", "ema": keys.get("optimizer_state") == "bf16_sr"}.items():
            if refused:
                keys.pop(key, 0)
        data = rng.choice(("A", "B", "T", "A:3 B:1", "B:1 T:2 A:1"))
        return keys, "C" if keys.get("loss_tokens") == "answers" else data

    def value(self, rng, keys, key, values=None):
        values = values or KEYS[key].values or self.words[key]
        return values(rng, keys) if callable(values) else rng.choice(values)


class Case:
    """A configuration, its data and its folder, with the run `one`. Of a mixture it has the loader, which may change the weights."""

    def __init__(self, tool, seed, keys, data):
        self.tool, self.seed, self.keys, self.data = tool, seed, keys, data
        self.rng, self.commands = random.Random(f"{seed} case"), []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{seed}-", dir=tool.place))
        self.loader, self.schedule, self.source = None, False, {"dataset": f"../{data}"}
        if ":" in data:
            weights = " ".join(str(self.rng.randint(1, 5)) for _ in data.split())
            (self.folder / "schedule").write_text(f"{self.rng.randint(1, 60)} {weights}\n")
            self.schedule = self.rng.random() < 0.3
            self.source = {"loader": "ipc://served", "vocabulary": "../abc"}
            self.loader = self.start("loader", "serve", "-q", "--endpoint", "ipc://served", *(f"../{source}" for source in data.split()),
                                     *(["--schedule", "schedule"] if self.schedule else []))  # fmt: skip
            self.commands[-1] += " &"
        self.device = {"device": "cuda"} if tool.emulated else {"threads": 1}
        self.settings = {**TINY, **keys, **self.device, **self.source, **({"threads": keys["threads"]} if "threads" in keys else {})}
        if "tokens_per_step" in keys:
            self.settings.pop("gradient_accumulation_steps")
        (self.folder / "run.conf").write_text("".join(f"{key} = {value if value in ('True', 'False') else repr(value)}\n" for key, value in self.settings.items()))
        clock = time.monotonic()
        self.one = self.train("one")
        self.seconds = time.monotonic() - clock
        self.fixed = self.settings.get("reduce_order") == "fixed" and self.settings["batch_size"] != "auto"

    def close(self, keep=False):
        if self.loader:
            self.loader.kill()
            self.loader.wait()
        if not keep:
            shutil.rmtree(self.folder)

    def commands_text(self):
        return "\n".join((f"cd {self.folder}; cat run.conf", (self.folder / "run.conf").read_text(), *self.commands))

    def start(self, program, *arguments, ranks=0, **pipes):
        words = [str(word) for word in (*(("mpirun", "-n", ranks) if ranks else ()), self.tool.bin / program, *arguments)]
        self.commands.append(" ".join(words))
        return subprocess.Popen(words, cwd=self.folder, env=self.tool.environment, text=True, errors="replace",
                                **(pipes or {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}))  # fmt: skip

    def call(self, *arguments, ranks=0, **keys):
        process = self.start("trainer", *arguments, *(f"--{key}={value}" for key, value in keys.items()), ranks=ranks, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)  # fmt: skip
        try:
            output = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Violation("no end after 120 s: " + self.commands[-1]) from None
        return subprocess.CompletedProcess(process.args, process.returncode, *output)

    def train(self, run, config="run.conf", ranks=0, **keys):
        return self.call("train", config, ranks=ranks, **keys, out_dir=run)

    def lines(self, run="one"):
        """The record without what is measured."""
        path = self.folder / run / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [{name: value for name, value in json.loads(line).items() if name not in MEASURED} for line in lines]

    def steps(self, run="one"):
        return [line for line in self.lines(run) if "loss" in line]

    def checkpoints(self, run="one"):
        return sorted(path.name for path in (self.folder / run).glob("ckpt-*[0-9]"))


# ---- laws: each raises Violation


def check(holds, *words):
    if not holds:
        raise Violation(" ".join(str(word) for word in words)[:1000])


def ends_as(done, code, *words):
    check(done.returncode == code, *words, f"exit {done.returncode}, not {code}:", done.stdout[-200:], done.stderr[-500:])


def check_close(got, expected, tolerance, *words):
    close = None not in (got, expected) and abs(got - expected) <= tolerance * max(1, abs(expected))
    check(close or got is expected is None, *words, "is", got, "and should be", expected)


def check_equal(case, run, only=RESULTS):
    """Against the run `one`: the lines with one of the members `only`, and the checkpoints that both have, the last one among them:
    of all results every file and the sampled texts, otherwise the tensors."""
    whole = only == RESULTS
    ours, theirs = ({(line["step"], line["sample"]) for line in case.lines(which) if "sample" in line} for which in ("one", run))
    check(not whole or ours == theirs, "samples", ours, theirs)
    ours, theirs = ([line for line in case.lines(which) if only & set(line)] for which in ("one", run))
    for pair in zip(ours, theirs):
        check(pair[0] == pair[1], run, "differs from one:", *pair)
    check(len(ours) == len(theirs), run, "has", len(theirs), "lines of results, one has", len(ours))
    ours, theirs = case.checkpoints(), case.checkpoints(run)
    check(case.one.returncode or ours[-1:] == theirs[-1:], "last checkpoints", ours, theirs)
    for path in sorted(path for name in set(ours) & set(theirs) for path in (case.folder / "one" / name).iterdir()):
        other = case.folder / run / path.parent.name / path.name
        if path.name == "state.json" and whole:
            ours, theirs = (json.loads(file.read_text()) for file in (path, other))
            differing = {key: (ours.get(key), theirs.get(key)) for key in ours | theirs if ours.get(key) != theirs.get(key) and key != "hash"}
            check(not differing, other, differing)
        elif path.name != "state.json" and (whole or path.suffix == ".safetensors"):
            check(other.exists() and path.read_bytes() == other.read_bytes(), other, "differs from one")


def a_run_starts_or_is_refused(case):
    check(case.one.returncode in (0, 2, 81, 82, 83), "exit", case.one.returncode, case.one.stderr[-700:])
    check(case.one.returncode != 2 or not case.lines(), "refused (2) after its start:", case.one.stderr[-500:])


def plan_is_the_run(case, run="one", done=None, world=1):
    done = done or case.one
    plan = case.call("plan", "run.conf", "--out_dir=none", *(["--threads=1", f"--world={world}"] if world > 1 else []))
    ends_as(plan, done.returncode if done.returncode in (2, 82, 83) else 0, "plan", done.stderr[-300:])
    if plan.returncode == 0:
        planned, had = re.search(r"^ +arena +(\d+)", plan.stdout, flags=re.M), [line["arena_bytes"] for line in case.lines(run) if "arena_bytes" in line]
        check(had and planned and int(planned[1]) == had[-1], "arena:", had, "planned:", planned and planned[1])


def a_run_repeats(case):
    ends_as(case.train("two"), case.one.returncode, "the second time")
    check_equal(case, "two")


def a_printed_configuration_is_the_same(case):
    printed = case.call("train", "run.conf", "--print_config")
    ends_as(printed, 0)
    (case.folder / "printed.conf").write_text(printed.stdout)
    ends_as(case.train("printed", "printed.conf"), case.one.returncode, "the printed configuration")
    check_equal(case, "printed")


def kills_change_nothing(case):
    for _ in range(case.rng.choice((1, 1, 2, 3))):
        process = case.start("trainer", "train", "run.conf", "--out_dir=killed")
        time.sleep(random.uniform(0.03, case.seconds))
        number = case.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        process.send_signal(number)
        code = process.wait(60)
        case.commands[-1] = f"timeout -s {number} SECONDS " + case.commands[-1]
        check(code in (-number, 75, case.one.returncode), "exit", code, "after signal", number)
    done = case.train("killed")
    ends_as(done, case.one.returncode, "after kills")
    check_equal(case, "killed")
    replay_agrees(case, "killed")


def neutral_keys_change_nothing(case):
    other_bits = {*EMULATED, "deterministic"} if case.tool.emulated else set()
    if case.tool.emulated and case.keys.get("mlp") == "gelu:tanh":
        other_bits |= {"recompute", "grad_checkpoint"}
    names = [key for key, row in KEYS.items() if row.change == SAME and key not in other_bits]
    changes = {key: case.tool.value(case.rng, case.keys, key) for key in case.rng.sample(names, 5)}
    done = case.train("neutral", **changes)
    if done.returncode in (2, 82, 83) and case.one.returncode in (0, 81):
        return  # offload is not for every optimizer, memory not for every level
    ends_as(done, case.one.returncode, changes)
    check_equal(case, "neutral", only={"loss"})


def processes_change_nothing(case):
    ranks = case.rng.choice((2, 2, 3, 4))
    if not case.tool.has_ranks:
        return
    done = case.train("ranks", ranks=ranks, threads=1)
    plan_is_the_run(case, "ranks", done, ranks)
    if done.returncode == 2:
        return check("micro-batch" in done.stderr or "several processes" in done.stderr, "refused for", ranks, "processes:", done.stderr[-500:])
    if case.fixed:
        ends_as(done, case.one.returncode, ranks, "processes")
        return check_equal(case, "ranks")
    check(done.returncode in (case.one.returncode, 81), ranks, "processes: exit", done.returncode, done.stderr[-500:])
    for one, other in zip(case.steps()[:1], case.steps("ranks")):
        check(abs(one["loss"] - other["loss"]) < 0.05, "first losses", one, other)


def wait_for_ranks(mpirun):
    """Until mpirun has ended, of which a process was killed. Open MPI 4.1.4 may wait for its own lock when all of them have ended
    (PMIx_server_finalize, once in 170 runs), and is then killed, too."""
    try:
        mpirun.wait(60)
    except subprocess.TimeoutExpired:
        pids = pathlib.Path(f"/proc/{mpirun.pid}/task/{mpirun.pid}/children").read_text().split()
        states = [pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] for pid in pids]
        mpirun.kill()
        mpirun.wait()
        check(set(states) <= {"Z"}, "processes go on 60 s after one was killed:", *states)


def instructions_change_nothing(case):
    """In float32, whose order is fixed, with any threads."""
    if case.fixed and not case.tool.emulated and str(case.keys.get("dtype")).startswith("float32"):
        environment = case.tool.environment
        case.tool.environment = {**environment, "MILLRACE_ISA": case.rng.choice(("portable", "avx2"))}
        done = case.train("instructions", threads=case.rng.randint(1, 3))
        case.tool.environment = environment
        ends_as(done, case.one.returncode, "other instructions")
        check_equal(case, "instructions")


def parts_make_the_whole(case):
    """By max_iters, each with another number of processes. One of the processes of the second part is killed.
    A run that ends between steps that are not finite goes back to its end, so those with a roll-back are left out."""
    if any("passed_from" in line for line in case.lines()):
        return
    for part in (1, 2, 3):
        ranks = case.rng.choice((0, 2, 3, 4)) if case.fixed and case.tool.has_ranks else 0
        if ranks and case.call("plan", "run.conf", "--out_dir=none", "--threads=1", f"--world={ranks}").returncode:
            ranks = 0  # fewer micro-batches, or offload=all
        keys = {"threads": 1, "max_iters": max(1, case.settings["max_iters"] * part // 3)}
        if part == 2 and ranks:
            process = case.start("trainer", "train", "run.conf", *(f"--{key}={value}" for key, value in keys.items()), "--out_dir=parts", ranks=ranks)
            time.sleep(random.uniform(0.1, case.seconds + 0.5))
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            if process.poll() is None and (pids := children.read_text().split()):
                os.kill(int(case.rng.choice(pids)), signal.SIGKILL)
            case.commands[-1] += "  # and kill -9 one of them"
            wait_for_ranks(process)
        done = case.train("parts", ranks=case.rng.choice((0, ranks)), **keys)
        check(done.returncode in (0, case.one.returncode), "part", part, "exit", done.returncode, done.stderr[-500:])
        if done.returncode:
            break
    check_equal(case, "parts", only={"loss"})


def replay(case, run, *steps):
    return case.call("replay", run, *steps, *(["--loader=ipc://served"] if case.loader else []), **case.device)


def replay_agrees(case, run="one", *steps):
    done = replay(case, run, *steps)
    weights_change = case.schedule and done.returncode in (2, 66) and "mixture" in done.stderr
    check(not case.steps(run) or weights_change or done.returncode == 0, "replay", run, *steps, "exit", done.returncode, done.stdout[-300:], done.stderr[-500:])


def eval_has_the_losses_of_the_run(case):
    for line in case.lines():
        if "val_loss" in line and f"ckpt-{line['step']:08}" in case.checkpoints():
            done = case.call("eval", "--json", f"--ckpt={line['step']}", out_dir="one", **case.source, **case.device)
            ends_as(done, 81 if None in (line["val_loss"], line["train_loss"]) else 0, "eval of step", line["step"])
            for found in map(json.loads, done.stdout.splitlines() if done.returncode == 0 else ()):
                for name in "loss", "bpb":
                    member = f"{found['split']}_{name}"
                    check_close(found[name], line[member], 1e-4 if case.tool.emulated else 1e-7, "eval:", member, "of step", line["step"])


def a_checkpoint_is_a_beginning(case):
    lines = [line for line in case.lines() if "val_loss" in line and f"ckpt-{line['step']:08}" in case.checkpoints()[-1:]]
    if lines and case.one.returncode == 0 and not case.schedule:
        done = case.train("tuned", init_from=f"one/{case.checkpoints()[-1]}", eval_only=True)
        ends_as(done, 0, "init_from")
        losses = re.search(r"train loss ([\d.]+).*val loss ([\d.]+)", done.stdout)
        for got, name in zip(losses.groups(), ("train_loss", "val_loss")):
            check_close(float(got), lines[0][name], 6e-5, name, "of init_from")


def learning_rate(keys, step):
    """Of step 0 on, by nanoGPT's get_lr and the schedules of docs/train.md."""
    most, least, warmup, end = keys["learning_rate"], keys.get("min_lr", 6e-5), keys["warmup_iters"], keys["lr_decay_iters"]
    schedule, _, cooldown = keys.get("lr_schedule", "cosine").partition(":")
    if str(keys.get("decay_lr")) == "False":
        return most
    if step < warmup:
        return most * (step + 1) / (warmup + 1)
    if schedule == "constant":
        return most
    if step >= end:
        return least
    part = (step - warmup) / (end - warmup)
    if schedule == "wsd":
        cooldown = int(cooldown or 0) or end / 5
        return most if step <= end - cooldown else least + (1 - math.sqrt((step - end + cooldown) / cooldown)) * (most - least)
    return least + (0.5 * (1 + math.cos(math.pi * part)) if schedule == "cosine" else 1 - part) * (most - least)


def status_and_which_agree(case):
    steps, lines, most = case.steps(), case.lines(), case.settings["learning_rate"]
    for line in steps:
        check_close(line["lr"] / most, learning_rate(case.settings, line["step"] - 1) / most, 1e-7, "lr / learning_rate of", line)
    done = case.call("status", "--json", "one")
    ends_as(done, 0, "status")
    status, config = json.loads(done.stdout), [line["config"] for line in lines if "config" in line][-1]
    rows = int(config["batch_size"]) * int(config["gradient_accumulation_steps"])
    tokens, evaluations = rows * int(config["block_size"]), [line for line in lines if "val_loss" in line]
    passed = any("passed_from" in line for line in lines)
    check(passed or status["tokens"] == status["step"] * tokens, "tokens", status)
    for line in evaluations:
        if not passed and "epochs" in line and case.data in case.tool.train_tokens:
            check_close(line["epochs"], line["step"] * tokens / case.tool.train_tokens[case.data], 1e-9, "epochs of", line)
    losses = [line["val_loss"] for line in evaluations if line["val_loss"] is not None]
    if case.one.returncode == 0 and losses and len({line["eval_rule"] for line in evaluations}) == 1:
        check_close(status["best_val_loss"], min(losses), 1e-7, "best_val_loss")
    if steps:
        check(status["last_step"] == steps[-1]["step"], status, steps[-1])
        line = case.rng.choice(steps)
        done = case.call("which", "one", f"--steps={line['step']}", "--json", *(f"../{source}" for source in case.data.split() if case.loader))
        if not (case.schedule and done.returncode == 66):  # docs/audit.md
            ends_as(done, 0, "which")
            samples = {json.loads(row)["sample"] for row in done.stdout.splitlines()}
            check(samples == set(range(line["first_sample"], line["first_sample"] + rows)), "which", line["step"], samples)


def a_resume_refuses_or_logs_a_change(case):
    if case.one.returncode or not case.checkpoints():
        return
    now = dict(re.findall(r"^(\w+) += '?(.*?)'? +#", case.call("train", "run.conf", "--print_config").stdout, flags=re.M))
    now |= next(line["config"] for line in case.lines() if "config" in line)  # what auto was
    key = case.rng.choice([key for key, row in KEYS.items() if row.change in (FIXED, LOGGED)])
    values = {str(case.tool.value(case.rng, case.keys, key)) for _ in range(20)} - {"auto", now[key]}
    values = sorted(value for value in values if not is_same_number(value, now[key]))
    if not values:
        return
    shutil.copytree(case.folder / "one", case.folder / "changed")
    case.commands.append("cp -r one changed")
    last = case.settings["max_iters"] + 3
    changes = {key: case.rng.choice(values), "max_iters": last}
    done = case.train("changed", **changes)
    if KEYS[key].change == FIXED:
        return ends_as(done, 2, "a resume with", changes)
    if done.returncode == 2:  # rows for less than a pass, a step of less than a sequence
        return ends_as(case.call("plan", "run.conf", *(f"--{key}={value}" for key, value in changes.items()), "--out_dir=one"), 2, "plan of", changes, done.stderr[-300:])
    check(done.returncode in (0, 81), "a resume with", changes, "exit", done.returncode, done.stderr[-500:])
    check(key in done.stderr, "a resume does not name", changes, done.stderr[-700:])
    parts = re.search(r"after step (\d+) the run has", replay(case, "changed").stderr)
    if parts:  # it names the steps that can be replayed apart
        replay_agrees(case, "changed", f"--steps=1..{parts[1]}")
        later = re.search(r"those from (\d+) on", replay(case, "changed").stderr)
        return replay_agrees(case, "changed", f"--steps={later[1]}..{last}") if later else None
    replay_agrees(case, "changed")


def is_same_number(one, other):
    try:
        return float(one) == float(other)
    except ValueError:
        return False


FIRST_LAWS = a_run_starts_or_is_refused, plan_is_the_run
LAWS = (a_run_repeats, a_printed_configuration_is_the_same, kills_change_nothing, neutral_keys_change_nothing, processes_change_nothing, instructions_change_nothing, parts_make_the_whole,
        replay_agrees, eval_has_the_losses_of_the_run, a_checkpoint_is_a_beginning, status_and_which_agree, a_resume_refuses_or_logs_a_change)  # fmt: skip


def violation(case, law):
    """What does not hold, or None. An answer without what a law looks for is one, too."""
    case.rng = random.Random(f"{case.seed} {law.__name__}")
    try:
        law(case)
    except Exception as broken:  # pylint: disable=broad-except
        return f"{law.__name__}: {broken if isinstance(broken, Violation) else repr(broken)}"
    return None


def fewer_keys(case, text, law):
    """The violated case and its text, with as few keys as are found in half a minute."""
    best, size, end = (case, text), max(1, len(case.keys) // 2), time.monotonic() + 30
    while size and time.monotonic() < end:
        keys = best[0].keys
        for at in range(0, len(keys), size):
            fewer = Case(case.tool, case.seed, {key: keys[key] for key in list(keys)[:at] + list(keys)[at + size :]}, case.data)
            text = violation(fewer, law) if law in FIRST_LAWS or fewer.one.returncode in (0, 81) else None
            if text:
                best = fewer, text
                break
            fewer.close()
        if best[0].keys is keys:
            size //= 2
    return best


def check_seed(tool, seed, counts):
    """The case, and the number of laws that do not hold."""
    case, violations = Case(tool, seed, *tool.draw(seed)), 0
    for law in FIRST_LAWS + (LAWS if case.one.returncode in (0, 81) else ()):
        text = violation(case, law)
        counts[law.__name__] += 1
        if text:
            violations += 1
            fewer, text = fewer_keys(case, text, law)
            print(f"seed {seed}: {text}\n{fewer.commands_text()}", flush=True)
    return case, violations


def main(folder, seconds, seed=""):
    place = tempfile.mkdtemp(prefix="millrace-combinations-")
    tool, counts, violations = Tool(folder, place, os.environ.get("DEVICE") == "cuda"), collections.Counter(), 0
    number = first = int(seed or random.randrange(10**6))
    end = time.monotonic() + (0 if seed else float(seconds))
    while number == first or time.monotonic() < end:
        case, found = check_seed(tool, number, counts)
        if seed:
            print(case.commands_text())
        case.close(keep=found or seed)
        violations, number = violations + found, number + 1
    print(f"seeds {first} to {number - 1}: {violations} violations; checks: " + ", ".join(f"{count} {law}" for law, count in counts.items()))
    if violations or seed:
        print("kept:", place)
    else:
        shutil.rmtree(place)
    sys.exit(bool(violations))


if __name__ == "__main__":
    main(*sys.argv[1:])
