"""With reduce_order=fixed, float32 on a CPU has the same bits for any instruction set, number of threads and of processes, compiler and level
of optimization: weights, moments, losses, evaluations, grades and samples of runs. `make check-bits` builds the trainer six times, $TRAINERS,
and the step alone once more, statically with musl: $STEPS."""
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np

import chain
import combinations
import runner
import scalar_step
import test_loader_sampling as sampling

TRAINERS = os.environ.get("TRAINERS", os.environ["BIN"] + "/trainer").split()
ISAS = "avx512", "avx2", "portable"
FIXED = {"dtype": "float32", "reduce_order": "fixed", "gradient_accumulation_steps": 5, "max_iters": 4, "eval_interval": 2, "checkpoint_interval": 2,
         "sample_tokens": 12}  # fmt: skip
LLAMA = {"mlp": "swiglu", "norm": "rmsnorm", "position": "rope", "bias": "False", "tie_embeddings": "False", "n_head": 4, "n_kv_head": 2}
# By the model options, both optimizers, widths that no vector divides, rows of one token, sums of more than 2,048 products, large weights and
# subnormal gradients.
SHAPES = {
    "gpt2": ({"mlp": "gelu:tanh", "dropout": 0.1, "n_layer": 2}, "A"),
    "llama": ({**LLAMA, "qk_norm": "True", "document_mask": "True", "recompute": "block"}, "A"),
    "odd": ({"n_embd": 26, "block_size": 13, "mlp": "relu2", "logit_softcap": 5, "z_loss": 0.01, "batch_size": 3, "loss_chunk_rows": 5}, "B"),
    "token": ({"block_size": 1, "batch_size": 1, "mlp": "gelu", "n_embd": 36}, "A"),
    "muon": ({**LLAMA, "optimizer": "muon", "ema": 0.9, "n_embd": 40, "n_layer": 2, "items": "../items.jsonl", "items_interval": 2}, "A"),
    "wide": ({"n_embd": 516, "block_size": 8, "batch_size": 1, "max_iters": 2, "gradient_accumulation_steps": 4, "eval_tokens": 24}, "A"),
    "answers": ({"loss_tokens": "answers", "reduce_dtype": "bfloat16", "optimizer_state": "bf16", "recheck_interval": 1, "lr_schedule": "wsd"}, "C"),
    "extreme": ({"learning_rate": 30, "weight_decay": 0.5, "grad_clip": 1e-19, "beta2": 0, "spike_action": "skip:2", "max_iters": 8}, "B"),
}  # fmt: skip

# Steps of the scalar reference, by all options that docs/bits.md describes.
STEPS = {"warmup_iters": 1, "lr_decay_iters": 5, "max_iters": 3, "eval_interval": 3, "checkpoint_interval": 1, "n_embd": 40, "n_head": 4, "block_size": 13,
         "batch_size": 3, "grad_clip": 0.7, "gradient_accumulation_steps": 3, "eval_tokens": 60, "sample_tokens": 0}  # fmt: skip
SCALAR = {
    "gpt2": {"mlp": "gelu:tanh", "bias": "True", "n_layer": 2, "gradient_accumulation_steps": 1, "batch_size": 2, "block_size": 40},
    "nanogpt": {"mlp": "gelu", "n_embd": 26, "n_head": 2, "n_layer": 2, "dropout": 0.285, "lr_decay_iters": 4, "lr_schedule": "wsd:3"},
    "llama": {**LLAMA, "position": "rope:500", "n_embd": 88, "block_size": 8, "gradient_accumulation_steps": 1, "seed": 2**33 + 9},  # gate and up are the widest product
    "options": {"document_mask": "True", "lr_schedule": "linear", "mlp": "relu2", "n_embd": 36, "n_kv_head": 2, "qk_norm": "True", "bias": "True", "logit_softcap": 0.9, "z_loss": 0.1},
    "muon": {**LLAMA, "optimizer": "muon", "muon_learning_rate": 0.02, "ema": 0.109},  # the decay rate of the third update
    "answers": {"loss_tokens": "answers", "sampling": "documents", "document_mask": "True", "z_loss": 0.1},
    "vocabulary": {"n_embd": 8, "n_head": 1, "gradient_accumulation_steps": 1, "lr_schedule": "constant"},  # of more than 2,048 ids
}


def compare(tools, case, isa, threads, ranks, build):
    """A run with these factors against the run of this instruction set's own."""
    name = f"{isa}-{threads}-{ranks}-{build}"
    case.tool = tools[build]
    with_isa, own = {**case.tool.environment, "MILLRACE_ISA": isa}, case.tool.environment
    case.tool.environment = with_isa
    done = case.train(name, ranks=ranks if ranks > 1 else 0, threads=threads)
    case.tool.environment, case.tool = own, tools[0]
    combinations.ends_as(done, 0, name)
    combinations.check("bits: any processor, any number of processes" in done.stderr, name, done.stderr)
    combinations.check("computes with" not in done.stderr, name, done.stderr)
    combinations.check_equal(case, name)


