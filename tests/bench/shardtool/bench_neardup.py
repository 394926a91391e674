"""Near-duplicates and items of benchmarks beside datatrove and rensa: bench_neardup.py BENCH_NEARDUP SHARDTOOL FOLDER [MB [DOCUMENTS]].

Real English and code out of Debian packages (bench_corpus.py); each tenth document comes again with 1 % of its words changed. The
peers run in turn with ours in each of two rounds, and the best round counts. CPU seconds, for each peer without its imports and
the load of its tokenizer. datatrove (one task, the four stages, 14 buckets of 8) gets the first PEER_MB of the same documents; its
words are those of spaCy. rensa gets the words between blanks in lower case, of which Python makes the sequences of 5. The disk
is the most that the temporary files of a run take at once, and what it writes without the dataset; for datatrove it is its files
of all stages, which stay. A run with little memory takes more. Before the disk come the comparisons of a run. One thread runs on one processor, and then, as its reading and its
compression are threads of their own, on both. With DOCUMENTS, the peak memory and the disk of as many pieces of 200 to 600
characters of the same text, alone.
"""
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import measured

PEER_MB, ROUNDS, WORDS = 2, 2, 13


def corpus(folder, megabytes):
    import bench_corpus

    groups = bench_corpus.load("build/bench", ("english", "code"))
    documents = [document.decode() for group in groups.values() for document in group]
    drawn = random.Random(2)
    drawn.shuffle(documents)
    near = [" ".join("changed" if drawn.random() < 0.01 else word for word in text.split()) for text in documents[::10]]
    mixed = []
    for at, text in enumerate(documents):
        mixed += [text] if at % 10 else [text, near[at // 10]]
    for name, limit in ("all", megabytes), ("peer", PEER_MB):
        ends = itertools.accumulate(len(text.encode()) for text in mixed)
        with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text, end in zip(mixed, ends) if end <= limit * 1e6)
    with open(f"{folder}/items.jsonl", "w", encoding="utf-8") as file:
        for text in documents[:200] + documents[-2000:]:
            file.write(json.dumps({"text": " ".join(text.split()[20:70])}) + "\n")


def texts(folder, name):
    with open(f"{folder}/{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def size(documents):
    return sum(len(text.encode()) for text in documents) / 1e6


def run_rensa(folder):
    """CPU seconds of the sequences and the MinHash of all documents, and of looking them up, too."""
    from rensa import RMinHash, RMinHashLSH

    documents = texts(folder, "all")
    begun = time.process_time()
    signatures = []
    for text in documents:
        words = text.lower().split()
        signature = RMinHash(num_perm=112, seed=42)
        signature.update([" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))])
        signatures.append(signature)
    first = time.process_time() - begun
    index = RMinHashLSH(threshold=0.8, num_perm=112, num_bands=14)
    for number, signature in enumerate(signatures):
        if not index.query(signature):
            index.insert(number, signature)
    return first, time.process_time() - begun, size(documents)


def run_datatrove(folder):
    """CPU seconds of the first stage, of all stages, and of the filter of n-grams; bytes of the files, bytes a document of them."""
    import numpy
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.pipeline.dedup import minhash
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from datatrove.utils.text import ngrams, simplify_text

    out = f"{folder}/datatrove"
    shutil.rmtree(out, ignore_errors=True)
    documents = texts(folder, "peer")
    decont = NGramsDecontFilter(f"{out}/index", NGramsDecontConfig(n_grams=WORDS))
    hashes = {decont.hash_func(" ".join(words)) for text in texts(folder, "items")
              for words in ngrams(decont.tokenizer.word_tokenize(simplify_text(text, decont.config.norm_config)), WORDS)}  # fmt: skip
    os.makedirs(f"{out}/index")
    numpy.array(sorted(hashes), "<u8").tofile(f"{out}/index/items.index.hashes")
    reader, config = lambda: JsonlReader(folder, glob_pattern="peer.jsonl"), minhash.MinhashConfig()
    stages = [
        [reader(), minhash.MinhashDedupSignature(f"{out}/sigs", config)],
        [minhash.MinhashDedupBuckets(f"{out}/sigs", f"{out}/buckets", config=config)],
        [minhash.MinhashDedupCluster(f"{out}/buckets", f"{out}/removed", config=config)],
        [reader(), minhash.MinhashDedupFilter(f"{out}/removed"), JsonlWriter(f"{out}/unique", compression=None)],
        [reader(), decont, JsonlWriter(f"{out}/clean", compression=None)],
    ]
    seconds = []
    for number, stage in enumerate(stages):
        begun = time.process_time()
        tasks = config.num_buckets if number == 1 else 1
        LocalPipelineExecutor(stage, tasks=tasks, workers=1, logging_dir=f"{out}/logs{number}").run()
        seconds.append(time.process_time() - begun)
    disk = sum(os.path.getsize(os.path.join(path, name)) for part in ("sigs", "buckets", "removed")
               for path, _, names in os.walk(f"{out}/{part}") for name in names)  # fmt: skip
    return seconds[0], sum(seconds[:4]), seconds[4], size(documents), disk / len(documents)


def peer(name, folder):
    """In a process of its own, so that a round does not find what the one before has loaded."""
    command = [sys.executable, os.path.abspath(__file__), "--run", name, folder]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines()[-1])


def ours(bench, tool, folder):
    def run(*words, prefix=()):
        return measured([*prefix, tool, *words, f"{folder}/data"], stderr=subprocess.DEVNULL)

    first = float(subprocess.check_output([bench, f"{folder}/documents"]).split()[4])
    near = ["dedup", "-q", "--similar", "0.8", "--force", "-o", f"{folder}/unique"]
    single, one, two = run(*near, "-j", "1", prefix=("taskset", "-c", "0")), run(*near, "-j", "1"), run(*near, "-j", "2")
    found = run("decontaminate", "-q", "--against", f"{folder}/items.jsonl", "--force", "-o", f"{folder}/clean", "-j", "1")
    return first, one[1], found[1], single[0], one[0], two[0]


def temporary_bytes(pid):
    """Of the files without a name that a process has open."""
    taken = 0
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                taken += os.stat(entry.path).st_blocks * 512 if "(deleted)" in os.readlink(entry.path) else 0
    return taken


def alone(tool, folder, data, *options):
    """Bytes that the temporary files of a run without a dataset take at most, and that it writes less the report; its seconds and MiB.
    Prints how many documents it compared and removed."""
    begun = time.monotonic()
    command = [tool, "dedup", "--similar", "0.8", "-j", "2", "--report", f"{folder}/report", *options, f"{folder}/{data}"]
    with open(f"{folder}/log", "w+") as log:
        pid, most, done = subprocess.Popen(command, stderr=log).pid, 0, 0
        while not done:
            most = max(most, temporary_bytes(pid))
            time.sleep(0.002)
            done, status, usage = os.wait4(pid, os.WNOHANG)
        log.seek(0)
        print(*re.findall(r"[0-9]+ comparisons.*by text|removed [0-9]+ of.*documents", log.read()), sep="; ")
    assert status == 0
    written = usage.ru_oublock * 512 - os.path.getsize(f"{folder}/report")
    return most, written, time.monotonic() - begun, usage.ru_maxrss / 1024


def run_pieces(tool, folder, count):
    text, drawn = "\n".join(texts(folder, "all")), random.Random(9)
    with open(f"{folder}/pieces.jsonl", "w", encoding="utf-8") as file:
        for _ in range(count):
            at = drawn.randrange(len(text) - 600)
            file.write(json.dumps({"text": text[at : at + drawn.randint(200, 600)]}) + "\n")
    subprocess.run([tool, "tokenize", "-q", "--force", "--val", "0", "-o", f"{folder}/pieces", f"{folder}/pieces.jsonl"], check=True)
    os.unlink(f"{folder}/pieces.jsonl")
    disk, written, seconds, memory = alone(tool, folder, "pieces")
    print(f"{count} pieces: {memory:.0f} MiB at most, {disk / count:.0f} bytes a document on disk, {written / count:.0f} written, {seconds:.0f} s")
    shutil.rmtree(f"{folder}/pieces")


def main():
    bench, tool, folder = sys.argv[1:4]
    megabytes = float(sys.argv[4]) if len(sys.argv) > 4 else 60
    if not os.path.exists(f"{folder}/data/dataset.jsonl"):
        corpus(folder, megabytes)
        subprocess.run([tool, "tokenize", "-q", "--force", "--val", "0", "-o", f"{folder}/data", f"{folder}/all.jsonl"], check=True)
        with open(f"{folder}/documents", "wb") as file:
            file.write(b"\0".join(text.encode() for text in texts(folder, "all")))
    documents = texts(folder, "all")
    rounds = [(ours(bench, tool, folder), peer("datatrove", folder), peer("rensa", folder)) for _ in range(ROUNDS)]
    mine, trove, rensa = ([min(values) for values in zip(*results)] for results in zip(*rounds))
    rate = size(documents)
    print(f"{len(documents)} documents, {rate:.1f} MB; datatrove {trove[3]:.1f} MB; MB a CPU second, the best of {ROUNDS} rounds")
    for name, own, others in (
        ("first stage", mine[0], {"datatrove": trove[3] / trove[0], "rensa": rensa[2] / rensa[0]}),
        ("dedup --similar 0.8", mine[1], {"datatrove": trove[3] / trove[1], "rensa": rensa[2] / rensa[1]}),
        ("decontaminate", mine[2], {"datatrove": trove[3] / trove[2]}),
    ):
        ratios = ", ".join(f"{rate / own / other:.1f} times {peer_name} ({other:.3g})" for peer_name, other in others.items())
        print(f"{name:20}{rate / own:8.1f}  {ratios}")
    print(f"-j 2: {mine[3] / mine[5]:.2f} times -j 1 on one processor, {mine[4] / mine[5]:.2f} times on two; {mine[3]:.2f}, {mine[4]:.2f} and {mine[5]:.2f} s")
    for memory in "1G", "100M":
        for what, taken in zip(("at most", "written"), alone(tool, folder, "data", "--memory", memory)):
            disk = taken / len(documents)
            print(f"disk with --memory {memory}, {what}: {disk:.0f} bytes a document, {disk / trove[4]:.2f} times datatrove's {trove[4]:.0f}")
    if len(sys.argv) > 5:
        run_pieces(tool, folder, int(sys.argv[5]))


if sys.argv[1] == "--run":
    print(json.dumps({"rensa": run_rensa, "datatrove": run_datatrove}[sys.argv[2]](sys.argv[3])))
else:
    main()
