"""With reduce_order=fixed, float32 on a CPU has the same bits for any instruction set, number of threads and of processes, compiler and level
of optimization: weights, moments, losses, evaluations, grades and samples of runs. `make check-bits` builds the trainer six times: $TRAINERS."""
import hashlib
import itertools
import os
import pathlib
import shutil

import runner
import combinations

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
    "wide": ({"n_embd": 516, "block_size": 8, "batch_size": 1, "max_iters": 2, "gradient_accumulation_steps": 4}, "A"),
    "answers": ({"loss_tokens": "answers", "reduce_dtype": "bfloat16", "optimizer_state": "bf16", "recheck_interval": 1, "lr_schedule": "wsd"}, "C"),
    "extreme": ({"learning_rate": 30, "weight_decay": 0.5, "grad_clip": 1e-19, "beta2": 0, "spike_action": "skip:2", "max_iters": 8}, "B"),
}  # fmt: skip


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


def has_mpi(tool):
    if not tool.has_ranks:
        raise runner.Skip("all but several processes was run: built without MPI, or mpirun is not installed")


def test_other_instructions_threads_and_processes_give_the_same_bits(place):
    tool = combinations.Tool(os.environ["BIN"], place)
    for name, factors in ("odd", ("portable", 3, 1, 0)), ("muon", ("avx2", 2, 2 if tool.has_ranks else 1, 0)):
        compare([tool], open_shape(tool, name), *factors)
    has_mpi(tool)


@runner.ci
def test_each_pair_of_factors_gives_the_same_bits(place):
    """Each factor alone against the first of each, and each pair of two at least once, spread over the shapes."""
    tools, place = [], pathlib.Path(place)
    for build, trainer in enumerate(TRAINERS):
        (place / str(build)).mkdir()
        tools.append(combinations.Tool(os.environ["BIN"], place / str(build)))
        shutil.copy(trainer, tools[-1].bin)
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
