#!/usr/bin/env python3
"""A training step the way nanoGPT does it, timed: gpu_torch.py eager|compile L C H T B STEPS.

bf16 autocast over fp32 parameters, flash attention by scaled_dot_product_attention, tied head, the loss over whole
logits, fused AdamW, clipping. Prints one JSON object, or {"oom": true}.
"""
import json
import sys
import time

import torch

from nanogpt_model import GPT


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
