"""Conversations: the ids of shardtool tokenize --turns against tiktoken, text by text."""
import json
import os
import random

import numpy as np

import gpt2, runner

BIN = os.environ["BIN"]
END_OF_TEXT, MARKERS = 50256, {"system": 50257, "user": 50258, "assistant": 50259, "end": 50260}
ENCODING = gpt2.encoding()
TEXTS = [
    "Spain?", " Madrid", "Paris\n", "\n\nA list:\n- one\n- two\n\n", "", " ", "🌊 the mill's wheel 🌊", "<|end|> is text", "a<|assistant|>b",
    "<|endoftext|>", "A: ", "blue", "x" * 3000, "\u00e9\u4e2d\u0627 \U0001f600", "tab\tand \\ \"quotes\"", "\u0000 and \u0001", "don't we'll",
]  # fmt: skip


SPELL_NONE = [text for text in TEXTS if "<|" not in text and "\0" not in text]  # other programs make markers of texts that spell them


def conversations(count, seed, texts=TEXTS):
    made_of = random.Random(seed)
    for number in range(count):
        talk = [{"role": "system", "content": made_of.choice(texts)}] if made_of.random() < 0.3 else []
        for _ in range(made_of.choice([1, 1, 2, 5])):
            talk += [{"role": role, "content": made_of.choice(texts)} for role in ("user", "assistant")]
        yield talk


def ids_of(talk):
    ids = []
    for message in talk:
        ids += [MARKERS[message["role"]], *ENCODING.encode_ordinary(message["content"]), MARKERS["end"]]
    return ids + [END_OF_TEXT]


def tokenize(name, lines, *options):
    with open(f"{name}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=len(lines) % 2 == 0) + "\n" for line in lines)
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0", "-o", name, *options, f"{name}.jsonl")
    return np.frombuffer(runner.call(f"{BIN}/shardtool", "cat", name).stdout, "<u2").tolist()


def test_ids_are_those_of_each_text_alone_with_markers_between():
    talks = list(conversations(400, 1))
    talks += [[{"role": "user", "content": "the mill "}, {"role": "assistant", "content": "and the wheel " * 120_000}]]  # in windows
    lines = [{"messages": talk, "id": number} for number, talk in enumerate(talks)]
    lines[7:7] = [{"prompt": "A: ", "completion": "blue"}, {"text": "a plain text"}]
    want = [id for talk in talks[:7] for id in ids_of(talk)]
    want += ids_of([{"role": "user", "content": "A: "}, {"role": "assistant", "content": "blue"}])
    want += [*ENCODING.encode_ordinary("a plain text"), END_OF_TEXT] + [id for talk in talks[7:] for id in ids_of(talk)]
    for threads in "1", "3":
        assert tokenize(f"talks{threads}", lines, "-j", threads) == want
    info = json.loads(runner.call(f"{BIN}/shardtool", "info", "--json", "talks1").stdout)
    assert info["vocab_size"] == 50261
    runner.call(f"{BIN}/shardtool", "verify", "talks1")


def test_markers_that_a_vocabulary_has_keep_their_ids():
    tokenize("first", [{"prompt": "a", "completion": "b"}])
    vocabulary = json.load(open("first/tokenizer.json", encoding="utf-8"))
    assert [token["content"] for token in vocabulary["added_tokens"]] == ["<|endoftext|>", *(f"<|{name}|>" for name in MARKERS)]
    assert tokenize("second", [{"prompt": "a", "completion": "b"}], "--vocabulary", "first") == [
        50258, *ENCODING.encode_ordinary("a"), 50260, 50259, *ENCODING.encode_ordinary("b"), 50260, 50256
    ]  # fmt: skip
    # a vocabulary with two of them in another order gets the other two
    kept = {"<|endoftext|>": 50256, "<|assistant|>": 50257, "<|user|>": 50258}
    vocabulary["added_tokens"] = [token | {"id": kept[token["content"]]} for token in vocabulary["added_tokens"] if token["content"] in kept]
    ids = vocabulary["model"]["vocab"]
    vocabulary["model"]["vocab"] = {token: id for token, id in ids.items() if id < 50256} | kept
    json.dump(vocabulary, open("third.json", "w", encoding="utf-8"))
    assert tokenize("third", [{"prompt": "", "completion": "b"}], "--vocabulary", "third.json") == [50258, 50260, 50257, 65, 50260, 50256]
