#!/usr/bin/env python3
"""PyTorch, timed: bench_gpu_torch.py eager|compile|flash|cudnn L C H T B STEPS. Prints one JSON object, or {"oom": true}.

eager, compile: a training step as in nanoGPT: bf16 autocast over fp32 parameters, flash attention by
scaled_dot_product_attention, tied head, the loss over whole logits, fused AdamW, clipping.
flash, cudnn: causal scaled_dot_product_attention of one layer alone, by that implementation, forward and backward.
"""
import json
import sys
import time

import torch

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from nanogpt_model import GPT


def attention(implementation, H, D, T, B, steps, device="cuda"):
    """ms of the forward and of the backward pass."""
    q, k, v = (torch.randn(B, H, T, D, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dout = torch.randn_like(q)
    with torch.nn.attention.sdpa_kernel(implementation):
        times = []
        for backward in False, True:
            for step in range(3 + steps):
                if step == 3:
                    torch.cuda.synchronize() if device == "cuda" else None
                    start = time.perf_counter()
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                if backward:
                    torch.autograd.grad(out, (q, k, v), dout)
            torch.cuda.synchronize() if device == "cuda" else None
            times.append((time.perf_counter() - start) / steps * 1e3)
    return times[0], times[1] - times[0]


def main():
    if sys.argv[1] in ("flash", "cudnn"):
        C, H, T, B, steps = map(int, sys.argv[3:8])
        implementation = getattr(torch.nn.attention.SDPBackend, f"{sys.argv[1].upper()}_ATTENTION")
        forward, backward = attention(implementation, H, C // H, T, B, steps)
        print(json.dumps({"what": "sdpa", "by": sys.argv[1], "B": B, "forward_ms": forward, "backward_ms": backward,
                          "torch": torch.__version__}))
        return
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
