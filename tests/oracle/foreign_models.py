"""Models in torch as the files of nanoGPT and llm.c hold them: random weights, the files, and the logits by the formulas."""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SMALL = dict(L=2, H=2, C=16, T=32, V=50257)
TINY = dict(L=1, H=2, C=4, T=3, V=11)
MATRIX = "transformer.h.0.mlp.c_fc.weight"


def names(L, C, T, V, bias, **_):
    """Each tensor with its shape, in the order of nanoGPT's modules; the weights of Linear are (out,in)."""
    yield "transformer.wte.weight", (V, C)
    yield "transformer.wpe.weight", (T, C)
    wide = {"attn.c_attn": (3 * C, C), "attn.c_proj": (C, C), "mlp.c_fc": (4 * C, C), "mlp.c_proj": (C, 4 * C)}
    parts = [f"h.{i}.{part}" for i in range(L) for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")]
    for part in parts + ["ln_f"]:
        shape = wide.get(part.split(".", 2)[-1], (C,))
        yield f"transformer.{part}.weight", shape
        if bias:
            yield f"transformer.{part}.bias", shape[:1]


def weights(sizes, bias, dtype=torch.float32):
    torch.manual_seed(5)
    return {name: ((name.endswith("weight") and len(shape) == 1) + 0.2 * torch.randn(shape)).to(dtype)
            for name, shape in names(**sizes, bias=bias)}  # fmt: skip


def counted(sizes, bias, dtype=torch.float32):
    """The numbers 0 to 127 again and again, through all tensors in their order: exact in every type."""
    tensors, at = {}, 0
    for name, shape in names(**sizes, bias=bias):
        tensors[name] = (torch.arange(at, at + math.prod(shape)) % 128).view(shape).to(dtype)
        at += math.prod(shape)
    return tensors


def inputs(T, V, **_):
    return (torch.arange(T)[None] * 997) % V


def logits(tensors, sizes, tanh):
    w, (L, H, C, T) = {name: tensor.float() for name, tensor in tensors.items()}, (sizes[k] for k in "LHCT")

    def norm(x, name):
        return F.layer_norm(x, (C,), w[name + ".weight"], w.get(name + ".bias"))

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    x = w["transformer.wte.weight"][inputs(**sizes)] + w["transformer.wpe.weight"]
    for h in (f"transformer.h.{i}." for i in range(L)):
        q, k, v = (y.view(1, T, H, C // H).transpose(1, 2) for y in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, 2))
        scores = (q @ k.transpose(-2, -1) / math.sqrt(C // H)).masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        x = x + linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(1, T, C), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh" if tanh else "none"), h + "mlp.c_proj")
    return F.linear(norm(x, "transformer.ln_f"), w["transformer.wte.weight"])[0]


def save_nanogpt(path, tensors, sizes, bias, head=None, prefix="", masks=False, more=None):
    """A ckpt.pt, by torch.save, with the keys that nanoGPT's train.py gives it. The head shares the storage of the embedding."""
    state = nn.Module().state_dict()  # an OrderedDict with _metadata
    state.update(tensors)
    state["lm_head.weight"] = tensors["transformer.wte.weight"].detach() if head is None else head
    if masks:
        T = sizes["T"]
        state.update({f"transformer.h.{i}.attn.bias": torch.ones(T, T).tril().view(1, 1, T, T) for i in range(sizes["L"])})
    metadata, state = state._metadata, type(state)((prefix + name, tensor) for name, tensor in state.items())
    state._metadata = metadata
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.95))
    (parameter * 2).sum().backward()
    optimizer.step()
    arguments = {"n_layer": sizes["L"], "n_head": sizes["H"], "n_embd": sizes["C"], "block_size": sizes["T"], "bias": bias,
                 "vocab_size": len(tensors.get("transformer.wte.weight", ())), "dropout": 0.0}  # fmt: skip
    config = {"out_dir": "out", "eval_interval": 2000, "wandb_log": False, "learning_rate": 6e-4, "device": None}
    torch.save({"model": state, "optimizer": optimizer.state_dict(), "model_args": arguments, "iter_num": 70000,
                "best_val_loss": torch.tensor(3.21), "config": config | (more or {})}, path)  # fmt: skip


def save_llmc(path, tensors, sizes, version=3, padded=None):
    """A .bin of llm.c: 256 int32, then each kind of tensor of all layers, the embedding padded with zeros."""
    V, L = sizes["V"], sizes["L"]
    padded = padded or (V + 127) // 128 * 128
    header = np.zeros(256, "<i4")
    header[:8] = 20240326, version, sizes["T"], V, L, sizes["H"], sizes["C"], padded

    def put(name):
        data = tensors[name].view(torch.int16) if version == 5 else tensors[name]
        file.write(data.numpy().tobytes())

    with open(path, "wb") as file:
        file.write(header.tobytes())
        put("transformer.wte.weight")
        file.write(bytes((padded - V) * sizes["C"] * (2 if version == 5 else 4)))
        put("transformer.wpe.weight")
        for part in "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj":
            for kind in "weight", "bias":
                for i in range(L):
                    put(f"transformer.h.{i}.{part}.{kind}")
        put("transformer.ln_f.weight")
        put("transformer.ln_f.bias")


def save_tiny(folder):
    """The files of tests/data/fuzz/import, whose numbers count: python foreign_models.py FOLDER."""
    for dtype in torch.float32, torch.float16, torch.bfloat16:
        bias = dtype is torch.float32
        save_nanogpt(f"{folder}/{str(dtype)[6:]}.pt", counted(TINY, bias, dtype), TINY, bias, masks=bias, prefix="_orig_mod." * (not bias))
    save_llmc(f"{folder}/llmc3.bin", counted(TINY, True), TINY, 3, 16)
    save_llmc(f"{folder}/llmc5.bin", counted(TINY, True, torch.bfloat16), TINY, 5, 16)


if __name__ == "__main__":
    import sys

    save_tiny(sys.argv[1])
