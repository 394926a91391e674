"""Tokenizer speed against its peers, on the same documents, pinned, ids compared: bench_tokenizer.py WHAT TIMER SHARDTOOL [TEXT FILE].

TIMER is the program made of bench_tokenizer.c. Without a file the text comes from Debian packages (bench_corpus.py). Each engine runs
in a process of its own. Of one thread its own time counts, which a busy machine does not change. WHAT is `tokenizer`: a line has the first
pass over the documents and the best of two more, in MB/s; `patterns`: each pattern with GPT-2's tokens; or `tokenizer-hard`: 1 MB of one
character of each class, of random bytes, and of pieces made to be hard to merge. With a number of GB in place of the file, the last also
takes that many of one letter, digit, sign and blank as one word, without tiktoken: the rate must be that of the megabyte.
"""
import hashlib
import json
import os
import random
import resource
import struct
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import measured
FOLDER = "build/bench"
RUNS = 5  # of each pattern
PATHS = ("avx512", "avx2", "portable")
MB = 1_000_000
SLOW_BYTES = 3_000_000  # of the documents are enough for an engine of 2 MB/s


def read_documents(path):
    data = open(path, "rb").read()
    documents, at = [], 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0]
        documents.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return documents


def write_documents(path, documents):
    with open(path, "wb") as file:
        for document in documents:
            file.write(struct.pack("<I", len(document)) + document)


def hugging_face_json():
    """tokenizer.json of GPT-2, from the merge table."""
    from gpt2 import byte_of, merges

    spelt = {byte: character for character, byte in byte_of().items()}
    pairs = merges()
    vocab = {spelt[byte]: i for i, byte in enumerate(byte_of().values())}
    for left, right in pairs:
        vocab[left + right] = len(vocab)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": 50256, "content": "<|endoftext|>", "special": True}
    special |= {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    model = {"type": "BPE", "vocab": vocab | {"<|endoftext|>": 50256}, "merges": [" ".join(pair) for pair in pairs]}
    return json.dumps({"version": "1.0", "added_tokens": [special], "pre_tokenizer": level, "decoder": level, "model": model})


def engine(name, threads, documents, tokenizer_json):
    """A function that encodes them all, and one that makes its result a list of lists of ids."""
    if name == "tiktoken":
        from gpt2 import encoding

        tiktoken, texts = encoding(), [document.decode() for document in documents]
        if threads == 1:
            return lambda: [tiktoken.encode_ordinary(text) for text in texts], lambda result: result
        return lambda: tiktoken.encode_ordinary_batch(texts, num_threads=threads), lambda result: result
    if name == "gigatoken":
        import gigatoken

        giga, source = gigatoken.Tokenizer.from_json(tokenizer_json), gigatoken.BytesSource(documents)
        return lambda: giga.encode_batch(source, parallel=threads > 1), lambda result: result
    import tokenizers

    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    face, texts = tokenizers.Tokenizer.from_str(tokenizer_json), [document.decode() for document in documents]
    return lambda: face.encode_batch_fast(texts, add_special_tokens=False), lambda result: [one.ids for one in result]


def run_engine(name, threads, passes, path, json_path=None):
    documents = read_documents(path)
    if name == "tokenizers":
        total, kept = 0, []
        for document in documents:
            if total < SLOW_BYTES:
                kept.append(document)
                total += len(document)
        documents = kept
    size = sum(map(len, documents))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    encode, ids_of = engine(name, threads, documents, open(json_path).read() if json_path else hugging_face_json())
    rates = []
    clock = time.process_time if threads == 1 else time.perf_counter
    for _ in range(passes):
        start = clock()
        result = encode()
        rates.append(size / (clock() - start) / 1e6)
    digest, count = hashlib.sha256(), 0
    if name == "gigatoken":
        import awkward
        import numpy

        flat = numpy.asarray(awkward.flatten(result)).astype("<u2")
        digest.update(flat.tobytes())
        count = len(flat)
    else:
        for ids in ids_of(result):
            digest.update(struct.pack(f"<{len(ids)}H", *ids))
            count += len(ids)
    rss = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e6
    print(json.dumps({"cold": rates[0], "warm": max(rates[1:], default=0), "ids": count, "sha": digest.hexdigest(), "rss_mb": rss}))


def measure(command, cores, **options):
    pin = lambda: os.sched_setaffinity(0, cores)
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, preexec_fn=pin, text=True, **options).stdout
    return json.loads(output.strip().splitlines()[-1])


