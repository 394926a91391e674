"""Compares a checkpoint as transformers reads it with what `trainer eval` says of it: the loss over the same tokens.

usage: parity_trainer_hf.py BIN RUN DATASET
"""
import glob
import json
import subprocess
import sys

import numpy as np
import torch
from transformers import GPT2LMHeadModel

programs, run, dataset = sys.argv[1:4]
checkpoint = sorted(glob.glob(f"{run}/ckpt-*[0-9]"))[-1]
model, info = GPT2LMHeadModel.from_pretrained(checkpoint, output_loading_info=True)
model.eval()
left = {name: list(names) for name, names in info.items() if names}
assert not left, f"transformers did not take everything: {left}"

T = model.config.n_positions
said = subprocess.run(
    [f"{programs}/trainer", "eval", f"--out_dir={run}", f"--dataset={dataset}", f"--eval_tokens={T * 8}", "--eval_order=sequential", "--dtype=float32", "--json", "--quiet"],
    check=True, capture_output=True, text=True).stdout
ours = {line["split"]: line for line in map(json.loads, said.splitlines())}
for split in ("train", "val"):
    shards = sorted(glob.glob(f"{dataset}/{split}/*/*.zst"))
    ids = np.frombuffer(subprocess.run(["zstd", "-dc", *shards], check=True, capture_output=True).stdout, np.uint16).astype(np.int64)
    samples = ours[split]["tokens"] // T
    x = torch.from_numpy(ids[: samples * T].reshape(samples, T))
    y = torch.from_numpy(ids[1 : samples * T + 1].reshape(samples, T))
    with torch.no_grad():
        logits = torch.cat([model(row[None]).logits for row in x])
    loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]).double(), y.view(-1)).item()
    print(f"{split}: trainer {ours[split]['loss']:.6f}, transformers {loss:.6f}")
    assert abs(loss - ours[split]["loss"]) < 1e-4
