"""Averaged weights (ema) against the recurrence in double precision, between the checkpoints of consecutive steps."""
import json
import os
import shutil

import numpy as np

import gpt2_model
import runner

BIN, DECAY, STEPS = os.environ["BIN"], 0.7, 24  # from step 22 on the decay rate is the configured one
TINY = ["--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--gradient_accumulation_steps=2", "--warmup_iters=1",
        "--learning_rate=1e-2", f"--max_iters={STEPS}", "--sample_tokens=0", "--threads=1", "--device=cpu", "--dtype=float32", "--dataset=data"]
AVERAGED = [f"--ema={DECAY}", "--eval_interval=1", "--eval_iters=1"]


def setup():
    with open("text.txt", "w") as file:
        file.writelines(f"line {i} of a text about mills and rivers\n" for i in range(2000))
    with open("chars", "wb") as file:
        file.write(runner.call(f"{BIN}/shardtool", "train-vocabulary", "--characters", "text.txt").stdout)
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0.2", "--vocabulary", "chars", "-o", "data", "text.txt")


def train(run, *options, program=f"{BIN}/trainer"):
    return runner.call(program, "train", f"--out_dir={run}", *TINY, *options)


def turned(weights):
    """In the layout of the averages."""
    return {name: values.T if ".c_" in name and values.ndim == 2 else values for name, values in weights.items()}


def averages_of(checkpoint):
    return {name[4:]: values for name, values in gpt2_model.read(checkpoint).items() if name.startswith("ema.")}


def lines(run, member):
    with open(f"{run}/metrics.jsonl") as file:
        return [line for line in map(json.loads, file) if member in line]


def check_recurrence(run, *options, steps=STEPS, **program):
    """Each run is made in parts, as a run keeps few checkpoints."""
    before, decays = None, []
    for step in range(1, steps + 1):
        train(run, *AVERAGED, *options, f"--max_iters={step}", "--quiet", **program)
        checkpoint = f"{run}/ckpt-{step:08}"
        weights, averages = turned(gpt2_model.read(checkpoint)), averages_of(checkpoint)
        decays.append(decay := min(DECAY, (step - 1) / (step + 8)))
        assert "wte.weight" in averages and len(averages) == 9, list(averages)
        for name, values in averages.items():
            old = before[name] if before else np.zeros_like(values)
            error = abs(values - (decay * old + (1 - decay) * weights[name]))
            assert (error <= 1e-6 * np.maximum(abs(old), abs(weights[name]))).all(), (step, name, error.max())
        before = averages
    return decays


def test_an_average_follows_the_recurrence():
    decays = check_recurrence("run")
    assert decays[0] == 0 and 0 < decays[1] < decays[2] < decays[-1] == DECAY


@runner.ci
def test_the_average_of_muon_and_of_offloaded_state_follows_the_recurrence():
    check_recurrence("muon", "--optimizer=muon")
    check_recurrence("offloaded", "--offload=optimizer", "--optimizer_state=bf16")


@runner.ci
def test_the_average_on_a_gpu_follows_the_recurrence_and_changes_no_bit():
    """Of master parameters, in the emulator."""
    if not os.path.exists(f"{BIN}/../emulated/trainer"):
        raise runner.Skip("built without nvcc")
    os.mkdir("programs")
    for name in "../emulated/trainer", "loader":
        shutil.copy(f"{BIN}/{name}", "programs")
    for name, *options in ("arena",), ("host", "--offload=optimizer"):
        options += ["--device=cuda", "--dtype=bfloat16"]
        check_recurrence(name, *options, steps=3, program="programs/trainer")
        train(f"{name}-plain", *options, "--eval_interval=0", "--max_iters=3", program="programs/trainer")
        plain, averaged = (gpt2_model.read(f"{run}/ckpt-00000003") for run in (f"{name}-plain", name))
        assert all((averaged[tensor] == values).all() for tensor, values in plain.items())


