#!/usr/bin/env python3
"""make bench-answers: fine-tuning on answers beside TRL's SFTTrainer, in turns on the same cores, float32.

Both begin with the same exported model and the same conversations. Ours cuts rows that begin at conversations; TRL packs whole ones into
rows (packing=True, its default strategy) with assistant_only_loss. Both clip at 1 and use AdamW. Memory is the peak of the process.
Usage: bench_answers.py BIN SCRATCH [layers heads embd block batch]; --trl: one run of TRL, for the program itself
"""
import json
import os
import random
import statistics
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms  # noqa: F401
from timing import measured

ROUNDS, STEPS = 2, 5


def conversations(count):
    made_of = random.Random(1)
    words = "mill river wheel water stone bread grain stream bridge turns grinds carries the a of over below 7 42".split()

    def text(least, most):
        return " ".join(made_of.choice(words) for _ in range(made_of.randint(least, most)))

    return [{"messages": [{"role": role, "content": text(*size)} for _ in range(2) for role, size in (("user", (5, 30)), ("assistant", (10, 60)))]}
            for _ in range(count)]  # fmt: skip


def run_trl(scratch, block, batch):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets, transformers, trl

    steps = []

    class Timed(trl.SFTTrainer):
        def training_step(self, model, inputs, *arguments, **options):
            steps.append({"tokens": inputs["input_ids"].numel(), "targets": int((inputs["labels"] != -100).sum())})
            return super().training_step(model, inputs, *arguments, **options)

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = time.perf_counter()

        def on_step_end(self, *_, **__):
            steps[-1]["ms"] = 1e3 * (time.perf_counter() - self.began)

    config = trl.SFTConfig(output_dir=f"{scratch}/trl", assistant_only_loss=True, packing=True, max_length=block, per_device_train_batch_size=batch,
                           max_steps=STEPS, use_cpu=True, bf16=False, gradient_checkpointing=False, save_strategy="no", report_to=[],
                           disable_tqdm=True, dataloader_pin_memory=False)  # fmt: skip
    with open(f"{scratch}/talks.jsonl") as file:
        data = datasets.Dataset.from_list(list(map(json.loads, file)))
    Timed(model=f"{scratch}/model", args=config, train_dataset=data, callbacks=[Clock()]).train()
    with open(f"{scratch}/trl.json", "w") as file:
        json.dump(steps, file)


def run_ours(programs, scratch, keys):
    out = f"{scratch}/ours"
    os.system(f"rm -rf '{out}'")
    flags = [f"--{key}={value}" for key, value in {**keys, "out_dir": out, "max_iters": STEPS, "init_from": f"{scratch}/model"}.items()]
    _, _, peak = measured([f"{programs}/trainer", "train", "--quiet", *flags])
    with open(f"{out}/metrics.jsonl") as file:
        steps = [line for line in map(json.loads, file) if "loss" in line]
    return [step | {"tokens": keys["block_size"] * keys["batch_size"]} for step in steps], peak


def main():
    if sys.argv[1] == "--trl":
        return run_trl(sys.argv[2], *map(int, sys.argv[3:]))
    programs, scratch = map(os.path.abspath, sys.argv[1:3])
    layers, heads, channels, block, batch = [int(x) for x in sys.argv[3:8]] or [4, 4, 256, 256, 4]
    os.makedirs(scratch, exist_ok=True)
    with open(f"{scratch}/talks.jsonl", "w") as file:
        file.writelines(json.dumps(talk) + "\n" for talk in conversations(400))
    measured([f"{programs}/shardtool", "tokenize", "-q", "--turns", "--force", "--val", "0", "-o", f"{scratch}/data", f"{scratch}/talks.jsonl"])
    keys = {"device": "cpu", "dtype": "float32", "dataset": f"{scratch}/data", "block_size": block, "batch_size": batch, "gradient_accumulation_steps": 1,
            "loss_tokens": "answers", "eval_interval": 0, "sample_tokens": 0, "learning_rate": 2e-5, "decay_lr": False, "warmup_iters": 0}  # fmt: skip
    os.system(f"rm -rf '{scratch}/first' '{scratch}/model'")
    first = keys | {"n_layer": layers, "n_head": heads, "n_embd": channels, "bias": True, "max_iters": 1, "out_dir": f"{scratch}/first"}
    measured([f"{programs}/trainer", "train", "--quiet", *(f"--{key}={value}" for key, value in first.items())])
    measured([f"{programs}/trainer", "export", "-q", "-o", f"{scratch}/model", f"--out_dir={scratch}/first"])
    found = {"millrace": [], "TRL": []}
    for _ in range(ROUNDS):
        found["millrace"].append(run_ours(programs, scratch, keys))
        _, _, peak = measured([sys.executable, os.path.abspath(__file__), "--trl", scratch, str(block), str(batch)])
        with open(f"{scratch}/trl.json") as file:
            found["TRL"].append((json.load(file), peak))
    print(f"{layers} layers, {heads} heads, {channels} wide, T={block}, B={batch}; {len(os.sched_getaffinity(0))} processors; "
          f"load {os.getloadavg()[0]:.1f}; steps 2 to {STEPS} of {ROUNDS} runs in turn, median and fastest")
    rates = {}
    for name, runs in found.items():
        steps = [step for steps, _ in runs for step in steps[1:]]
        rate = lambda what: [1e3 * step[what] / step["ms"] for step in steps]  # noqa: E731
        rates[name] = statistics.median(rate("tokens")), statistics.median(rate("targets")), min(peak for _, peak in runs)
        print(f"{name:9} {rates[name][0]:7.0f} tokens/s ({max(rate('tokens')):.0f}), {rates[name][1]:6.0f} targets/s that count "
              f"({max(rate('targets')):.0f}), peak {rates[name][2]:.0f} MiB")
    ours, theirs = rates["millrace"], rates["TRL"]
    print(f"millrace over TRL: {ours[0] / theirs[0]:.2f} times the tokens/s, {ours[1] / theirs[1]:.2f} times the targets/s, {ours[2] / theirs[2]:.2f} of the memory")


main()
