"""Text to a dataset by level, and by URL beside files on disk: bench_remote.py SHARDTOOL FOLDER [GB].

FineWeb-shaped Parquet files, half in snappy and half in zstd, are generated in batches of 400 MB of text, slices of English prose of
4.6 bytes a token as FineWeb's (Debian's anarchism), read from disk and through TLS from a server of this machine in turn, and removed, until GB of text have been read
(4). The server is a process of its own, but on the same cores: compare the seconds of the processor. The peer, pyarrow with tiktoken,
reads the first file of the first batch, with which the levels are measured, too.
"""
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
import bench_corpus
from hostile_server import Session, Web
from s3_server import Bucket
from timing import best, measured

TOOL, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
GIGABYTES = float(sys.argv[3]) if len(sys.argv) > 3 else 4
FILES, FILE_BYTES = 4, 100_000_000  # of a batch
LEVELS = (1, 3, 5, 7, 9, 16)
SMALL_FILES, DELAY_S = 400, 0.02
PEER = """
import sys, time
sys.path.insert(0, sys.argv[2])
import numpy, pyarrow.parquet as pq
from gpt2 import encoding
encode = encoding()
encode.encode_ordinary("")
begun, out = time.process_time(), open(sys.argv[3], "wb")
for batch in pq.ParquetFile(sys.argv[1]).iter_batches(1000, columns=["text"], use_threads=False):
    for ids in encode.encode_ordinary_batch(batch.column(0).to_pylist(), num_threads=2):
        numpy.array(ids + [50256], numpy.uint16).tofile(out)
print(time.process_time() - begun)
"""


def documents(rng, corpus, size):
    """Slices of the corpus, of lengths as in FineWeb: a median of 2 KB, a mean of 3 KB."""
    found = []
    while size > 0:
        length = min(int(rng.lognormvariate(7.6, 0.95)), 500_000)
        begin = corpus.find(b" ", rng.randrange(len(corpus) - length - 100)) + 1
        text = corpus[begin : begin + length].decode(errors="ignore").encode()
        found.append(text)
        size -= len(text)
    return found


def write_batch(folder, corpus, seed):
    """Returns the paths and the bytes of text."""
    paths, size = [], 0
    for number in range(FILES):
        texts = documents(random.Random(seed * FILES + number), corpus, FILE_BYTES)
        path = os.path.join(folder, f"{number:03}_{seed:05}.parquet")
        bench_corpus.write_parquet(path, texts, 1000, {"compression": ("snappy", "zstd")[number % 2]})
        paths.append(path)
        size += sum(map(len, texts))
    return paths, size


def serve(folder, pipe):
    """The server: sessions by name, each a folder whose files it reads when it receives (name, folder)."""
    os.mkdir(os.path.join(folder, "authority"))
    web = Web(os.path.abspath(os.path.join(folder, "authority")))
    small = Bucket({f"{i:04}.txt": b"a small file " * 300 for i in range(SMALL_FILES)}, page=1000)
    route = small.route
    small.route = lambda *request: time.sleep(DELAY_S) or route(*request)
    web.add("small", small)
    pipe.send((web.authority, web.url("origin")))
    while True:
        name, source = pipe.recv()
        session = Session({file: open(os.path.join(source, file), "rb").read() for file in sorted(os.listdir(source))})
        session.etag = '"generated"'  # not a hash of the content for each request
        web.add(name, session)
        pipe.send(True)


def text_size(path):
    """MB of text of a file."""
    import pyarrow.compute
    import pyarrow.parquet

    return pyarrow.compute.sum(pyarrow.compute.binary_length(pyarrow.parquet.read_table(path, columns=["text"])["text"])).as_py() / 1e6


def tokenize(folder, *options):
    return [TOOL, "tokenize", "-q", "--force", "-j", "2", "-o", os.path.join(folder, "dataset"), *options]


