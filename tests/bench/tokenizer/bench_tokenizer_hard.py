"""Worst-case texts, compared with tiktoken: bench_tokenizer_hard.py TIMER [GB].

A line each: 1 MB of one character of each class, random bytes, pieces made to be hard to merge. MB/s of the first pass
on every path and of tiktoken, and how often the slowest path is as fast; ids compared. With GB, that many gigabytes of
one letter, digit, sign and blank as one word, which tiktoken is spared: the rate must be that of the megabyte.
"""
import json
import os
import random
import struct
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
FOLDER = "build/bench"
PATHS = ("avx512", "avx2", "portable")
MB = 1_000_000


def cases():
    rng = random.Random(5)
    fill = lambda unit: (unit * (MB // len(unit) + 1))[:MB].decode("utf-8", "ignore").encode()
    for name, unit in {
        "letter a": "a", "letter A": "A", "digit": "0", "sign": "^", "blank": " ", "newline": "\n", "tab": "\t", "apostrophe": "'",
        "NUL": "\0", "2-byte letter": "\u00e9", "2-byte space": "\u00a0", "3-byte letter": "\u4e2d", "3-byte space": "\u3000",
        "combining mark": "\u0301", "4-byte letter": "\U00010400", "emoji": "\U0001f600",
    }.items():  # fmt: skip
        yield name, fill(unit.encode())
    yield "random bytes", rng.randbytes(MB)
    yield "random ASCII", bytes(rng.randrange(128) for _ in range(MB))
    letters = lambda size: bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=size))
    yield "one word of random letters", letters(MB)
    yield "new words of 6 letters", b" ".join(letters(6) for _ in range(MB // 7))
    yield "new words of 40 letters", b" ".join(letters(40) for _ in range(MB // 41))
    yield "new words of 200 letters", b" ".join(letters(200) for _ in range(MB // 201))
    yield "new numbers of 20 digits", b" ".join(str(rng.randrange(10**19, 10**20)).encode() for _ in range(MB // 21))
    yield "new runs of signs", b" ".join(bytes(rng.choices(b"!#$%&()*+,-./:;<=>?@[]^_`{|}~", k=12)) for _ in range(MB // 13))
    yield "ab again and again", fill(b"ab")
    yield "runs of a of any length", b" ".join(b"a" * rng.randrange(1, 400) for _ in range(MB // 200))[:MB]
    yield "token beginnings", fill(b" undermanagementreestablishmentarian".replace(b" ", b""))
    yield "random Han", "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(MB // 3)).encode()
    yield "random emoji", "".join(chr(rng.randrange(0x1F300, 0x1F6FF)) for _ in range(MB // 4)).encode()


def ours(timer, path, document_path, ids):
    command = [timer, document_path, "1", "1"] + ([ids] if ids else [])
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "MILLRACE_ISA": path}).stdout
    return json.loads(output)["cold"]


def write_document(path, pieces, size):
    with open(path, "wb") as file:
        file.write(struct.pack("<I", size))
        for piece in pieces:
            file.write(piece)


def main(timer, gigabytes=0):
    import gpt2

    tiktoken = gpt2.encoding()
    tiktoken.encode_ordinary("warm")
    document, ids = f"{FOLDER}/hard.docs", f"{FOLDER}/hard.ids"
    os.makedirs(FOLDER, exist_ok=True)
    worst = None
    print(f"{'MB/s':30}" + "".join(f"{path:>10}" for path in PATHS) + f"{'tiktoken':>10}   slowest path / tiktoken")
    for name, data in cases():
        write_document(document, [data], len(data))
        text, seconds = data.decode("utf-8", "replace"), []
        for _ in range(2):
            start = time.process_time()
            want = tiktoken.encode_ordinary(text)
            seconds.append(time.process_time() - start)
        rates, same = [], True
        for path in PATHS:
            rates.append(max(ours(timer, path, document, ids) for _ in range(3)))
            with open(ids, "rb") as file:
                same &= file.read() == struct.pack(f"<{len(want)}H", *want)
        theirs = len(data) / min(seconds) / 1e6
        ratio = min(rates) / theirs
        worst = min(worst or (ratio, name), (ratio, name))
        print(f"{name:30}" + "".join(f"{rate:10.1f}" for rate in rates) + f"{theirs:10.1f}{ratio:8.1f}x  {'same ids' if same else 'IDS DIFFER'}", flush=True)
    print(f"the least margin: {worst[0]:.2f}x, {worst[1]}")
    for unit in b"a0^ " if gigabytes else b"":
        size = int(gigabytes * 1000) * MB
        write_document(document, (bytes([unit]) * MB for _ in range(size // MB)), size)
        print(f"{size / 1e9:g} GB of {chr(unit)!r}: {ours(timer, PATHS[0], document, None):.1f} MB/s", flush=True)
    os.remove(document)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
