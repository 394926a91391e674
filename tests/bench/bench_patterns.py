"""Encoding speed of each pattern beside GPT-2's, with GPT-2's tokens, on the same documents: bench_patterns.py TIMER PIECES [TEXT FILE].

TIMER and PIECES are the programs made of bench_tokenizer.c and bench_pieces.c. Engines take turns; a row has the best of
some runs, in MB/s of one thread's processor time: all text, pieces seen before, and the pretokenizer alone."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "oracle"))
import bench_tokenizer
import test_patterns
import test_vocabularies

FOLDER = "build/bench"
RUNS = 5


def documents(path):
    if path:
        with open(path, "rb") as file:
            return [file.read()]
    import bench_corpus

    return [document for group in bench_corpus.load(FOLDER).values() for document in group]


def main(timer, pieces, path=None):
    os.makedirs(FOLDER, exist_ok=True)
    source, vocabulary = os.path.join(FOLDER, "documents"), os.path.join(FOLDER, "gpt2.tiktoken")
    bench_tokenizer.write_documents(source, documents(path))
    test_vocabularies.write_tiktoken(vocabulary, test_vocabularies.many_ranks())
    names = [name for name, _ in test_patterns.patterns()]
    best = {name: {"cold": 0, "warm": 0, "alone": 0} for name in names}
    for _ in range(RUNS):
        for name in names:
            made = json.loads(subprocess.check_output([timer, source, "1", "4", "/dev/null", vocabulary, name]))
            alone = re.search(r"(\d+) MB/s", subprocess.check_output([pieces, source, name], text=True))
            for key, value in (("cold", made["cold"]), ("warm", made["warm"]), ("alone", float(alone[1]))):
                best[name][key] = max(best[name][key], value)
    print("pattern    first pass   warm   of gpt2   pieces alone   MB/s")
    for name in names:
        row = best[name]
        print(f"{name:10} {row['cold']:10.0f} {row['warm']:6.0f} {row['warm'] / best['gpt2']['warm']:8.0%} {row['alone']:14.0f}")


main(*sys.argv[1:])
