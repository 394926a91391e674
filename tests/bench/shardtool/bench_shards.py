"""Datasets from JSON lines beside the scripts that are used for it: bench_shards.py SHARDTOOL FOLDER.

The text is real (bench_corpus.py, out of Debian packages). The peers run in the same minutes on the same cores, a process for
each core: `nanoGPT` is the steps of its prepare script (tiktoken's encode_ordinary, an end-of-text id, a memory map of u16),
without the copies that the datasets library makes; datatrove is its own pipeline (JSON reader, DocumentTokenizer with the
tokenizers library), where it is installed. A line has wall and CPU seconds, MB/s of wall time, peak memory and the ratio.
"""
import importlib.util
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import best, measured
HERE = os.path.abspath(__file__)
PEER_BYTES = 30_000_000  # of the text are enough for a peer of 6 MB/s
CORES = len(os.sched_getaffinity(0))


def line(name, result, megabytes=None, note=""):
    wall, cpu, memory = result
    speed = f"{megabytes / wall:8.0f} MB/s" if megabytes else ""
    print(f"{name:44}{wall:8.2f} s{cpu:8.2f} CPU s{memory:7.0f} MiB{speed}  {note}", flush=True)


def encode_line(line_):
    global encode
    if "encode" not in globals():
        from gpt2 import encoding

        encode = encoding().encode_ordinary
    ids = encode(json.loads(line_)["text"])
    ids.append(50256)
    return ids


def run_nanogpt(source, folder):
    """Tokenizes in a process for each core, then writes the ids of all documents into one memory map."""
    import numpy

    with multiprocessing.Pool(CORES) as pool, open(source, "rb") as file:
        rows = [numpy.array(ids, numpy.uint16) for ids in pool.imap(encode_line, file, chunksize=256)]
    target = numpy.memmap(os.path.join(folder, "train.bin"), numpy.uint16, "w+", shape=(sum(map(len, rows)),))
    end, step = 0, max(1, len(rows) // 1024)
    for at in range(0, len(rows), step):
        part = numpy.concatenate(rows[at : at + step])
        target[end : end + len(part)] = part
        end += len(part)
    target.flush()


def run_datatrove(source, folder):
    from bench_tokenizer import hugging_face_json
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        file.write(hugging_face_json())
    parts = os.path.join(folder, "parts")
    os.makedirs(parts, exist_ok=True)
    lines = open(source, "rb").read().splitlines(keepends=True)
    for part in range(CORES):
        with open(os.path.join(parts, f"{part}.jsonl"), "wb") as file:
            file.writelines(lines[part::CORES])
    tokenizer = DocumentTokenizer(os.path.join(folder, "ids"), tokenizer_name_or_path=os.path.join(folder, "tokenizer.json"),
                                  eos_token="<|endoftext|>", shuffle_documents=False)  # fmt: skip
    pipeline = [JsonlReader(parts), tokenizer]
    LocalPipelineExecutor(pipeline, tasks=CORES, workers=CORES, logging_dir=os.path.join(folder, "logs")).run()


def write_text(path, limit=0):
    """JSON lines of the corpus; returns the MB of text in them. In a process of its own: the peak memory of a program counts from
    that of the process that started it."""
    return float(subprocess.check_output([sys.executable, HERE, "--text", path, str(limit)]))


def run_text(path, limit):
    import bench_corpus

    groups = bench_corpus.load("build/bench")
    size = 0
    with open(path, "w") as file:
        for document in (document for group in groups.values() for document in group):
            if int(limit) and size >= int(limit):
                break
            file.write(json.dumps({"text": document.decode()}, ensure_ascii=False) + "\n")
            size += len(document)
    print(size / 1e6)


def peers(folder, tool, speed):
    source = os.path.join(folder, "peer.jsonl")
    megabytes = write_text(source, PEER_BYTES)
    names = ["nanogpt"] + (["datatrove"] if importlib.util.find_spec("datatrove") else [])
    for name in names:
        target = os.path.join(folder, name)
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target)
        result = measured([sys.executable, HERE, "--peer", name, source, target], stderr=subprocess.DEVNULL)
        ratio = f"shardtool is {speed / (megabytes / result[0]):.0f}x as fast"
        line(f"JSONL -> ids, {name}", result, megabytes, ratio)
    if "datatrove" not in names:
        print("datatrove is not installed: pip install datatrove measures it too")
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import tiktoken, numpy"], check=True)
    print(f"{'  (of it the start of Python)':44}{time.monotonic() - begun:8.2f} s")


def main(tool, folder):
    os.makedirs(folder, exist_ok=True)
    source, dataset = os.path.join(folder, "text.jsonl"), os.path.join(folder, "dataset")
    megabytes = write_text(source)
    print(f"{megabytes:.0f} MB of text, {CORES} cores, {subprocess.getoutput(tool + ' --version')}, load {os.getloadavg()[0]:.1f}")
    tokenize = [tool, "tokenize", "-q", "--force", "--shard-tokens", "4M", "-o", dataset]
    result = best(tokenize + ["-j", str(CORES), source])
    line("JSONL -> dataset", result, megabytes, f"{megabytes / result[1]:.0f} MB per CPU second")
    peers(folder, tool, megabytes / result[0])

    for jobs in (1, 2, 4, 8, 16):
        allowed = 64 + 16 * jobs
        memory = measured(tokenize + ["-j", str(jobs), source])[2]
        print(f"{f'  peak memory with -j {jobs}':44}{memory:24.0f} MiB  {allowed} MiB allowed{' (EXCEEDED)' if memory > allowed else ''}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1] == "--text":
        run_text(*sys.argv[2:])
    elif sys.argv[1] == "--peer":
        {"nanogpt": run_nanogpt, "datatrove": run_datatrove}[sys.argv[2]](*sys.argv[3:])
    else:
        main(os.path.abspath(sys.argv[1]), sys.argv[2])
