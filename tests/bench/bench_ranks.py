#!/usr/bin/env python3
"""bench_ranks.py BIN [KEY=VALUE...]: training with several processes on this machine.

Two processes of one thread beside one process of two threads, in turns, on the same samples: tokens a second (of the
fastest step, and of the median), CPU seconds, the bytes that a process sends in a step beside the least that a ring
sends, and the memory of each process beside its plan."""
import json, os, re, resource, statistics, subprocess, sys, tempfile

if sys.argv[1] == "--rank":  # inside mpirun: runs the trainer and reports what it has used
    status = subprocess.call(sys.argv[3:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    with open(f"{sys.argv[2]}.{rank}", "w") as file:
        json.dump({"cpu_s": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024}, file)
    sys.exit(status)

programs = os.path.abspath(sys.argv[1])
TURNS, STEPS = 2, 8
keys = {"n_layer": 4, "n_head": 4, "n_embd": 256, "block_size": 256, "batch_size": 4, "gradient_accumulation_steps": 4,
        "dtype": "float32", "device": "cpu", "max_iters": STEPS, "eval_interval": 0, "sample_tokens": 0,
        "warmup_iters": 2, "lr_decay_iters": STEPS}
keys.update(argument.split("=", 1) for argument in sys.argv[2:])
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                  OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")


def command(world, options):
    flags = [f"--{key}={value}" for key, value in {**keys, **options}.items()]
    return [f"{programs}/trainer", "plan" if world is None else "train", *flags]


def planned(folder, world, options):
    out = subprocess.run([*command(None, {**options, "out_dir": f"{folder}/none"}), f"--world={world}"],
                         check=True, capture_output=True, text=True).stdout
    rows = {name: int(size) for name, size in re.findall(r"^  (\S.*?) {2,}(\d+) ", out, re.M)}
    return rows


def train(folder, name, world, options):
    out, used = f"{folder}/{name}", f"{folder}/{name}.used"
    options = {**options, "out_dir": out, "dataset": f"{folder}/data"}
    run = [sys.executable, os.path.abspath(__file__), "--rank", used, *command(world, options), "--quiet"]
    if world > 1:
        run = ["mpirun", "-n", str(world), "--bind-to", "none", *run]
    subprocess.run(run, check=True)
    steps = [line for line in map(json.loads, open(f"{out}/metrics.jsonl")) if "loss" in line]
    ranks = [json.load(open(f"{used}.{rank}")) for rank in range(world)]
    return steps, ranks


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = f"{folder}/text.txt"
        with open(text, "w") as file:
            file.writelines(f"line {i} about mills, rivers and the stream that drives wheel {i * 7919 % 1000}\n"
                            for i in range(60000))
        subprocess.run([f"{programs}/shardtool", "tokenize", "--quiet", "-o", f"{folder}/data", text], check=True)
        forms = {"1 process x 2 threads": (1, {"threads": 2}), "2 processes x 1 thread": (2, {"threads": 1}),
                 "2 processes, zero_stage=0": (2, {"threads": 1, "zero_stage": 0})}
        ms, found = {name: [] for name in forms}, {}
        for turn in range(TURNS):
            for i, (name, (world, options)) in enumerate(forms.items()):
                steps, ranks = train(folder, f"run{turn}-{i}", world, options)
                ms[name] += [step["ms"] for step in steps[1:]]  # the first makes primitives
                found[name] = steps, ranks
        tokens = int(keys["batch_size"]) * int(keys["gradient_accumulation_steps"]) * int(keys["block_size"])
        print(f"model: {' '.join(f'{key}={keys[key]}' for key in ('n_layer', 'n_embd', 'block_size', 'batch_size'))}, "
              f"{tokens} tokens a step, {keys['dtype']}; {os.cpu_count()} processors")
        print(f"{'':28}{'tok/s best':>11}{'median':>9}{'CPU s':>8}{'MB sent':>9}{'ring':>8}{'plan MiB':>10}{'peak MiB':>10}")
        least = {}
        for name, (world, options) in forms.items():
            steps, ranks = found[name]
            plan = planned(folder, world, options)
            gradients = plan["gradients"]
            ring = 2 * gradients * (world - 1) / world
            sent = statistics.median(step.get("sent", 0) for step in steps)
            least[name] = min(ms[name])
            peaks = "/".join(f"{rank['peak'] / 2**20:.0f}" for rank in ranks)
            print(f"{name:28}{tokens / min(ms[name]) * 1e3:11.0f}{tokens / statistics.median(ms[name]) * 1e3:9.0f}"
                  f"{sum(rank['cpu_s'] for rank in ranks):8.1f}{sent / 1e6:9.2f}{ring / 1e6:8.2f}"
                  f"{plan['arena'] / 2**20:10.1f}{peaks:>10}")
        one, two = list(forms)[:2]
        print(f"2 x 1 beside 1 x 2: {least[one] / least[two]:.2f} of its tokens/s (best steps)")


main()
