#!/usr/bin/env python3
"""make bench-items: the time of grades by items, of a random GPT-2 of 124M in float32 on one thread, in turns with the peers.

A program has read its model when it takes the first byte of the items: a file costs what the processor spends from there on, with the clock
in brackets. The peers are lm-evaluation-harness' own transformers model, in batches of as many tokens as ours, and `eval --choices` of earlier
versions. Losses and picks are compared with lm-eval's, too.
Usage: bench_items.py BIN SCRATCH OLD [pairs]; OLD: folder of a trainer that has --choices, or nothing
"""
import array
import fcntl
import json
import os
import statistics
import subprocess
import sys
import termios
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms  # noqa: F401
from timing import train_command

BIN, SCRATCH, OLD = (path and os.path.abspath(path) for path in sys.argv[1:4])
PAIRS = int(sys.argv[4] if len(sys.argv) > 4 else 5)
FLAGS = ["--init_from=./model", "--json", "--device=cpu", "--dtype=float32", "--batch_size=4", "--threads=1"]
WORDS = " mill wheel stone river grain flour bread house water wind".split()


def words(first, count):
    """As many tokens of GPT-2."""
    return "".join(f" {WORDS[(first + i * i + i // 7) % len(WORDS)]}" for i in range(count))


def item(number, shots, question, answer, answers):
    """Texts of shots + question + answer tokens, the last of which are scored."""
    return [[words(0, shots) + words(number, question), words(number + 3 * k + 1, answer)] for k in range(answers)]


FILES = {
    "100 texts of 20 tokens": [item(i, 0, 16, 4, 1) for i in range(100)],
    "2 texts of 1,000 tokens": [item(i, 0, 996, 4, 1) for i in range(2)],
    "6 questions, 4 texts of 20 tokens": [item(i, 0, 16, 4, 4) for i in range(6)],
    "10 shots: 1 question, 4 texts of 354 tokens": [item(0, 324, 26, 4, 4)],
    "the same 4 texts, as items of one": [[text] for text in item(0, 324, 26, 4, 4)],
    "the same 4 texts, as items of one, all scored": [[[context[:5], context[5:] + ending]] for context, ending in item(0, 324, 26, 4, 4)],
}
SHORT, LONG, ZERO_SHOT, TEN_SHOT, APART, ALL = FILES
FASTER = [(SHORT, LONG), (ALL, APART), (APART, TEN_SHOT)]


