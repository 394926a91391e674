"""The pieces of every pattern against the regex module, on each instruction set, and ids against tiktoken."""
import array
import itertools
import os
import random
import re
import struct
import subprocess
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
import runner
import fuzz_tokenizer

PIECES = os.path.join(os.environ["BIN"], "..", "bench_pieces")
SECONDS = float(os.environ.get("SECONDS", 0))  # of random texts for each pattern, with a seed of its own; 0: some, always the same
# A slash that o200k's signs take only as long as the slash before is a sign: random texts rarely have it.
RARE = [("x" * shift + text).encode() for text in ("!\n/!\u0301\n/x", "/\n//\u0301\n/x") for shift in range(64)]


def patterns():
    """Name and regex of each row of patterns.def."""
    with open(os.path.join(ROOT, "tokenizer", "merge", "patterns.def")) as file:
        source = "".join(line for line in file if not line.startswith("//"))
    for name, strings in re.findall(r'PATTERN\((\w+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', source):
        yield name, "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings)).replace("\\\\", "\\")


# One character of each class beyond ASCII; the long s of contractions stands for itself.
ONE_OF = {"Lu": "\u00c0", "Ll": "\u00e0", "Lo": "\u4e2d", "M": "\u0301", "N": "\u0663", "W": "\u3000", None: "\u201c"}
LONG_S = 0x17F


class ClassOf(dict):
    """Maps a character beyond ASCII to the one of its class, because a regex of all ranges reads 4 KB a second."""

    def __init__(self):
        self.ranges = []
        with open(os.path.join(ROOT, "tokenizer", "unicode_classes.tsv")) as file:
            for line in file:
                if not line.startswith("#"):
                    first, last, name = line.split()
                    self.ranges.append((int(first, 16), int(last, 16), name))

    def name(self, point):
        return next((name for first, last, name in self.ranges if first <= point <= last), None)

    def __missing__(self, point):
        self[point] = chr(point) if point < 128 or point == LONG_S else ONE_OF[self.name(point)]
        return self[point]


class_of = ClassOf()


def classes():
    """The sets of the classes, whose characters beyond ASCII are those of ONE_OF."""
    sets = {name: one for name, one in ONE_OF.items() if name}
    for point in [*range(128), LONG_S]:
        if class_of.name(point):
            sets[class_of.name(point)] += f"\\U{point:08X}"
    upper, lower, other, mark = (sets[name] for name in ("Lu", "Ll", "Lo", "M"))
    return {
        r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}": upper + other + mark,
        r"\p{Ll}\p{Lm}\p{Lo}\p{M}": lower + other + mark,
        r"\p{L}": upper + lower + other,
        r"\p{N}": sets["N"],
        r"\s": sets["W"],
    }


def compiled(pattern):
    import regex

    ranges = classes()
    pattern = pattern.replace(r"[\s\S]", "(?s:.)").replace(r"\S", r"[^\s]")
    for name in ranges:  # a class by itself becomes a set
        pattern = re.sub(r"(\[[^]]*)?" + re.escape(name), lambda found: found[0] if found[1] else f"[{name}]", pattern)
    for name, text in ranges.items():
        pattern = pattern.replace(name, text)
    return regex.compile(pattern)


def cut(pattern, text):
    """The pieces of a text by a compiled pattern."""
    end = 0
    for found in pattern.finditer(text.translate(class_of)):
        assert found.start() == end
        yield text[end : found.end()]
        end = found.end()
    assert end == len(text)


def starts_of(pattern, document):
    """The starts of pieces in bytes."""
    sizes = [len(piece.encode()) for piece in cut(pattern, document.decode())]
    return [0, *itertools.accumulate(sizes)][: len(sizes)]


def millrace(path, name, documents):
    with open("documents", "wb") as file:
        for document in documents:
            file.write(struct.pack("<I", len(document)) + document)
    subprocess.run([PIECES, "documents", name, "starts"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "MILLRACE_ISA": path})
    numbers, at = array.array("I"), 0
    with open("starts", "rb") as file:
        numbers.frombytes(file.read())
    for _ in documents:
        yield list(numbers[at + 1 : at + 1 + numbers[at]])
        at += 1 + numbers[at]
    assert at == len(numbers)


def dense(made_of):
    """A text of the characters that the patterns tell apart."""
    kinds = ["a", "e", "s", "l", "A", "S", "\u00e9", "\u00c9", "\u017f", "\u4e2d", "\u01c5", "\u0301", "\u0300", "!", "/", "\u201c", "\U0001f600"]
    kinds += ["'", "'s", "'S", "'Ll", " ", " ", "\t", "\u00a0", "\u3000", "\n", "\r", "1", "2", "\u0663", "\U0001d7ce"]
    some = made_of.sample(kinds, made_of.randint(2, 8))
    text = "".join(made_of.choice(some) * made_of.choice((1, 1, 1, 1, 1, 2, 3, 30)) for _ in range(made_of.randint(1, 60)))
    return ("x" * made_of.randint(0, 64) + text).encode()


@runner.each([name for name, _ in patterns()])
def test_pieces_are_those_of_the_regex_of(name):
    pattern = compiled(dict(patterns())[name])
    seed, end = int(time.time()) if SECONDS else 1, time.monotonic() + SECONDS
    while True:
        made = fuzz_tokenizer.Writer(seed).documents(500)
        documents = [document.decode("utf-8", "replace").encode() for document in made]
        documents += [dense(made_of) for made_of in [random.Random(seed)] for _ in range(1000)]
        documents += RARE + [document * 40 for document in documents[:50]]  # every phase of a block
        wanted = [starts_of(pattern, document) for document in documents]
        for path in fuzz_tokenizer.paths():
            wrong = [row for row in zip(documents, wanted, millrace(path, name, documents)) if row[1] != row[2]]
            if wrong:
                raise AssertionError(f"seed {seed}, {path}: {len(wrong)} of {len(documents)}: {min(wrong, key=lambda row: len(row[0]))}")
        if time.monotonic() >= end:
            return
        seed += 1
