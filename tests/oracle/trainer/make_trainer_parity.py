"""Makes tests/data/trainer_parity.txt: the results of a torch model equal to nanoGPT's, on the weights and
batches of tests/unit/trainer/test_trainer_parity.c: logits before and after 10 AdamW steps in float32, and the loss and
gradient norm of each step; without biases, with biases, with dropout too, under the masks of kernels/dropout_mask.h, and
with document_mask too. At last with torch.optim.Muon in float32, and then numbers of each matrix after the steps too.

usage: make_trainer_parity.py > tests/data/trainer_parity.txt      (needs torch and numpy)
"""
import math
import unittest.mock

import numpy as np
import torch
import torch.nn.functional as F

from philox import normal, philox, rows

V, VP, T, C, H, L, B, ACCUMULATION, STEPS = 97, 128, 16, 32, 2, 2, 4, 2, 10
ROWS = range(12, 16)  # of which the logits are kept
MATRIX_STRIDE = 37  # between the numbers of a matrix that are kept


def batch(split, first, count):
    return [torch.from_numpy(ids) for ids in rows(split, first, count, T, V)]


WTE, WPE, QKV_W, ATT_W, FC_W, PROJ_W = range(6)  # streams of params.def


EMBEDDING, ATTENTION, ATTENTION_OUT, MLP_OUT, SITES = range(5)  # kernels/dropout_mask.h


