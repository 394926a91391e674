#!/usr/bin/env python3
"""A training step the way nanoGPT does it, timed: gpu_torch.py eager|compile L C H T B STEPS.

bf16 autocast over fp32 parameters, flash attention by scaled_dot_product_attention, tied head, the loss over whole
logits, fused AdamW, clipping. Prints one JSON object, or {"oom": true}.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.heads = H
        self.ln1, self.ln2 = nn.LayerNorm(C, bias=False), nn.LayerNorm(C, bias=False)
        self.qkv, self.att = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.fc, self.proj = nn.Linear(C, 4 * C, bias=False), nn.Linear(4 * C, C, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.att(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.proj(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, L, C, H, T, V=50304):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, H) for _ in range(L))
        self.ln = nn.LayerNorm(C, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def main():
    mode, (L, C, H, T, B, steps) = sys.argv[1], map(int, sys.argv[2:8])
    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = GPT(L, C, H, T).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if mode == "compile" else model
    ids = torch.randint(0, 50257, (B, T + 1), device="cuda")
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    try:
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        loss = loss.item()  # waits
    except torch.cuda.OutOfMemoryError:
        print(json.dumps({"what": mode, "C": C, "B": B, "oom": True}))
        return
    seconds = (time.perf_counter() - start) / steps
    print(json.dumps({"what": mode, "C": C, "B": B, "ms": seconds * 1e3, "tokens_per_second": B * T / seconds,
                      "loss": loss, "peak_bytes": torch.cuda.max_memory_allocated(), "torch": torch.__version__}))


main()