def test_training_has_the_same_bits_without_an_average_and_evaluations_give_the_losses_of_the_average():
    done = train("averaged", *AVERAGED)
    train("plain", "--eval_interval=1", "--eval_iters=1")
    values = [[(line["step"], line["loss"], line["norm"]) for line in lines(run, "loss")] for run in ("averaged", "plain")]
    assert values[0] == values[1] and len(values[0]) == STEPS
    files = [gpt2_model.read(f"{run}/ckpt-{STEPS:08}") for run in ("averaged", "plain")]
    assert all((files[0][name] == values).all() for name, values in files[1].items())
    assert not averages_of(f"plain/ckpt-{STEPS:08}")
    with open(f"plain/ckpt-{STEPS:08}/state.json") as file:
        assert "ema" not in json.load(file)["config"]
    first, *evaluations = lines("averaged", "val_loss")
    assert "ema_val_loss" not in first and all("ema_val_loss" in line and "ema_train_loss" in line for line in evaluations)
    last = evaluations[-1]
    assert f"| ema: train loss {last['ema_train_loss']:.4f}, val loss {last['ema_val_loss']:.4f}" in done.stdout.decode()

    def losses(*options):
        out = runner.call(f"{BIN}/trainer", "eval", "--json", "--dataset=data", "--device=cpu", "--dtype=float32", "--threads=1", *options).stdout
        return [json.loads(line)["loss"] for line in out.splitlines()]

    want = [float(f"{last[name]:.9g}") for name in ("ema_train_loss", "ema_val_loss")]
    assert losses("--out_dir=averaged", "--ckpt=newest:ema") == losses("--out_dir=averaged", f"--ckpt={STEPS}:ema") == want
    assert losses("--out_dir=averaged") == [float(f"{last[name]:.9g}") for name in ("train_loss", "val_loss")] != want
    with open("items", "w", encoding="utf-8") as file:
        file.write('{"task": "a", "id": 1, "kind": "greedy", "texts": [["a", " b"]]}\n')
    head = ["eval", "--json", "--items=items", "--device=cpu", "--threads=1", "--out_dir=averaged"]
    of = [json.loads(runner.call(f"{BIN}/trainer", *head, *which).stdout.splitlines()[0]).get("ema") for which in ([], ["--ckpt=:ema"])]
    assert of == [None, True]
    runner.call(f"{BIN}/trainer", "export", "--out_dir=averaged", "--ckpt=:ema", "-o", "exported")
    assert not os.path.exists("exported/average")
    exported, averages = turned(gpt2_model.read("exported")), averages_of(f"averaged/ckpt-{STEPS:08}")
    for name, values in exported.items():
        assert (values == averages.get(name, 0)).all(), name  # biases that the model lacks are 0
    assert averages.keys() <= exported.keys()
    done = runner.call(f"{BIN}/trainer", "export", "--out_dir=averaged", "--ckpt=:ema", "--card", "-o", "card", code=2)
    assert b"--card describes the weights of the run, not their average" in done.stderr and not os.path.exists("card")
    train("start", *AVERAGED, "--max_iters=0")
    for run in "plain", "start":
        done = runner.call(f"{BIN}/trainer", "eval", f"--out_dir={run}", "--dataset=data", "--ckpt=newest:ema", code=2)
        assert b"there are no averaged weights: the run has no --ema, or no update yet" in done.stderr
    sample = ["sample", "--num_samples=1", "--max_new_tokens=20", "--device=cpu", "--dtype=float32", "--threads=1"]
    texts = [runner.call(f"{BIN}/trainer", *sample, *options).stdout for options in
             (["--out_dir=averaged", "--ckpt=newest:ema"], ["--init_from=./exported"])]
    assert texts[0] == texts[1]


def test_an_average_stays_when_a_step_is_not_applied():
    train("spikes", *AVERAGED, "--spike_action=skip:1", "--eval_interval=0", "--learning_rate=1e-3", "--max_iters=80")
    for step in range(81, 100):
        train("spikes", *AVERAGED, "--spike_action=skip:1", "--eval_interval=0", "--learning_rate=1e-3", f"--max_iters={step}", "--quiet")
        if any(line["step"] == step and not line["applied"] for line in lines("spikes", "spike")):
            before, after = (gpt2_model.read(f"spikes/ckpt-{number:08}") for number in (step - 1, step))
            assert all((before[name] == values).all() for name, values in after.items())
            return
    raise AssertionError("no step was a spike")
