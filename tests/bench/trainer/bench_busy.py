#!/usr/bin/env python3
"""make bench-busy: a training step alone, and beside one and two busy processes of this and of another login session.

Two models: the demo's (5 M parameters, vocabulary of 8,192, Muon) and GPT-2's 124 M, both in turns with an older build
(OLD=its folder of programs) and, where torch is in the venv, with nanoGPT's model compiled by PyTorch (AdamW). A kernel
with sched_autogroup_enabled shares the processor among sessions first: a busy process of another session weighs as much
as all threads of a run. Usage: bench_busy.py BIN SCRATCH TEXT [OLD]; ROUNDS, STEPS, MODELS and PLACES in the environment.
"""
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from timing import train  # noqa: E402

MODELS = {"demo": dict(n_layer=4, n_head=4, n_embd=256, block_size=256, batch_size=4, optimizer="muon", learning_rate=2e-3),
          "124M": dict(n_layer=12, n_head=12, n_embd=768, block_size=256, batch_size=4)}  # fmt: skip
PLACES = {"alone": (0, False), "1 same": (1, False), "2 same": (2, False), "1 other": (1, True), "2 other": (2, True)}
BUSY = """import os, sys, time
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0: break
end = time.monotonic() + 600
while time.monotonic() < end: sum(range(10000))
"""
ROUNDS, STEPS = int(os.environ.get("ROUNDS", 3)), int(os.environ.get("STEPS", 12))
LEFT_OUT = 2  # steps at the start


def chosen(rows, variable):
    return {name: row for name, row in rows.items() if name in os.environ.get(variable, ",".join(rows)).split(",")}


def ours(programs, scratch, dataset, model, dtype):
    keys = dict(model, dataset=dataset, gradient_accumulation_steps=1, max_iters=STEPS, lr_decay_iters=STEPS,
                warmup_iters=1, eval_interval=10**6, eval_iters=1, dtype=dtype)  # fmt: skip
    rows = train(programs, os.path.join(scratch, "run"), keys)
    return [row["ms"] for row in rows if "ms" in row and row["step"] > LEFT_OUT]


class Peer:
    """Its first step compiles, alone."""

    def __init__(self, model, vocabulary, dtype):
        import torch
        from nanogpt_model import GPT

        self.torch, self.shape, self.vocabulary = torch, (model["batch_size"], model["block_size"]), vocabulary
        self.bf16 = dtype == "bfloat16"
        self.raw = GPT(model["n_layer"], model["n_embd"], model["n_head"], model["block_size"], V=vocabulary)
        self.model = torch.compile(self.raw)
        self.optimizer = torch.optim.AdamW(self.raw.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
        self.step()

    def step(self):
        torch = self.torch
        ids = torch.randint(0, self.vocabulary, (self.shape[0], self.shape[1] + 1))
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


def runners(programs, old, scratch, name, model, dtype):
    dataset = os.path.join(scratch, name)
    rows = {"millrace": lambda: ours(programs, scratch, dataset, model, dtype)}
    if old:
        rows["older"] = lambda: ours(old, scratch, dataset, model, dtype)
    try:
        rows["PyTorch compiled"] = Peer(model, 8192 if name == "demo" else 50304, dtype).steps
    except ImportError:
        print("PyTorch is not in build/venv: no peer")
    return rows


def measure(rows, places):
    times = {(row, place): [] for row in rows for place in places}
    for _ in range(ROUNDS):
        for place, (count, elsewhere) in places.items():
            busy = count and subprocess.Popen([sys.executable, "-c", BUSY, str(count)], start_new_session=elsewhere,
                                              process_group=None if elsewhere else 0)  # fmt: skip
            try:
                for row, run in rows.items():
                    times[row, place] += run()
            finally:
                if busy:
                    os.killpg(busy.pid, signal.SIGKILL), busy.wait()
    return times


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


def main():
    programs, scratch, text, *old = sys.argv[1:]
    places = chosen(PLACES, "PLACES")
    for name, model in chosen(MODELS, "MODELS").items():
        make_dataset(programs, scratch, name, text)
        for dtype in os.environ.get("DTYPES", "float32,bfloat16").split(","):
            times = measure(runners(programs, old[0] if old else None, scratch, name, model, dtype), places)
            print(f"{name}, {dtype}: median ms of a step in {ROUNDS} rounds in turns, and times that alone; "
                  f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")  # fmt: skip
            for row in dict.fromkeys(row for row, _ in times):
                medians = {place: statistics.median(times[row, place]) for place in places}
                alone = medians.get("alone", float("nan"))
                print(f"  {row:17}" + "".join(f" {place} {ms:7.1f} ({ms / alone:.2f})" for place, ms in medians.items()),
                      flush=True)  # fmt: skip


main()
