"""The hash chain of a run, written from its specification on the page of formats alone: data by the second implementation of
the sampling order, weights from checkpoints, losses and norms from metrics.jsonl."""
import hashlib
import json
import math
import pathlib
import re
import struct
import subprocess

import numpy as np

import test_loader_sampling as sampling

NONE = bytes(32)
# The keys of link 0, as the page of formats lists them; those with * have a value only where it is not the default.
PAGE = (pathlib.Path(__file__).resolve().parents[3] / "docs/formats.md").read_text().replace("\\*", "*")
KEYS = re.search(r"^The keys of link 0 and their order are (.*?)\.", PAGE, re.M | re.S)[1].replace(",", "").split()


def digest(name, *parts):
    return hashlib.sha256(b"millrace chain " + name.encode() + b" 1\n" + b"".join(parts)).digest()


def real(value):
    return struct.pack("<d", value) if value is not None and math.isfinite(value) else bytes.fromhex("000000000000f87f")


def read_tensors(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    return {name: np.frombuffer(data[8 + length :][slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"]) for name, entry in header.items()}


def weights(checkpoint):
    model, order = read_tensors(f"{checkpoint}/model.safetensors"), read_tensors(f"{checkpoint}/optimizer.safetensors")
    values = []
    for name in (name[len("adamw.m.") :] for name in order if name.startswith("adamw.m.")):
        tensor = model["transformer." + name]
        turned = name.startswith("h.") and tensor.ndim == 2
        values.append((tensor.T if turned else tensor).tobytes())
    return digest("weights", *values)


def train_ids(shardtool, dataset):
    """The ids of the training split, with 2 bytes each."""
    files = sorted(pathlib.Path(dataset).glob("train/*/*.zst"))
    return np.frombuffer(b"".join(subprocess.run(["zstd", "-dcq", file], capture_output=True, check=True).stdout for file in files), "<u2")


def first_link(config, vocabulary):
    lines = [f"{key}={config[key]}\n" for key in (key.rstrip("*") for key in KEYS if key.rstrip("*") in config or key[-1] != "*")]
    return digest("run", "".join(lines).encode(), vocabulary)


def link(before, step, fingerprint, config, row, first_sample, loss, norm, weights=NONE):
    """row(sample) are the ids of a sample."""
    rows, micros = int(config["batch_size"]), int(config["gradient_accumulation_steps"])
    batches = []
    for micro in range(micros):
        first = first_sample + micro * rows
        batches.append(digest("batch", struct.pack("<QII", first, rows, 2), *[row(first + i).tobytes() for i in range(rows)]))
    return digest("step", before, struct.pack("<Q", step), fingerprint, digest("data", *batches), real(loss), real(norm), weights)


class Chain:
    """The links of the steps that metrics.jsonl has, step by step; `weights` has the hash of the steps that need one."""

    def __init__(self, lines, vocabulary, ids, weights):
        self.lines, self.ids, self.weights = lines, ids, weights
        self.config = next(line["config"] for line in lines if "config" in line)
        self.fingerprint = next(bytes.fromhex(line["fingerprint"]) for line in lines if "fingerprint" in line)
        self.vocabulary = vocabulary

    def row(self, sample, ids=None, place=0):
        config = self.config
        return sampling.row(config["sampling"], self.ids if ids is None else ids, int(config["seed"]), 0, int(config["block_size"]), sample, c=place)

    def fingerprint_at(self, sample):
        return self.fingerprint

    def links(self):
        last = first_link(self.config, self.vocabulary)
        for line in self.lines:
            if "loss" not in line:
                continue
            step, between = line["step"], int(self.config["eval_interval"])
            end = line["first_sample"] + int(self.config["batch_size"]) * int(self.config["gradient_accumulation_steps"]) - 1
            last = link(last, step, self.fingerprint_at(end), self.config, self.row, line["first_sample"], line["loss"], line["norm"],
                        self.weights[step] if step % between == 0 else NONE)
            yield step, last.hex()
