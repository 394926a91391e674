#!/usr/bin/env python3
"""bench_ranks.py BIN [KEY=VALUE...]: training with several processes on this machine.

Two processes of one thread beside one process of two threads, in turns, on the same samples: tokens a second (of the
fastest step, and of the median), CPU seconds, the bytes that a process sends in a step beside the least that a ring
sends, and the memory of each process beside its plan. Gradients are added in a fixed order, and in the fast one."""
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


# By calculation alone: what the exchange would cost between GPUs, if it ran beside the operations. Nothing of this ran
# on a GPU. Assumed: a card computes at the rate that bench_gpu_expected.json predicts for 124M; the backward pass is two
# thirds of a micro-batch; a ring of reduce-scatter or all-gather reaches 250 GB/s between the cards of a machine
# (NVLink) and 11 GB/s where one link of 100 Gb/s joins two machines; a call takes 20 us more. Gradients (fp32) are
# reduced by layer during the last backward pass, the embeddings' after it. After the update, which each rank does for
# its part at 3.8 TB/s and 30 bytes a parameter, parameters (bf16) are gathered: the embeddings, and then the layers beside
# the forward pass, a third of a micro-batch, whose layers wait for theirs. With reduce_order = fixed every micro-batch is
# reduced in its backward pass, and each rank adds its part of world gradients at 3.8 TB/s and 4 bytes. Then each card sends
# the others their parts. In one machine that is as much as in a ring; the link between two machines carries those of each
# card for each card of the other. With reduce_dtype = bfloat16 both orders do so, with 2 bytes, and 8 to round and add.
MODELS = {"124M": (12, 768, 64), "1558M": (48, 1600, 16)}  # layers, channels, sequences of 1,024 tokens a micro-batch
MACHINES = {"8 x H100, NVLink": (1, 8, 250e9), "2 x 1 x H100, 100 Gb/s": (2, 1, 11e9), "2 x 8 x H100, 100 Gb/s": (2, 8, 11e9)}


def predict():
    expected = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu", "bench_gpu_expected.json")))
    block, call_s = 1024, 20e-6

    def model(layers, channels):
        embeddings = (50304 + block) * channels
        elements = embeddings + layers * 12 * channels**2
        return embeddings, elements, 6 * (elements - block * channels) + 12 * layers * channels * block

    rate = model(12, 768)[2] * 64 * block / (expected[next(k for k in expected if isinstance(expected[k], dict))]["step"] * 1e-3)
    print(f"by calculation, at {rate * 1e-12:.0f} TFLOP/s a card; no GPU was used:")
    print(f"{'':8}{'':26}{'micro':>6}{'step ms':>9}{'reduce':>8}{'gather':>8}{'shown':>7}{'tok/s':>11}{'of ideal':>9}"
          f"{'fixed ms':>10}{'cost':>8}{'bf16 ms':>10}{'fixed':>9}")
    for name, (layers, channels, rows) in MODELS.items():
        embeddings, elements, flops = model(layers, channels)
        for machine, (machines, cards, bytes_s) in MACHINES.items():
            for micros in (1, 8):
                world, one = machines * cards, rows * block * flops / rate
                ring = (world - 1) / world / bytes_s
                direct = cards * cards / world / bytes_s if machines > 1 else ring

                def reduce(byte_s, number):  # the time in all, and beyond the backward pass
                    whole, last = (byte_s * number * n for n in (elements, embeddings))
                    whole += (layers + 2) * call_s
                    return whole, last + max(0, whole - last - one * 2 / 3)

                reduce_s, reduce_shown = reduce(ring, 4)
                gather_s = ring * 2 * elements + 2 * (layers + 2) * call_s
                layer_s = ring * 2 * 12 * channels**2 + 2 * call_s
                wait_s = ring * 2 * embeddings + 4 * call_s + layer_s + (layers - 1) * max(0, layer_s - one / 3 / layers)
                shown = reduce_shown + wait_s
                saved = 30 * elements * (1 - 1 / world) / 3.8e12  # of the update
                step = micros * one - saved + shown
                tokens = world * micros * rows * block / step
                each, half = reduce(direct, 4)[1] + 4 * elements / 3.8e12, reduce(direct, 2)[1] + 8 * elements / 3.8e12
                fixed, fixed_half = (micros * (one + more) + wait_s - saved for more in (each, half))
                print(f"{name:8}{machine:26}{micros:6}{step * 1e3:9.1f}{reduce_s * 1e3:8.1f}{gather_s * 1e3:8.1f}"
                      f"{shown * 1e3:7.1f}{tokens:11.0f}{tokens / (world * rows * block / one) * 100:8.0f}%"
                      f"{fixed * 1e3:10.1f}{(fixed / step - 1) * 100:+7.1f}%"
                      f"{(micros * one - saved + half + wait_s) * 1e3:10.1f}{fixed_half * 1e3:9.1f}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = f"{folder}/text.txt"
        with open(text, "w") as file:
            file.writelines(f"line {i} about mills, rivers and the stream that drives wheel {i * 7919 % 1000}\n"
                            for i in range(60000))
        subprocess.run([f"{programs}/shardtool", "tokenize", "--quiet", "-o", f"{folder}/data", text], check=True)
        fixed, fast = {"reduce_order": "fixed"}, {"reduce_order": "fast"}
        forms = {"1 process x 2 threads": (1, {"threads": 2, **fixed}),
                 "2 processes x 1 thread": (2, {"threads": 1, **fixed}),
                 "2 processes, zero_stage=0": (2, {"threads": 1, "zero_stage": 0, **fixed}),
                 "1 process, fast": (1, {"threads": 2, **fast}), "2 processes, fast": (2, {"threads": 1, **fast})}
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
        for name, other in ((one, "1 process, fast"), (two, "2 processes, fast")):
            cpu = [sum(rank["cpu_s"] for rank in found[form][1]) for form in (name, other)]
            print(f"the fixed order, {name}: {100 * (least[name] / least[other] - 1):+.1f} % time (best steps), "
                  f"{100 * (statistics.median(ms[name]) / statistics.median(ms[other]) - 1):+.1f} % (medians), "
                  f"{100 * (cpu[0] / cpu[1] - 1):+.1f} % CPU time of the last run")


if sys.argv[1] != "--predict":
    main()
predict()
