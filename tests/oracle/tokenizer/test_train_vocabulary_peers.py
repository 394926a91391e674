# peers: rustbpe, gigatoken, tokenizers
"""train-vocabulary beside the trainers of rustbpe and gigatoken: the same tokens in the same order."""
import os
import subprocess
import sys

import runner
import training_corpora
from test_train_vocabulary import REGEXES, SHARDTOOL, trained

import gigatoken
import rustbpe
import tokenizers

MERGES = 400


def by_rustbpe(corpus, size, pattern="gpt2"):
    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(iter([corpus.decode()]), size, pattern=REGEXES[pattern])
    return [bytes(token) for token, _ in tokenizer.get_mergeable_ranks()]


def by_gigatoken(corpus, size):
    """In a process of its own, as it prints its progress. It splits text by GPT-2's pattern, whatever one asks for."""
    script = (
        "import gigatoken, sys; corpus = sys.stdin.buffer.read();"
        f"tokens, _ = gigatoken.train_bpe(corpus, {size}, [], 'raw_token_ids', b'\\0no separator\\0');"
        "sys.stderr.write(repr([tokens[id] for id in sorted(tokens)]))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=corpus, capture_output=True, check=True)
    return eval(done.stderr.decode().splitlines()[-1])


def test_each_corpus_gets_the_tokens_of_rustbpe_with_each_pattern(folder):
    for name, corpus in training_corpora.load().items():
        if name == "random characters":
            continue  # letters that its regular expressions do not know
        for pattern in REGEXES:
            want = by_rustbpe(corpus, 256 + MERGES, pattern)
            assert trained(folder, corpus, len(want), "--pattern", pattern) == want, (name, pattern)


def test_each_corpus_gets_the_tokens_of_gigatoken(folder):
    for name, corpus in training_corpora.load().items():
        size = len(by_rustbpe(corpus, 256 + MERGES))  # gigatoken does not end where no pair is left, see below
        assert trained(folder, corpus, size) == by_gigatoken(corpus, size), name


def test_where_no_pair_is_left_gigatoken_merges_pairs_that_do_not_occur(folder):
    assert by_gigatoken(b"abab", 260)[256:] == [b"ab", b"abab", b"ba", b"aba"]
    assert "only 2 merges" in trained(folder, b"abab", 260, code=65)


def test_tokenizers_reads_tokenizer_json_and_gives_the_ids_of_encode(folder):
    corpora = training_corpora.load()
    text = corpora["code"] + corpora["russian"] + corpora["emoji"]
    for pattern in REGEXES:
        trained(folder, text, 600, "--pattern", pattern)
        out = os.path.join(folder, "vocabulary")
        for name in ("code", "mixed languages", "contractions"):
            done = runner.call(SHARDTOOL, "tokenize", "--ids", "--format", "text", "--vocabulary", out, stdin=corpora[name])
            want = tokenizers.Tokenizer.from_file(os.path.join(out, "tokenizer.json")).encode(corpora[name].decode()).ids
            assert list(map(int, done.stdout.split())) == want, (pattern, name)
