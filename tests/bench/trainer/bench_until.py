"""bench_until.py PROGRAMS FOLDER TEXT [MINUTES[xRUNS]...]: runs with --until. How long before the time each is finished, and the share of the
steps in its cooldown. The runs take turns: alone; beside a busy process that begins, or ends, in the cooldown; killed in the cooldown and
started again; a model whose save takes seconds."""
import itertools
import json
import os
import signal
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
import timing  # noqa: E402

DEMO = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 8, "gradient_accumulation_steps": 1, "warmup_iters": 20,
        "learning_rate": 1e-3, "eval_interval": 50, "eval_tokens": 16384, "dtype": "float32"}
LARGE = DEMO | {"n_layer": 12, "n_head": 12, "n_embd": 768, "batch_size": 1, "warmup_iters": 2, "eval_interval": 20, "eval_tokens": 1024}
KINDS = ("alone", "begins", "ends", "killed", "large")


def busy():
    return subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)


def lines(out):
    with open(out + "/metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def cooling(out):
    return os.path.exists(out + "/metrics.jsonl") and any("cooldown_begun" in line for line in lines(out))


def wait_for_cooldown(run, out):
    while run.poll() is None and not cooling(out):
        time.sleep(0.1)
    time.sleep(1)


def finish(programs, folder, data, minutes, kind):
    out = folder + "/run"
    command = timing.train_command(programs, out, (LARGE if kind == "large" else DEMO) | {"dataset": data, "until": f"{round(60 * minutes)}s"})
    neighbour = busy() if kind == "ends" else None
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    if kind in ("begins", "ends", "killed"):
        wait_for_cooldown(run, out)
    if kind == "begins":
        neighbour = busy()
    if kind == "ends":
        neighbour.kill()
    if kind == "killed":
        run.send_signal(signal.SIGKILL)
        run.wait()
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    code = run.wait()
    ended = time.time()
    if neighbour:
        neighbour.kill()
    record = lines(out)
    at = next(line["until_at"] for line in record if "until_at" in line)
    steps = max(line["step"] for line in record if "loss" in line)
    begun = next(line["cooldown_begun"] for line in record if "cooldown_begun" in line)
    saves = [line["save_ms"] / 1000 for line in record if "save_ms" in line]
    left = at - ended
    print(f"{minutes:g} min {kind:7s} exit {code}, finished {left:6.2f} s before ({100 * left / 60 / minutes:5.2f} %), {steps} steps, "
          f"{100 * (steps - begun) / steps:.1f} % in the cooldown, slowest save {max(saves, default=0):.2f} s", flush=True)
    return code == 0 and 0 <= left <= max(0.03 * 60 * minutes, 10) and (steps - begun) >= 0.1 * steps


def main(programs, folder, text, *budgets):
    os.makedirs(folder, exist_ok=True)
    data = folder + "/data"
    if not os.path.exists(data):
        subprocess.run([programs + "/shardtool", "tokenize", "-q", "--val", "0.05", "--docs", "paragraphs", "-o", data, text], check=True)
    held = []
    for budget in budgets or ("3x5",):
        minutes, _, runs = budget.partition("x")
        held += [finish(programs, folder, data, float(minutes), kind) for kind in itertools.islice(itertools.cycle(KINDS), int(runs or 1))]
    print(f"{sum(held)} of {len(held)} runs: in time, at most 3 % of it or 10 s left, at least 10 % of the steps in the cooldown")
    sys.exit(not all(held))


main(*sys.argv[1:])
