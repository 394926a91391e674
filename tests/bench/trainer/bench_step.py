#!/usr/bin/env python3
"""A training step beside PyTorch's, in turns on the same cores, alone and beside busy processes of this and of another login session.

Models: the demo's (5 M parameters, vocabulary of 8,192, Muon), GPT-2's 124 M, and 303M (354 M with embeddings). The peers are an older
build (OLD=its folder of programs), with which the processor time of a start is compared, too, and, where torch is installed, nanoGPT's
model and step as train.py runs them on a CPU, in float32 and under autocast, each also compiled. A resume is compared with dd of its
checkpoint; without PLACES (empty) only starts and resumes are. Random ids; ours trains on a dataset,
which costs more, not less. A kernel with sched_autogroup_enabled shares the processor among sessions first: a busy process of another
session weighs as much as all threads of a run. So a fair share of two cores is 1.5 times the step alone beside one busy process of either
kind, 2 beside two of one session and beside another run of the same model ("1 run"), and 3 beside two in a session each ("2 others").
Usage: bench_step.py BIN SCRATCH TEXT [key=value ...]; OLD, ROUNDS, STEPS, MODELS, PLACES and DTYPES in the environment.
"""
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import types

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import measured, train, train_command

GPT2 = dict(n_layer=12, n_head=12, n_embd=768, block_size=256, batch_size=4, bias=True)
MODELS = {"124M": GPT2, "303M": GPT2 | dict(n_layer=24, n_head=16, n_embd=1024), "demo": GPT2 | dict(n_layer=4, n_head=4, n_embd=256, optimizer="muon", learning_rate=2e-3)}
PLACES = {  # busy processes in each session, and sessions: none is that of the run
    "alone": (0, 0), "1 same": (1, 0), "2 same": (2, 0), "1 other": (1, 1), "2 other": (2, 1), "2 others": (1, 2), "1 run": (0, 0)
}  # fmt: skip
BUSY = """import os, sys, time
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0: break
end = time.monotonic() + 600
while time.monotonic() < end: sum(range(10000))
"""
ROUNDS, STEPS = int(os.environ.get("ROUNDS", 3)), int(os.environ.get("STEPS", 12))
LEFT_OUT = 2  # steps at the start


def chosen(rows, variable):
    return [name for name in rows if name in os.environ.get(variable, ",".join(rows)).split(",")]


def keys_of(scratch, name, model, steps):
    return dict(model, dataset=os.path.join(scratch, name), gradient_accumulation_steps=1, max_iters=steps, lr_decay_iters=steps,
                warmup_iters=1, eval_interval=10**6, eval_iters=1)  # fmt: skip


def ours(programs, scratch, keys, dtype, loans):
    rows = train(programs, os.path.join(scratch, "run"), keys | dict(dtype=dtype), MILLRACE_LOANS=loans)
    return [row["ms"] for row in rows if "ms" in row and row["step"] > LEFT_OUT]


class Peer:
    """Its first step compiles, alone."""

    def __init__(self, model, vocabulary, dtype, compiled):
        import torch
        from nanogpt_model import GPT, make_optimizer

        torch.manual_seed(1)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        B, T, L, C, H = (int(model[key]) for key in "batch_size block_size n_layer n_embd n_head".split())
        self.torch, self.shape, self.vocabulary, self.bf16 = torch, (B, T + 1), vocabulary, dtype == "bfloat16"
        self.raw = GPT(L, C, H, T, bias=bool(model["bias"]), V=vocabulary)
        self.model = torch.compile(self.raw) if compiled else self.raw
        self.optimizer = make_optimizer(self.raw, types.SimpleNamespace(learning_rate=6e-4, beta2=0.95))
        self.step()

    def step(self):
        torch = self.torch
        ids = torch.randint(0, self.vocabulary, self.shape)
        begun = time.monotonic()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.raw.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return (time.monotonic() - begun) * 1e3

    def steps(self):
        return [self.step() for _ in range(STEPS)][LEFT_OUT:]


def runners(programs, scratch, name, model):
    rows, keys = {}, keys_of(scratch, name, model, STEPS)
    builds = {"millrace": (programs, "1"), "without loans": (programs, "0")}
    if os.environ.get("OLD"):
        builds["older"] = os.environ["OLD"], "1"
    for dtype in chosen(("float32", "bfloat16"), "DTYPES"):
        for build, (folder, loans) in builds.items():
            rows[f"{build} {dtype}"] = lambda folder=folder, dtype=dtype, loans=loans: ours(folder, scratch, keys, dtype, loans)
        for how in "", " compiled":
            try:
                rows[f"torch {dtype}{how}"] = Peer(model, 8192 if name == "demo" else 50304, dtype, how).steps
            except ImportError:
                print("PyTorch is not in build/venv: no peer")
    return rows


def measure(rows, places, another):
    times = {(row, place): [] for row in rows for place in places}
    for turn in range(ROUNDS):
        for place in places:
            count, sessions = PLACES[place]
            busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(count)], start_new_session=sessions > 0,
                                     process_group=None if sessions else 0)
                    for _ in range(max(sessions, count > 0))]  # fmt: skip
            if place == "1 run":
                busy.append(subprocess.Popen(another(), stdout=subprocess.DEVNULL, process_group=0))
            try:
                for row, run in list(rows.items())[:: -1 if turn % 2 else 1]:  # what ran before is felt by the first
                    times[row, place] += run()
            finally:
                for group in busy:
                    os.killpg(group.pid, signal.SIGKILL), group.wait()
    return times