def compare(timer, name, path, cores, passes):
    threads = str(len(cores))
    ids = os.path.join(FOLDER, "ids")
    rows = {}
    ours = [timer, path, threads, str(passes + 2)]
    rows["millrace"] = measure(ours + [ids] if threads == "1" else ours, cores)
    for peer in ("gigatoken", "tiktoken") + (("tokenizers",) if name == "mixed" else ()):
        few = "1" if peer == "tokenizers" or name != "mixed" and peer == "tiktoken" else str(passes)
        rows[peer] = measure([sys.executable, __file__, "--engine", peer, threads, few, path], cores)
    if threads == "1":
        with open(ids, "rb") as file:
            rows["millrace"]["sha"] = hashlib.file_digest(file, "sha256").hexdigest()
    for peer, row in rows.items():
        same = "" if peer == "tokenizers" else "ids differ" if row["ids"] != rows["tiktoken"]["ids"] else "same count"
        if "sha" in row and peer != "tokenizers":
            same = "same ids" if row["sha"] == rows["tiktoken"]["sha"] else "IDS DIFFER"
        row["warm"] = row["warm"] or row["cold"]
        ratio = rows["millrace"]["warm"] / row["warm"], rows["millrace"]["cold"] / row["cold"]
        print(
            f"{name:8} {threads} thread(s) {peer:10} cold {row['cold']:7.1f}  warm {row['warm']:7.1f} MB/s  "
            f"millrace is {ratio[0]:6.1f}x warm, {ratio[1]:6.1f}x cold  {row['rss_mb']:7.0f} MB  {same}",
            flush=True,
        )
    return rows["millrace"]["warm"]


def time_command(command, cores):
    """Seconds of the processor, the least of five."""
    return min(measured(command, preexec_fn=lambda: os.sched_setaffinity(0, cores))[1] for _ in range(5))


def compare_command(shardtool, name, path, cores):
    """The whole process of `shardtool tokenize --raw --format text` on at least 200 MB."""
    documents = read_documents(path)
    text, empty = os.path.join(FOLDER, "text"), os.path.join(FOLDER, "empty")
    with open(text, "wb") as file, open(empty, "wb"):
        while file.tell() < 200_000_000:
            for document in documents:
                file.write(document)
    size, one = os.path.getsize(text), set(cores[-1:])
    start = time_command([shardtool, "tokenize", "--raw", "--format", "text", empty], one)
    whole = time_command([shardtool, "tokenize", "--raw", "--format", "text", text], one)
    print(
        f"{name:8} shardtool tokenize --raw --format text of {size / 1e6:.0f} MB: {size / whole / 1e6:.1f} MB/s, "
        f"{size / (whole - start) / 1e6:.1f} without the {start * 1e3:.1f} ms of an empty file"
    )
    os.remove(text)


def vocabulary_of(shardtool, vocabulary, pattern):
    """The path of tokenizer.json as a dataset keeps it."""
    text, out = os.path.join(FOLDER, "word"), os.path.join(FOLDER, "pattern-" + pattern)
    with open(text, "w") as file:
        file.write("word")
    subprocess.run([shardtool, "tokenize", "-q", "--force", "--vocabulary", vocabulary, "--pattern", pattern, "-o", out, text], check=True)
    return os.path.join(out, "tokenizer.json")


def compare_patterns(timer, shardtool, path, one):
    """Each pattern with GPT-2's tokens, and gigatoken with the same tokenizer.json; the best of some runs in turns."""
    os.environ["BIN"] = os.path.dirname(shardtool)
    import test_patterns
    import test_vocabularies

    vocabulary, best = os.path.join(FOLDER, "gpt2.tiktoken"), {}
    test_vocabularies.write_tiktoken(vocabulary, test_vocabularies.many_ranks())
    files = {name: vocabulary_of(shardtool, vocabulary, name) for name, _ in test_patterns.patterns()}
    for _ in range(RUNS):
        for name, tokenizer_json in files.items():
            made = measure([timer, path, "1", "4", "/dev/null", vocabulary, name], one)
            try:
                peer = measure([sys.executable, __file__, "--engine", "gigatoken", "1", "4", path, tokenizer_json], one, stderr=subprocess.DEVNULL)
            except subprocess.CalledProcessError:  # it is not installed, or does not take the file
                peer = {"cold": 0, "warm": 0, "ids": made["ids"]}
            if peer["ids"] != made["ids"]:
                print(f"{name}: gigatoken has {peer['ids']} ids, and we {made['ids']}")
            found = made["cold"], made["warm"], peer["cold"], peer["warm"]
            best[name] = [max(pair) for pair in zip(found, best.get(name, found))]
    print("pattern    first pass   warm   of gpt2   gigatoken: first pass   warm   MB/s")
    for name, (cold, warm, peer_cold, peer_warm) in best.items():
        print(f"{name:10} {cold:10.0f} {warm:6.0f} {warm / best['gpt2'][1]:8.0%} {peer_cold:23.0f} {peer_warm:6.0f}")


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


