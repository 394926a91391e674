"""The models of foreign_files.py in torch: their logits by the formulas, and a ckpt.pt by torch.save."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import foreign_files as files


def to_torch(array):
    if isinstance(array, torch.Tensor):
        return array
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == files.BFLOAT16 else torch.from_numpy(array)


def inputs(T, V, **_):
    return (torch.arange(T)[None] * 997) % V


def logits(tensors, sizes, tanh):
    w, (L, H, C, T) = {name: to_torch(files.widen(tensor)) for name, tensor in tensors.items()}, (sizes[k] for k in "LHCT")

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


save = torch.save


def save_nanogpt(path, tensors, sizes, bias, more=None, **rest):
    tensors = {name: to_torch(tensor) for name, tensor in tensors.items()}
    model = nn.Module().state_dict()  # an OrderedDict with _metadata
    model.update((name, to_torch(tensor)) for name, tensor in files.model_state(tensors, sizes, **rest).items())
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.95))
    (parameter * 2).sum().backward()
    optimizer.step()
    vocab = len(tensors["transformer.wte.weight"])
    torch.save(files.nanogpt_root(model, optimizer.state_dict(), torch.tensor(3.21), sizes, bias, vocab, more), path)


def save_tiny(folder):
    """The files of tests/data/fuzz/import, whose numbers count: python foreign_models.py FOLDER."""
    for name, dtype in ("float32", np.float32), ("float16", np.float16), ("bfloat16", files.BFLOAT16):
        bias = name == "float32"
        save_nanogpt(f"{folder}/{name}.pt", files.counted(files.TINY, bias, dtype), files.TINY, bias, masks=bias, prefix="_orig_mod." * (not bias))
    files.save_llmc(f"{folder}/llmc3.bin", files.counted(files.TINY, True), files.TINY, 3, 16)
    files.save_llmc(f"{folder}/llmc5.bin", files.counted(files.TINY, True, files.BFLOAT16), files.TINY, 5, 16)


if __name__ == "__main__":
    import sys

    save_tiny(sys.argv[1])
