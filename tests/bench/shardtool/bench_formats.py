"""The same text in every format, to text, to a dataset, and after a kill: bench_formats.py SHARDTOOL FOLDER.

Real text out of Debian packages (bench_corpus.py), in Parquet with the columns of FineWeb. A row has MB of text a second, by wall time
and by time of the processor, of the best of three runs: of `text -0` and of `tokenize -j 2`. Beside them are the library that unpacks
the format alone, on pieces of 1 MiB; for Parquet also `text`, of all and of one row of three, beside pyarrow's iter_batches, which only hands
the texts out as an Arrow array. The last column is the rest of a run that was killed with -9 at 90 % of its shards, of the processor's time of the
whole run. The shards are small, so that little is lost, and the dataset must be the one of the whole run.
"""
import ctypes
import filecmp
import glob
import gzip
import io
import json
import lzma
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zlib

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
import bench_corpus
from timing import best

TOOL, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
DATASET, KILLED = FOLDER + "/dataset", FOLDER + "/killed"
PIECE, PIECES, INNER_BYTES = 1 << 20, 32, 2_000_000
PYARROW = """
import sys, time, pyarrow.parquet as pq
for run in range(3):
    wall = time.monotonic()
    for batch in pq.ParquetFile(sys.argv[1]).iter_batches(1000, columns=["text"], use_threads=False): batch.column(0)
    print(time.monotonic() - wall)
"""


def parquet(rows, **options):
    return lambda path, documents: bench_corpus.write_parquet(path, documents, rows, options)


def write_lines(path, documents):
    with open(path, "w") as file:
        file.writelines(json.dumps({"text": document.decode()}, ensure_ascii=False) + "\n" for document in documents)


def write_tar(path, documents, file=None, ending="txt"):
    with tarfile.open(path, "w", file, format=tarfile.GNU_FORMAT) as tar:
        for number, document in enumerate(documents):
            member = tarfile.TarInfo(f"{number // 1000:03}/{number % 1000:03}.{ending}")
            member.size = len(document)
            tar.addfile(member, io.BytesIO(document))


def write_nest(path, documents):
    """As OpenWebText: a tar of compressed tars of 2 MB."""
    inner, size, parts = [], 0, []
    for document in [*documents, None]:
        if document is None or size > INNER_BYTES:
            file = io.BytesIO()
            write_tar(None, inner, file)
            parts.append(lzma.compress(file.getvalue()))
            inner, size = [], 0
        inner.append(document)
        size += len(document or b"")
    write_tar(path, parts, ending="xz")


def by(*command):
    return lambda path, _: subprocess.run([*command, path.rsplit(".", 1)[0]], check=True)


def unpack_tar(path, _):
    os.makedirs(path)
    subprocess.run(["tar", "xf", FOLDER + "/text.tar", "-C", path], check=True)


FORMATS = {  # file: what it is, how it is made, the library that unpacks it
    "groups.parquet": ("Parquet, snappy, groups of 1000", parquet(1000, compression="snappy"), "snappy"),
    "snappy.parquet": ("Parquet, snappy, one group", parquet(1 << 30, compression="snappy"), "snappy"),
    "zstd.parquet": ("Parquet, zstd, version 2", parquet(1 << 30, compression="zstd", data_page_version="2.0", use_dictionary=False), "zstd"),
    "text.jsonl": ("JSON lines", write_lines, None),
    "text.jsonl.gz": ("JSON lines, gzip", by("gzip", "-kf"), "zlib"),
    "text.jsonl.zst": ("JSON lines, zstd", by("zstd", "-q3kf"), "zstd"),
    "text.tar": ("tar", write_tar, None),
    "text.tar.gz": ("tar, gzip", by("gzip", "-kf"), "zlib"),
    "files": ("files in folders", unpack_tar, None),
    "nest.tar": ("tar of .xz tars", write_nest, "xz"),
}


