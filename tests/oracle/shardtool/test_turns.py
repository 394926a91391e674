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
    return ids_of_file(name, *options)


def ids_of_file(name, *options):
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


def random_line(made_of):
    """A conversation or a text, spelled in ways that the json module reads, beside keys that are not read."""
    pieces = ["a", "\\n", "\\u0041", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\u0000", '\\"', "\\\\", "é", "🙂", "\\/", "<|end|>"]
    values = ["18446744073709551615", "1" * 30, "-0.5e+3", "1e400", "-Infinity", "NaN", "null", '"\\ud83d"', '[1, [{"messages": 7}]]', '{"text": "no"}']
    text = lambda: '"' + "".join(made_of.choices(pieces, k=made_of.randrange(12))) + '"'
    talk = lambda: '[{"role": "user", "content": %s}, {"content": "", "content": %s, "role": "assis\\u0074ant", "name": null}]' % (text(), text())
    fields = made_of.choice([lambda: [f'"messages": {talk()}'], lambda: [f'"m\\u0065ssages":{talk()}'], lambda: [f'"messages": 7, "messages": {talk()}'],
                             lambda: [f'"prompt": {text()}', f'"completion": {text()}'], lambda: [f'"text": {text()}']])()  # fmt: skip
    fields += [f'"k{number}\\u0000": {made_of.choice(values)}' for number in range(made_of.randrange(4))]
    made_of.shuffle(fields)
    return "{" + ",\t".join(fields) + "}" + made_of.choice(["", " ", "\r", "\n", "\n \r"])


def test_lines_are_read_as_by_the_json_module():
    made_of, want = random.Random(2), []
    lines = [random_line(made_of) for _ in range(2000)]
    with open("spelled.jsonl", "w", encoding="utf-8-sig", newline="") as file:
        file.write("\n".join(lines))
    whole = lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for line in map(json.loads, lines):
        if "prompt" in line:
            line["messages"] = [{"role": "user", "content": line["prompt"]}, {"role": "assistant", "content": line["completion"]}]
        talk = [message | {"content": whole(message["content"])} for message in line.get("messages", [])]
        want += ids_of(talk) if talk else [*ENCODING.encode_ordinary(whole(line["text"])), END_OF_TEXT]
    assert ids_of_file("spelled") == want


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
