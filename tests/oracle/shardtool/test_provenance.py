"""Where a document came from stays with it through every command, in any order, whatever is killed. The expected places are those of a join
in Python: of the texts that `decode --json` prints with the lines and rows of the inputs, as json and pyarrow read them."""
import gzip
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pyarrow
import pyarrow.parquet

import runner

BIN = pathlib.Path(os.environ["BIN"]).resolve()
SIZES = ["--shard-tokens", "4k"]


def tool(*arguments, code=0):
    done = subprocess.run([BIN / "shardtool", *map(str, arguments)], capture_output=True)
    assert done.returncode == code, (arguments, done.returncode, done.stderr.decode())
    return done.stdout


def killed(draw, *arguments):
    """Runs a command to its end, after a kill at a random moment of some runs."""
    for _ in range(draw.randrange(3)):
        process = subprocess.Popen([BIN / "shardtool", *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    tool(*arguments)


def text_of(number, draw):
    words = " ".join(draw.choice(["rye", "mill", "sack", "wheat", "stone", "wind", "sail", "grain"]) for _ in range(draw.randrange(1, 60)))
    return f"{words} number {number}."


class Inputs:
    """Files in folder `name`, and the text and the values of each document by its input and record."""

    def __init__(self, name, count, draw, copies=()):
        self.name, self.places = name, {}
        os.makedirs(f"{name}/deep")
        texts = [draw.choice(copies) if copies and draw.random() < 0.1 else text_of(f"{name}{i}", draw) for i in range(count)]
        texts[count // 2] = "long " + " ".join(str(n) for n in range(9000))  # over several shards
        part = count // 4
        self.lines(f"{name}/a.jsonl", texts[:part], draw, open)
        self.lines(f"{name}/deep/b.jsonl.gz", texts[part : 2 * part], draw, gzip.open)
        self.rows(f"{name}/c.parquet", texts[2 * part : 3 * part], draw)
        self.rows(f"{name}/deep/d.parquet", texts[3 * part :], draw)

    def value(self, path, record, draw):
        kept = {"url": f"https://{draw.randrange(9)}.example/{path}?{record}"}
        if draw.random() < 0.5:
            kept["meta.score"] = draw.choice([0.5, 12, 1 / 3, -7, 10, 2000000, 2**53, 1e22, 1e-7])
        return kept

    def lines(self, path, texts, draw, opener):
        record = 0
        with opener(path, "wt") as file:
            for text in texts:
                for line in "\n", '{"text":null,"url":"null"}\n', '{"url":"none","text":"left out","lang":"xx"}\n':
                    if draw.random() < 0.1:
                        file.write(line)
                        record += 1
                kept = self.value(path, record, draw)
                line = {"url": kept["url"], "text": text, "lang": "en"}
                if "meta.score" in kept:
                    line["meta"] = {"score": kept["meta.score"], "x": [1]}
                file.write(json.dumps(line) + "\n")
                self.places[path, record] = text, {key: str(value) for key, value in kept.items()}
                record += 1

    def rows(self, path, texts, draw):
        rows = []
        for text in texts:
            while draw.random() < 0.1:
                rows.append({"text": draw.choice([None, "left out"]), "url": "x", "lang": "xx", "meta": {"score": 1.0}})
            kept = self.value(path, len(rows), draw)
            score = kept.get("meta.score")
            rows.append({"text": text, "url": kept["url"], "lang": "en", "meta": {"score": score if score is None else float(score)}})
            if score is not None:  # of a column of doubles
                kept["meta.score"] = repr(float(score)).removesuffix(".0")
            self.places[path, len(rows) - 1] = text, kept
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=97)

    def tokenize(self, *more):
        return ["tokenize", "-q", "--val", 0.1, *SIZES, "--keep", "url", "--keep", "meta.score", "--where", "lang = 'en'", *more]


def documents(path):
    """Of each split, the document with its place, as `info --docs` and `decode` print them."""
    splits = []
    for split in "train", "val":
        listed = [json.loads(line) for line in tool("info", "--docs", "--json", "--split", split, path).splitlines()]
        decoded = [json.loads(line) for line in tool("decode", "-q", "--json", "--split", split, path).splitlines()]
        assert len(listed) == len(decoded)
        for row, document in zip(listed, decoded):
            text = document.pop("text")
            assert document == {key: row[key] for key in ("input", "record", "keys") if key in row}
            row["text"] = text
        splits.append(listed)
    return splits


def check(path, places):
    """Every document has the place that has its text, no place is there twice, and all that `places` has are there, but for copies."""
    found = {}
    for row in sum(documents(path), []):
        place = row["input"], row["record"]
        assert place in places, place
        assert place not in found, f"{place} twice"
        text, kept = places[place]
        assert (row["text"], row.get("keys", {})) == (text, kept), place
        found[place] = text
    tool("verify", "-q", path)
    return found


def chain(seed, count):
    """A chain of commands in random order. Returns how many documents were joined."""
    draw = random.Random(seed)
    first = Inputs("in", count, draw)
    copies = [text for text, _ in first.places.values()]
    more = Inputs("more", count // 4, draw, copies)
    killed(draw, *first.tokenize("-j", draw.randrange(1, 4), "-o", "d0", "in"))
    assert len(check("d0", first.places)) == len(first.places)
    tool(*first.tokenize("-j", 1, "-o", "again", "in"))
    assert not subprocess.run(["diff", "-r", "-x", ".lock", "d0", "again"]).returncode, "differs after kills or by -j"
    places, path = first.places | more.places, "d0"
    joined = 0
    have = set(first.places)
    steps = ["filter", "shuffle", "split", "dedup", "similar", "decontaminate", "part", "merge"]
    draw.shuffle(steps)
    steps.insert(0, "append")
    for number, step in enumerate(steps):
        out = f"d{number + 1}"
        if step == "append":
            killed(draw, *first.tokenize("--append", "-o", path, "more"))
            out, have = path, have | set(more.places)
        elif step == "filter":
            killed(draw, "filter", "-q", "--min-tokens", 20, *SIZES, "-o", out, path)
        elif step == "shuffle":
            killed(draw, "shuffle", "-q", "--seed", draw.randrange(99), *SIZES, "-o", out, path)
        elif step == "split":
            killed(draw, "split", "-q", "--parts", 3, *SIZES, "-o", f"{out}s", path)
            tool("merge", "-q", "-o", out, *sorted(map(str, pathlib.Path(f"{out}s").glob("part-*"))))
        elif step == "dedup":
            killed(draw, "dedup", "-q", *SIZES, "-o", out, path)
        elif step == "similar":
            killed(draw, "dedup", "-q", "--similar", 0.8, "-j", 2, *SIZES, "-o", out, path)
        elif step == "decontaminate":
            pathlib.Path("items.txt").write_text("".join(draw.choice(copies) + "\n" for _ in range(9)))
            killed(draw, "decontaminate", "-q", "--against", "items.txt", "--docs", "lines", *SIZES, "-o", out, path)
        elif step == "part":
            third = Inputs(f"third{number}", max(16, count // 10), draw)
            for part in 1, 2:
                killed(draw, *third.tokenize("--part", f"{part}/2", "-o", f"{out}p", third.name))
            tool("merge", "-q", "-o", f"{out}m", f"{out}p/part-1-of-2", f"{out}p/part-2-of-2")
            tool("merge", "-q", "-o", out, path, f"{out}m")
            places, have = places | third.places, have | set(third.places)
        elif step == "merge":
            halves = ["train", "val"]
            for split in halves:
                tool("filter", "-q", "--min-tokens", 1, "--split", split, *SIZES, "-o", f"{out}{split}", path)
            tool("merge", "-q", "-o", out, *(f"{out}{split}" for split in halves))
        found = check(out, places)
        joined += len(found)
        expected = {place: places[place][0] for place in have}
        if step in ("append", "shuffle", "split", "part", "merge"):
            assert found == expected, step
        else:
            assert set(found) <= set(expected), step
        if step in ("dedup", "similar"):
            assert len(set(found.values())) == len(found)
        if step == "dedup":
            assert set(found.values()) == set(expected.values())
        have, path = set(found), out
    return joined


@runner.each(range(6), quick=[0, 1])
def test_every_document_keeps_its_place_through_commands_in_random_order_with_kills(seed):
    os.makedirs(f"chain{seed}")
    home = os.getcwd()
    os.chdir(f"chain{seed}")
    chain(seed, 400)
    os.chdir(home)


@runner.ci
def test_200000_documents_keep_their_places(folder):
    os.chdir(folder)
    SIZES[1] = "8M"
    assert chain(99, 200000) > 1000000
