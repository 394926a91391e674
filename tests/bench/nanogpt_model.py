"""nanoGPT's model, optimizer and learning rate, as its train.py makes them, for the benchmarks that stand beside it."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, C, H, bias):
        super().__init__()
        self.heads = H
        self.ln1, self.ln2 = nn.LayerNorm(C, bias=bias), nn.LayerNorm(C, bias=bias)
        self.qkv, self.att = nn.Linear(C, 3 * C, bias=bias), nn.Linear(C, C, bias=bias)
        self.fc, self.proj = nn.Linear(C, 4 * C, bias=bias), nn.Linear(4 * C, C, bias=bias)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.att(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.proj(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, L, C, H, T, bias=False, V=50304):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, H, bias) for _ in range(L))
        self.ln = nn.LayerNorm(C, bias=bias)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * L) if name.endswith(("att.weight", "proj.weight")) else 0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


NAMES = {"blocks": "h", "ln1": "ln_1", "ln2": "ln_2", "qkv": "attn.c_attn", "att": "attn.c_proj", "fc": "mlp.c_fc",
         "proj": "mlp.c_proj", "ln": "ln_f"}  # fmt: skip


def nanogpt_name(name):
    """The name that a parameter has in a ckpt.pt of nanoGPT."""
    return "transformer." + ".".join(NAMES.get(part, part) for part in name.split("."))


def make_optimizer(model, conf):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
    return torch.optim.AdamW(groups, lr=conf.learning_rate, betas=(0.9, conf.beta2), fused=True)


def learning_rate(conf, step):
    if step < conf.warmup_iters:
        return conf.learning_rate * (step + 1) / (conf.warmup_iters + 1)
    share = (step - conf.warmup_iters) / (conf.lr_decay_iters - conf.warmup_iters)
    return conf.min_lr + 0.5 * (1 + math.cos(math.pi * share)) * (conf.learning_rate - conf.min_lr)
