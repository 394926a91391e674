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


def train_command(programs, out, keys):
    """The command of a new run on the CPU."""
    shutil.rmtree(out, ignore_errors=True)
    flags = [f"--{key}={value}" for key, value in {"device": "cpu", **keys, "out_dir": out}.items()]
    return [programs + "/trainer", "train", "--quiet", *flags]


def train(programs, out, keys, **environment):
    """The lines of metrics.jsonl of a new run on the CPU."""
    subprocess.run(train_command(programs, out, keys), check=True, stdout=subprocess.DEVNULL, env=os.environ | environment)
    with open(out + "/metrics.jsonl", encoding="utf-8") as lines:
        return list(map(json.loads, lines))
