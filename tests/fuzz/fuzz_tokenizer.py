"""Random texts through millrace's tokenizer, on every path, and through tiktoken: fuzz_tokenizer.py TIMER [SECONDS [SEED]].

TIMER is the program made of tests/bench/tokenizer/bench_tokenizer.c. A difference is cut down to a short document and printed as hex.
"""
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import gpt2

BATCH = 50000
FLAGS = {  # of /proc/cpuinfo, as common/machine/cpu.c asks for them
    "portable": "",
    "avx2": "avx2 bmi2 fma",
    "avx512": "avx2 bmi2 fma avx512f avx512bw avx512dq avx512vl avx512vbmi avx512_vbmi2",
}


def paths():
    """Those that this processor has."""
    with open("/proc/cpuinfo") as file:
        flags = next((set(line.split(":")[1].split()) for line in file if line.startswith("flags")), set())
    return [path for path, needed in FLAGS.items() if set(needed.split()) <= flags]


def code_points():
    """All of each class, from the table in the tree, and some of no class."""
    classes = {"L": [], "M": [], "N": [], "W": []}
    with open(os.path.join(os.path.dirname(gpt2.TABLE), "unicode_classes.tsv")) as file:
        for line in file:
            if not line.startswith("#"):
                first, last, name = line.split()
                classes[name[0]].append((int(first, 16), int(last, 16)))
    return classes


