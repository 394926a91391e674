"""Sampling side by side (make bench-sample): tokens a second of `trainer sample` and of transformers' generate with its
cache, on the CPU, from the same random GPT-2 at the same length. Each is timed twice, with few and with many tokens, and
the difference counts, so that loading is left out. The CPU time of a token says more than the wall time on a machine that
also runs other programs."""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import torch
import transformers

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import measured

options = argparse.ArgumentParser()
options.add_argument("trainer")
options.add_argument("--threads", type=int, default=os.cpu_count())
options.add_argument("--context", type=int, default=960, help="tokens of the start")
options.add_argument("--tokens", type=int, default=60)
options = options.parse_args()

torch.manual_seed(1337)
torch.set_num_threads(options.threads)
transformers.logging.disable_progress_bar()
model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
start = " the" * options.context


def ours(directory, dtype, tokens):
    command = [options.trainer, "sample", f"--init_from={directory}", f"--start={start}", f"--dtype={dtype}",
               f"--threads={options.threads}", "--num_samples=1", f"--max_new_tokens={tokens}"]
    return measured(command, stderr=subprocess.DEVNULL)[:2]


def theirs(model, tokens):
    ids = torch.full((1, options.context), 262)
    began, cpu = time.monotonic(), time.process_time()
    with torch.no_grad():
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                       do_sample=True, top_k=200, temperature=0.8, use_cache=True, pad_token_id=50256)
    return time.monotonic() - began, time.process_time() - cpu


def rate(run):
    """Tokens a second, and milliseconds of CPU a token: each the shortest of two runs."""
    few, many = ([min(times) for times in zip(*(run(tokens) for _ in range(2)))] for tokens in (1, 1 + options.tokens))
    return options.tokens / (many[0] - few[0]), (many[1] - few[1]) / options.tokens * 1e3


with tempfile.TemporaryDirectory() as directory:
    model.save_pretrained(directory)
    print(f"124M, {options.context} to {options.context + options.tokens} tokens of context, {options.threads} threads, tokens/s")
    for dtype in "float32", "bfloat16":
        mine = rate(lambda tokens: ours(directory, dtype, tokens))
        other = rate(lambda tokens: theirs(model.to(getattr(torch, dtype)), tokens))
        print(f"{dtype:9} trainer {mine[0]:6.1f}, transformers {other[0]:6.1f}: {mine[0] / other[0]:.2f} times; "
              f"CPU {mine[1]:.1f} and {other[1]:.1f} ms a token: {other[1] / mine[1]:.2f} times", flush=True)
