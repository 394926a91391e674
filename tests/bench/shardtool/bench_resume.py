"""The rest of a tokenize run after kill -9 at 90 % of its shards, in CPU seconds beside the whole run: bench_resume.py SHARDTOOL FOLDER.

The text is that of bench_shards.py, as JSON lines, compressed JSON lines, files in folders, a tar, a compressed tar and Parquet.
A file of one zstd frame is decompressed from its beginning: a line has the CPU seconds that `zstd -dc` takes for that.
The shards are small (1 % of the text), so that what is lost is small; a run over terabytes has as many. Every dataset is compared
with the one of the whole run.
"""
import filecmp
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROUNDS = 2


def inputs_of(lines, folder):
    tar, files, parquet = (os.path.join(folder, name) for name in ("text.tar", "files", "text.parquet"))
    return {"JSONL": lines, "files": files, "Parquet": parquet, "tar": tar, "JSONL.zst": lines + ".zst", "JSONL.gz": lines + ".gz", "tar.gz": tar + ".gz"}


def make_inputs(lines, folder):
    """The text of the JSON lines as every kind of input. In a process of its own: it needs memory, and the peak memory of a program
    counts from that of the process that started it."""
    import pyarrow
    import pyarrow.parquet

    os.makedirs(folder, exist_ok=True)
    texts = [json.loads(line)["text"] for line in open(lines)]
    files = os.path.join(folder, "files")
    for number, text in enumerate(texts):
        os.makedirs(os.path.join(files, f"{number // 1000:03}"), exist_ok=True)
        with open(os.path.join(files, f"{number // 1000:03}", f"{number % 1000:03}.txt"), "w") as file:
            file.write(text)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), os.path.join(folder, "text.parquet"), compression="snappy", row_group_size=500)
    subprocess.run(["tar", "cf", os.path.join(folder, "text.tar"), "--sort=name", "-C", files, "."], check=True)
    for command in (["gzip", "-kf", lines], ["zstd", "-qkf", lines], ["gzip", "-kf", os.path.join(folder, "text.tar")]):
        subprocess.run(command, check=True)


def cpu_seconds(command, killed_at=None, out=None):
    """CPU seconds of a run; with killed_at it is killed when so many shards are finished."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
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


def rest_after_kill(tool, folder, source):
    """CPU seconds of the whole run and of the rest, the best of some rounds each."""
    whole, out = os.path.join(folder, "whole"), os.path.join(folder, "out")
    command = [tool, "tokenize", "-q", "-j", "2", "--shard-tokens", "512k", source, "-o"]
    best_whole = best_rest = float("inf")
    for _ in range(ROUNDS):
        shutil.rmtree(whole, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        best_whole = min(best_whole, cpu_seconds(command + [whole]))
        shards = len(glob.glob(whole + "/train/*/*.zst"))
        cpu_seconds(command + [out], killed_at=shards * 9 // 10, out=out)
        best_rest = min(best_rest, cpu_seconds(command + [out]))
        assert same(whole, out), f"{source}: the dataset of the killed run differs"
    return best_whole, best_rest


def measure(tool, lines, folder, kinds=None):
    subprocess.run([sys.executable, os.path.abspath(__file__), "--inputs", lines, folder], check=True)
    for kind, source in inputs_of(lines, folder).items():
        if kinds and kind not in kinds:
            continue
        whole, rest = rest_after_kill(tool, folder, source)
        print(f"{'rest after a kill at 90 %, ' + kind:44}{rest:8.2f} CPU s of {whole:.2f}: {rest / whole:.0%}", flush=True)
        if source.endswith(".zst"):
            alone = 0.9 * cpu_seconds(["zstd", "-qdfo", os.devnull, source])
            print(f"{'  of it zstd -d of what is before':44}{alone:8.2f} CPU s of {whole:.2f}: {alone / whole:.0%}", flush=True)


if __name__ == "__main__" and sys.argv[1] == "--inputs":
    make_inputs(*sys.argv[2:])
elif __name__ == "__main__":
    import bench_shards

    tool, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    bench_shards.write_text(os.path.join(folder, "text.jsonl"))
    measure(tool, os.path.join(folder, "text.jsonl"), folder, sys.argv[3:])
    shutil.rmtree(folder)
