#!/usr/bin/env bash
# Behaviour: StatefulDataLoader with shuffle=True and a generator, after load_state_dict in a new process, gives the rest of its epoch in the
#   order of the run that was not interrupted. With num_workers=0 all later epochs have other orders, without a word. With workers,
#   without a generator, and with the generator in a RandomSampler of its own, they have the same ones.
# Guess: the state has that of the generator, so every later epoch is the same, as it is with workers.
# Versions: torchdata 0.11.0, torch 2.15.0
# Date: 2026-11-30
# Output seen (60 samples, saved after 5 batches of 4; the rest of the epoch, and the next two):
#   generator, num_workers=0: same, another, another
#   generator, num_workers=2: same, same, same
#   no generator, num_workers=0: same, same, same
#   no generator, num_workers=2: same, same, same
#   generator of a sampler, num_workers=0: same, same, same
#   generator of a sampler, num_workers=2: same, same, same
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir torchdata==0.11.0 torch==2.15.0 numpy==2.4.6
cat >resume.py <<'END'
import json, subprocess, sys
import torch
from torch.utils.data import RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

DATA, BATCHES = list(range(60)), 5


def loader(kind, workers):
    generator = torch.Generator()
    generator.manual_seed(1)
    order = {"generator": dict(shuffle=True, generator=generator), "no generator": dict(shuffle=True),
             "generator of a sampler": dict(sampler=RandomSampler(DATA, generator=generator))}[kind]  # fmt: skip
    return StatefulDataLoader(DATA, batch_size=4, num_workers=workers, **order)


def epoch(batches):
    return [sample for batch in batches for sample in batch.tolist()]


def whole(kind, workers):
    this = loader(kind, workers)
    return [epoch(this) for _ in range(3)]


def begin(kind, workers, path):
    this = loader(kind, workers)
    batches = iter(this)
    seen = epoch(next(batches) for _ in range(BATCHES))
    torch.save(this.state_dict(), path)
    return seen


def resume(kind, workers, path):
    this = loader(kind, workers)
    this.load_state_dict(torch.load(path, weights_only=False))
    return [epoch(this) for _ in range(3)]


if __name__ == "__main__":
    torch.manual_seed(5)
    if len(sys.argv) > 1:
        part, kind, workers, *path = sys.argv[1:]
        print(json.dumps({"whole": whole, "begin": begin, "resume": resume}[part](kind, int(workers), *path)))
        raise SystemExit
    changed = False
    for kind in "generator", "no generator", "generator of a sampler":
        for workers in 0, 2:
            def process(part, *path):
                command = [sys.executable, "-W", "ignore", sys.argv[0], part, kind, str(workers), *path]
                return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

            uninterrupted, seen, resumed = process("whole"), process("begin", "state"), process("resume", "state")
            resumed[0] = seen + resumed[0]
            same = [a == b for a, b in zip(uninterrupted, resumed)]
            print(f"{kind}, num_workers={workers}: {', '.join('same' if one else 'another' for one in same)}")
            changed |= same != [True, *[kind != "generator" or workers > 0] * 2]
    raise SystemExit(changed)
END
CUDA_VISIBLE_DEVICES='' venv/bin/python resume.py
