#!/usr/bin/env python3
"""make bench-cpu: a GPT-2 training step, ours beside PyTorch's, in turns on the same cores.

The peer is nanoGPT's model and step as train.py runs them on a CPU (fp32), and the same under bf16 autocast: flash SDPA,
tied head, AdamW in nanoGPT's groups, clipping at 1; and each compiled by torch.compile. Random ids; ours trains on a real dataset, which costs more, not less.
Usage: cpu_step.py BIN DATASET SCRATCH [layers heads embd block batch]
"""
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from nanogpt_model import GPT
from timing import train

ROUNDS, STEPS = 3, 5


class Peer:
    def __init__(self, shape, bf16, compiled=False):
        layers, heads, c, block, batch = shape
        torch.manual_seed(1)
        self.model, self.bf16, self.shape = GPT(layers, c, heads, block, bias=True), bf16, (batch, block)
        self.call = torch.compile(self.model) if compiled else self.model
        groups = [{"params": [p for p in self.model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in self.model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)

    def step(self):
        rows = torch.randint(0, 50257, (self.shape[0], self.shape[1] + 1))
        started = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.call(rows[:, :-1], rows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - started

    def best(self):
        return min(self.step() for _ in range(STEPS))


def ours(binaries, dataset, scratch, shape, dtype):
    layers, heads, c, block, batch = shape
    keys = dict(dataset=dataset, n_layer=layers, n_head=heads, n_embd=c, block_size=block,
                batch_size=batch, gradient_accumulation_steps=1, max_iters=STEPS + 1, lr_decay_iters=STEPS + 1,
                warmup_iters=1, eval_interval=1000, eval_iters=1, dtype=dtype, bias=True)
    rows = train(binaries, os.path.join(scratch, "bench-" + dtype), keys)
    return min(r["ms"] for r in rows if "ms" in r and r["step"] > 1) / 1e3


def main():
    binaries, dataset, scratch = sys.argv[1:4]
    shape = [int(x) for x in sys.argv[4:9]] or [12, 12, 768, 256, 4]
    tokens = shape[3] * shape[4]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    print(f"{shape[0]} layers, {shape[1]} heads, {shape[2]} wide, T={shape[3]}, B={shape[4]}; "
          f"{torch.get_num_threads()} threads; torch {torch.__version__}; load {os.getloadavg()[0]:.2f}; "
          f"best step of {STEPS}, {ROUNDS} rounds in turns")
    rows = {}
    for dtype in "float32", "bfloat16":
        rows["millrace " + dtype] = lambda dtype=dtype: ours(binaries, dataset, scratch, shape, dtype)
        for how in "", " compiled":
            peer = Peer(shape, dtype == "bfloat16", bool(how))
            peer.step()  # compiles
            rows["torch " + dtype + how] = peer.best
    times = {}
    for _ in range(ROUNDS):
        for name, run in rows.items():
            times.setdefault(name, []).append(run())
    best = {name: min(t) for name, t in times.items()}
    for name, t in times.items():
        print(f"{name:26} {tokens / best[name]:9.0f} tok/s best, {tokens / statistics.median(t):9.0f} median of rounds")
    for a, b in [(a, b) for a in times for b in times if a.startswith("millrace") and b.startswith("torch")]:
        pairs = [y / x for x, y in zip(times[a], times[b])]
        print(f"{a} over {b}: {best[b] / best[a]:.2f}x best over best, {statistics.median(pairs):.2f}x median of rounds")


main()
