"""train-vocabulary against a trainer of a few lines that counts all pairs again before each merge."""
import base64
import collections
import json
import os

import runner
import test_patterns as patterns
import training_corpora

SHARDTOOL = os.path.join(os.environ["BIN"], "shardtool")
REGEXES = dict(patterns.patterns())
PATTERNS = {name: patterns.compiled(regex) for name, regex in REGEXES.items()}
SPECIALS = 1  # <|endoftext|>
TOKEN_BYTES_MAX = 255


def trained(folder, corpus, size, *options, code=0):
    """The tokens without the special ones, by id."""
    path = os.path.join(folder, "text.txt")
    with open(path, "wb") as file:
        file.write(corpus)
    out = os.path.join(folder, "vocabulary")
    done = runner.call(SHARDTOOL, "train-vocabulary", "-q", "--force", "--format", "text", "-V", str(size + SPECIALS), "-o", out, *options, path, code=code)
    if code:
        return done.stderr.decode()
    with open(os.path.join(out, "vocabulary.tiktoken")) as file:
        ranks = [line.split() for line in file]
    assert [int(rank) for _, rank in ranks] == list(range(size))
    return [base64.b64decode(token) for token, _ in ranks]


def pieces_of(corpus, pattern="gpt2"):
    return [piece.encode() for piece in patterns.cut(PATTERNS[pattern], corpus.decode())]


def reference(corpus, size, pattern="gpt2"):
    """The tokens by the rule alone; fewer than `size` when no pair is left."""
    pieces = collections.Counter(pieces_of(corpus, pattern))
    words = [(list(piece), count) for piece, count in pieces.items()]
    tokens = [bytes([byte]) for byte in range(256)]
    while len(tokens) < size:
        pairs = collections.Counter()
        for word, count in words:
            for pair in zip(word, word[1:]):
                if len(tokens[pair[0]] + tokens[pair[1]]) <= TOKEN_BYTES_MAX:
                    pairs[pair] += count
        if not pairs:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for word, _ in words:
            at = 0
            while at + 1 < len(word):
                if word[at] == left and word[at + 1] == right:
                    word[at : at + 2] = [len(tokens)]
                at += 1
        tokens.append(tokens[left] + tokens[right])
    return tokens


def test_overlapping_pairs_are_counted_each_and_merged_from_the_left(folder):
    # (a, a) twice in each aaa, so before (b, c); then (aa, a), and nothing else
    assert trained(folder, b"aaa\taaa\tbc\tbc\tbc", 258)[256:] == [b"aa", b"bc"]
    assert trained(folder, b"aaaaa", 258)[256:] == [b"aa", b"aaa"]  # (aa, a) is lower than (aa, aa)


def test_of_pairs_as_frequent_the_lowest_pair_of_ids_comes_first(folder):
    assert trained(folder, b"zy\tba\tac\tab", 260)[256:] == [b"ab", b"ac", b"ba", b"zy"]


def test_no_token_has_more_than_255_bytes(folder):
    for corpus in (b"a" * 1000, b"ab" * 500 + b"\t" + b"a" * 700 + b" ab" * 50):
        want = reference(corpus, 10**6)
        assert max(map(len, want)) > 200 and trained(folder, corpus, len(want)) == want
        assert f"only {len(want) - 256} merges" in trained(folder, corpus, len(want) + 1, code=65)


@runner.ci
def test_each_corpus_gets_the_tokens_of_the_rule(folder):
    for name, corpus in training_corpora.load().items():
        corpus = training_corpora.whole(corpus[:2500])
        for pattern in PATTERNS:
            want = reference(corpus, 256 + 60, pattern)
            assert trained(folder, corpus, len(want), "--pattern", pattern) == want, (name, pattern)


def test_a_text_with_fewer_merges_is_refused_with_their_number(folder):
    text = training_corpora.load()["nothing to merge"]
    size = len(reference(text, 1000))
    error = trained(folder, text, 1000, code=65)
    assert f"only {size - 256} merges" in error and f"or -V {size + SPECIALS}" in error, error
    assert trained(folder, text, size) == reference(text, size)


def test_the_manifest_counts_documents_bytes_and_pieces(folder):
    text = training_corpora.load()["code"]
    trained(folder, text, 300)
    with open(os.path.join(folder, "vocabulary", "vocabulary.json")) as file:
        manifest = json.load(file)
    pieces = pieces_of(text)
    assert (manifest["documents"], manifest["bytes"]) == (1, len(text))
    assert (manifest["pieces"], manifest["distinct_pieces"]) == (len(pieces), len(set(pieces)))
    assert (manifest["pattern"], manifest["size"], manifest["special"]) == ("gpt2", 301, ["<|endoftext|>"])
