#!/usr/bin/env python3
"""losses.py A B: the losses of two metrics.jsonl agree step by step within bf16 error."""
import json
import sys


def losses(path):
    rows = [json.loads(line) for line in open(path)]
    return {row["step"]: row["loss"] for row in rows if "loss" in row and "step" in row}


a, b = losses(sys.argv[1]), losses(sys.argv[2])
steps = sorted(set(a) & set(b))
worst = max((abs(a[s] - b[s]) / b[s], s) for s in steps)
print(f"{len(steps)} steps, largest relative difference {worst[0]:.2e} at step {worst[1]}")
sys.exit(len(steps) < 10 or worst[0] > 0.01)
