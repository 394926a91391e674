#!/usr/bin/env python3
"""make bench-gpu: training steps on a device beside PyTorch's, and each operation alone. gpu.py BUILD [SECONDS].

Leaves build/gpu/bench.jsonl and renews docs/gpu-results.md, whatever happens: what fails, takes too long or finds no
time left (SECONDS in all, 450) is a row that says so. PyTorch's rows come last, where it is installed.
"""
import json
import os
import signal
import subprocess
import sys
import time

MODELS = {"124M": (12, 768, 12), "350M": (24, 1024, 16), "774M": (36, 1280, 20), "1558M": (48, 1600, 25)}
LIMIT = 11.3  # GiB: what a card of 12 GB has left
LARGE = {"350M": 32, "774M": 16, "1558M": 16}  # micro-batches without the limit
# From the fastest to the smallest plan: optimizer_state, recompute, offload.
LEVERS = [("full", 0, "none"), ("full", 5, "none"), ("m8", 5, "none"), ("sr", 5, "none"), ("full", 5, "optimizer")]
build = sys.argv[1]
ends = time.time() + (float(sys.argv[2]) if len(sys.argv) > 2 else 450)


def call(command, seconds):
    """(exit status, output, last line of the errors); its children end with it."""
    left = min(seconds, ends - time.time())
    if left < 5:
        return None, "", "no time left"
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
    except OSError as error:
        return None, "", str(error)
    try:
        output, errors = process.communicate(timeout=left)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        return None, output, f"took more than {left:.0f} s"
    return process.returncode, output, (errors.strip().splitlines() or [f"exit {process.returncode}"])[-1]


def objects(output):
    for line in output.splitlines():
        try:
            found = json.loads(line)
        except ValueError:  # other words, or a line that was cut off
            continue
        if isinstance(found, dict):
            yield found


def keep(row):
    print(json.dumps(row), flush=True)
    with open("build/gpu/bench.jsonl", "a") as out:
        out.write(json.dumps(row) + "\n")


def run(command, row, seconds=90):
    """Keeps the objects that a command prints, each with `row`; and when it fails, `row` and why."""
    status, output, words = call(command, seconds)
    rows = list(objects(output))
    if status != 0 or not rows:
        rows.append({"note": words[:200]})
    for found in rows:
        keep(row | found)


def step(name, B, state="full", recompute=0, limit=0, **keys):
    L, C, H = MODELS[name]
    keys = {"B": B, "state": state, "recompute": recompute, "deterministic": 1} | keys
    command = [f"{build}/bench_gpu", "step", f"L={L}", f"C={C}", f"H={H}", f"mem_limit={limit}", "steps=10"]
    run(command + [f"{key}={value}" for key, value in keys.items()],
        {"what": "step", "model": name, "limit": limit} | keys)


def fits(name, B, state, recompute, offload):
    L, C, H = MODELS[name]
    status, _, _ = call([f"{build}/bin/trainer", "plan", "--device=cuda", f"--mem_limit={LIMIT}GiB", f"--n_layer={L}",
                         f"--n_head={H}", f"--n_embd={C}", f"--batch_size={B}", "--eval_batch_size=1",
                         "--gradient_accumulation_steps=1", "--loss_chunk_rows=4096", f"--optimizer_state={state}",
                         f"--recompute={recompute}", f"--offload={offload}"], 20)
    return status == 0


def largest_batch(name, *levers):
    """The largest micro-batch whose plan fits the limit; 0: none."""
    low, high = 0, 256
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(name, middle, *levers) else (low, middle)
    return low


def under_the_limit(name):
    for state, recompute, offload in LEVERS:
        B = largest_batch(name, state, recompute, offload)
        if B:
            return step(name, B, state, recompute, LIMIT, offload=offload)
    keep({"what": "step", "model": name, "limit": LIMIT, "note": "no micro-batch fits"})


def torch_step(mode, name, B, seconds):
    L, C, H = MODELS[name]
    run([sys.executable, "tests/bench/bench_gpu_torch.py", mode, *map(str, (L, C, H, 1024, B, 10))],
        {"what": mode, "model": name, "B": B}, seconds)


def measure():
    for deterministic in 1, 0:
        run([f"{build}/bench_gpu", "gemm", f"deterministic={deterministic}", "steps=20"], {"what": "gemm"})
    for B in 64, 16, 4:
        for deterministic in 1, 0:
            step("124M", B, deterministic=deterministic)
    step("124M", 64, deterministic=0, gelu="tanh")
    for recompute in 1, 5:
        step("124M", 16, recompute=recompute)
    step("124M", 16, dtype="float16")
    step("124M", 16, offload="optimizer")
    for B in 16, 4, 64:
        run([f"{build}/bench_gpu", "ops", f"B={B}", "steps=20"], {"what": "op", "B": B})
    for name in MODELS:
        under_the_limit(name)
    for name, B in LARGE.items():
        step(name, B)
    status, _, words = call([sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"], 60)
    if status != 0:
        return keep({"what": "eager", "model": "124M", "note": words})
    for mode, B in (("compile", 64), ("eager", 16), ("compile", 16), ("eager", 64), ("compile", 4), ("eager", 4)):
        torch_step(mode, "124M", B, 100)


def main():
    if call(["nvidia-smi", "-L"], 60)[0] != 0:
        print("bench-gpu: no NVIDIA GPU or driver here", file=sys.stderr)
        sys.exit(80)
    os.makedirs("build/gpu", exist_ok=True)
    open("build/gpu/bench.jsonl", "w").close()
    try:
        measure()
    finally:
        subprocess.run([sys.executable, "tests/cuda/device/report.py"], timeout=60)


main()