class Dropout:
    """Masks of the micro-batch that starts at sample `first` of a step. x: (b, ..., cols); rows are all dims between."""

    def __init__(self, p, step, first):
        self.p, self.step, self.first = p, step, first

    def __call__(self, x, layer, site):
        if not self.p:
            return x
        b, cols = x.shape[0], x.shape[-1]
        count = x[0].numel() // cols
        sample, row, col = (i.reshape(-1) for i in np.mgrid[0:b, 0:count, 0:cols].astype(np.int64))
        counter = [row * ((cols + 7) // 8) + col // 8, self.first + sample, np.full_like(row, self.step),
                   np.full_like(row, layer * SITES + site)]
        w = np.stack(philox(counter, (1337, 0)), 1)
        bits = (w[np.arange(len(col)), col % 8 // 2] >> (col % 2 * 16).astype(np.uint64)) & np.uint64(0xFFFF)
        keep = torch.from_numpy((bits >= np.uint64(round(self.p * 65536))).astype(np.float32)).view(x.shape)
        return x * keep / (1 - self.p)


NONE = Dropout(0, 0, 0)


class Block(torch.nn.Module):
    def __init__(self, bias, layer):
        super().__init__()
        self.layer = layer
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(C, bias=bias), torch.nn.LayerNorm(C, bias=bias)
        self.attn, self.attn_proj = torch.nn.Linear(C, 3 * C, bias=bias), torch.nn.Linear(C, C, bias=bias)
        self.fc, self.fc_proj = torch.nn.Linear(C, 4 * C, bias=bias), torch.nn.Linear(4 * C, C, bias=bias)

    def forward(self, x, drop, different):
        b = x.shape[0]
        q, k, v = (t.view(b, T, H, C // H).transpose(1, 2) for t in self.attn(self.ln_1(x)).split(C, 2))
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1) | different
        p = (q @ k.transpose(2, 3) / math.sqrt(C // H)).masked_fill(hidden, -math.inf).softmax(3)
        y = drop(p, self.layer, ATTENTION) @ v
        x = x + drop(self.attn_proj(y.transpose(1, 2).reshape(b, T, C)), self.layer, ATTENTION_OUT)
        return x + drop(self.fc_proj(F.gelu(self.fc(self.ln_2(x)))), self.layer, MLP_OUT)


class Apart(torch.nn.Module):
    """A linear layer whose queries, keys and values have weights of their own."""

    def __init__(self, linear):
        super().__init__()
        self.parts = torch.nn.ParameterList(w.clone() for w in linear.weight.detach().chunk(3))
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, torch.cat(list(self.parts)), self.bias)


class GPT(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(V, C), torch.nn.Embedding(T, C)
        self.h = torch.nn.ModuleList(Block(bias, layer) for layer in range(L))
        self.ln_f = torch.nn.LayerNorm(C, bias=bias)
        for p in self.parameters():
            if p.dim() == 1:
                torch.nn.init.zeros_(p)
        for ln in [self.ln_f] + [m for b in self.h for m in (b.ln_1, b.ln_2)]:
            torch.nn.init.ones_(ln.weight)
        self.set(self.wte, WTE, 0, 0.02), self.set(self.wpe, WPE, 0, 0.02)
        for i, b in enumerate(self.h):
            residual = 0.02 / math.sqrt(2 * L)
            self.set(b.attn, QKV_W, i, 0.02), self.set(b.attn_proj, ATT_W, i, residual)
            self.set(b.fc, FC_W, i, 0.02), self.set(b.fc_proj, PROJ_W, i, residual)

    def set(self, module, tensor, layer, deviation):
        w = module.weight
        values = (deviation * normal(1337, tensor << 32 | layer, w.numel())).astype(np.float32)
        w.data.copy_(torch.from_numpy(values).view_as(w))

    def forward(self, x, drop=NONE, end_of_text=-1):
        document = (x == end_of_text).cumsum(1)
        different = (document[:, :, None] != document[:, None, :])[:, None]  # block-diagonal, for all heads
        x = drop(self.wte(x) + self.wpe(torch.arange(T)), 0, EMBEDDING)
        for b in self.h:
            x = b(x, drop, different)
        return self.ln_f(x) @ self.wte.weight.T


def rate(it, highest=1e-2, warmup=2, decay=10, lowest=1e-3):
    if it < warmup:
        return highest * (it + 1) / (warmup + 1)
    return lowest + 0.5 * (1 + math.cos(math.pi * (it - warmup) / (decay - warmup))) * (highest - lowest)


def put(name, values):
    print(name, len(values), *("%.9g" % v for v in values))


def matrices(model):
    """The weights that Muon updates, in the order of params.def."""
    return [w for b in model.h for w in (*b.attn.parts, b.attn_proj.weight, b.fc.weight, b.fc_proj.weight)]


def optimizers(model, muon):
    if muon:
        for b in model.h:
            b.attn = Apart(b.attn)
    with_muon = matrices(model) if muon else []
    others = [p for p in model.parameters() if not any(p is w for w in with_muon)]
    groups = [{"params": [p for p in others if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in others if p.dim() < 2], "weight_decay": 0.0}]
    made = [torch.optim.AdamW(groups, betas=(0.9, 0.95))]
    if muon:
        made.append(torch.optim.Muon(with_muon, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"))
    return made


def update(optimizer, learning_rate):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    with unittest.mock.patch.object(torch, "bfloat16", torch.float32):  # in which Muon would orthogonalize
        optimizer.step()


TOKEN = int(batch(1, 0, 1)[0][0, 9])
MUON_TIMES = 0.5  # of the learning rate
for bias, p, end_of_text, muon in ((0, 0, -1, 0), (1, 0, -1, 0), (1, 0.2, -1, 0), (1, 0.2, TOKEN, 0), (1, 0, -1, 1)):
    model = GPT(bool(bias))
    adamw, *other = optimizers(model, muon)
    x, _ = batch(1, 0, 1)
    put("logits_before", model(x, end_of_text=end_of_text)[0, ROWS].flatten().tolist())
    losses, norms = [], []
    for step in range(STEPS):
        total = 0
        for micro in range(ACCUMULATION):
            x, y = batch(0, (step * ACCUMULATION + micro) * B, B)
            drop = Dropout(p, step, micro * B)
            loss = F.cross_entropy(model(x, drop, end_of_text).view(-1, V), y.view(-1)) / ACCUMULATION
            loss.backward()
            total += loss.item()
        losses.append(total)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        update(adamw, rate(step))
        for optimizer in other:
            update(optimizer, rate(step) * MUON_TIMES)
        model.zero_grad(set_to_none=True)
    put("losses", losses)
    put("norms", norms)
    x, _ = batch(1, 0, 1)
    put("logits_after", model(x, end_of_text=end_of_text)[0, ROWS].flatten().tolist())
    for w in matrices(model) if muon else []:
        put("matrix", w.flatten()[::MATRIX_STRIDE].tolist())
