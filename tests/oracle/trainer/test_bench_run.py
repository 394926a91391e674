# peers: torch
"""make bench-gpu-run at toy size on the CPU: the losses of the trainer are those of nanoGPT's model and loop in PyTorch, and those of a
killed run its own; the report shows them as a row."""
import json
import os
import re
import subprocess
import sys

import runner

import torch  # noqa: F401

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
BUILD = os.path.dirname(os.environ["BIN"])
SIZES = "device=cpu dtype=float32 compile=0 V=50257 L=2 C=32 H=2 T=16 B=2 steps=24".split()


def test_a_run_has_the_losses_of_nanogpt(folder):
    with open("text.txt", "w") as text:
        text.writelines(f"{i} is a number, and {i * i} is its square\n\n" for i in range(20000))
    done = runner.call(sys.executable, f"{ROOT}/tests/bench/gpu/bench_gpu_run.py", BUILD, f"{folder}/run", *SIZES, "text=text.txt")
    (line,) = done.stdout.decode().splitlines()
    found = json.loads(line)
    assert found["first_loss"] > 10 and found["last_loss"] < found["first_loss"] - 0.1, found
    assert 0 <= found["difference"] < 1e-5 and abs(found["last_loss"] - found["torch_last_loss"]) < 1e-5, found
    assert found["equal"] and found["middle"] < found["killed_at"] < 24, found
    assert min(found[key] for key in ("seconds", "torch_seconds", "used_bytes", "torch_used_bytes", "ms", "torch_ms")) > 0, found
    for name in "millrace", "nanogpt":
        with open(f"{folder}/run/{name}.jsonl") as lines:
            assert [row["step"] for row in map(json.loads, lines) if "loss" in row] == list(range(1, 25))
    with open(f"{folder}/run/losses.html") as page:
        chart = re.search('Loss of each step.*?</svg>', page.read(), re.S)[0]
    assert "millrace" in chart and "nanogpt" in chart and chart.count("<polyline") >= 2, chart
    report = [sys.executable, f"{ROOT}/tests/cuda/device/report.py", folder]
    subprocess.run(report + ["--begin", "bench.jsonl", "a device"], check=True)
    with open(f"{folder}/bench.jsonl", "w") as out:
        out.write(json.dumps(found | {"model": "124M"}) + "\n")
    subprocess.run(report, check=True)
    with open(f"{folder}/gpu-results.md") as page:
        (row,) = re.findall(r"^\| 124M .*", page.read(), re.M)
    assert row.startswith("| 124M | 2 x 2 x 16 | float32 | 24 | 1,536 |") and "of 24: the same bits |" in row, row
