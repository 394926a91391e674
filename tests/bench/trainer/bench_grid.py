"""bench_grid.py PROGRAMS FOLDER NAME TEXT [key=value...]: the losses of five sizes at three lengths, which the law of `plan --until` comes from, and
of a probe, the short run that gives the law the level of a text. A size is one run at a constant rate for each optimizer, made longer twice; from
each length a branch cools down. A cell that FOLDER/NAME.jsonl has is not run again, and a run that was stopped goes on. FLOP=1e15 is the work of the
longest run of a size, DEPTHS=2,3 the sizes, OPTIMIZERS=adamw the optimizers."""
import json
import os
import re
import subprocess
import sys

DEPTHS, RATES, SHARES = "1,2,3,4,6", {"muon": 4e-3, "adamw": 1e-3}, (1 / 9, 1 / 3, 1)
COOLED = 0.2  # of the steps of a run
KEYS = {"device": "cpu", "block_size": 256, "batch_size": 4, "gradient_accumulation_steps": 1, "warmup_iters": 20, "beta2": 0.99, "min_lr": 0,
        "dtype": "float32", "eval_interval": 100000, "eval_tokens": 32768, "sample_tokens": 0, "log_interval": 100, "checkpoint_interval": 0}
PROBE = {"depth": 2, "optimizer": "muon", "learning_rate": 2e-3, "max_iters": 110, "lr_decay_iters": 110, "lr_schedule": "wsd:22"}  # as short_run.c
STEP_TOKENS = KEYS["block_size"] * KEYS["batch_size"]


def train(programs, out, keys):
    """The run's lines of metrics.jsonl. One that is at its end already does nothing."""
    flags = [f"--{key}={value}" for key, value in {**KEYS, **keys, "out_dir": out}.items()]
    subprocess.run([programs + "/trainer", "train", "--quiet", *flags], check=True, stdout=subprocess.DEVNULL)
    with open(out + "/metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def step_flop(programs, keys):
    flags = [f"--{key}={value}" for key, value in {**KEYS, **keys, "max_iters": 1000}.items()]
    plan = subprocess.run([programs + "/trainer", "plan", *flags], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"([0-9.e+]+) FLOP", plan)[1]) / 1000


def epoch_tokens(programs, data):
    info = subprocess.run([programs + "/shardtool", "info", data], check=True, capture_output=True, text=True).stdout
    return int(re.search(r"train_tokens +(\d+)", info)[1])


def cells(programs, folder, name, data, depth, optimizer, flop, extra):
    keys = {"dataset": data, "depth": depth, "optimizer": optimizer, "learning_rate": RATES[optimizer], **extra}
    step, width = step_flop(programs, keys), 64 * depth
    parameters = 12 * depth * width**2 + (8192 + KEYS["block_size"]) * width
    run, unique = f"{folder}/{name}-{optimizer}-{depth}", epoch_tokens(programs, data)
    for share in SHARES:
        steps = round(share * flop / step)
        begin = round((1 - COOLED) * steps)
        cell = {"corpus": name, "optimizer": optimizer, "depth": depth, "parameters": parameters, "steps": steps, "tokens": steps * STEP_TOKENS, "unique": unique}
        yield cell, run, begin, keys


def finish(programs, cell, run, begin, keys):
    steady = train(programs, run, {**keys, "max_iters": begin, "lr_schedule": "constant", "eval_tokens": KEYS["block_size"]})
    end = {"max_iters": cell["steps"], "lr_decay_iters": cell["steps"], "lr_schedule": f"wsd:{cell['steps'] - begin}"}
    cooled = train(programs, f"{run}-{cell['steps']}", {**keys, **end, "branch_from": run})
    times = sorted(line["ms"] for line in steady if "ms" in line)
    after = [line for line in cooled if "val_loss" in line][-1]
    assert after["step"] == cell["steps"], after
    return {**cell, "step_ms": times[len(times) // 2], "loss": after["val_loss"], "bits_per_byte": after["val_bpb"]}


def probe(programs, folder, name, data, extra):
    lines = train(programs, f"{folder}/{name}-probe", {**extra, **PROBE, "dataset": data})
    last, early = [line for line in lines if "val_loss" in line][-1], [line["loss"] for line in lines if "norm" in line and 31 <= line["step"] <= 50]
    return {"corpus": name, "probe": PROBE["max_iters"], "loss": last["val_loss"], "bits_per_byte": last["val_bpb"], "early_loss": sum(early) / len(early)}


def main(programs, folder, name, text, *extra):
    os.makedirs(folder, exist_ok=True)
    data, vocabulary, out = (f"{folder}/{name}{end}" for end in (".data", ".vocabulary", ".jsonl"))
    if not os.path.exists(vocabulary):
        subprocess.run([programs + "/shardtool", "train-vocabulary", "-q", "-V", "8192", "-o", vocabulary, *text.split()], check=True)
    if not os.path.exists(data):
        subprocess.run([programs + "/shardtool", "tokenize", "-q", "--val", "0.05", "--docs", "paragraphs", "--vocabulary", vocabulary, "-o", data, *text.split()],
                       check=True)  # fmt: skip
    done = set()
    if os.path.exists(out):
        with open(out, encoding="utf-8") as file:
            done = {(row.get("optimizer"), row.get("depth"), row.get("steps")) for row in map(json.loads, file)}

    def add(row):
        print(json.dumps(row), flush=True)
        with open(out, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    keys = dict(pair.split("=") for pair in extra)
    if (None, None, None) not in done:
        add(probe(programs, folder, name, data, keys))
    flop = float(os.environ.get("FLOP", "2.7e13"))
    for optimizer in os.environ.get("OPTIMIZERS", ",".join(RATES)).split(","):
        for depth in map(int, os.environ.get("DEPTHS", DEPTHS).split(",")):
            for cell, *run in cells(programs, folder, name, data, depth, optimizer, flop, keys):
                if (optimizer, depth, cell["steps"]) not in done:
                    add(finish(programs, cell, *run))


if __name__ == "__main__":
    main(*sys.argv[1:])
