"""Sampling side by side (make bench-sample): tokens a second of `trainer sample`, of transformers' generate with its cache,
and of llama.cpp where xllamacpp can be imported, on the CPU, from the same random GPT-2 at the same length. The
first two are timed twice, with few and with many tokens, and the difference counts, so that loading is left out; llama.cpp
names its own times. Rounds alternate, the best of each counts. Before that: what 1,000 samples of one token from a tiny
model cost in processor time, with one thread and with all."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("BIN", os.path.dirname(os.path.abspath(sys.argv[1]))) # of the file with llama.cpp's server

import torch
import transformers

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import measured

try:
    import xllamacpp
    import test_answers_peers as peers
except ImportError as reason:
    print(f"without llama.cpp: {reason}")
    xllamacpp = None

options = argparse.ArgumentParser()
options.add_argument("trainer")
options.add_argument("--threads", type=int, default=os.cpu_count())
options.add_argument("--context", type=int, default=960, help="tokens of the start")
options.add_argument("--tokens", type=int, default=60)
options.add_argument("--rounds", type=int, default=2)
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


def llama_cpp(path):
    """A call that returns the seconds of llama.cpp's tokens, each of which it has computed anew."""
    server = peers.Server(xllamacpp, path, options.threads)
    prompt = [262] * options.context

    def seconds():
        body = {"prompt": prompt, "n_predict": options.tokens + 1, "ignore_eos": True, "cache_prompt": False, "top_k": 200, "temperature": 0.8}
        timings = server.post("/completion", body)["timings"]
        return timings["predicted_ms"] / 1e3 * options.tokens / timings["predicted_n"]

    return seconds


def small_samples(directory):
    """Prints the processor seconds of 1,000 samples of one token."""
    tiny = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=64)
    transformers.GPT2LMHeadModel(tiny).save_pretrained(directory)
    command = [options.trainer, "sample", f"--init_from={directory}", "--num_samples=1000", "--max_new_tokens=1"]
    spent = {1: [], options.threads: []}
    for _ in range(2 * options.rounds + 1):
        for threads, times in spent.items():
            times.append(measured([*command, f"--threads={threads}"], stderr=subprocess.DEVNULL)[1])
    one, all_ = (statistics.median(times) for times in spent.values())
    print(f"1,000 samples of one token, 2 layers of 32: {one:.2f} s with one thread, {all_:.2f} s with {options.threads} ({all_ / one:.2f})", flush=True)


def seconds(run):
    """Of the tokens behind the first: what many take more than one does."""
    few, many = run(1)[0], run(1 + options.tokens)[0]
    return many - few


with tempfile.TemporaryDirectory() as directory:
    small_samples(f"{directory}/tiny")
    model.save_pretrained(f"{directory}/model")
    print(f"124M, {options.context} to {options.context + options.tokens} tokens of context, {options.threads} threads, tokens/s")
    for dtype in "float32", "bfloat16":
        runs = {"trainer": lambda: seconds(lambda tokens: ours(f"{directory}/model", dtype, tokens)),
                "transformers": lambda: seconds(lambda tokens: theirs(model.to(getattr(torch, dtype)), tokens))}  # fmt: skip
        if xllamacpp:
            file = f"{directory}/{dtype}.gguf"
            subprocess.run([options.trainer, "export", "-q", "-o", file, f"--init_from={directory}/model", f"--dtype={dtype}"], check=True)
            runs["llama.cpp"] = llama_cpp(file)
        best = {name: options.tokens / min(times) for name, times in zip(runs, zip(*([run() for run in runs.values()] for _ in range(options.rounds))))}
        print(f"{dtype:9}", ", ".join(f"{name} {rate:.1f} ({best['trainer'] / rate:.2f})" for name, rate in best.items()), flush=True)
