"""The Python client beside a DataLoader with one worker over the same ids (nanoGPT's crops from a memory map), in one run.

    bench_loader_client.py BIN [T]      needs torch; prints M tokens/s of int64 x and y as a training loop receives them"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "loader/python"))
from millrace_loader import TokenBatches

BIN, T = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1024
TOKENS, SECONDS = 20_000_000, 2.0


class Crops(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        data = np.memmap("train.bin", dtype=np.uint16, mode="r")
        at = np.random.randint(len(data) - T)
        ids = torch.from_numpy(data[at : at + T + 1].astype(np.int64))
        return ids[:-1], ids[1:]


def rate(batches, rows):
    for _ in range(20):
        next(batches)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        next(batches)
        count += 1
    return count * rows * T / (time.perf_counter() - began) / 1e6


def main():
    os.chdir(tempfile.mkdtemp(prefix="bench-client-"))
    rng, words = np.random.default_rng(1), [f"word{i}" for i in range(5000)]
    with open("text.jsonl", "w") as file:
        for _ in range(TOKENS // 2200):
            text = " ".join(words[i] for i in rng.zipf(1.3, 1000) % 5000)
            file.write('{"text": "%s"}\n' % text)
    subprocess.run([f"{BIN}/shardtool", "tokenize", "--quiet", "--val", "0", "-o", "data", "text.jsonl"], check=True)
    subprocess.run("zstd -dcq data/train/*/*.zst >train.bin", shell=True, check=True)
    loader = subprocess.Popen([f"{BIN}/loader", "serve", "data", "--endpoint", "ipc://place", "--quiet",
                               f"--die-with-parent={os.getpid()}"])
    for rows in (16, 64, 512):
        figures = {}
        for mode in ("epoch", "crop"):
            batches = TokenBatches("ipc://place", T, rows, mode=mode)
            figures[mode] = rate(iter(batches), rows)
            batches.close()
        worker = torch.utils.data.DataLoader(Crops(), batch_size=rows, num_workers=1)
        figures["DataLoader, 1 worker"] = rate(iter(worker), rows)
        print(f"B={rows:4} " + "  ".join(f"{name} {value:.1f}" for name, value in figures.items())
              + f"  ratio {figures['epoch'] / figures['DataLoader, 1 worker']:.1f}", flush=True)
    loader.kill()


if __name__ == "__main__":
    main()
