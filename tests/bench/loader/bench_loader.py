"""make bench-loader: the loader beside nanoGPT's get_batch and, where torch and torchdata are installed, a one-worker DataLoader
and StatefulDataLoader, measured in the same run on the same ids. FULL=1: 1,000 kills, longer runs.

    bench_loader.py BENCH_PROGRAM LOADER_PROGRAM FOLDER"""
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from millrace_loader import TokenBatches

try:
    import torch
except ImportError:
    torch = None
try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None

T, SIZES = 1024, (16, 64, 512)


def get_batch(path, rows):
    """nanoGPT's get_batch: opens the memory map on each call, takes random crops, converts x and y to int64."""
    data = np.memmap(path, dtype=np.uint16, mode="r")
    at = np.random.randint(len(data) - T, size=(rows,))
    if torch:
        x = torch.stack([torch.from_numpy(data[i : i + T].astype(np.int64)) for i in at])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + T].astype(np.int64)) for i in at])
    else:
        x = np.stack([data[i : i + T].astype(np.int64) for i in at])
        y = np.stack([data[i + 1 : i + 1 + T].astype(np.int64) for i in at])
    return x, y


def cpu_seconds():
    """Of this process and its workers, which have not ended."""
    workers = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    ticks = [pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13] for pid in workers]
    return time.process_time() + sum(int(t) for pair in ticks for t in pair) / os.sysconf("SC_CLK_TCK")


def rate(step, rows, seconds=0.7):
    """Tokens a second, and CPU seconds per 10^9 tokens."""
    for _ in range(3):
        step()
    began, cpu, batches = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - began < seconds:
        step()
        batches += 1
    tokens = batches * rows * T
    return tokens / (time.perf_counter() - began), (cpu_seconds() - cpu) / tokens * 1e9


def data_loader(kind, path, rows):
    class Crops(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, index):
            data = np.memmap(path, dtype=np.uint16, mode="r")
            at = np.random.randint(len(data) - T)
            ids = torch.from_numpy(data[at : at + T + 1].astype(np.int64))
            return ids[:-1], ids[1:]

    batches = iter(kind(Crops(), batch_size=rows, num_workers=1))
    return rate(lambda: next(batches), rows)


def client(loader, folder):
    """The Python client, as a training loop receives x and y from it."""
    endpoint, rates = f"ipc://{folder}/client", {}
    command = [loader, "serve", f"{folder}/set", "--endpoint", endpoint, "--quiet", f"--die-with-parent={os.getpid()}"]
    with subprocess.Popen(command) as serving:
        for rows in SIZES:
            batches = TokenBatches(endpoint, T, rows, mode="crop")
            steps = iter(batches)
            rates[rows] = rate(lambda: next(steps), rows)
            batches.close()
        serving.terminate()
    return rates


def main(bench, loader, folder):
    full = "1" if os.environ.get("FULL") else "0"
    output = subprocess.run([bench, loader, folder, full], check=True, stdout=subprocess.PIPE, text=True).stdout
    ours = {name: float(value) for name, value in map(str.split, output.splitlines())}
    path = f"{folder}/train.bin"
    rows_of = {name: {rows: (ours[f"{name}_{rows}"], ours[f"{name}_{rows}_cpu"]) for rows in SIZES}
               for name in ("ring", "inline")}
    rows_of["get_batch"] = {rows: rate(lambda: get_batch(path, rows), rows) for rows in SIZES}
    rows_of["Python client"] = client(loader, folder)
    if torch:
        rows_of["DataLoader"] = {rows: data_loader(torch.utils.data.DataLoader, path, rows) for rows in SIZES}
    if torch and StatefulDataLoader:
        rows_of["StatefulDataLoader"] = {rows: data_loader(StatefulDataLoader, path, rows) for rows in SIZES}
    print(f"T={T}, get_batch with {'torch' if torch else 'numpy'}; DataLoader and StatefulDataLoader with one worker"
          f"{'' if torch else ' (no torch)'}{'' if StatefulDataLoader else ' (no torchdata: no StatefulDataLoader)'}")
    print(f"{'':18}" + "".join(f"{f'B={rows}: M tokens/s':>22}{'ring is':>9}{'CPU s/10^9':>12}" for rows in SIZES))
    for name, values in rows_of.items():
        print(f"{name:18}" + "".join(f"{values[rows][0] / 1e6:22.1f}{rows_of['ring'][rows][0] / values[rows][0]:8.1f}x"
                                     f"{values[rows][1]:12.2f}" for rows in SIZES))
    fill = "  ".join(f"B={rows} {ours[f'crop_fill_{rows}'] / rows_of['get_batch'][rows][0]:.0f}x" for rows in SIZES)
    print(f"filling batches without a connection, of get_batch: {fill}")
    print(f"epoch mode, frames decoded by one thread: {ours['epoch_decode'] / 1e6:.0f} M tokens/s; "
          f"through the ring {ours['ring_epoch_64'] / 1e6:.0f} ({ours['ring_epoch_64_cpu']:.2f} CPU s/10^9)")
    print(f"random crops of 10^10 tokens: {ours['large_crop'] / 1e6:.1f} M tokens/s, {ours['large_crop_cpu']:.1f} CPU s/10^9")
    for way in ("ring", "inline", "tcp"):
        print(f"kill -9 and restart to the next batch, {way}: p50 {ours[f'restart_{way}_ms_p50']:.1f} ms, "
              f"max {ours[f'restart_{way}_ms_max']:.1f} ms")
    print(f"first batch of a cold loader: {ours['cold_ms']:.2f} ms")


main(*sys.argv[1:])