def open_shape(tool, name):
    keys, data = SHAPES[name]
    case = combinations.Case(tool, name, {**FIXED, **keys}, data)
    combinations.ends_as(case.one, 0, name)
    combinations.check(case.checkpoints() and len(case.steps()) == case.keys["max_iters"], name, "has", case.lines())
    return case


def tensors_of(folder):
    """Those of a checkpoint, in the layout of model.safetensors."""
    tensors = {}
    for name, values in {**chain.read_tensors(folder / "model.safetensors"), **chain.read_tensors(folder / "optimizer.safetensors")}.items():
        turned = ".h." in name and values.ndim == 2 and not name.startswith("transformer.")
        tensors[name.replace("transformer.", "")] = values.T if turned else values
    return tensors


def open_builds(place):
    """The tools of each of $TRAINERS."""
    tools, place = [], pathlib.Path(place).resolve()
    for build, trainer in enumerate(TRAINERS):
        (place / str(build)).mkdir()
        tools.append(combinations.Tool(os.environ["BIN"], place / str(build)))
        shutil.copy(trainer, tools[-1].bin / "trainer")
    return tools


def has_mpi(tool):
    if not tool.has_ranks:
        raise runner.Skip("all but several processes was run: built without MPI, or mpirun is not installed")


def test_other_instructions_threads_and_processes_give_the_same_bits(place):
    tool = combinations.Tool(os.environ["BIN"], place)
    for name, factors in ("odd", ("portable", 3, 1, 0)), ("muon", ("avx2", 2, 2 if tool.has_ranks else 1, 0)):
        compare([tool], open_shape(tool, name), *factors)
    has_mpi(tool)


def check_tensors(name, step, wanted, found):
    for tensor, values in found.items():
        differing = np.argwhere(wanted[tensor].view("u4") != values.view("u4"))
        combinations.check(not len(differing), name, "step", step, tensor, "differs in", len(differing), "places, first", *differing[:1])


