"""Reads a GGUF, and computes what the architecture that it names computes, in double precision with numpy alone."""
import math
import struct

import numpy as np

VALUES = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}
TYPES = {0: (1, 4), 1: (1, 2), 8: (32, 34), 30: (1, 2)}  # of a block: numbers, bytes


class Reader:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0

    def number(self, form="<Q"):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind):
        if kind == 9:
            item, count = self.number("<I"), self.number()
            return [self.value(item) for _ in range(count)]
        return self.text() if kind == 8 else self.number(VALUES[kind])


def numbers(data, kind):
    if kind == 8:
        blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("values", "i1", 32)]))
        return (blocks["scale"].astype("f8")[:, None] * blocks["values"]).ravel()
    if kind == 30:
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype("f8")
    return np.frombuffer(data, {0: "<f4", 1: "<f2"}[kind]).astype("f8")


def read(path):
    """The pairs, the tensors, and the bytes and type of each."""
    reader = Reader(path)
    assert reader.number("<I") == 0x46554747 and reader.number("<I") == 3
    count, pair_count = reader.number(), reader.number()
    pairs = {}
    for _ in range(pair_count):
        key = reader.text()
        assert key not in pairs
        pairs[key] = reader.value(reader.number("<I"))
    infos = []
    for _ in range(count):
        name = reader.text()
        shape = [reader.number() for _ in range(reader.number("<I"))]
        infos.append((name, shape, reader.number("<I"), reader.number()))
    start, end, tensors, raw = -(-reader.at // 32) * 32, 0, {}, {}
    for name, shape, kind, offset in infos:
        values, size = TYPES[kind]
        data = reader.data[start + offset : start + offset + math.prod(shape) // values * size]
        assert offset == end and shape[0] % values == 0 and name not in tensors
        tensors[name], raw[name] = numbers(data, kind).reshape(shape[::-1]), (kind, data)
        end = -(-(offset + len(data)) // 32) * 32
    assert start + end == len(reader.data), "whole, and no byte more"
    return pairs, tensors, raw


def rotated(x, base, neighbours):
    """x (T, heads, D)."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None, None] * base ** (-np.arange(half) / half)
    a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
    turned = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
    return np.stack(turned, -1).reshape(x.shape) if neighbours else np.concatenate(turned, -1)


def logits(pairs, tensors, ids, exact=False):
    """Of the id behind each of `ids`; exact: the form of GELU that llama.cpp does not have."""
    name = pairs["general.architecture"]
    heads, kept = pairs[f"{name}.attention.head_count"], pairs[f"{name}.attention.head_count_kv"]
    base = pairs.get(f"{name}.rope.freq_base")
    rms = f"{name}.attention.layer_norm_rms_epsilon" in pairs
    epsilon = pairs[f"{name}.attention.layer_norm_{'rms_' * rms}epsilon"]

    def linear(x, key):
        return x @ tensors[f"{key}.weight"].T + tensors.get(f"{key}.bias", 0)

    def norm(x, key):
        x = x if rms else x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * tensors[f"{key}.weight"] + tensors.get(f"{key}.bias", 0)

    def activation(x, block):
        if not rms:
            x = linear(x, f"{block}.ffn_up")
            return 0.5 * x * (1 + (np.vectorize(math.erf)(x / math.sqrt(2)) if exact else np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
        if name == "arcee":
            return np.maximum(linear(x, f"{block}.ffn_up"), 0) ** 2
        gate = linear(x, f"{block}.ffn_gate")
        return gate / (1 + np.exp(-gate)) * linear(x, f"{block}.ffn_up")

    x = tensors["token_embd.weight"][ids]
    if not base:
        x = x + tensors["position_embd.weight"][: len(ids)]
    D = x.shape[1] // heads
    for i in range(pairs[f"{name}.block_count"]):
        block = f"blk.{i}"
        at = norm(x, f"{block}.attn_norm")
        if not base:
            parts = np.split(linear(at, f"{block}.attn_qkv"), [heads * D, (heads + kept) * D], -1)
        else:
            parts = [linear(at, f"{block}.attn_{part}") for part in "qkv"]
        q, k, v = (part.reshape(len(ids), -1, D) for part in parts)
        if name == "qwen3":
            q, k = norm(q, f"{block}.attn_q_norm"), norm(k, f"{block}.attn_k_norm")
        if base:
            q, k = (rotated(part, base, neighbours=name in ("llama", "arcee")) for part in (q, k))
        k, v = (np.repeat(part, heads // kept, 1) for part in (k, v))
        scores = np.where(np.tri(len(ids)) > 0, np.einsum("qhd,khd->hqk", q, k) / math.sqrt(D), -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(x.shape)
        x = x + linear(mixed, f"{block}.attn_output")
        x = x + linear(activation(norm(x, f"{block}.ffn_norm"), block), f"{block}.ffn_down")
    return norm(x, "output_norm") @ tensors.get("output.weight", tensors["token_embd.weight"]).T
