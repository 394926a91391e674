#!/usr/bin/env python3
"""One run beside nanoGPT's model and loop in PyTorch, with the same text, initial weights, batches and steps: make bench-gpu-run.

bench_gpu_run.py BUILD DIR [KEY=VALUE...], on a machine without a GPU for example with device=cpu dtype=float32 compile=0 V=50257
L=2 C=32 H=2 T=32 B=4 steps=40. DIR receives losses.html with the losses of both in one chart, and the lines of both. The text is Python's own library, or text=FILE. nanoGPT's default of V=50304 has 47 ids that no text
has: .0009 nats at the start.

The trainer makes its run twice. The second time it is killed (SIGKILL) between a checkpoint in the middle and the last step, and
started again: each loss and the last weights must be those of the first time, bit for bit. Prints one JSON object; 1: they are
not. Memory is what all processes use of the card, more than before; on the CPU the largest resident set of the process.
"""
import contextlib
import filecmp
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import types

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
DEFAULTS = dict(device="cuda", dtype="bfloat16", compile=1, L=12, C=768, H=12, T=1024, V=50304, B=32, accumulation=2, steps=300,
                seed=1337, text="")  # fmt: skip
TEXT_BYTES = 24 << 20


def settings(arguments):
    given = dict(argument.split("=", 1) for argument in arguments)
    unknown = given.keys() - DEFAULTS.keys()
    if unknown:
        sys.exit(f"bench_gpu_run.py: no setting '{min(unknown)}'")
    s = types.SimpleNamespace(**{key: type(value)(given.get(key, value)) for key, value in DEFAULTS.items()})
    s.text = s.text and os.path.abspath(s.text)
    s.learning_rate, s.min_lr, s.beta2, s.warmup_iters, s.lr_decay_iters = 6e-4, 6e-5, 0.95, s.steps // 10, s.steps
    return s


# ---- nanoGPT's side: `weights` and `train`, each in a process of its own


def save_weights(s):
    import torch
    from nanogpt_model import GPT, nanogpt_name

    torch.manual_seed(s.seed)
    state = {nanogpt_name(name): tensor for name, tensor in GPT(s.L, s.C, s.H, s.T, V=s.V).state_dict().items()}
    state["lm_head.weight"] = state["transformer.wte.weight"]
    arguments = dict(n_layer=s.L, n_head=s.H, n_embd=s.C, block_size=s.T, bias=False, vocab_size=s.V, dropout=0.0)
    torch.save({"model": state, "model_args": arguments, "iter_num": 0}, "ckpt.pt")


def first_tokens(s, tokens):
    """Where each sample of the run begins: sampling=crop (loader/protocol/sampling.h)."""
    import numpy as np
    from philox import words

    w = words(s.seed, 0, np.arange(s.steps * s.accumulation * s.B, dtype=np.int64))
    return [(int(high) << 32 | int(low)) * (tokens - s.T) >> 64 for low, high in zip(w[0], w[1])]