def compare_hard(timer, gigabytes, one):
    """MB/s of the first pass on every path and of tiktoken, and how often the slowest path is as fast; ids compared."""
    import gpt2

    tiktoken = gpt2.encoding()
    tiktoken.encode_ordinary("warm")
    document, ids, worst = f"{FOLDER}/hard.docs", f"{FOLDER}/hard.ids", []
    cold = lambda path: measure([timer, document, "1", "1", ids], one, env={**os.environ, "MILLRACE_ISA": path})["cold"]
    print(f"{'MB/s':30}" + "".join(f"{path:>10}" for path in PATHS) + f"{'tiktoken':>10}   slowest path / tiktoken")
    for name, data in cases():
        write_documents(document, [data])
        text, seconds = data.decode("utf-8", "replace"), []
        for _ in range(2):
            start = time.process_time()
            want = tiktoken.encode_ordinary(text)
            seconds.append(time.process_time() - start)
        rates, same = [], True
        for path in PATHS:
            rates.append(max(cold(path) for _ in range(3)))
            with open(ids, "rb") as file:
                same &= file.read() == struct.pack(f"<{len(want)}H", *want)
        theirs = len(data) / min(seconds) / 1e6
        worst.append((min(rates) / theirs, name))
        print(f"{name:30}" + "".join(f"{rate:10.1f}" for rate in rates) + f"{theirs:10.1f}{worst[-1][0]:8.1f}x  {'same ids' if same else 'IDS DIFFER'}", flush=True)
    print(f"the least margin: {min(worst)[0]:.2f}x, {min(worst)[1]}")
    for unit in b"a0^ " if gigabytes else b"":
        size = int(gigabytes * 1000) * MB
        with open(document, "wb") as file:
            file.write(struct.pack("<I", size))
            file.writelines(bytes([unit]) * MB for _ in range(size // MB))
        print(f"{size / 1e9:g} GB of {chr(unit)!r}: {cold(PATHS[0]):.1f} MB/s", flush=True)
    os.remove(document)


def main(what, timer, shardtool, file=None):
    os.makedirs(FOLDER, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    if what == "tokenizer-hard":
        return compare_hard(timer, float(file or 0), set(cores[-1:]))
    sets = ["mixed", "english", "other"]
    if file:
        data = open(file, "rb").read().decode("utf-8", "replace")
        write_documents(f"{FOLDER}/file.docs", [data[i : i + 8192].encode() for i in range(0, len(data), 8192)])
        sets = ["file"]
    elif not os.path.exists(f"{FOLDER}/mixed.docs"):
        import bench_corpus as corpus

        groups = corpus.load(FOLDER)
        mixed = sum(groups.values(), [])
        random.Random(2).shuffle(mixed)
        for name, documents in (groups | {"mixed": mixed}).items():
            write_documents(f"{FOLDER}/{name}.docs", documents)
    if what == "patterns":
        return compare_patterns(timer, shardtool, f"{FOLDER}/{sets[0]}.docs", set(cores[-1:]))
    for name in sets:
        one = compare(timer, name, f"{FOLDER}/{name}.docs", set(cores[-1:]), 3)
    if len(cores) > 1:
        one = compare(timer, sets[0], f"{FOLDER}/{sets[0]}.docs", set(cores[-1:]), 3) if sets[0] != name else one
        two = compare(timer, sets[0], f"{FOLDER}/{sets[0]}.docs", set(cores[-2:]), 3)
        print(f"the second core gives {two / one:.2f}x")
    compare_command(shardtool, sets[0], f"{FOLDER}/{sets[0]}.docs", cores)


if __name__ == "__main__":
    if sys.argv[1] == "--engine":
        run_engine(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
    else:
        main(*sys.argv[1:])
