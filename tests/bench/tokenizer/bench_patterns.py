"""Encoding speed of each pattern beside GPT-2's, with GPT-2's tokens, on the same documents: bench_patterns.py TIMER PIECES [TEXT FILE].

TIMER and PIECES are the programs made of bench_tokenizer.c and bench_pieces.c. Engines take turns; a row has the best of
some runs, in MB/s of one thread's processor time: all text, pieces seen before, and the pretokenizer alone; then gigatoken
with the same tokenizer.json, first pass and best of the later ones."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
import bench_tokenizer
import test_patterns
import test_vocabularies

FOLDER = "build/bench"
RUNS = 5
GIGATOKEN = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import bench_tokenizer, gigatoken
documents = bench_tokenizer.read_documents(sys.argv[3])
face, source, rates = gigatoken.Tokenizer.from_json(open(sys.argv[2]).read()), gigatoken.BytesSource(documents), []
for _ in range(4):
    start = time.process_time()
    result = face.encode_batch(source, parallel=False)
    rates.append(sum(map(len, documents)) / (time.process_time() - start) / 1e6)
print(json.dumps({"cold": rates[0], "warm": max(rates[1:]), "ids": sum(map(len, result))}))
"""


def documents(path):
    if path:
        with open(path, "rb") as file:
            return [file.read()]
    import bench_corpus

    return [document for group in bench_corpus.load(FOLDER).values() for document in group]


def tokenizer_json(vocabulary, name):
    """The path of the vocabulary as a dataset keeps it."""
    text, out = os.path.join(FOLDER, "word"), os.path.join(FOLDER, "pattern-" + name)
    with open(text, "w") as file:
        file.write("word")
    shardtool = os.path.join(os.environ["BIN"], "shardtool")
    subprocess.run([shardtool, "tokenize", "-q", "--force", "--vocabulary", vocabulary, "--pattern", name, "-o", out, text], check=True)
    return os.path.join(out, "tokenizer.json")


def gigatoken(json_path, source):
    """Its rates, of zeros where it is not installed or does not take the file."""
    command = [sys.executable, "-c", GIGATOKEN, os.path.dirname(__file__), json_path, source]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(made.stdout) if made.returncode == 0 else {"cold": 0, "warm": 0, "ids": 0}


def main(timer, pieces, path=None):
    os.makedirs(FOLDER, exist_ok=True)
    source, vocabulary = os.path.join(FOLDER, "documents"), os.path.join(FOLDER, "gpt2.tiktoken")
    bench_tokenizer.write_documents(source, documents(path))
    test_vocabularies.write_tiktoken(vocabulary, test_vocabularies.many_ranks())
    names = [name for name, _ in test_patterns.patterns()]
    files = {name: tokenizer_json(vocabulary, name) for name in names}
    best = {name: dict.fromkeys(("cold", "warm", "alone", "peer_cold", "peer_warm"), 0) for name in names}
    for _ in range(RUNS):
        for name in names:
            made = json.loads(subprocess.check_output([timer, source, "1", "4", "/dev/null", vocabulary, name]))
            alone = re.search(r"(\d+) MB/s", subprocess.check_output([pieces, source, name], text=True))
            peer = gigatoken(files[name], source)
            if peer["ids"] not in (0, made["ids"]):
                print(f"{name}: gigatoken has {peer['ids']} ids, and we {made['ids']}")
            found = made["cold"], made["warm"], float(alone[1]), peer["cold"], peer["warm"]
            for key, value in zip(best[name], found):
                best[name][key] = max(best[name][key], value)
    print("pattern    first pass   warm   of gpt2   pieces alone   gigatoken: first pass   warm   MB/s")
    for name in names:
        row = best[name]
        print(f"{name:10} {row['cold']:10.0f} {row['warm']:6.0f} {row['warm'] / best['gpt2']['warm']:8.0%} {row['alone']:14.0f} "
              f"{row['peer_cold']:23.0f} {row['peer_warm']:6.0f}")  # fmt: skip


main(*sys.argv[1:])
