#!/usr/bin/env python3
"""make bench-save: what a checkpoint costs the training beside it.

Trains GPT-2 124M and saves it several times. From metrics.jsonl: the milliseconds that training waited for each save, and
the longest step while a save was written beside the median of the steps without one. Fails past the limits.
Usage: bench_save.py BIN DATASET SCRATCH [key=value ...]
"""
import os
import statistics
import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import train

STEPS, SAVES = 20, 3  # steps between saves, saves
WAIT_MS, STRETCH = 200, 1.3


def main():
    binaries, dataset, scratch = sys.argv[1:4]
    keys = dict(dataset=dataset, block_size=256, batch_size=4, gradient_accumulation_steps=1, warmup_iters=1,
                max_iters=STEPS * (SAVES + 1), eval_interval=STEPS, eval_iters=1, sample_tokens=0, dtype="bfloat16",
                bias=True, n_layer=12, n_head=12, n_embd=768)  # fmt: skip
    keys.update(argument.split("=", 1) for argument in sys.argv[4:])
    rows = train(binaries, os.path.join(scratch, "bench-save"), keys)
    print(f"{len(os.sched_getaffinity(0))} cores; load {os.getloadavg()[0]:.2f}")
    waits = [row["save_wait_ms"] for row in rows if "save_wait_ms" in row]
    saves = [row["save_ms"] for row in rows if "saved_step" in row]
    during, alone, saving = [], [], False
    for row in rows[1:]:  # in the order of events
        saving = (saving or "save_wait_ms" in row) and "saved_step" not in row
        if "loss" in row and row["step"] > 2:
            (during if saving else alone).append(row["ms"])
    median = statistics.median(alone)
    print(f"{len(waits)} saves, {min(saves) / 1e3:.1f} to {max(saves) / 1e3:.1f} s each, beside {len(during)} steps")
    print(f"training waited for a save: {', '.join(f'{w:.0f}' for w in waits)} ms (limit {WAIT_MS})")
    print(f"longest step during a save {max(during):.0f} ms, median without one {median:.0f} ms: "
          f"{max(during) / median:.2f}x (limit {STRETCH}); longest without one {max(alone):.0f} ms")
    sys.exit(max(waits) > WAIT_MS or max(during) > STRETCH * median)


main()
