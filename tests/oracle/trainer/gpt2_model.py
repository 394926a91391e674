"""Writes a random GPT-2 as a model directory, and computes its loss in double precision with numpy alone.

usage: gpt2_model.py make DIR [--dtype F32|F16|BF16] [--activation NAME] [--no-prefix] [--shards N] [--positions N] [--padding IDS]
       gpt2_model.py loss DIR IDS T COUNT     IDS: a file of uint16; prints the mean loss of COUNT sequences of T tokens
"""
import argparse
import json
import math
import os
import struct

import numpy as np

L, H, C, V = 2, 3, 48, 50257
TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


def tensors(rng, positions):
    def normal(*shape):
        return rng.normal(0, 0.2, shape).astype(np.float32)

    yield "wte.weight", normal(V, C)
    yield "wpe.weight", normal(positions, C)
    for i in range(L):
        for name, shape in (("ln_1", None), ("attn.c_attn", (C, 3 * C)), ("attn.c_proj", (C, C)), ("ln_2", None),
                            ("mlp.c_fc", (C, 4 * C)), ("mlp.c_proj", (4 * C, C))):
            yield f"h.{i}.{name}.weight", normal(*shape) if shape else 1 + normal(C)
            yield f"h.{i}.{name}.bias", normal(shape[1] if shape else C)
        yield f"h.{i}.attn.bias", np.tril(np.ones((1, 1, positions, positions), np.float32))  # the mask of old files
    yield "ln_f.weight", 1 + normal(C)
    yield "ln_f.bias", normal(C)


def padded(rows, count):
    """With rows of ids that no text has behind the embedding, which would be likely ones."""
    for name, values in rows:
        yield name, np.pad(values, ((0, count), (0, 0)), constant_values=3) if name == "wte.weight" else values


def encode(values, dtype):
    if dtype == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype(TYPES[dtype]).tobytes()


def decode(data, dtype):
    values = np.frombuffer(data, TYPES[dtype])
    if dtype == "BF16":
        values = (values.astype("<u4") << 16).view("<f4")
    return values.astype(np.float64)


def write_file(path, entries):
    header, at = {}, 0
    for name, dtype, shape, data in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(data for *_, data in entries)


def make(arguments):
    os.makedirs(arguments.dir)
    config = {"model_type": "gpt2", "n_layer": L, "n_head": H, "n_embd": C, "n_positions": arguments.positions,
              "vocab_size": V + arguments.padding}
    if arguments.activation:
        config["activation_function"] = arguments.activation
    with open(f"{arguments.dir}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    prefix = "" if arguments.no_prefix else "transformer."
    entries = [(prefix + name, arguments.dtype, list(values.shape), encode(values, arguments.dtype))
               for name, values in padded(tensors(np.random.default_rng(7), arguments.positions), arguments.padding)]
    if arguments.shards == 1:
        write_file(f"{arguments.dir}/model.safetensors", entries)
        return
    files = {}
    for i, entry in enumerate(entries):
        files.setdefault(f"model-{i % arguments.shards + 1:05}-of-{arguments.shards:05}.safetensors", []).append(entry)
    for name, part in files.items():
        write_file(f"{arguments.dir}/{name}", part)
    with open(f"{arguments.dir}/model.safetensors.index.json", "w", encoding="utf-8") as file:
        json.dump({"weight_map": {entry[0]: name for name, part in files.items() for entry in part}}, file)


def read(directory):
    values = {}
    for name in os.listdir(directory):
        if not name.endswith(".safetensors"):
            continue
        with open(f"{directory}/{name}", "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        for key, entry in header.items():
            if key != "__metadata__":
                begin, end = entry["data_offsets"]
                values[key.removeprefix("transformer.")] = decode(data[begin:end], entry["dtype"]).reshape(entry["shape"])
    return values


def norm(x, weights, name):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * weights[name + ".weight"] + weights[name + ".bias"]


def linear(x, weights, name):
    return x @ weights[name + ".weight"] + weights[name + ".bias"]


def logits(weights, exact, ids, H=H, last=0):
    """Of the id behind each of `ids`, or of the last ones."""
    erf, T, C = np.vectorize(math.erf), len(ids), weights["wte.weight"].shape[1]
    x = weights["wte.weight"][ids] + weights["wpe.weight"][:T]
    for i in range(L):
        q, k, v = np.split(linear(norm(x, weights, f"h.{i}.ln_1"), weights, f"h.{i}.attn.c_attn"), 3, axis=-1)
        heads = []
        for h in range(H):
            part = slice(h * C // H, (h + 1) * C // H)
            scores = np.where(np.tri(T) > 0, q[:, part] @ k[:, part].T / math.sqrt(C // H), -np.inf)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, part])
        x = x + linear(np.concatenate(heads, -1), weights, f"h.{i}.attn.c_proj")
        u = linear(norm(x, weights, f"h.{i}.ln_2"), weights, f"h.{i}.mlp.c_fc")
        gelu = erf(u / math.sqrt(2)) if exact else np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))
        x = x + linear(0.5 * u * (1 + gelu), weights, f"h.{i}.mlp.c_proj")
    return norm(x[-last:], weights, "ln_f") @ weights["wte.weight"].T


def losses(weights, exact, ids, T):
    """The loss of each of T predictions from T+1 ids."""
    found = logits(weights, exact, ids[:T])
    largest = found.max(-1)
    return largest + np.log(np.exp(found - largest[:, None]).sum(-1)) - found[np.arange(T), ids[1 : T + 1]]


def loss(arguments):
    with open(f"{arguments.dir}/config.json", encoding="utf-8") as file:
        exact = json.load(file).get("activation_function", "gelu_new") == "gelu"
    weights, ids, T = read(arguments.dir), np.fromfile(arguments.ids, "<u2"), arguments.T
    print(f"{np.mean([losses(weights, exact, ids[i * T:], T) for i in range(arguments.count)]):.9f}")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    maker = commands.add_parser("make")
    maker.add_argument("dir")
    maker.add_argument("--dtype", default="F32", choices=TYPES)
    maker.add_argument("--activation")
    maker.add_argument("--padding", type=int, default=0)
    maker.add_argument("--no-prefix", action="store_true")
    maker.add_argument("--shards", type=int, default=1)
    maker.add_argument("--positions", type=int, default=64)
    maker.set_defaults(run=make)
    computer = commands.add_parser("loss")
    computer.add_argument("dir")
    computer.add_argument("ids")
    computer.add_argument("T", type=int)
    computer.add_argument("count", type=int)
    computer.set_defaults(run=loss)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