CLASSES = code_points()
SPACES = [chr(point) for first, last in CLASSES["W"] for point in range(first, last + 1)]
WORDS = (
    " the of don't it's we'll they've I'm you're he'd 's 'S 'll 've 'l 'v 'r 'x '' ' \n\t \r\n <|endoftext|> \ufeff \0 \u200b "
    "\u200d \u00a0 \u3000 \u2028 \u0085 \u180e \U0001f468\u200d\U0001f469\u200d\U0001f466 \U0001f1e9\U0001f1ea e\u0301 \u00e9 "
    "na\u00efve Stra\u00dfe \u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u4e2d\u6587 \u65e5\u672c\u8a9e\u306e "
    "\ud55c\uad6d\uc5b4 \u0939\u093f\u0928\u094d\u0926\u0940 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0e44\u0e17\u0e22 "
    "\u05e2\u05d1\u05e8 0x7fff 1234567 3.14 \u00b2\u00bd\u2167\u0663 def return_value(self): == != -> // /* */ ::: ... ----- "
    "internationalization antidisestablishmentarianism supercalifragilisticexpialidocious"
).split(" ") + [" ", "  ", "   ", "\n", "\n\n", "\t"]
BAD = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8", b"\xf0\x9f\x98", b"\x80", b"\xc3", b"\xf5", b"\xe0\x80\x80"]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seen = []

    def character(self):
        name = self.random.choice("LLLMNWO")
        if name == "O":
            while 0xD800 <= (point := self.random.choice((0x80, 0x800, 0x3000, 0x10000, 0x110000)) * self.random.random()) < 0xE000:
                pass
            return chr(int(point))
        first, last = self.random.choice(CLASSES[name])
        return chr(self.random.randint(first, last))

    def piece(self):
        kind = self.random.randrange(12)
        if kind < 5:
            return self.random.choice(WORDS)
        if kind == 5:
            return self.character() * self.random.choice((1, 1, 1, 2, 3, 20))
        if kind == 6:  # lengths about those of table entries and blocks
            letters = self.random.choice(("ab", "ABC", "0123456789", "-=", "!?.", "\u00e9\u00e8", "\u4e2d\u6587", "\u0939\u093f", "aA1"))
            size = self.random.choice((7, 8, 14, 15, 16, 17, 30, 31, 32, 33, 63, 64, 65, 126, 127, 128, 129, 143, 144, 271, 300))
            return "".join(self.random.choices(letters, k=size + self.random.randint(-1, 1)))
        if kind == 7:
            return "".join(self.random.choices(SPACES, k=self.random.choice((1, 2, 2, 3, 5, 60))))
        if kind == 8:
            return self.random.choice(" a'\n-1") * self.random.choice((1, 2, 3, 15, 61, 62, 63, 64, 65, 127))
        if kind == 9 and self.seen:  # what the word table knows already
            return self.random.choice(self.seen)
        if kind == 10:
            return "'" + "".join(self.random.choices("sdmtlverSx' ", k=self.random.randint(1, 6)))
        return "".join(chr(self.random.randrange(128)) for _ in range(self.random.randint(1, 30)))

    def document(self):
        pieces = [self.piece() for _ in range(self.random.choice((1, 1, 2, 2, 3, 5, 12)))]
        if len(self.seen) < 5000:
            self.seen += pieces
        else:
            self.seen[self.random.randrange(5000)] = pieces[0]
        glue = self.random.choice(("", "", " "))
        data = glue.join(pieces).encode("utf-8", "replace")
        if self.random.random() < 0.1:
            at = self.random.randint(0, len(data))
            data = data[:at] + self.random.choice(BAD) + data[at + self.random.choice((0, 0, 1)) :]
        return data

    def documents(self, count):
        made = [self.document() for _ in range(count)]
        for size in (300_000, 600_000):  # of several windows
            made.append(b"".join(self.random.choices(made, k=size // 50)))
        return made


def millrace(timer, path, documents, *vocabulary):
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "documents"), os.path.join(folder, "ids")
        with open(source, "wb") as file:
            for document in documents:
                file.write(struct.pack("<I", len(document)) + document)
        # two passes, as the second one finds its words in the table
        subprocess.run([timer, source, "1", "2", target, *vocabulary], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "MILLRACE_ISA": path})
        with open(target, "rb") as file:
            return file.read()


def packed(ids, count):
    """As files and the ids of `millrace` have them: `count` ids take 2 bytes each, or 4."""
    return struct.pack(f"<{len(ids)}{'H' if count <= 1 << 16 else 'I'}", *ids)


def reference(encoding, documents):
    lists = encoding.encode_ordinary_batch([document.decode("utf-8", "replace") for document in documents], num_threads=1)
    return b"".join(packed(ids, encoding.n_vocab) for ids in lists)


def reduced(differs, documents):
    """The first document that differs, with what must go before it, and that one shortened."""
    low, high = 0, len(documents)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(documents[:middle]) else (middle, high)
    documents = documents[high - 1 : high] if differs(documents[high - 1 : high]) else documents[:high]
    step = len(documents[-1]) // 2
    while step:
        at = 0
        while at < len(documents[-1]):
            shorter = documents[:-1] + [documents[-1][:at] + documents[-1][at + step :]]
            if differs(shorter):
                documents = shorter
            else:
                at += step
        step //= 2
    return documents


def fuzz(timer, seconds, seed=None, batch=BATCH):
    """Seeds begin where no other run has been, unless one is given: a run takes less than one a second. One batch at least."""
    seed = first = int(time.time()) if seed is None else seed
    encoding, end, count, size = gpt2.encoding(), time.monotonic() + seconds, 0, 0
    while not count or time.monotonic() < end:
        documents = Writer(seed).documents(batch)
        want = reference(encoding, documents)
        for path in paths():
            if millrace(timer, path, documents) != want:
                left = reduced(lambda some: millrace(timer, path, some) != reference(encoding, some), documents)
                print(f"seed {seed}, {path}: {len(left)} documents differ: {[document.hex() for document in left]}")
                return 1
        count += len(documents)
        size += sum(map(len, documents))
        seed += 1
    print(f"seeds {first} to {seed - 1}: {count} documents, {size / 1e6:.1f} MB, on {', '.join(paths())}: 0 differences")
    return 0


if __name__ == "__main__":
    sys.exit(fuzz(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60, int(sys.argv[3]) if len(sys.argv) > 3 else None))
