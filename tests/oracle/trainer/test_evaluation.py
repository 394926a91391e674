"""The loss of a whole split against a forward pass in double precision (gpt2_model.py): each token but the first is a target once,
in sequences of T and, of the rest, behind as much context as a sequence has."""
import json
import os
import sys

import numpy as np

import runner
import gpt2_model

BIN = os.environ["BIN"]
T, TOKENS, END = 24, {"train": 24 * 5 + 1, "val": 24 * 7 + 12}, 50256  # train has no rest, val has 11 targets


def splits():
    """Ids of documents of 17 tokens."""
    ids = {split: np.random.default_rng(count).integers(0, 50000, count).astype("<u2") for split, count in TOKENS.items()}
    for split in ids.values():
        split[16::17] = END
    return ids


def losses(weights, ids):
    rest = (len(ids) - 1) % T
    rows = [ids[first : first + T + 1] for first in range(0, len(ids) - T, T)]
    found = [gpt2_model.losses(weights, False, row.astype(int), T) for row in rows]
    return np.concatenate(found + ([gpt2_model.losses(weights, False, ids[-T - 1 :].astype(int), T)[T - rest :]] if rest else []))


def evaluate(*options):
    command = [f"{BIN}/trainer", "eval", "--init_from=./model", "--json", "--device=cpu", "--dtype=float32", "--threads=1",
               f"--block_size={T}", *options]
    return {line["split"]: line for line in map(json.loads, runner.call(*command).stdout.splitlines())}


def test_an_evaluation_of_a_whole_split_counts_every_token():
    runner.call(sys.executable, gpt2_model.__file__, "make", "model")
    weights, ids = gpt2_model.read("model"), splits()
    os.mkdir("nanogpt")
    for split, values in ids.items():
        values.tofile(f"nanogpt/{split}.bin")
    runner.call(f"{BIN}/shardtool", "import-tokens", "--format", "nanogpt", "--quiet", "-o", "data", "nanogpt")
    for options in ["--eval_order=sequential"], ["--eval_batch_size=3"], ["--eval_batch_size=1"]:
        found = evaluate("--dataset=data", "--eval_tokens=1000000", *options)
        for split, values in ids.items():
            want = losses(weights, values)
            assert found[split]["tokens"] == len(want) == TOKENS[split] - 1, (split, found)
            assert abs(found[split]["loss"] - want.mean()) < 1e-6 * want.mean(), (split, options, found, want.mean())
    part = evaluate("--dataset=data", f"--eval_tokens={7 * T}", "--eval_order=sequential")["val"]  # its 7 sequences, no rest
    want = losses(weights, ids["val"])[: 7 * T].mean()
    assert part["tokens"] == 7 * T and abs(part["loss"] - want) < 1e-6 * want, (part, want)
