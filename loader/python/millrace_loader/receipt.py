"""python -m millrace_loader.receipt FILE [RUN]: checks the receipt of a run (millrace replay --receipt FILE RUN) without computing a step:
its form and its root; of RUN the plan and the lines of metrics.jsonl, and weights, moments and state.json of each checkpoint that is there.
--segments and --seed print which segments `millrace replay --check` draws. It needs Python alone and shares no code with millrace.
Exit codes: 0 no contradiction was found, 65 refused, 66 a file or a line is missing."""
import argparse
import hashlib
import json
import os
import re
import stat
import sys
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Tuple

BYTES_MAX, SEGMENTS_MAX = 10000, 20
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\bfnrt])*"')
HEAD, PROCESS, END = ["receipt", "steps", "initial", "machine", "chain_rule", "vocabulary"], ["step", "version", "bits", "config"], ["end", "link", "weights", "state", "lines"]
RESULTS = {"loss", "val_loss", "spike", "dataset", "passed_from"}  # lines by their second key: what a replay gives again
PLANS = {"dataset", "passed_from", "arena_bytes", "rolled_back_from", "cooldown_begun"}  # and what holds for the next steps
TIMES = {"ms", "tok_s", "product_share", "wait", "sent"}  # members of a step that no replay gives again


def refuse(why: str) -> NoReturn:
    raise ValueError(why)


def require(holds: Any, why: str) -> None:
    if not holds:
        refuse(why)


def parse(line: bytes) -> Dict[str, Any]:
    once = lambda pairs: dict(pairs) if len(dict(pairs)) == len(pairs) else refuse("a key is there twice")
    found = json.loads(line.decode(), object_pairs_hook=once, parse_constant=refuse)
    return found if type(found) is dict else refuse("a line is no object")


def number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def digits(value: Any) -> bool:
    return type(value) is str and re.fullmatch("[0-9a-f]{64}", value) is not None