def train(s):
    """nanoGPT's loop: its train.py without evaluations."""
    import torch
    from nanogpt_model import GPT, learning_rate, make_optimizer, nanogpt_name

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    with open("bins/train.bin", "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16)
    first = first_tokens(s, len(data))
    model = GPT(s.L, s.C, s.H, s.T, V=s.V)
    state = torch.load("ckpt.pt")["model"]
    model.load_state_dict({name: state[nanogpt_name(name)] for name in model.state_dict()})
    model.to(s.device)
    optimizer, run = make_optimizer(model, s), torch.compile(model) if s.compile else model
    autocast = torch.autocast(s.device, torch.bfloat16) if s.dtype == "bfloat16" else contextlib.nullcontext()
    os.makedirs("nanogpt", exist_ok=True)
    with open("nanogpt/metrics.jsonl", "w") as out:
        for step in range(s.steps):
            begun, mean = time.perf_counter(), 0
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(s, step)
            for micro in range(s.accumulation):
                at = (step * s.accumulation + micro) * s.B
                rows = torch.stack([data[i : i + s.T + 1] for i in first[at : at + s.B]]).to(s.device).long()
                with autocast:
                    loss = run(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()) / s.accumulation
                mean += loss.detach()
                loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            line = {"step": step + 1, "loss": mean.item(), "norm": norm.item(), "lr": learning_rate(s, step)}
            seconds = time.perf_counter() - begun
            line |= {"ms": seconds * 1e3, "tok_s": s.B * s.T * s.accumulation / seconds, "torch": torch.__version__}
            out.write(json.dumps(line) + "\n")


# ---- both


def call(*command):
    subprocess.run(command, check=True, stdout=sys.stderr)


@contextlib.contextmanager
def card_memory(s):
    """A list that receives the most MiB of the card in use in the block, less those at its start; none on the CPU."""
    found = []
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    if s.device == "cpu":
        yield found
        return
    before = int(subprocess.check_output(query))
    with tempfile.TemporaryFile("w+") as samples:
        beside = subprocess.Popen(query + ["-lms", "100"], stdout=samples)
        try:
            yield found
        finally:
            beside.kill()
            beside.wait()
        samples.seek(0)
        found.append(max(map(int, samples.read().split()), default=before) - before)


def cost(s, *command):
    """Wall seconds, and peak memory in bytes."""
    from timing import measured

    with card_memory(s) as used:
        seconds, _, resident = measured(command, stdout=sys.stderr)
    return seconds, int((used[0] if used else resident) * 2**20)


def make_dataset(s, shardtool):
    """The shards, and the same tokens as nanoGPT reads them."""
    texts = ["--docs=paragraphs", s.text]
    if not s.text:
        os.makedirs("text")
        left = TEXT_BYTES
        for i, path in enumerate(sorted(glob.glob(sysconfig.get_path("stdlib") + "/**/*.py", recursive=True))):
            if left > 0:
                with open(path, encoding="utf-8", errors="replace") as file, open(f"text/{i:05}.txt", "w") as out:
                    left -= out.write(file.read())
        texts = ["text"]
    call(shardtool, "tokenize", "-q", "--val=0.01", "-o", "data", *texts)
    call(shardtool, "export-tokens", "-q", "--format=nanogpt", "-o", "bins", "data")


def steps_of(run):
    if not os.path.exists(f"{run}/metrics.jsonl"):
        return []
    with open(f"{run}/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file if line.endswith("}\n")]
    return [line for line in lines if "loss" in line]


def kill_and_resume(s, command, out, middle):
    """The step at which it was killed."""
    for _ in range(20):
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen(command, stdout=sys.stderr)
        while process.poll() is None and not (os.path.isdir(f"{out}/ckpt-{middle:08}") and steps_of(out)[-1]["step"] > middle):
            time.sleep(0.002)
        process.kill()
        if process.wait() == -signal.SIGKILL and steps_of(out)[-1]["step"] < s.steps:
            at = steps_of(out)[-1]["step"]
            call(*command)
            return at
        if process.returncode > 0:
            sys.exit(f"bench_gpu_run.py: {' '.join(command)}: exit {process.returncode}")
    sys.exit("bench_gpu_run.py: the run always ends before it is killed: more steps, please")


def compare(s, build, given):
    trainer, middle = f"{build}/bin/trainer", s.steps // 2
    make_dataset(s, f"{build}/bin/shardtool")
    theirs = [sys.executable, os.path.abspath(__file__)]
    call(*theirs, "weights", *given)
    call(trainer, "import", "-o", "model", "ckpt.pt")
    keys = dict(dataset="data", init_from="model", device=s.device, dtype=s.dtype, n_layer=s.L, n_embd=s.C,
                n_head=s.H, block_size=s.T, batch_size=s.B, gradient_accumulation_steps=s.accumulation, max_iters=s.steps,
                learning_rate=s.learning_rate, min_lr=s.min_lr, warmup_iters=s.warmup_iters, lr_decay_iters=s.lr_decay_iters,
                beta2=s.beta2, seed=s.seed, sampling="crop", eval_interval=0, sample_tokens=0, checkpoint_interval=middle)  # fmt: skip
    ours = {name: [trainer, "train", "--quiet", *(f"--{key}={value}" for key, value in keys.items()), f"--out_dir={name}"]
            for name in ("millrace", "killed")}  # fmt: skip
    seconds, used = cost(s, *ours["millrace"])
    killed_at = kill_and_resume(s, ours["killed"], "killed", middle)
    torch_seconds, torch_used = cost(s, *theirs, "train", *given)
    call(trainer, "report", "-o", "losses.html", "millrace", "nanogpt")
    runs = [steps_of(f"{name}") for name in ("millrace", "killed", "nanogpt")]
    mine, again, peer = ([line["loss"] for line in run] for run in runs)
    weights = [f"{name}/ckpt-{s.steps:08}/model.safetensors" for name in ours]
    equal = [line["chain"] for line in runs[0]] == [line["chain"] for line in runs[1]] and mine == again
    equal = equal and filecmp.cmp(*weights, shallow=False)
    off, at = max((abs(a - b), step) for step, (a, b) in enumerate(zip(mine, peer, strict=True), 1))
    ms, torch_ms = (statistics.median(line["ms"] for line in run) for run in (runs[0], runs[2]))
    return {"what": "run", "B": s.B, "accumulation": s.accumulation, "T": s.T, "steps": s.steps, "dtype": s.dtype,
            "first_loss": mine[0], "last_loss": mine[-1], "torch_last_loss": peer[-1], "difference": off, "difference_step": at,
            "seconds": seconds, "torch_seconds": torch_seconds, "ms": ms, "torch_ms": torch_ms, "used_bytes": used,
            "torch_used_bytes": torch_used, "middle": middle, "killed_at": killed_at, "equal": equal,
            "torch": runs[2][0]["torch"], "by": "compile" if s.compile else "eager"}  # fmt: skip


def main(build, folder, given):
    s = settings(given)
    build, folder = os.path.abspath(build), os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        found = compare(s, build, given)
        shutil.copy("losses.html", folder)
        for name in "millrace", "nanogpt":
            shutil.copy(f"{name}/metrics.jsonl", f"{folder}/{name}.jsonl")
        os.chdir("/")
    print(json.dumps(found))
    sys.exit(not found["equal"])


if __name__ == "__main__":
    if sys.argv[1] in ("weights", "train"):
        {"weights": save_weights, "train": train}[sys.argv[1]](settings(sys.argv[2:]))
    else:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