def alone(text):
    """{library: MB a second of the processor}"""
    import pyarrow
    import zstandard

    snappy, pack = pyarrow.Codec("snappy"), lambda piece: gzip.compress(piece, 6)
    ways = {
        "snappy": (snappy.compress, lambda stored: snappy.decompress(stored, PIECE)),
        "zstd": (zstandard.ZstdCompressor(3).compress, zstandard.ZstdDecompressor().decompress),
        "zlib": (pack, lambda stored: zlib.decompress(stored, 31, PIECE)),
        "xz": (lzma.compress, lzma.decompress),
    }
    try:
        deflate, out, size = ctypes.CDLL("libdeflate.so.0"), ctypes.create_string_buffer(PIECE), ctypes.c_size_t
        deflate.libdeflate_alloc_decompressor.restype = ctypes.c_void_p
        state = ctypes.c_void_p(deflate.libdeflate_alloc_decompressor())
        ways["libdeflate"] = pack, lambda stored: deflate.libdeflate_gzip_decompress(state, stored, size(len(stored)), out, size(PIECE), None)
    except OSError:
        pass
    found = {}
    for name, (pack, unpack) in ways.items():
        stored = [bytes(pack(text[at : at + PIECE])) for at in range(0, len(text) - PIECE + 1, PIECE)][:PIECES]
        for _ in range(3):
            begun = time.process_time()
            for piece in stored:
                unpack(piece)
            rate = len(stored) * PIECE / 1e6 / (time.process_time() - begun)
            found[name] = max(rate, found.get(name, 0))
    return found


def cpu_seconds(command, out, killed_at=None):
    """Of a run; with killed_at it is killed when so many shards are finished."""
    process = subprocess.Popen([*command, "-o", out], stderr=subprocess.DEVNULL)
    while killed_at and process.poll() is None and len(glob.glob(out + "/train/*/[0-9]*.zst")) < killed_at:
        time.sleep(0.001)
    if killed_at:
        process.send_signal(signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == (-signal.SIGKILL if killed_at else 0), (command, process.returncode)
    return usage.ru_utime + usage.ru_stime


def same(a, b):
    difference = filecmp.dircmp(a, b, ignore=[".lock"])
    return not (difference.left_only or difference.right_only or difference.diff_files) and all(
        same(os.path.join(a, name), os.path.join(b, name)) for name in difference.common_dirs
    )


def rest_after_kill(source):
    command = [TOOL, "tokenize", "-q", "-j", "2", "--shard-tokens", "512k", source]
    for path in DATASET, KILLED:
        shutil.rmtree(path, ignore_errors=True)
    whole = cpu_seconds(command, DATASET)
    cpu_seconds(command, KILLED, len(glob.glob(DATASET + "/train/*/*.zst")) * 9 // 10)
    rest = cpu_seconds(command, KILLED)
    assert same(DATASET, KILLED), f"{source}: the dataset of the killed run differs"
    return rest / whole


def beside_pyarrow(path, size):
    done = subprocess.run([sys.executable, "-c", PYARROW, path], check=True, stdout=subprocess.PIPE, text=True)
    wall = min(map(float, done.stdout.split()))
    read, third = (best([TOOL, "decode", "--json", *words, path])[0] for words in ((), ("--where", "language_score>=0.87")))
    return f"text {size / read:.0f}, {wall / read:.2f} times pyarrow; one row of 3 {wall / third:.2f} times"


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    documents = [document for group in bench_corpus.load("build/bench").values() for document in group]
    random.Random(2).shuffle(documents)
    size, libraries = sum(map(len, documents)) / 1e6, alone(b"".join(documents))
    print(f"{size:.0f} MB of text in {len(documents)} documents, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print("libraries alone, MB a CPU second: " + ", ".join(f"{name} {rate:.0f}" for name, rate in libraries.items()))
    print(f"{'MB a second':33}{'text -0':>8}{'CPU':>7}{'library':>9}{'tokenize':>10}{'CPU':>7}{'after a kill':>14}")
    for file, (name, write, library) in FORMATS.items():
        path = os.path.join(FOLDER, file)
        write(path, documents)
        read = best([TOOL, "decode", "-q", "-0", path])
        made = best([TOOL, "tokenize", "-q", "--force", "-j", "2", "-o", DATASET, path])
        note = beside_pyarrow(path, size) if file.endswith(".parquet") else ""
        print(f"{name:33}{size / read[0]:8.0f}{size / read[1]:7.0f}{libraries[library] if library else 0:9.0f}{size / made[0]:10.0f}"
              f"{size / made[1]:7.0f}{rest_after_kill(path):13.0%}  {note}", flush=True)  # fmt: skip
    shutil.rmtree(FOLDER)


main()
