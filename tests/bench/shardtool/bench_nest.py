"""OpenWebText's nest, a tar of .xz tars of text files: MB of text a second beside xz -dc: bench_nest.py SHARDTOOL FOLDER.

Real text out of Debian packages (bench_corpus.py) in inner tars of 2 MB, as OpenWebText has them. The ratio is to one
`xz -dc` of the same members in the same round, and the best of three rounds counts. On a busy machine read the CPU
seconds: on two free cores a run takes half of them, as long as the thread that reads takes less (last column).
"""
import glob
import io
import lzma
import os
import random
import resource
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
import bench_corpus

TOOL, FOLDER = sys.argv[1:3]
INNER_BYTES = 2_000_000
members = os.path.join(FOLDER, "members")
nest = os.path.join(FOLDER, "nest.tar")


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write():
    documents = [document for group in bench_corpus.load(FOLDER).values() for document in group]
    random.Random(2).shuffle(documents)
    os.makedirs(members, exist_ok=True)
    count = 0
    with tarfile.open(nest, "w", format=tarfile.GNU_FORMAT) as outer:
        while documents:
            size, inner = 0, io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w", format=tarfile.GNU_FORMAT) as tar:
                while documents and size < INNER_BYTES:
                    document = documents.pop()
                    add(tar, f"{len(documents):07}.txt", document)
                    size += len(document)
            name = f"subset{count:03}_data.xz"
            count += 1
            packed = lzma.compress(inner.getvalue(), preset=6)
            with open(os.path.join(members, name), "wb") as file:
                file.write(packed)
            add(outer, "openwebtext/" + name, packed)


def timed(command):
    """Wall seconds, CPU seconds, and CPU seconds of the first thread."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    main = 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/task/{process.pid}/schedstat") as file:
                main = int(file.read().split()[0]) / 1e9
        except OSError:
            pass
        time.sleep(0.05)
    assert process.returncode == 0, command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return time.monotonic() - start, cpu, main


if not os.path.exists(nest):
    write()
files = sorted(glob.glob(os.path.join(members, "*.xz")))
text = sum(len(lzma.open(file).read()) for file in files) / 1e6
out = os.path.join(FOLDER, "out")
runs = {
    "xz -dc": ["xz", "-dc", *files],
    "text -0 -j 2": [TOOL, "text", "-q", "-0", "-j", "2", nest],
    "tokenize -j 1": [TOOL, "tokenize", "-q", "--force", "-j", "1", "-o", out, nest],
    "tokenize -j 2": [TOOL, "tokenize", "-q", "--force", "-j", "2", "-o", out, nest],
}
best = {}
for _ in range(3):
    for name, command in runs.items():
        result = timed(command)
        best[name] = min(best.get(name, result), result)
print(f"{len(files)} members, {text:.0f} MB of tars, load {os.getloadavg()[0]:.1f}")
print(f"{'':14} {'wall s':>7} {'CPU s':>7} {'MB/s':>7} {'ratio':>7} {'on 2 free cores':>16} {'reading thread':>15}")
xz = best["xz -dc"]
for name, (wall, cpu, main) in best.items():
    free = xz[1] / max(cpu / 2, main)
    print(f"{name:14} {wall:7.2f} {cpu:7.2f} {text / wall:7.1f} {xz[0] / wall:7.2f} {free:16.2f} {main:13.2f} s")
