#!/usr/bin/env python3
"""Character models side by side (make bench-chars): the validation loss that nanoGPT's model and training loop reach in
PyTorch, and that of `trainer train config/shakespeare_char.conf`, with the same settings on the same ids.

The text is cut as nanoGPT's data/shakespeare_char/prepare.py does, the first 90 % for training, and each loss is that of
the whole validation split. With tiny shakespeare as FILE it can be compared with the 1.88 of nanoGPT's README; without a
FILE the text is a part of the demo's, as long as tiny shakespeare. The trainer takes random rows, as nanoGPT does
(sampling=crop), and the rows of epochs, its default. Exit code 1: its loss is higher by more than 0.03.
Usage: bench_chars.py BIN [FILE]"""
import glob
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import types

import numpy as np
import torch

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from nanogpt_model import GPT, learning_rate, make_optimizer

CONF, SEEDS, GOAL = "config/shakespeare_char.conf", (1337, 1), 0.03
LENGTH = 1_115_394  # characters of tiny shakespeare


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def read_text(path):
    if path:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    names = sorted(glob.glob(run("scripts/corpus.sh").strip() + "/*.txt"))
    return "".join(open(name, encoding="utf-8", newline="").read() for name in names)[:LENGTH]


def write_dataset(shardtool, folder, text):
    """A dataset of one document in each split; returns the ids of both as nanoGPT has them."""
    cut = len(text) * 9 // 10
    for name, part in ("train", text[:cut]), ("val", text[cut:]):
        with open(f"{folder}/{name}.txt", "w", encoding="utf-8", newline="") as file:
            file.write(part)
    documents = f"{folder}/train.txt", f"{folder}/val.txt"
    sizes = {f"{folder}/bins/train.bin": cut + 1, f"{folder}/bins/val.bin": len(text) - cut + 1}  # with the ends of the documents
    with open(f"{folder}/characters", "w", encoding="utf-8", newline="") as file:
        file.write(run(shardtool, "train-vocabulary", "--characters", *documents))
    for seed in range(1000):  # one that puts the second document, and it alone, into the validation split
        run(shardtool, "tokenize", "-q", "--force", "--val=0.5", f"--seed={seed}", f"--vocabulary={folder}/characters",
            "-o", f"{folder}/data", *documents)  # fmt: skip
        run(shardtool, "export-tokens", "-q", "--force", "--format=nanogpt", "-o", f"{folder}/bins", f"{folder}/data")
        if all(os.path.exists(path) and os.path.getsize(path) == 2 * size for path, size in sizes.items()):
            return [torch.from_numpy(np.fromfile(path, np.uint16).astype(np.int64)) for path in sizes]
    sys.exit("no seed gives these splits")


def ours(trainer, folder, seed, sampling, eval_tokens):
    out = f"{folder}/{sampling}{seed}"
    run(trainer, "train", CONF, f"--dataset={folder}/data", f"--out_dir={out}", f"--seed={seed}", f"--sampling={sampling}",
        f"--eval_interval={conf.max_iters}", f"--eval_tokens={eval_tokens}", "--dtype=float32", "--device=cpu", "--threads=1",
        "--sample_tokens=0", "--quiet")  # fmt: skip
    with open(out + "/metrics.jsonl", encoding="utf-8") as lines:
        return [line["val_loss"] for line in map(json.loads, lines) if "val_loss" in line][-1]


def theirs(seed, train, val, vocab):
    T = conf.block_size
    torch.manual_seed(seed)
    model = GPT(conf.n_layer, conf.n_embd, conf.n_head, T, V=vocab)
    optimizer = make_optimizer(model, conf)
    for step in range(conf.max_iters):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(conf, step)
        rows = torch.stack([train[at : at + T + 1] for at in torch.randint(len(train) - T, (conf.batch_size,))])
        model(rows[:, :-1], rows[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    rows = val[: (len(val) - 1) // T * T + 1].unfold(0, T + 1, T)
    with torch.no_grad():
        return sum(model(part[:, :-1], part[:, 1:]).item() * len(part) for part in rows.split(64)) / len(rows)


def timed(job, *arguments):
    """The loss, and the CPU seconds of this process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    loss = job(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return loss, after.ru_utime + after.ru_stime - before[0].ru_utime - before[0].ru_stime + time.process_time() - before[1]


programs, path = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
names = {}
with open(CONF, encoding="utf-8") as file:
    exec(file.read(), names)
conf = types.SimpleNamespace(**names)
torch.set_num_threads(1)

with tempfile.TemporaryDirectory() as folder:
    text = read_text(path)
    train, val = write_dataset(f"{programs}/shardtool", folder, text)
    vocab = max(train.max(), val.max()).item() + 1
    eval_tokens = (len(val) - 1) // conf.block_size * conf.block_size
    print(f"{path or 'the text of the demo'}: {len(text):,} characters, {vocab - 1} kinds; {conf.max_iters} steps; "
          f"loss of {eval_tokens:,} characters of validation; CPU seconds", flush=True)  # fmt: skip
    differences = {"crop": [], "epoch": []}
    for seed in SEEDS:
        peer, seconds = timed(theirs, seed, train, val, vocab)
        print(f"seed {seed:<5} PyTorch                  {peer:.4f}          {seconds:6.0f} s", flush=True)
        for sampling, found in differences.items():
            mine, seconds = timed(ours, f"{programs}/trainer", folder, seed, sampling, eval_tokens)
            found.append(mine - peer)
            print(f"seed {seed:<5} trainer, sampling={sampling:6} {mine:.4f} ({mine - peer:+.4f}) {seconds:5.0f} s", flush=True)
    means = {sampling: sum(found) / len(found) for sampling, found in differences.items()}
    print("trainer - PyTorch, mean of the seeds:", ", ".join(f"{sampling} {mean:+.4f}" for sampling, mean in means.items()))
    sys.exit(max(means.values()) > GOAL)