def read(path: str, most: int = -1) -> bytes:
    """The bytes of a regular file, or the first `most`. A FIFO does not wait for its other end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"'{path}' is no regular file")
        return file.read(most)


class Receipt:
    def __init__(self, path: str) -> None:
        lines = (text := read(path, BYTES_MAX + 1))[:-1].split(b"\n")
        require(len(text) <= BYTES_MAX and text.endswith(b"\n"), "not a receipt")
        self.root = hashlib.sha256(text[: -len(lines[-1]) - 1]).hexdigest()
        require(lines.pop() == b'{"root": "%s"}' % self.root.encode(), "its root is not that of its text")
        objects = [parse(line) for line in lines]
        for line in lines:
            rest = STRING.sub('""', line.decode())
            require(re.fullmatch(r"(?:[^\s,:]|[,:] (?=\S))*", rest) and "\\" not in rest, "a line is not printed as a receipt prints it")
        self.head = objects.pop(0)
        require(list(self.head) == HEAD and all(number(self.head[key]) for key in ("receipt", "steps", "chain_rule")), "its first line is another")
        require(self.head["receipt"] == 1, "a receipt of a newer program")
        require(digits(self.head["initial"]) or self.head["initial"] == "scratch", "its initial model is damaged")
        require(digits(self.head["vocabulary"]) and type(self.head["machine"]) is str, "its first line is damaged")
        self.ends = [line for line in objects if list(line) == END]
        steps = [end["end"] for end in self.ends]
        require(all(map(number, steps)) and steps == sorted({*steps} - {0}), "the ends are not in the order of their steps")
        require(0 < len(steps) <= SEGMENTS_MAX and steps[-1] == self.head["steps"], "the last end is not that of the last step")
        require(all(digits(end[key]) for end in self.ends for key in END[1:]), "a hash is damaged")
        self.plan = lines[1 : len(lines) - len(steps)]
        require(objects[len(self.plan) :] == self.ends, "the ends are not behind the plan")
        self.check_plan(objects[: len(self.plan)])

    def check_plan(self, plan: List[Dict[str, Any]]) -> None:
        config: Dict[str, str] = {}
        steps, kinds = [line.get("step") for line in plan], [[*line, "", ""][1] for line in plan]
        require(all(number(step) and step < self.head["steps"] for step in steps) and steps == sorted(steps), "the plan is not in the order of its steps")
        require({"dataset", "version"} <= {kind for step, kind in zip(steps, kinds) if step == 0}, "the plan lacks a process or a dataset of step 0")
        for line, kind in zip(plan, kinds):
            if list(line)[0] != "step" or kind not in PLANS - {"arena_bytes", "passed_from"} | {"version"}:
                refuse("a line of the plan is of another kind")
            require(kind != "dataset" or (type(line["dataset"]) is str and digits(line.get("fingerprint"))), "a dataset is damaged")
            if kind == "version":
                require(list(line) == PROCESS and type(line["version"]) is str and number(line["bits"]) and type(line["config"]) is dict, "a process is damaged")
                for key, value in line["config"].items():
                    require(type(value) is str or (value is None and key in config), f"{key} has a value that no key has")
                    require(config.get(key) != value, f"{key} has had its value before")
                config = {key: value for key, value in {**config, **line["config"]}.items() if value is not None}

    def draw(self, count: int, seed: int) -> List[int]:
        return sorted(sorted(range(1, len(self.ends) + 1), key=lambda i: hashlib.sha256(f"draw {self.root} {seed} {i}".encode()).digest())[:count])


def compared(line: bytes, kind: str) -> bytes:
    """A line without the times, as it is printed."""
    text, decoder = line.decode(), json.JSONDecoder()
    out = text[: (at := text.index(", "))]
    while text[at:] != "}":
        key, begin = decoder.raw_decode(text, at + 2)
        _, end = decoder.raw_decode(text, begin + 2)
        out += "" if kind == "loss" and key in TIMES else text[at:end]
        at = end
    return (out + "}\n").encode()


def read_record(run: str) -> List[Tuple[bytes, Dict[str, Any], str]]:
    """Of each line its bytes, its members and its second key."""
    text = read(os.path.join(run, "metrics.jsonl"))
    require(text.endswith(b"\n"), "the last line of metrics.jsonl is cut short")
    lines = [(line, parse(line)) for line in text[:-1].split(b"\n")]
    require(all(list(line)[:1] == ["step"] and len(line) > 1 and number(line["step"]) for _, line in lines), "a line of metrics.jsonl is damaged")
    record = [(text, line, list(line)[1]) for text, line in lines]
    order = [2 * line["step"] - (kind == "loss") for _, line, kind in record if kind in RESULTS | PLANS]
    require(order == sorted(order) and len({place for place in order if place % 2}) == sum(place % 2 for place in order), "the lines of metrics.jsonl are not in the order of their steps")
    return record


def plan_of(record: List[Tuple[bytes, Dict[str, Any], str]], steps: int) -> Iterator[bytes]:
    before: Dict[str, str] = {}
    for text, line, kind in record:
        if line["step"] >= steps or kind not in PLANS or kind == "passed_from":
            continue
        if kind == "arena_bytes":
            changed = {key: value for key, value in line["config"].items() if before.get(key) != value}
            changed.update((key, None) for key in before if key not in line["config"])
            before = line["config"]
            text = json.dumps({"step": line["step"], "version": line["version"], "bits": line.get("bits", 1), "config": changed}, ensure_ascii=False).encode()
        yield text


def lines_hash(record: List[Tuple[bytes, Dict[str, Any], str]], begin: int, last: int) -> Optional[str]:
    """Of a segment; None if its lines are not all there."""
    sha, step, begun = hashlib.sha256(), begin, begin == 0
    for text, line, kind in record:
        if line["step"] > last or (line["step"] == last and kind in PLANS):
            break
        begun = begun or line["step"] > begin or (line["step"] == begin and kind in PLANS)
        if begun and kind in RESULTS:
            if kind == "loss" and line["step"] > step + 1:
                break
            step = line["step"] if kind == "loss" else step
            sha.update(compared(text, kind))
    return sha.hexdigest() if step == last else None


def check_run(receipt: Receipt, run: str) -> Iterator[str]:
    """Compares what RUN has; yields what it has compared."""
    record, begin = read_record(run), 0
    plan = [*plan_of(record, receipt.head["steps"])]
    if len(plan) < len(receipt.plan):
        raise OSError("metrics.jsonl lacks a line of the receipt")
    require(plan == receipt.plan, "the plan in metrics.jsonl is not that of the receipt")
    for number, end in enumerate(receipt.ends, 1):
        lines, folder = lines_hash(record, begin, end["end"]), os.path.join(run, f"ckpt-{end['end']:08d}")
        require(lines in (None, end["lines"]), f"a line of segment {number} in metrics.jsonl is not that of the receipt")
        begin = end["end"]
        if not os.path.isdir(folder):
            continue
        weights, rest, text = (read(os.path.join(folder, name)) for name in ("model.safetensors", "optimizer.safetensors", "state.json"))
        require([hashlib.sha256(weights).hexdigest(), hashlib.sha256(rest + text).hexdigest()] == [end["weights"], end["state"]], f"the checkpoint of step {begin} is not that of the receipt")
        state = parse(text)
        require(state.get("chain") == end["link"] and state.get("step") == begin, f"the link of the checkpoint of step {begin} is not that of the receipt")
        head = {"chain_rule": state.get("chain_rule", 1), "vocabulary": state.get("vocabulary"), "machine": state.get("choices", "").split("\n")[0]}
        require({**receipt.head, **head} == receipt.head and ("init_from" in state) == (receipt.head["initial"] != "scratch"), f"the first line is not that of the checkpoint of step {begin}")
        yield f"the checkpoint of step {begin} is that of the receipt{', and so are the lines of its segment' if lines else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m millrace_loader.receipt", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("run", nargs="?", metavar="RUN")
    digits18 = lambda text: int(text) if re.fullmatch("[0-9]{1,18}", text, re.A) else parser.error("--segments and --seed have at most 18 digits")
    parser.add_argument("--segments", type=digits18, default=0, metavar="K", help="print K segments that the seed draws, and the chance to miss a forged one")
    parser.add_argument("--seed", type=digits18, metavar="S", help="chosen after the receipt was published")
    options = parser.parse_args()
    try:
        receipt = Receipt(options.file)
        for done in check_run(receipt, options.run) if options.run else ():
            print(done)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as why:
        print(f"{options.file}: refused: {why}", file=sys.stderr)
        return 65
    except OSError as why:
        print(why, file=sys.stderr)
        return 66
    count, segments = options.segments, len(receipt.ends)
    if bool(count) != (options.seed is not None) or count > segments:
        parser.error(f"--segments=K, of {segments}, and --seed=S go together: choose the seed after the receipt was published")
    if count:
        print("segments", *receipt.draw(count, options.seed), f"\nchance to miss one that is forged: {1 - count / segments:.4g}")
    print(f"{receipt.head['steps']} steps in {segments} segments, root {receipt.root}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