def test_three_steps_have_the_bits_of_a_scalar_reference(place):
    """Initial weights; losses, norms, weights, averages and moments; the loss of an evaluation, and texts."""
    tool = combinations.Tool(os.environ["BIN"], place)
    many = "\n" + "".join(map(chr, range(0x4E00, 0x5700)))
    (tool.place / "many").write_text(many)
    (tool.place / "many.txt").write_text("\n\n".join(many[i : i + 60] for i in range(1, len(many), 60)))
    tool.call("shardtool", "tokenize", "-q", "--docs", "paragraphs", "--val", "0.1", "--vocabulary", "many", "-o", "M", "many.txt")
    for name, keys in SCALAR.items():
        data, alphabet = {"answers": ("C", ""), "llama": ("A", "abc"), "vocabulary": ("M", "many")}.get(name, ("A", ""))
        case = combinations.Case(tool, name, {**FIXED, **STEPS, **keys}, data)
        ids, end = (chain.train_ids(None, tool.place / data).astype(int), json.loads((tool.place / data / "dataset.jsonl").open().readline())["eot_id"])
        for step in 0, 1:
            combinations.ends_as(case.train(f"first-{step}", max_iters=step), 0, name)
        ends_of_steps = [tensors_of(case.folder / f"{run}/ckpt-{step:08}") for step, run in enumerate(("first-0", "first-1", "one", "one"))]
        keys = {**scalar_step.DEFAULTS, **case.settings, "end_of_text": end, "turns": range(end + 1, end + 5)}
        trained = {key.split(".", 2)[2] for key in ends_of_steps[1] if key.startswith(("adamw.m.", "muon.momentum."))}  # the files of GPT-2 also have biases
        weights = {name: np.array(values) for name, values in ends_of_steps[0].items() if name in trained}
        check_tensors(name, 0, weights, {tensor: scalar_step.initial(keys, tensor, values.shape) for tensor, values in weights.items()})
        row = lambda sample, mode=keys["sampling"], seed=keys["seed"]: sampling.row(mode, ids, seed, 0, keys["block_size"], sample, end)
        for line, wanted, found in zip(case.steps(), ends_of_steps[1:], scalar_step.train(keys, weights, row, 3)):
            loss, norm, found = found
            combinations.check((line["loss"], line["norm"]) == (loss, norm), name, line, "not", loss, norm)
            check_tensors(name, line["step"], wanted, found)
        rows = np.stack([row(sample, "permuted", 1337) for sample in range(-(-keys["eval_tokens"] // keys["block_size"]))])
        wanted = next(line["train_loss"] for line in case.lines() if line["step"] == 3 and "train_loss" in line)
        combinations.check(wanted == scalar_step.evaluate(keys, weights, rows), name, "the evaluation is", wanted)
        for top_k, top_p in ((9, 0.8), (0, 0.9), (0, 1)) if alphabet else ():
            done = case.call("sample", "run.conf", out_dir="one", num_samples=2, max_new_tokens=20, top_k=top_k, top_p=top_p)
            texts = [scalar_step.sample(keys, weights, [0], stream, 0.8, top_k, top_p, 20) for stream in range(2)]
            letters = (tool.place / alphabet).read_text()
            found = "".join("".join(letters[id] for id in text if id != end) + "\n---------------\n" for text in texts)
            combinations.check(done.stdout == found, name, top_k, top_p, done, "not", found)


def test_the_rates_of_a_cooldown_are_those_of_the_record_by_the_page(place):
    tool = combinations.Tool(os.environ["BIN"], place)
    case = combinations.Case(tool, "cooldown", {**FIXED, **STEPS, "max_iters": 40, "lr_decay_iters": 40, "warmup_iters": 9, "lr_schedule": "constant"}, "A")
    for run, begun in ("warm", 40), ("within", 6):
        combinations.ends_as(case.train(run, max_iters=begun), 0, run)
        combinations.ends_as(case.train(run, until="now", max_iters=60), 0, run)
        lines = case.lines(run)
        plans = [line for line in lines if "cooldown_begun" in line]
        combinations.check(plans and plans[0]["cooldown_begun"] == begun, run, "cools down as", plans)
        keys, rates = {**scalar_step.DEFAULTS, **case.settings}, [(line["step"], line["lr"]) for line in lines if "lr" in line]
        combinations.check(len(rates) == plans[-1]["step"] + plans[-1]["cooldown_steps"], run, "has", len(rates), "steps")
        for step, rate in rates:
            plan = next((plan for plan in reversed(plans) if plan["step"] <= step - 1), None)
            wanted = scalar_step.learning_rate(keys, step - 1, plan)
            combinations.check(abs(rate - wanted) <= 1e-8 * wanted, run, step, rate, "not", wanted)


def test_the_page_of_bits_has_the_constants_of_the_reference():
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/bits.md"
    page, reference = (sorted(set(re.findall(r"0x[0-9a-f.]+p[+-]?\d+", path.read_text()))) for path in (page, pathlib.Path(scalar_step.__file__)))
    assert page == reference and len(page) > 40, (page, reference)


@runner.ci
def test_each_pair_of_factors_gives_the_same_bits(place):
    """Each factor alone against the first of each, and each pair of two at least once, spread over the shapes."""
    tools = open_builds(place)
    counts = (len(ISAS), 4, 4 if tools[0].has_ranks else 1, len(TRAINERS))
    alone = [tuple(i if factor == at else 0 for at in range(4)) for factor in range(4) for i in range(1, counts[factor])]
    rows, wanted = [], {(a, i, b, j) for a, b in itertools.combinations(range(4), 2) for i in range(counts[a]) for j in range(counts[b])}
    while wanted:  # the row with most of the pairs that are left
        has = lambda row: {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(4), 2)}
        rows.append(max(itertools.product(*map(range, counts)), key=lambda row: len(has(row) & wanted)))
        wanted -= has(rows[-1])
    cases = [open_shape(tools[0], name) for name in SHAPES]
    for i, (isa, threads, ranks, build) in enumerate(alone + rows + rows[1:] + rows[:1]):
        compare(tools, cases[i % len(cases)], ISAS[isa], threads + 1, ranks + 1, build)
    digest = hashlib.sha256()
    for case in cases:
        for path in sorted((case.folder / "one" / case.checkpoints()[-1]).glob("*.safetensors")):
            digest.update(path.read_bytes())
    print("sha256 of weights and moments, the same on every processor:", digest.hexdigest())
    has_mpi(tools[0])


@runner.ci
def test_steps_of_each_build_and_of_another_c_library_have_the_same_bits(place):
    steps = os.environ.get("STEPS", "").split()
    if not steps:
        raise runner.Skip("make check-bits links the steps")
    call = lambda step, isa: subprocess.run([step], env={**os.environ, "MILLRACE_ISA": isa}, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {(step, isa): call(step, isa) for step in steps for isa in ISAS}
    assert len(set(found.values())) == 1 and found[steps[0], "avx2"].count("\n") == 3, found
    print(found[steps[0], "avx2"])
    if not any(step.endswith("/musl/step") for step in steps):
        raise runner.Skip("all but the step with musl was run: musl-gcc is not installed (Debian's musl-tools)")
