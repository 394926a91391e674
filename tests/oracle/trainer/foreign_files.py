"""Models in the files of nanoGPT and llm.c, by numpy, zipfile and pickle alone: the weights, and the bytes that hold them.

numpy has no bfloat16: an array of uint16 is the bits of one."""
import collections
import math
import pickle
import sys
import types
import unittest.mock
import zipfile

import numpy as np

SMALL = dict(L=2, H=2, C=16, T=32, V=50257)
TINY = dict(L=1, H=2, C=4, T=3, V=11)
MATRIX = "transformer.h.0.mlp.c_fc.weight"
BFLOAT16 = np.uint16


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


def narrow(numbers, dtype):
    """float32 numbers in a type; in bfloat16 the lower half of their bits is cut off."""
    return (numbers.view(np.uint32) >> 16).astype(BFLOAT16) if dtype == BFLOAT16 else numbers.astype(dtype)


def widen(array):
    return (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == BFLOAT16 else array.astype(np.float32)


def weights(sizes, bias, dtype=np.float32):
    random = np.random.default_rng(5)
    return {name: narrow((name.endswith("weight") and len(shape) == 1) + 0.2 * random.standard_normal(shape, np.float32), dtype)
            for name, shape in names(**sizes, bias=bias)}  # fmt: skip


def counted(sizes, bias, dtype=np.float32):
    """The numbers 0 to 127 again and again, through all tensors in their order: exact in every type."""
    tensors, at = {}, 0
    for name, shape in names(**sizes, bias=bias):
        count = math.prod(shape)
        tensors[name] = narrow((np.arange(at, at + count) % 128).astype(np.float32).reshape(shape), dtype)
        at += count
    return tensors


def model_state(tensors, sizes, head=None, prefix="", masks=False):
    """The tensors under the names of a state_dict. The head shares the storage of the embedding, unless another is given."""
    state = tensors | {"lm_head.weight": tensors["transformer.wte.weight"][:] if head is None else head}
    if masks:
        mask = np.tril(np.ones((sizes["T"], sizes["T"]), np.float32))[None, None]
        state |= {f"transformer.h.{i}.attn.bias": mask for i in range(sizes["L"])}
    return collections.OrderedDict((prefix + name, tensor) for name, tensor in state.items())


def nanogpt_root(model, optimizer, best, sizes, bias, vocab, more=None):
    """The dict that nanoGPT's train.py saves."""
    arguments = {"n_layer": sizes["L"], "n_head": sizes["H"], "n_embd": sizes["C"], "block_size": sizes["T"], "bias": bias,
                 "vocab_size": vocab, "dropout": 0.0}  # fmt: skip
    config = {"out_dir": "out", "eval_interval": 2000, "wandb_log": False, "learning_rate": 6e-4, "device": None}
    return {"model": model, "optimizer": optimizer, "model_args": arguments, "iter_num": 70000, "best_val_loss": best,
            "config": config | (more or {})}  # fmt: skip


class Storage:
    def __init__(self, array):
        self.array = array if array.base is None else array.base


class TorchPickler(pickle.Pickler):
    """Writes an array as torch.save writes a tensor: a call of torch's function with the number of a storage."""

    def __init__(self, file, protocol=2):
        super().__init__(file, protocol=protocol)
        self.storages = []

    def reducer_override(self, value):
        if not isinstance(value, np.ndarray):
            return NotImplemented
        strides = tuple(step // value.itemsize for step in value.strides)
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        return rebuild, (Storage(value), 0, value.shape, strides, False, collections.OrderedDict())

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        keys = [key for key, array in enumerate(self.storages) if array is value.array]
        if not keys:
            self.storages.append(value.array)
        kind = {"float32": "Float", "float16": "Half", "uint16": "BFloat16", "float64": "Double"}[value.array.dtype.name]
        key = keys[0] if keys else len(self.storages) - 1
        return "storage", getattr(sys.modules["torch"], kind + "Storage"), str(key), "cpu", value.array.size


def torch_modules():
    """Empty modules of torch's names, in which pickle finds the names that it writes."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in "FloatStorage", "HalfStorage", "BFloat16Storage", "DoubleStorage":
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    utils._rebuild_tensor_v2 = lambda: None
    utils._rebuild_tensor_v2.__module__, utils._rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    return {"torch": torch, "torch._utils": utils}


def save(root, path, protocol=2):
    """What torch.save writes: a zip archive of a pickle and the numbers of each storage."""
    with zipfile.ZipFile(path, "w") as archive:
        with unittest.mock.patch.dict(sys.modules, torch_modules()), archive.open("ckpt/data.pkl", "w") as file:
            pickler = TorchPickler(file, protocol)
            pickler.dump(root)
        archive.writestr("ckpt/byteorder", "little")
        for key, array in enumerate(pickler.storages):
            archive.writestr(f"ckpt/data/{key}", array.tobytes())
        archive.writestr("ckpt/version", "3\n")


def save_nanogpt(path, tensors, sizes, bias, more=None, best=None, protocol=2, **rest):
    """A ckpt.pt of nanoGPT."""
    model = model_state(tensors, sizes, **rest)
    model._metadata = collections.OrderedDict({"": {"version": 1}})
    step, moment, square = np.array(1, np.float32), np.ones(3, np.float32), np.ones(3, np.float32)
    optimizer = {"state": {0: {"step": step, "exp_avg": moment, "exp_avg_sq": square}},
                 "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95), "fused": None, "params": [0]}]}  # fmt: skip
    vocab = len(tensors["transformer.wte.weight"])
    best = np.array(3.21, np.float32) if best is None else best
    save(nanogpt_root(model, optimizer, best, sizes, bias, vocab, more), path, protocol)


def save_llmc(path, tensors, sizes, version=3, padded=None):
    """A .bin of llm.c: 256 int32, then each kind of tensor of all layers, the embedding padded with zeros."""
    V, L = sizes["V"], sizes["L"]
    padded = padded or (V + 127) // 128 * 128
    header = np.zeros(256, "<i4")
    header[:8] = 20240326, version, sizes["T"], V, L, sizes["H"], sizes["C"], padded

    def put(name):
        file.write(tensors[name].tobytes())

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
