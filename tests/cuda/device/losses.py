#!/usr/bin/env python3
"""losses.py A B: losses (1 %) and gradient norms (2 %) of two metrics.jsonl agree step by step."""
import json
import sys


def column(path, key):
    rows = [json.loads(line) for line in open(path)]
    return {row["step"]: row[key] for row in rows if key in row and "step" in row}


wrong = False
for key, limit in ("loss", 0.01), ("norm", 0.02):
    a, b = column(sys.argv[1], key), column(sys.argv[2], key)
    steps = sorted(set(a) & set(b))
    if len(steps) < 10:
        print(f"only {len(steps)} common steps have a {key}")
        wrong = True
        continue
    worst = max((abs(a[s] - b[s]) / abs(b[s]), s) for s in steps)
    print(f"{key}: {len(steps)} steps, largest relative difference {worst[0]:.2e} at step {worst[1]}")
    wrong = wrong or not worst[0] <= limit
sys.exit(wrong)
