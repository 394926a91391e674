"""Conversations: the ids of shardtool tokenize --turns against tiktoken, text by text."""
import json
import os
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
    return ids_of_file(f"{name}.jsonl", *options)


def ids_of_file(path, *options):
    """Of the dataset that is made of the file, beside it without its ending."""
    name = os.path.splitext(path)[0]
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0", "--force", "-o", name, *options, path)
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
    assert ids_of_file("spelled.jsonl") == want


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


def random_rows(made_of, count):
    """Rows of messages, and of pairs, with nulls at all levels and what is refused."""
    text = lambda: made_of.choice([*TEXTS, None]) if made_of.random() < 0.1 else made_of.choice(TEXTS)
    some = lambda value: made_of.choice([None, value]) if made_of.random() < 0.1 else value
    message = lambda: some({"role": some(made_of.choice(["user", "assistant", "assistant", "system"])), "content": text(), "name": None, "calls": some([]),
                            "more": made_of.choice([None] * 30 + [{"a": [], "b": None}, {"a": [None], "b": [[True]]}])})  # fmt: skip
    for _ in range(count):
        kind = made_of.randrange(3)
        yield {"messages": [message() for _ in range(made_of.choice([0, 1, 2, 2, 3, 9]))] if kind == 0 else None, "prompt": text() if kind == 1 else None,
               "completion": text() if kind == 1 else None, "text": text() if kind == 2 else None, "id": some(made_of.randrange(3)), "weight": made_of.choice([None] * 30 + [0.5, 1e99]),
               "tools": made_of.choice([None] * 30 + [[], [b"\xe9"]])}  # fmt: skip


def test_rows_of_parquet_are_those_of_json_lines():
    message = lambda text, lists: pa.struct([("role", pa.dictionary(pa.int8(), pa.string())), ("content", text), ("name", pa.null()), ("calls", lists(pa.int16())),
                                             ("more", pa.struct([("a", lists(pa.bool_())), ("b", lists(lists(pa.bool_())))]))])  # fmt: skip
    for seed in range(8):
        made_of = random.Random(seed)
        rows = [*random_rows(made_of, made_of.choice([1, 60, 500])), {"text": "one that is read", "id": 2}]
        text, lists = made_of.choice([pa.string(), pa.large_string()]), made_of.choice([pa.list_, pa.large_list])
        schema = pa.schema([("messages", lists(message(text, lists))), ("prompt", text), ("completion", text), ("text", text), ("id", pa.int64()),
                            ("weight", pa.float64()), ("tools", lists(pa.binary()))])  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows, schema), "rows.parquet", row_group_size=made_of.choice([7, 1000]), data_page_version=made_of.choice(["1.0", "2.0"]),
                       data_page_size=made_of.choice([20, 200, 1 << 20]), write_batch_size=made_of.choice([1, 1000]), use_dictionary=made_of.random() < 0.5,
                       compression=made_of.choice(["NONE", "zstd", "snappy"]), use_compliant_nested_type=made_of.random() < 0.5)  # fmt: skip
        with open("lines.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, default=lambda value: {}) + "\n" for row in rows)
        ids, errors = {}, {}
        for path in "rows.parquet", "lines.jsonl":
            name = path.split(".")[0]
            ids[name] = ids_of_file(path, "--max-bad", "100%", *(["--where", "id >= 1"] if seed % 2 else []))
            skipped = [json.loads(line)["error"] for line in open(f"{name}/skipped.jsonl")] if os.path.exists(f"{name}/skipped.jsonl") else []
            errors[name] = [(int(number) - (name == "lines"), why) for number, why in (re.match(r".*?(?:row|line) (\d+)(?:, byte \d+)?: ([^']*)", error).groups() for error in skipped)]
        assert ids["rows"] == ids["lines"] and errors["rows"] == errors["lines"], seed


def test_columns_of_types_that_are_not_read_can_be_left_out():
    pq.write_table(pa.table({"prompt": ["a"], "completion": ["b"], "weight": pa.array([b"12345678"], pa.binary(8))}), "fixed.parquet")
    error = runner.call(f"{BIN}/shardtool", "tokenize", "--turns", "-o", "fixed", "fixed.parquet", code=65).stderr.decode()
    assert "'fixed.parquet' row group 0, column 'weight': values of the type FIXED_LEN_BYTE_ARRAY are not read (--turns-keys ignore=weight leaves" in error
    pair = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert ids_of_file("fixed.parquet", "--turns-keys", "ignore=weight") == ids_of(pair)
    pq.write_table(pa.table([pa.array([pair]), pa.array([pair])], ["messages", "messages"]), "double.parquet")
    error = runner.call(f"{BIN}/shardtool", "tokenize", "--turns", "-o", "double", "double.parquet", code=65).stderr.decode()
    assert "'double.parquet' has more than one column 'messages'" in error
