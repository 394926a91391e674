#!/usr/bin/env python3
"""bench_vocabulary.py SHARDTOOL FOLDER [FILE [SIZE [RUNS]]]: trains a vocabulary of SIZE ids from FILE, a text, by shardtool,
gigatoken and rustbpe, one after the other and RUNS times, with GPT-2's pattern and the same ties. Prints seconds and peak
memory, the median of each, and the ratio to ours. The tokens are compared. Without FILE: 2 GB, of which 97 MB are mixed text of
Debian's packages and the rest the sources of Linux, GCC and binutils, each file once."""
import base64
import io
import os
import statistics
import subprocess
import sys
import tarfile

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
import timing

TEXT_BYTES = 2_000_000_000
TOKEN_MAX = 255  # bytes: shardtool makes no larger ones, and the peers do
SOURCES = "linux-source-6.1", "gcc-12-source", "binutils-source"
GIGATOKEN = """
import gigatoken, sys
tokens, _ = gigatoken.train_bpe(sys.argv[1], int(sys.argv[2]), [], "raw_token_ids", b"\\0no separator\\0")
open(sys.argv[3], "w").write("".join(tokens[id].hex() + "\\n" for id in range(len(tokens))))
"""
RUSTBPE = """
import rustbpe, sys
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
def texts():
    with open(sys.argv[1], encoding="utf-8", errors="replace", newline="") as file:
        yield file.read()
tokenizer = rustbpe.Tokenizer()
tokenizer.train_from_iterator(texts(), int(sys.argv[2]), pattern=PATTERN)
open(sys.argv[3], "w").write("".join(bytes(token).hex() + "\\n" for token, _ in tokenizer.get_mergeable_ranks()))
"""


def run(*command):
    """Wall seconds and peak memory in MiB."""
    seconds, _, memory = timing.measured(command, stderr=subprocess.DEVNULL)
    return seconds, memory


def ours(shardtool, text, size, out):
    # <|endoftext|> is one id more
    figures = run(shardtool, "train-vocabulary", "-q", "--force", "-V", str(size + 1), "-o", out, text)
    with open(os.path.join(out, "vocabulary.tiktoken")) as file:
        return *figures, [base64.b64decode(line.split()[0]) for line in file]


def peer(script, text, size, out):
    figures = run(sys.executable, "-c", script, text, str(size), out + ".hex")
    with open(out + ".hex") as file:
        return *figures, [bytes.fromhex(line) for line in file]


def source_files(deb):
    """The files of the archives in a package NAME-source, those that are UTF-8."""
    archives = tarfile.open(fileobj=io.BytesIO(subprocess.check_output(["dpkg-deb", "--fsys-tarfile", deb])))
    for archive in archives:
        if not archive.isfile() or ".tar" not in archive.name:
            continue
        with tarfile.open(fileobj=archives.extractfile(archive), mode="r|*") as files:
            for member in files:
                if member.isfile():
                    data = files.extractfile(member).read()
                    try:
                        data.decode()
                    except UnicodeDecodeError:
                        continue
                    yield data


def default_text(folder):
    import bench_corpus

    path = os.path.join(folder, "text.txt")
    if os.path.exists(path):
        return path
    with open(path + ".new", "wb") as out:
        for documents in bench_corpus.load(folder).values():
            out.writelines(document + b"\n" for document in documents)
        for package in SOURCES:
            for data in source_files(bench_corpus.fetch(os.path.join(folder, "debs"), package)):
                if out.tell() + len(data) <= TEXT_BYTES:
                    out.write(data)
    os.rename(path + ".new", path)
    return path


def main():
    shardtool, folder = sys.argv[1:3]
    text = "".join(sys.argv[3:4]) or default_text(folder)
    size, runs = (int(value) if value else default for value, default in zip((sys.argv[4:6] + ["", ""])[:2], (65536, 3)))
    trainers = {
        "shardtool": lambda out: ours(shardtool, text, size, out),
        "gigatoken": lambda out: peer(GIGATOKEN, text, size, out),
        "rustbpe": lambda out: peer(RUSTBPE, text, size, out),
    }
    figures = {name: [] for name in trainers}
    for _ in range(runs):
        for name, train in trainers.items():
            *figure, tokens = train(os.path.join(folder, name))
            figures[name].append(figure)
            if name == "shardtool":
                want = tokens
            elif (kept := [token for token in tokens if len(token) <= TOKEN_MAX]) != want[: len(kept)]:
                print(f"{name} has other tokens")
    print(f"{os.path.getsize(text) / 1e6:.0f} MB of text, {size} ids, {runs} run(s) in turn, {len(os.sched_getaffinity(0))} processors")
    medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in figures.items()}
    for name, (seconds, memory) in medians.items():
        ratios = [value / own for value, own in zip((seconds, memory), medians["shardtool"])]
        print(f"{name:10} {seconds:7.2f} s ({ratios[0]:5.2f} x) {memory:7.0f} MiB ({ratios[1]:5.2f} x)")


main()
