#!/usr/bin/env python3
"""Training steps on a device beside PyTorch, and one of them by operation: make bench-gpu.

BUILD is the folder with bin/ and bench_gpu, in a checkout or in a pack of make gpu-pack: nothing is built or installed
here. DIR receives bench.jsonl and gpu-results.md. A command that fails, exceeds its limit or finds no time
left is a row with a note. Rows of an earlier run of this commit on the same device stay until their command runs again. With --torch
only the rows of PyTorch are measured: its compilation takes minutes; with --run only a run beside nanoGPT's (bench_gpu_run.py), whose
losses DIR/run receives. 0: every command that was asked for has figures.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {"124M": (12, 768, 12), "350M": (24, 1024, 16), "774M": (36, 1280, 20), "1558M": (48, 1600, 25)}
LIMIT = 10.8  # GiB, as in the presets: what a card of 12 GB has left beside context and libraries
PRESET = {"1558M": 60}  # micro-batches of a step in its preset: one update for many copies of gradients
LARGE = {"350M": 32, "774M": 16, "1558M": 16}  # micro-batches without the limit
# From the fastest to the smallest plan: optimizer_state, recompute, offload.
LEVERS = [("fp32", "none", "none"), ("fp32", "block", "none"), ("bf16", "block", "none"), ("bf16_sr", "block", "none"),
          ("fp32", "block", "optimizer")]
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("build", metavar="BUILD")
parser.add_argument("--out", metavar="DIR", default="build/gpu", help="build/gpu by default")
parser.add_argument("--only", metavar="WORDS", default="", help="regular expression for the commands to run")
parser.add_argument("--seconds", type=float, default=450)
parser.add_argument("--torch", action="store_true")
parser.add_argument("--run", action="store_true")
options = parser.parse_args()
build = options.build
options.out = os.path.join(os.environ.get("CALLED_FROM", ""), options.out)  # a pack's script goes to its own folder first
try:
    re.compile(options.only)
except re.error as error:
    parser.error(f"--only: {error}")
measured = missing = 0
ends = time.time() + options.seconds


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
    except BaseException as error:  # also Ctrl-C: nothing stays on the card
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
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


def keep(command, rows):
    """Replaces the rows of a command."""
    global measured, missing
    for row in rows:
        print(json.dumps(row), flush=True)
        measured, missing = measured + ("note" not in row), missing + ("note" in row)
    path = f"{options.out}/bench.jsonl"
    old = list(objects(open(path).read())) if os.path.exists(path) else []
    with open(path + ".new", "w") as out:
        for row in [r for r in old if r.get("command") != command] + [row | {"command": command} for row in rows]:
            out.write(json.dumps(row) + "\n")
    os.replace(path + ".new", path)


def clock_and_power(command, seconds):
    """What `call` returns, and the median clock and power of the card beside the command, as columns of a row."""
    query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "500", "-i", "0"]
    with tempfile.TemporaryFile("w+") as samples:
        try:
            beside = subprocess.Popen(query, stdout=samples, stderr=subprocess.DEVNULL)
        except OSError:
            return call(command, seconds), {}
        try:
            result = call(command, seconds)
        finally:
            beside.kill()
            beside.wait()
        samples.seek(0)
        pairs = re.findall(r"^ *([0-9.]+) *, *([0-9.]+) *$", samples.read(), re.M)
    most = max((float(watts) for _, watts in pairs), default=0)
    busy = [pair for pair in pairs if float(pair[1]) > 0.8 * most]  # neither the start nor a compilation
    if not busy:
        return result, {}
    return result, {key: statistics.median(float(pair[i]) for pair in busy) for i, key in enumerate(("mhz", "watts"))}


def run(command, row, seconds=90):
    """Keeps the objects that a command prints, each with `row`; and when it fails, `row` and why."""
    if not re.search(options.only, " ".join(command)):
        return
    (status, output, words), beside = clock_and_power(command, seconds)
    rows = [beside | found for found in objects(output)]
    if status != 0 or not rows:
        rows.append({"note": words[:200]})
    keep(" ".join(command), [row | found for found in rows])


def step(name, B, state="fp32", recompute="none", limit=0, steps=10, seconds=90, **keys):
    """Three passes of `steps` steps."""
    L, C, H = MODELS[name]
    keys = {"B": B, "state": state, "recompute": recompute, "deterministic": 1} | keys
    command = [f"{build}/bench_gpu", "step", f"L={L}", f"C={C}", f"H={H}", f"mem_limit={limit}", f"steps={steps}"]
    run(command + [f"{key}={value}" for key, value in keys.items()],
        {"what": "step", "model": name, "limit": limit} | keys, seconds)


def fits(name, B, state, recompute, offload):
    L, C, H = MODELS[name]
    status, _, words = call([f"{build}/bin/trainer", "plan", "--device=cuda", f"--mem_limit={LIMIT}GiB", f"--n_layer={L}",
                         f"--n_head={H}", f"--n_embd={C}", f"--batch_size={B}", "--eval_batch_size=1",
                         "--gradient_accumulation_steps=1", f"--optimizer_state={state}",
                         f"--recompute={recompute}", f"--offload={offload}"], 20)
    if status not in (0, 83):
        raise RuntimeError(f"trainer plan: {words}")
    return status == 0


def largest_batch(name, *levers):
    """The largest micro-batch whose plan fits the limit; 0: none."""
    low, high = 0, 256
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(name, middle, *levers) else (low, middle)
    return low


def under_the_limit(name):
    if not re.search(options.only, f"limit {name}"):
        return
    note = "no micro-batch fits"
    try:
        for state, recompute, offload in LEVERS:
            B = largest_batch(name, state, recompute, offload)
            if B:
                keep(f"limit {name}", [])  # the note of an earlier run
                more = {"accumulation": PRESET[name], "steps": 1, "seconds": 250} if name in PRESET else {}
                return step(name, B, state, recompute, LIMIT, offload=offload, **more)
    except RuntimeError as error:
        note = str(error)
    keep(f"limit {name}", [{"what": "step", "model": name, "limit": LIMIT, "note": note}])


def torch_step(mode, name, B, seconds):
    L, C, H = MODELS[name]
    run([sys.executable, "tests/bench/gpu/bench_gpu_torch.py", mode, *map(str, (L, C, H, 1024, B, 10))],
        {"what": mode, "model": name, "B": B}, seconds)


def measure():
    for deterministic in 1, 0:
        run([f"{build}/bench_gpu", "gemm", f"deterministic={deterministic}", "steps=20"], {"what": "gemm"})
    for B in 64, 16, 4:
        for deterministic in 1, 0:
            step("124M", B, deterministic=deterministic)
    step("124M", 64, steps=100)  # a warm card
    for B in 64, 4:  # a step of a run: one update for eight micro-batches
        step("124M", B, accumulation=8, steps=5)
    for documents in 1000, 250:
        step("124M", 16, documents=documents)
    step("124M", 64, deterministic=0, gelu="tanh")
    for recompute in "gelu", "norm", "mlp", "qkv", "block":
        step("124M", 16, recompute=recompute)
    for dtype in "float16", "float32":
        step("124M", 16, dtype=dtype)
    for offload in "optimizer", "all":
        step("124M", 16, offload=offload)
    for B in 64, 4:
        run([f"{build}/bench_gpu", "trace", f"B={B}"], {"what": "trace", "B": B})
    for name in MODELS:
        under_the_limit(name)
    for name, B in LARGE.items():
        for accumulation in 1, 8:
            step(name, B, accumulation=accumulation, steps=10 if accumulation == 1 else 2)


def measure_torch():
    status, _, words = call([sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"], 60)
    if status != 0:
        return keep("torch", [{"what": "eager", "model": "124M", "note": words}])
    for mode, B in (("compile", 64), ("eager", 16), ("compile", 16), ("eager", 64), ("compile", 4), ("eager", 4)):
        torch_step(mode, "124M", B, 100)
    for implementation in "flash", "cudnn":
        torch_step(implementation, "124M", 64, 60)


def report(*arguments):
    subprocess.run([sys.executable, "tests/cuda/device/report.py", options.out, *arguments], timeout=60)


def measure_run():
    run([sys.executable, "tests/bench/gpu/bench_gpu_run.py", build, f"{options.out}/run"], {"model": "124M"}, 440)


def main():
    status, device, _ = call(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], 60)
    if status != 0:
        print("bench-gpu: no NVIDIA GPU or driver on this machine", file=sys.stderr)
        sys.exit(80)
    os.makedirs(options.out, exist_ok=True)
    report("--begin", "bench.jsonl", device)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        measure_run() if options.run else measure_torch() if options.torch else measure()
    except KeyboardInterrupt:
        sys.exit("bench-gpu: interrupted; earlier rows are kept")
    finally:
        report()
    print(f"{measured} rows measured, {missing} missing", file=sys.stderr)
    sys.exit(missing > 0 or measured == 0)


main()
