"""make bench-loader: the loader beside nanoGPT's get_batch and, where torch is installed, a one-worker DataLoader, measured
in the same run on the same ids.

    bench_loader.py BENCH_PROGRAM LOADER_PROGRAM FOLDER"""
import subprocess
import sys
import time

import numpy as np

try:
    import torch
except ImportError:
    torch = None

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


def rate(step, rows, seconds=0.7):
    for _ in range(3):
        step()
    began, batches = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        batches += 1
    return batches * rows * T / (time.perf_counter() - began)


def data_loader(path, rows):
    class Crops(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 30

        def __getitem__(self, index):
            data = np.memmap(path, dtype=np.uint16, mode="r")
            at = np.random.randint(len(data) - T)
            ids = torch.from_numpy(data[at : at + T + 1].astype(np.int64))
            return ids[:-1], ids[1:]

    batches = iter(torch.utils.data.DataLoader(Crops(), batch_size=rows, num_workers=1))
    return rate(lambda: next(batches), rows)


def main(bench, loader, folder):
    output = subprocess.run([bench, loader, folder], check=True, stdout=subprocess.PIPE, text=True).stdout
    ours = {name: float(value) for name, value in map(str.split, output.splitlines())}
    path = f"{folder}/train.bin"
    peers = {rows: rate(lambda: get_batch(path, rows), rows) for rows in SIZES}
    workers = {rows: data_loader(path, rows) for rows in SIZES} if torch else {}
    print(f"M tokens/s, T={T}, get_batch with {'torch' if torch else 'numpy'}")
    print(f"{'B':>4} {'fill':>7} {'ring':>7} {'inline':>7} {'get_batch':>9} {'DataLoader':>10}   "
          "fill/get_batch ring/get_batch ring/inline ring/DataLoader")
    for rows in SIZES:
        fill, ring, inline = (ours[f"{name}_{rows}"] for name in ("crop_fill", "ring", "inline"))
        peer, worker = peers[rows], workers.get(rows)
        print(f"{rows:4} {fill / 1e6:7.0f} {ring / 1e6:7.0f} {inline / 1e6:7.0f} {peer / 1e6:9.1f} "
              f"{worker / 1e6 if worker else float('nan'):10.1f}   {fill / peer:14.1f} {ring / peer:14.1f} "
              f"{ring / inline:11.2f} {ring / worker if worker else float('nan'):15.1f}")
    print(f"epoch mode, zstd frames decoded, one core: {ours['epoch_decode'] / 1e6:.0f} M tokens/s; "
          f"through the ring {ours['ring_epoch_64'] / 1e6:.0f}")
    print(f"round trip B=64: p50 {ours['trip_us_p50']:.0f} us, p99 {ours['trip_us_p99']:.0f} us")
    print(f"a trainer of 1 M tokens/s waits {ours['wait_percent']:.3f} % of its time, at most {ours['wait_us_max']:.0f} us")
    for way in ("ring", "inline", "tcp"):
        print(f"kill -9 and restart to the next batch, {way}: p50 {ours[f'restart_{way}_ms_p50']:.1f} ms, "
              f"max {ours[f'restart_{way}_ms_max']:.1f} ms")
    print(f"first batch of a cold loader: {ours['cold_ms']:.2f} ms; at sample 10^9 {ours['cold_at_1e9_ms']:.2f} ms")


main(*sys.argv[1:])