def levels(folder, path):
    size = text_size(path)
    print(f"\n{'level':10}{'CPU s':>8}{'MB/s of it':>12}{'of train.bin':>14}{'verify CPU s':>14}")
    dataset = os.path.join(folder, "dataset")
    for level in LEVELS:
        cost = best(tokenize(folder, "--level", str(level)) + [path], 2)[1]
        info = json.loads(subprocess.check_output([TOOL, "info", "--json", dataset]))
        stored = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(dataset) for name in names if name.endswith(".zst"))
        share = stored / 2 / (info["train_tokens"] + info["val_tokens"])
        check = best([TOOL, "verify", "-q", "-j", "1", dataset])[1]
        print(f"{level:<10}{cost:8.2f}{size / cost:12.0f}{share:14.3f}{check:14.2f}", flush=True)


def small_files(variables, url):
    """Seconds of many small objects of a server that answers late."""
    took = measured([TOOL, "decode", "-0", "--s3-endpoint", url.rstrip("/"), "s3://small/"], env=variables)[0]
    late = SMALL_FILES * DELAY_S
    print(f"\n{SMALL_FILES} small objects, each {DELAY_S * 1000:.0f} ms late: {took:.1f} s; one after another {late:.1f} s at least", flush=True)


def compare(folder, corpus, pipe, url, variables):
    """Local and by URL in turn, batch by batch."""
    local, remote, total, seed = [0, 0], [0, 0], 0, 0
    while total < GIGABYTES * 1e9:
        source = os.path.join(folder, "batch")
        shutil.rmtree(source, ignore_errors=True)
        os.mkdir(source)
        paths, size = write_batch(source, corpus, seed)
        if seed == 0:
            peer(folder, paths[0])
            levels(folder, paths[0])
            small_files(variables, url)
        pipe.send(("batch", source))
        pipe.recv()
        urls = [f"{url}batch/{os.path.basename(path)}" for path in paths]
        for sums, inputs in ((local, paths), (remote, urls)) if seed % 2 else ((remote, urls), (local, paths)):
            wall, cost, _ = measured(tokenize(folder) + inputs, env=variables)
            sums[0] += wall
            sums[1] += cost
        total, seed = total + size, seed + 1
    megabytes = total / 1e6
    print(f"\n{total / 1e9:.1f} GB of text, snappy and zstd Parquet, to datasets on two cores")
    print(f"{'':16}{'wall s':>8}{'CPU s':>8}{'MB/s':>8}{'MB/CPU s':>10}")
    for name, (wall, cost) in (("from disk", local), ("through TLS", remote)):
        print(f"{name:16}{wall:8.1f}{cost:8.1f}{megabytes / wall:8.0f}{megabytes / cost:10.0f}")
    print(f"through TLS: {100 * local[1] / remote[1]:.0f} % of the rate from disk by CPU seconds, {100 * local[0] / remote[0]:.0f} % by wall time, of which the server takes a part")


def peer(folder, path):
    size = text_size(path)
    done = subprocess.run([sys.executable, "-c", PEER, path, os.path.join(rooms.TESTS, "oracle"), os.path.join(folder, "peer.bin")], check=True, stdout=subprocess.PIPE, text=True)
    ours = best(tokenize(folder) + [path])[1]
    theirs = float(done.stdout)
    print(f"Parquet, snappy, to ids: {size / ours:.0f} MB a second of the processor; pyarrow and tiktoken {size / theirs:.1f}: ratio {theirs / ours:.1f}", flush=True)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    package, files = bench_corpus.PACKAGES[0][1:]
    corpus = "\n\n".join(bench_corpus.texts(bench_corpus.fetch("build/bench/debs", package), files)).encode()
    pipe, other = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(FOLDER, other), daemon=True)
    server.start()
    authority, url = pipe.recv()
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and not name.startswith("AWS_")}
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, {subprocess.getoutput(TOOL + ' --version').splitlines()[1]}")
    compare(FOLDER, corpus, pipe, url, {**clean, "CURL_CA_BUNDLE": authority})
    server.terminate()
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
