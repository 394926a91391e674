#!/usr/bin/env python3
"""make bench-gpu: training steps on a device beside PyTorch's. gpu.py BUILD.

Leaves build/gpu/bench.jsonl and renews docs/gpu-results.md. PyTorch is used where it is installed, else left out.
Stops starting new measurements after seven minutes.
"""
import json
import os
import subprocess
import sys
import time

MODELS = {"124M": (12, 768, 12), "350M": (24, 1024, 16), "774M": (36, 1280, 20), "1558M": (48, 1600, 25)}
LIMIT = "11.3GiB"
START = time.time()
build = sys.argv[1]
os.makedirs("build/gpu", exist_ok=True)
out = open("build/gpu/bench.jsonl", "w")


def keep(row):
    print(json.dumps(row), flush=True)
    out.write(json.dumps(row) + "\n")
    out.flush()


def run(command, model=None):
    if time.time() - START > 420:
        print("out of time:", " ".join(command), flush=True)
        return
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:
        print("took too long:", " ".join(command), flush=True)
        return
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        keep(row | ({"model": model} if model else {}))
    if done.returncode or not rows:
        words = (done.stderr.strip().splitlines() or ["?"])[-1]
        keep({"what": "refused", "model": model or "", "note": words[:160]})


def step(name, B, steps=10):
    L, C, H = MODELS[name]
    run([f"{build}/bench_gpu", "step", f"L={L}", f"C={C}", f"H={H}", f"B={B}", f"steps={steps}"], name)


def torch_step(mode, name, B, steps=10):
    L, C, H = MODELS[name]
    run([sys.executable, "tests/bench/gpu_torch.py", mode, *map(str, (L, C, H, 1024, B, steps))], name)


def largest_batch(name):
    """The largest micro-batch that the plan fits under the limit."""
    L, C, H = MODELS[name]
    best = 0
    for B in range(1, 200):
        done = subprocess.run(
            [f"{build}/bin/trainer", "plan", "--device=cuda", f"--mem_limit={LIMIT}", f"--n_layer={L}", f"--n_head={H}",
             f"--n_embd={C}", f"--batch_size={B}", "--eval_batch_size=1", "--gradient_accumulation_steps=1"],
            capture_output=True, text=True)
        if done.returncode:
            break
        best = B
    return best


def main():
    try:
        import torch
        have_torch = torch.cuda.is_available()
    except ImportError:
        have_torch = False
    if have_torch:
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        for _ in range(5):
            a @ a
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
        keep({"what": "gemm", "tflops": 2 * 8192**3 * 20 / (time.perf_counter() - start) / 1e12})
        del a
        torch.cuda.empty_cache()
    for B in (64, 16, 4):
        step("124M", B)
        if have_torch:
            torch_step("compile", "124M", B)
    if have_torch:
        torch_step("eager", "124M", 16)
    run([f"{build}/bench_gpu", "ops", "B=16"])
    for name in MODELS:
        B = largest_batch(name)
        if B:
            step(name, B, 5)
        else:
            keep({"what": "refused", "model": name, "note": f"no micro-batch fits {LIMIT}"})
    for name, B in (("350M", 32), ("774M", 16), ("1558M", 16)):
        step(name, B, 5)
    subprocess.run([sys.executable, "tests/gpu/report.py"], check=True)


main()