def start(command):
    """Seconds, and those of a processor, from the command to the first step, before which the last line is the forecast."""
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert any("this takes about" in line for line in process.stderr), command
        seconds = time.monotonic() - begun
        with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stat:
            spent = stat.read().rsplit(")", 1)[1].split()[11:13]
        process.kill()
    return seconds, sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def start_command(programs, out, keys):
    return [word for word in train_command(programs, out, keys) if word != "--quiet"]


def compare_starts(programs, scratch, keys):
    seconds = {folder: [] for folder in (os.environ["OLD"], programs)}
    for _ in range(ROUNDS):
        for folder, found in seconds.items():
            found.append(start(start_command(folder, scratch + "/run", keys))[1])
    old, new = map(statistics.median, seconds.values())
    print(f"  start: {new:.2f} s of a processor, older {old:.2f} s: {new / old:.2f} times", flush=True)


def forget(files):
    """Lets the page cache drop them."""
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy_to_memory(files):
    """Seconds, and those of a processor, of dd into a buffer as large as the file."""
    spent = [measured(["dd", f"if={file}", "of=/dev/null", f"bs={os.path.getsize(file)}", "count=1", "iflag=fullblock", "status=none"])[:2]
             for file in files]  # fmt: skip
    return tuple(map(sum, zip(*spent)))


def compare_resumes(programs, scratch, keys):
    """What a start with a checkpoint takes more than one without, beside dd of its files. The least of each: a host that lends its memory
    can take seconds for the pages of a run."""
    out, keys = scratch + "/resumed", keys | dict(warmup_iters=0)
    resume = start_command(programs, out, keys)
    train(programs, out, keys | dict(max_iters=1))
    files = [f"{out}/ckpt-00000001/{name}.safetensors" for name in ("model", "optimizer")]
    for cold in False, True:
        found = {"start": [], "dd": [], "resume": []}
        for _ in range(ROUNDS):
            if cold:
                forget(files)
            found["dd"].append(copy_to_memory(files))
            found["start"].append(start(start_command(programs, scratch + "/run", keys)))
            if cold:  # after the start: pages that stay free for seconds are the host's, who gives them back slowly
                forget(files)
            found["resume"].append(start(resume))
        for i, unit in enumerate(("s", "s of a processor")):
            new, dd, resumed = (min(times[i] for times in found[name]) for name in ("start", "dd", "resume"))
            print(f"  resume, {'cold' if cold else 'warm'}: {resumed:.2f} {unit}, {resumed - new:+.2f} beside a start of {new:.2f}; dd {dd:.2f}: "
                  f"{(resumed - new) / dd:.2f} times", flush=True)  # fmt: skip
    shutil.rmtree(out)


def make_dataset(programs, scratch, name, text):
    out, options = os.path.join(scratch, name), []
    if os.path.exists(os.path.join(out, "dataset.jsonl")):
        return
    files = [os.path.join(text, file) for file in sorted(os.listdir(text))] if os.path.isdir(text) else [text]
    if name == "demo":
        options = ["--vocabulary", os.path.join(scratch, "vocabulary")]
        shutil.rmtree(options[1], ignore_errors=True)
        subprocess.run([programs + "/shardtool", "train-vocabulary", "-V", "8192", "-o", options[1], *files], check=True)
    subprocess.run([programs + "/shardtool", "tokenize", "--val", "0.05", *options, "-o", out, *files], check=True)


def compare_steps(programs, scratch, name, model, places, another):
    times = measure(runners(programs, scratch, name, model), places, another)
    print(f"{name}: {ROUNDS} rounds of {STEPS - LEFT_OUT} steps in turns; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; tokens/s of "
          f"the best step, then the median in ms and how many times that of the first place")  # fmt: skip
    rows = list(dict.fromkeys(row for row, _ in times))
    best = {row: min(times[row, places[0]]) for row in rows}
    for row in rows:
        medians = {place: statistics.median(times[row, place]) for place in places}
        rate = int(model["block_size"]) * int(model["batch_size"]) / best[row] * 1e3
        print(f"  {row:24}{rate:8.0f}" + "".join(f"  {place} {ms:.1f} ({ms / medians[places[0]]:.2f})" for place, ms in medians.items()), flush=True)
    for a, b in [(a, b) for a in rows for b in rows if a.startswith("millrace") and not b.startswith("millrace")]:
        print(f"  {a} over {b}: {best[b] / best[a]:.2f} times by the best steps")


def main():
    programs, scratch, text, *keys = sys.argv[1:]
    places = chosen(PLACES, "PLACES")
    for name in chosen(MODELS, "MODELS"):
        model = MODELS[name] | dict(key.split("=", 1) for key in keys)
        make_dataset(programs, scratch, name, text)
        endless = keys_of(scratch, name, model, 10**6) | dict(log_interval=1000)
        if places:
            compare_steps(programs, scratch, name, model, places, lambda: train_command(programs, scratch + "/another", endless))
        print(f"{name}: starts, {ROUNDS} rounds; load {os.getloadavg()[0]:.1f}")
        if os.environ.get("OLD"):
            compare_starts(programs, scratch, endless)
        compare_resumes(programs, scratch, endless)


main()
