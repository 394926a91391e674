"""Parquet in, as FineWeb ships it: MB of text a second beside pyarrow: bench_parquet.py SHARDTOOL FOLDER.

Real text out of Debian packages (bench_corpus.py) in the columns of FineWeb, written three ways: a row group for each
1000 documents (as its authors wrote it), one large row group, and zstd with version 2 pages. A line has the best of three
runs: wall seconds, CPU seconds beside them, and the ratio to pyarrow's iter_batches in the same run. pyarrow only hands
the texts out as an Arrow array; `text` prints them as JSON lines, `tokenize` makes a dataset.
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
import bench_corpus
from timing import best

TOOL, FOLDER = sys.argv[1:3]
LAYOUTS = {  # name: rows of a group, options of the writer
    "snappy, groups of 1000": (1000, {"compression": "snappy"}),
    "snappy, one group": (1 << 30, {"compression": "snappy"}),
    "zstd, version 2": (1 << 30, {"compression": "zstd", "data_page_version": "2.0", "use_dictionary": False}),
}
PYARROW = """
import sys, time, pyarrow.parquet as pq
for run in range(3):
    wall, cpu = time.monotonic(), time.process_time()
    for batch in pq.ParquetFile(sys.argv[1]).iter_batches(1000, columns=["text"], use_threads=False): batch.column(0)
    print(time.monotonic() - wall, time.process_time() - cpu)
"""


def timed_pyarrow(path):
    """The best wall and CPU seconds of three runs in one process, without the start of Python."""
    done = subprocess.run([sys.executable, "-c", PYARROW, path], check=True, stdout=subprocess.PIPE, text=True)
    return min(tuple(map(float, line.split())) for line in done.stdout.splitlines())


def main():
    groups = bench_corpus.load("build/bench")
    documents = [document for group in groups.values() for document in group]
    size = sum(map(len, documents)) / 1e6
    cores = len(os.sched_getaffinity(0))
    print(f"{size:.0f} MB of text in {len(documents)} documents, {cores} cores")
    print(f"{'':26}{'':20}{'wall s':>8}{'CPU s':>8}{'MB/s':>8}{'of pyarrow':>12}")
    for name, (rows, options) in LAYOUTS.items():
        path = os.path.join(FOLDER, "bench.parquet")
        bench_corpus.write_parquet(path, documents, rows, options)
        dataset = os.path.join(FOLDER, "dataset")
        commands = {
            "text": [TOOL, "text", path],
            "text, one of 3 rows": [TOOL, "text", "--where", "language_score>=0.87", path],
            "tokenize -j 2": [TOOL, "tokenize", "-q", "--force", "-j", "2", "-o", dataset, path],
        }
        results = {"pyarrow iter_batches": timed_pyarrow(path)}
        results |= {engine: best(command) for engine, command in commands.items()}
        for engine, (wall, cpu, *_) in results.items():
            ratio = results["pyarrow iter_batches"][0] / wall
            print(f"{name:26}{engine:20}{wall:8.2f}{cpu:8.2f}{size / wall:8.0f}{ratio:11.2f}x", flush=True)
        os.remove(path)
        shutil.rmtree(dataset)


main()
