"""What the benchmarks share: the cost of a command, and a training run of the trainer."""
import json
import os
import shutil
import subprocess
import time


def measured(command, **options):
    """Wall seconds, CPU seconds and peak memory in MiB of one run."""
    begun = time.monotonic()
    process = subprocess.Popen(command, **{"stdout": subprocess.DEVNULL} | options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command}: exit {process.returncode}"
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def best(command, runs=3, before=lambda: None, **options):
    results = []
    for _ in range(runs):
        before()
        results.append(measured(command, **options))
    return min(results)


def train(programs, out, keys):
    """The lines of metrics.jsonl of a new run on the CPU."""
    shutil.rmtree(out, ignore_errors=True)
    flags = [f"--{key}={value}" for key, value in {"device": "cpu", **keys, "out_dir": out}.items()]
    subprocess.run([programs + "/trainer", "train", "--quiet", *flags], check=True, stdout=subprocess.DEVNULL)
    with open(out + "/metrics.jsonl", encoding="utf-8") as lines:
        return list(map(json.loads, lines))
