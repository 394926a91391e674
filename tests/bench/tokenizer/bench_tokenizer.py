"""Tokenizer speed against its peers, on the same documents, pinned, ids compared: bench_tokenizer.py WHAT TIMER SHARDTOOL [TEXT FILE].

TIMER is the program made of bench_tokenizer.c. Without a file the text comes from Debian packages (bench_corpus.py). Each engine runs
in a process of its own. Of one thread its own time counts, which a busy machine does not change. WHAT is `tokenizer`: a line has the first
pass over the documents and the best of two more, in MB/s; or `patterns`: each pattern with GPT-2's tokens.
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
FOLDER = "build/bench"
RUNS = 5  # of each pattern
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


def main(what, timer, shardtool, file=None):
    os.makedirs(FOLDER, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
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


if __name__ == "__main__":
    if sys.argv[1] == "--engine":
        run_engine(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
    else:
        main(*sys.argv[1:])