def prepare():
    for name, items in FILES.items():
        with open(name, "w", encoding="utf-8") as file, open(name + " of old", "w", encoding="utf-8") as old:
            for i, texts in enumerate(items):
                kind = "choice" if len(texts) > 1 else "greedy"
                file.write(json.dumps({"task": kind, "id": i, "kind": kind, "texts": texts, "span": "ending", "begin": False, "label": 0}) + "\n")
                old.write(json.dumps({"ctx": texts[0][0], "endings": [ending for _, ending in texts], "label": 0}) + "\n")
    if os.path.exists("model"):
        return
    with open("text", "w", encoding="utf-8") as file:
        file.writelines(f"the mill of words and {i} more\n" for i in range(300))
    subprocess.run([f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0.2", "--force", "-o", "data", "text"], check=True)
    keys = {"dataset": "data", "max_iters": 0, "warmup_iters": 0, "eval_interval": 0, "sample_tokens": 0, "batch_size": 1}
    subprocess.run(train_command(BIN, "run", keys), check=True)
    os.remove("run/ckpt-00000000/optimizer.safetensors")
    os.rename("run/ckpt-00000000", "model")


def graded(folder, option, name):
    """Clock and processor seconds of a grade, and what was printed."""
    with open(name, "rb") as file, open("output", "w+", encoding="utf-8") as output:
        items = file.read()
        process = subprocess.Popen([f"{folder}/trainer", "eval", "-q", f"{option}=-", *FLAGS], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL)
        os.write(process.stdin.fileno(), items[:1])
        unread = array.array("i", [1])
        while unread[0] and process.poll() is None:
            time.sleep(0.005)
            fcntl.ioctl(process.stdin, termios.FIONREAD, unread)
        with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stat:
            start = sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        began = time.perf_counter()
        process.stdin.write(items[1:])
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, (name, process.returncode)
        output.seek(0)
        return time.perf_counter() - began, usage.ru_utime + usage.ru_stime - start, output.read()


class Peer:
    """lm-eval's loglikelihood of the texts of a file."""

    def __init__(self):
        os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
        import torch
        import transformers
        from lm_eval.api.instance import Instance
        from lm_eval.models.huggingface import HFLM

        torch.set_num_threads(1)
        transformers.logging.disable_progress_bar()
        model = transformers.AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
        self.model = HFLM(model, tokenizer=transformers.AutoTokenizer.from_pretrained("model"), device="cpu", batch_size=4)
        self.instance = Instance
        self.run(ZERO_SHOT)

    def run(self, name):
        """Clock and processor seconds, and what came out."""
        texts = [tuple(text) for texts in FILES[name] for text in texts]
        self.model.batch_size_per_gpu = 4096 // max(len(self.model.tok_encode(context + ending)) for context, ending in texts)
        asked = [self.instance("loglikelihood", {}, text, i) for i, text in enumerate(texts)]
        began = time.perf_counter(), time.process_time()
        answers = self.model.loglikelihood(asked, disable_tqdm=True)
        return time.perf_counter() - began[0], time.process_time() - began[1], answers


def compare(name, output, answers):
    """The largest relative difference of a loss; every pick and greedy text is the same."""
    items, answers, largest = list(map(json.loads, output.splitlines()))[1:], iter(answers), 0
    for ours in items:
        theirs = [next(answers) for _ in ours["losses"]]
        largest = max([largest, *(abs(loss / -logprob - 1) for loss, (logprob, _) in zip(ours["losses"], theirs))])
        assert ours["pick"]["sum"] == max(range(len(theirs)), key=lambda k: theirs[k][0]), (name, ours, theirs)
        assert ours["greedy"] == [int(greedy) for _, greedy in theirs], (name, ours, theirs)
    assert largest < 1e-4, (name, largest)
    print(f"{name}: {len(items)} items, picks equal to lm-eval's, losses within {largest:.0e}", flush=True)


def main():
    os.makedirs(SCRATCH, exist_ok=True)
    os.chdir(SCRATCH)
    prepare()
    peer, spent, loads = Peer(), {}, []
    for pair in range(PAIRS):
        for name in FILES:
            runs = {"": graded(BIN, "--items", name)}
            if name in (ZERO_SHOT, TEN_SHOT):
                runs["lm-eval: "] = peer.run(name)
                if pair == 0:
                    compare(name, runs[""][2], runs["lm-eval: "][2])
            if OLD and name in (ZERO_SHOT, TEN_SHOT):
                runs["--choices: "] = graded(OLD, "--choices", name + " of old")
            for who, cost in runs.items():
                print(pair, who + name, *(f"{seconds:.2f}" for seconds in cost[:2]), flush=True)
                spent.setdefault(who + name, []).append(cost[:2])
        loads.append(os.getloadavg()[0])
    for name, times in spent.items():
        clock, processor = (sorted(column) for column in zip(*times))
        print(f"{name:<60} {statistics.median(processor):6.2f} s, {processor[0]:.2f} to {processor[-1]:.2f} ({statistics.median(clock):.2f})")
    for slow, fast in FASTER + [(name, name.split(": ", 1)[1]) for name in spent if name.startswith(("lm-eval: ", "--choices: "))]:
        clock, processor = (sorted(a[k] / b[k] for a, b in zip(spent[slow], spent[fast])) for k in (0, 1))
        print(f"{slow} / {fast}: {statistics.median(processor):.2f}, {processor[0]:.2f} to {processor[-1]:.2f} ({statistics.median(clock):.2f})")
    print(f"load {min(loads):.0f} to {max(loads):.0f}, {PAIRS} pairs")


main()
