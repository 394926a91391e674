#!/usr/bin/env python3
"""Writes tests/data/kernels_torch.bin: what torch (float32, CPU) says about the operations of kernels/ops.def.

Needs torch: pip install torch; then python3 tests/oracle/trainer/make_kernels.py. Inputs are not stored: tests/unit/kernels/fixture_kernels.h makes
the same ones (numbers()). A record: name (40 bytes), count, step (u32), then every step-th of count floats.
"""
import struct
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
records = []


def keep(name, tensor):
    flat = tensor.detach().numpy().astype("<f4").ravel()
    step = 1 if flat.size <= 3000 else 5
    records.append(struct.pack("<40sII", name.encode(), flat.size, step) + flat[::step].tobytes())


def numbers(seed, shape, scale=1.0):
    """scale * multiples of 2^-23 in [-1, 1): splitmix64 of seed * 2^32 + i."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.uint64(seed << 32) + np.arange(count, dtype=np.uint64)
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    value = (z >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    return torch.from_numpy(value.reshape(shape) * np.float32(scale)).requires_grad_()


def ids(seed, shape, vocab):
    return ((numbers(seed, shape).detach() + 1) / 2 * vocab).long().clamp(max=vocab - 1)


def embed():
    B, T, C, V = 2, 5, 40, 64
    rows, wte, wpe = ids(1, (B, T + 1), V), numbers(2, (V, C)), numbers(3, (T, C))
    out = wte[rows[:, :T]] + wpe
    out.backward(numbers(4, (B, T, C)).detach())
    keep("embed out", out), keep("embed dwte", wte.grad), keep("embed dwpe", wpe.grad)


def layernorm():
    N, C = 37, 40
    x, branch, w, b = numbers(1, (N, C), 3), numbers(2, (N, C)), numbers(3, (C,)), numbers(4, (C,))
    total = x + branch
    total.retain_grad()
    out = F.layer_norm(total, (C,), w, b, 1e-5)
    out.backward(numbers(5, (N, C)).detach())
    keep("layernorm out", out), keep("layernorm dsum", total.grad)
    keep("layernorm dweight", w.grad), keep("layernorm dbias", b.grad)


def matmul(name, M, rows, cols):
    x, w, b = numbers(1, (M, cols)), numbers(2, (rows, cols), 0.2), numbers(3, (rows,))
    out = F.linear(x, w, b)
    out.backward(numbers(4, (M, rows)).detach())
    keep(name + " out", out), keep(name + " din", x.grad), keep(name + " dw", w.grad)


def gelu():
    for kind, exact in (("none", "exact"), ("tanh", "tanh")):
        x = numbers(1, (37, 40), 8)
        out = F.gelu(x, approximate=kind)
        out.backward(numbers(2, (37, 40)).detach())
        keep(f"gelu {exact} out", out), keep(f"gelu {exact} din", x.grad)


def attention(name, B, T, H, D):
    qkv = numbers(1, (B, T, 3 * H * D), 2)
    q, k, v = (part.view(B, T, H, D).transpose(1, 2) for part in qkv.split(H * D, dim=2))
    scores = (q @ k.transpose(2, 3)) / D**0.5
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
    lse = torch.logsumexp(scores, 3)
    out = (torch.softmax(scores, 3) @ v).transpose(1, 2).reshape(B, T, H * D)
    out.backward(numbers(2, (B, T, H * D)).detach())
    keep(name + " out", out), keep(name + " lse", lse), keep(name + " dqkv", qkv.grad)


def cross_entropy():
    B, T, vocab, V = 3, 11, 117, 128
    logits, rows = numbers(1, (B * T, V), 6), ids(2, (B, T + 1), vocab)
    losses = F.cross_entropy(logits[:, :vocab], rows[:, 1:].reshape(-1), reduction="none")
    (losses.sum() * 0.25).backward()
    keep("cross_entropy losses", losses), keep("cross_entropy gradient", logits.grad)


def adamw():
    count, decayed = 1003, 700
    p = numbers(1, (count,))
    wide, rest = p[:decayed].detach().clone().requires_grad_(), p[decayed:].detach().clone().requires_grad_()
    groups = [{"params": [wide], "weight_decay": 0.1}, {"params": [rest], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-2, betas=(0.9, 0.95), eps=1e-8)
    for step in range(3):
        g = numbers(10 + step, (count,)).detach()
        wide.grad, rest.grad = g[:decayed].clone(), g[decayed:].clone()
        norm = torch.nn.utils.clip_grad_norm_([wide, rest], 1.0)
        optimizer.step()
    keep("adamw norm", norm.reshape(1)), keep("adamw params", torch.cat([wide, rest]))


embed(), layernorm(), gelu(), cross_entropy(), adamw()
matmul("matmul", 37, 128, 96)  # both dimensions fill the packed layout's blocks
matmul("matmul odd", 19, 72, 40)  # neither does
attention("attention 64", 1, 128, 2, 64)
attention("attention 48", 2, 70, 2, 48)  # 12 heads of n_embd 576
attention("attention 8", 2, 5, 3, 8)
attention("attention 120", 1, 67, 1, 120)
attention("attention 256", 1, 9, 1, 256)
path = Path(__file__).parents[2] / "data" / "kernels_torch.bin"
path.write_bytes(b"".join(records))
print(path, len(records), "records", path.stat().st_size, "bytes")
