"""Makes tests/data/options_torch.txt: loss and gradients of a torch model with each modern option (trainer/config/keys.def) and
with each two of them, in double precision, on the weights and the batch of tests/unit/trainer/test_options.c.

A line has the options, the loss, the names of the tensors of params.def, and of the gradient of each (those of all layers one after
another) the norm and the products with two vectors of +1 and -1.

usage: make_options.py > tests/data/options_torch.txt      (needs torch and numpy)
"""
import itertools
import math
import re

import numpy as np
import torch
import torch.nn.functional as F

from philox import normal, rows, words

V, T, C, H, L, B = 97, 16, 32, 4, 2, 2
OPTIONS = ["tie_embeddings=False", "logit_softcap=2.5", "z_loss=0.01", "mlp=relu2", "norm=rmsnorm", "qk_norm=True", "mlp=swiglu",
           "position=rope", "n_kv_head=2", "bias=True"]
with open(__file__.rsplit("/", 1)[0] + "/../../../trainer/shape/params.def", encoding="utf-8") as file:
    IDS = re.findall(r"^PARAM\((\w+),", file.read(), re.M)


def batch():
    """Sequences 0 and 1 of the training split of fixture_trainer.h, and their targets."""
    return [torch.from_numpy(ids) for ids in rows(0, 0, B, T, V)]


def signs(count, seed):
    w = words(seed, 0, np.arange(count, dtype=np.int64))
    return torch.from_numpy(1 - 2 * (w[0] & np.uint64(1)).astype(np.float64))


class Model:
    def __init__(self, options):
        on = dict(option.split("=") for option in options)
        self.swiglu, self.relu2 = on.get("mlp") == "swiglu", on.get("mlp") == "relu2"
        self.rms, self.rope, self.qk_norm = "norm" in on, "position" in on, "qk_norm" in on
        self.cap, self.z, self.kv = float(on.get("logit_softcap", 0)), float(on.get("z_loss", 0)), int(on.get("n_kv_head", H))
        self.untied, bias, D = "tie_embeddings" in on, "bias" in on, C // H
        J, P, hidden = (H + 2 * self.kv) * D, 4 * C, 4 * C
        if self.swiglu:
            hidden = min(4 * C, (8 * C // 3 + 63) // 64 * 64)
            P = 2 * hidden
        shapes = {"WTE": (V, C), "WPE": None if self.rope else (T, C), "QKV_W": (J, C), "ATT_W": (C, C), "FC_W": (P, C),
                  "PROJ_W": (C, hidden), "LN1_W": (C,), "LN2_W": (C,), "LNF_W": (C,), "HEAD": (V, C) if self.untied else None,
                  "Q_GAIN": (D,) if self.qk_norm else None, "K_GAIN": (D,) if self.qk_norm else None}
        if bias:
            shapes |= {"QKV_B": (J,), "ATT_B": (C,), "FC_B": (P,), "PROJ_B": (C,)}
            if not self.rms:
                shapes |= {"LN1_B": (C,), "LN2_B": (C,), "LNF_B": (C,)}
        self.p = {}
        for number, name in enumerate(IDS):
            shape = shapes.get(name)
            for layer in range(1 if name in ("WTE", "WPE", "LNF_W", "LNF_B", "HEAD") else L) if shape else ():
                values = normal(5, number << 32 | layer, math.prod(shape)).astype(np.float32) * np.float32(0.125)
                if len(shape) == 1 and not name.endswith("_B"):
                    values += np.float32(1)
                self.p[name, layer] = torch.from_numpy(values.astype(np.float64)).view(shape).requires_grad_()

    def norm(self, x, gain, bias=None):
        if not self.rms:
            return F.layer_norm(x, (x.shape[-1],), gain, bias, 1e-5)
        return self.rms_norm(x, gain)

    @staticmethod
    def rms_norm(x, gain):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain

    def heads(self, x, count, gain):
        """(b, T, count * D) -> (b, count, T, D), normalized and rotated."""
        D = C // H
        x = x.view(x.shape[0], T, count, D).transpose(1, 2)
        if self.qk_norm:
            x = self.rms_norm(x, gain)
        if self.rope:  # as in Llama: the second half of a head is turned with the first
            angles = torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
            angles = torch.cat([angles, angles], -1)
            low, high = x.chunk(2, -1)
            x = x * angles.cos() + torch.cat([-high, low], -1) * angles.sin()
        return x

    def loss(self, x, y):
        def get(name, layer=0):
            return self.p.get((name, layer))

        D, b = C // H, x.shape[0]
        hidden = F.embedding(x, get("WTE"))
        if not self.rope:
            hidden = hidden + get("WPE")
        for i in range(L):
            qkv = F.linear(self.norm(hidden, get("LN1_W", i), get("LN1_B", i)), get("QKV_W", i), get("QKV_B", i))
            q, k, v = qkv.split([H * D, self.kv * D, self.kv * D], -1)
            q, k = self.heads(q, H, get("Q_GAIN", i)), self.heads(k, self.kv, get("K_GAIN", i))
            v = v.view(b, T, self.kv, D).transpose(1, 2)
            k, v = (t.repeat_interleave(H // self.kv, 1) for t in (k, v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, T, C)
            hidden = hidden + F.linear(a, get("ATT_W", i), get("ATT_B", i))
            u = F.linear(self.norm(hidden, get("LN2_W", i), get("LN2_B", i)), get("FC_W", i), get("FC_B", i))
            if self.swiglu:
                gate, up = u.chunk(2, -1)
                u = F.silu(gate) * up
            else:
                u = F.relu(u).square() if self.relu2 else F.gelu(u)
            hidden = hidden + F.linear(u, get("PROJ_W", i), get("PROJ_B", i))
        logits = self.norm(hidden, get("LNF_W"), get("LNF_B")) @ get("HEAD" if self.untied else "WTE").T
        if self.cap:
            logits = self.cap * torch.tanh(logits / self.cap)
        return F.cross_entropy(logits.view(-1, V), y.view(-1)) + self.z * torch.logsumexp(logits, -1).square().mean()


def main():
    sets = [[]] + [[option] for option in OPTIONS] + [list(pair) for pair in itertools.combinations(OPTIONS, 2)]
    sets = [s for s in sets if not {"mlp=relu2", "mlp=swiglu"} <= set(s)]
    sets.append([option for option in OPTIONS if option != "mlp=relu2"])
    for options in sets:
        model = Model(options)
        loss = model.loss(*batch())
        loss.backward()
        names = [name for name in IDS if (name, 0) in model.p]
        print(",".join(options) or "-", "%.9g" % loss.item(), len(names))
        for name in names:
            g = torch.cat([model.p[key].grad.reshape(-1) for key in model.p if key[0] == name])
            print(" ", name, *("%.9g" % v for v in (g.norm(), g @ signs(len(g), 1), g @ signs(len(g), 2))))


if __name__ == "__main__":
    main()
