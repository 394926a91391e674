"""What docs/formats.md specifies, computed from the page alone and compared with what the programs wrote: fingerprints, manifests, the
samples of evaluations, the first link of the chain; and the constants that the page names."""
import hashlib
import json
import os
import pathlib
import re
import struct
import tempfile

import runner
import chain
import gpt2
import test_audit as audit
import test_loader_client as client
import test_loader_mixture as mixture
from loader_proxies import FlipProxy

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/formats.md").read_text()
BIN = os.environ["BIN"]
HEADERS = "loader/protocol/wire.h trainer/model/evaluate.h dataset/ids.h".split()
OF_LINUX = {"SCM_RIGHTS", "SOCK_SEQPACKET"}
OF_TABLES = {"SAMPLING_ALL_MODES"}  # test_loader_sampling.py compares it


BYTE_OF = gpt2.byte_of()


def spelled(text):
    """The bytes of a token of tokenizer.json."""
    return bytes(BYTE_OF[character] for character in text)


def constants():
    """The values that the page gives, as C: "NAME = 65,536" in sentences, the members of enums in structs."""
    found = {name: value.replace(",", "") for name, value in re.findall(r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+) = (\d[\d,]*\d)\b", PAGE)}
    for body in re.findall(r"\benum \{(.*?)\}", PAGE, re.S):
        last = None
        for member in re.sub(r"//[^\n]*", "", body).split(","):
            if member.strip():
                name, _, value = (word.strip() for word in member.partition("="))
                last = found[name] = value or f"{last} + 1"
    return found


def test_each_constant_of_the_page_has_its_value_there():
    names = set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", PAGE)) - OF_LINUX - OF_TABLES
    names = {name for name in names if not name.startswith("F_SEAL_")}
    values = constants()
    assert len(names) > 40 and not names - values.keys(), names - values.keys()
    lines = [f'#include "{header}"' for header in HEADERS] + [f'_Static_assert({name} == {values[name]}, "{name}");' for name in sorted(names)]
    runner.call(os.environ.get("CC", "cc"), "-std=gnu11", "-fsyntax-only", "-D_GNU_SOURCE", f"-I{ROOT}", "-xc", "-", stdin="\n".join(lines).encode())


def test_the_page_has_the_keys_of_the_first_link():
    fixed = []
    for line in (ROOT / "trainer/config/keys.def").read_text().replace(",\n", ", ").splitlines():
        kind, *words = re.split(r"[(,]\s*", line)
        if kind in ("KEY", "WORD", "WORD_OF"):
            kept = next(word.split()[0] for word in words if word.split()[0] in "MODEL STREAM OPTION STREAM_OPTION RUN RUN_OPTION PLACE".split())
            if kept in ("MODEL", "STREAM"):
                fixed.append(words[1])
            elif kept in ("OPTION", "STREAM_OPTION"):
                fixed.append(words[1] + "*")
    assert fixed == chain.KEYS


# ---- fingerprints


def vocabulary_bytes(directory, end, pattern):
    """What vocab_fp hashes, from the files of a vocabulary in a dataset."""
    characters, file = pathlib.Path(directory) / "characters.txt", pathlib.Path(directory) / "tokenizer.json"
    merges, tokens, special, kind = [], [], [], b"GPT2BPE1\n"
    if characters.exists():
        kind, tokens = b"CHARACT1\n", [character.encode() for character in characters.read_text()] + [b"<|endoftext|>"]
        special = [len(tokens) - 1]
    elif file.exists():
        model, added = json.loads(file.read_text()), {}
        for token in model["added_tokens"]:
            added[token["id"]] = token["content"].encode()
        texts = {spelled(token): i for token, i in model["model"]["vocab"].items() if i not in added}
        by_id = {i: token for token, i in texts.items()} | added
        tokens, special = [by_id[i] for i in range(len(by_id))], sorted(added)
        pairs = (pair.split() if isinstance(pair, str) else pair for pair in model["model"]["merges"])
        for left, right in ((spelled(left), spelled(right)) for left, right in pairs):
            merges.append((texts[left + right], texts[left], texts[right]))
        width = "H" if len(tokens) <= 65536 else "I"
        whole = int(model["model"].get("ignore_merges", False))
        kind = f"BYTEBPE1\n{pattern} {whole} {len(tokens) - len(special)} {len(merges)}\n".encode()
        kind += b"".join(struct.pack(f"<3{width}", left, right, made) for made, left, right in sorted(merges))
    else:
        by_id = {i: token for token, i in gpt2.ranks().items()}
        tokens, special = [by_id[i] for i in range(50256)] + [b"<|endoftext|>"], [50256]
    last = special == list(range(len(tokens) - len(special), len(tokens)))
    return kind + b"".join(struct.pack("<I", len(token)) + token for token in tokens) + struct.pack("<I", end) + (
        b"" if last else b"".join(struct.pack("<I", i) for i in special)
    )


def check_manifest(directory, pattern="gpt2"):
    """Every rule of the page about dataset.jsonl."""
    first, *others = (pathlib.Path(directory) / "dataset.jsonl").read_bytes().splitlines(keepends=True)
    head, rows = json.loads(first), [json.loads(line) for line in others]
    table, shard = re.search(r"\n## Datasets\n.*?```text\n(.*?)```.*?```text\n(.*?)```", PAGE, re.S).groups()
    keys = [re.findall(r"[a-z_]+", line[:14]) for line in table.splitlines()]
    assert set(sum(keys, [])) == head.keys() | {"part", "names_from"} and "part" not in head
    assert {*sum((re.findall(r"[a-z_]+", line[:14]) for line in shard.splitlines()), [])} == rows[0].keys()
    sha = lambda text: hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()  # noqa: E731
    assert head["format"] == "SHRDSET2" and head["lines_hash"] == sha(b"".join(others))
    assert head["header_hash"] == sha(first[: first.rindex(b',"header_hash"')]) and first.endswith(head["header_hash"].encode() + b'"}\n')
    assert head["params_fp"] == sha(head["params"] + "\n")
    assert head["vocab_fp"] == sha(vocabulary_bytes(directory, head["eot_id"], pattern)), directory
    lines = "".join("{split} {tokens} {documents} {content_hash}\n".format(**row) for row in rows)
    assert head["fingerprint"] == sha(lines + f"val={head['val_share']} seed={head['val_seed']}\n" + head["vocab_fp"])
    count = {"train": 0, "val": 0}
    for row in rows:
        number = count[row["split"]]
        assert row["file"] == f"{row['split']}/{number // 1000:03}/{number:06}.zst"
        assert row["bytes"] == (pathlib.Path(directory) / row["file"]).stat().st_size
        count[row["split"]] += 1
    for split in count:
        own = [row for row in rows if row["split"] == split]
        assert head[split] == {"shards": len(own), "tokens": sum(row["tokens"] for row in own), "documents": sum(row["documents"] for row in own)}
    assert head["source_bytes"] == sum(row["source_bytes"] for row in rows)
    return head


def tokenize(name, *options, text=None):
    pathlib.Path("text.txt").write_text(text or audit.text())
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "paragraphs", "--val", "0.2", *options, "-o", name, "text.txt")


def setup():
    (pathlib.Path("abc.txt")).write_text("\n" + "".join(map(chr, range(32, 127))))
    tokenize("characters", "--vocabulary", "abc.txt")
    tokenize("gpt2")
    runner.call(f"{BIN}/shardtool", "train-vocabulary", "-q", "--vocab-size", "300", "-o", "own", "text.txt")
    tokenize("merges", "--vocabulary", "own")


def test_manifests_and_vocabularies_have_the_fingerprints_of_the_page():
    talk = [{"role": "user", "content": "a mill?"}, {"role": "assistant", "content": "yes"}]
    pathlib.Path("talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for _ in range(50)))
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0.2", "--vocabulary", "own", "-o", "turns", "talks.jsonl")
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0.2", "-o", "gpt2_turns", "talks.jsonl")
    tokenize("other", "--frame-tokens", "1000", "--vocabulary", "own", text="another text\n\n" * 40)
    runner.call(f"{BIN}/shardtool", "merge", "-o", "merged", "merges", "other")
    heads = {name: check_manifest(name) for name in "characters gpt2 merges turns gpt2_turns merged".split()}
    assert heads["merged"]["params"] == "merge" and heads["merged"]["vocab_fp"] == heads["merges"]["vocab_fp"]
    assert len({head["vocab_fp"] for head in heads.values()}) == 5


def test_special_tokens_that_are_not_the_last_belong_to_the_fingerprint():
    rows = json.loads((ROOT / "tests/data/special_vocabularies.json").read_text())["vocabularies"]
    for i, row in enumerate(rows):
        os.mkdir(f"special{i}")
        for name, content in row["files"].items():
            pathlib.Path(f"special{i}", name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        tokenize(f"of_special{i}", "--vocabulary", f"special{i}", *row["options"])
        assert check_manifest(f"of_special{i}", "llama3" if row["name"] == "llama3" else "gpt2")["eot_id"] == row["end"]


# ---- evaluations


def evaluate(datasets, *options):
    """The samples that evaluations of a run read, in order, as (split, mode, source, T, sample); and the eval_rule of their records."""
    with tempfile.TemporaryDirectory() as folder, client.Loader(f"ipc://{folder}/loader", datasets[0], datasets[1:]):
        proxy = FlipProxy(f"ipc://{folder}/loader/data.sock", 1 << 60)
        vocabulary = os.path.abspath("abc.txt")
        audit.train(folder, f"--loader=tcp://127.0.0.1:{proxy.port}", "--dataset=", f"--vocabulary={vocabulary}", "--max_iters=1", "--eval_interval=1", "--seed=7", *options)
        proxy.stop()
        rules = {line["eval_rule"] for line in audit.read_lines(folder) if "eval_rule" in line}
    seen = []
    for message, *_ in proxy.sent:
        if message[6] == 3:  # GET: its body is behind the header
            fp8, seed, first, rows, t, split, mode, source = struct.unpack("<8sQQIIBBH", message[64:100])
            if seed == 1337:
                seen += [(split, mode, source, t, first + i) for i in range(rows)]
    return list(dict.fromkeys(seen)), rules


def rule(text):
    return {f"{int.from_bytes(hashlib.sha256(text).digest()[:8], 'little') >> 1 | 1:016x}"}


def test_evaluations_read_the_samples_of_the_page_and_have_its_rule():
    head = check_manifest("characters")
    fingerprint = bytes.fromhex(head["fingerprint"])
    blocks = {split: (head[name]["tokens"] - 1) // 16 for split, name in enumerate(("train", "val"))}
    for options, order, mode, t, m, words in (
        ((), 0, 9, 16, 4, b""),
        (("--eval_order=sequential", "--document_mask=True"), 1, 3, 16, 4, b" within documents"),
        (("--eval_tokens=81", "--eval_block_size=8"), 0, 9, 8, 11, b""),
        (("--eval_tokens=1000000",), 0, 9, 16, 62500, b""),
    ):
        counts = {split: min(m, (head[name]["tokens"] - 1) // t) for split, name in enumerate(("train", "val"))}
        assert m == 4 or m == 11 or counts == blocks
        ends = [m > (head[name]["tokens"] - 1) // t and (head[name]["tokens"] - 1) % t > 0 for name in ("train", "val")]
        seen, rules = evaluate(["characters"], *options)
        want = [[(split, mode, 0, t, i) for i in range(counts[split])] + [(split, 10, 0, t, 0)] * ends[split] for split in counts]
        assert seen == want[0] + want[1], (options, seen)
        assert rules == rule(f"{order} {counts[1]} {t}".encode() + words + b" to the end" * ends[1] + fingerprint), options


def test_evaluations_of_mixtures_read_each_source_alone():
    tokenize("second", "--vocabulary", "abc.txt", text="a second text of other words about bread\n\n" * 30)
    pathlib.Path("text.txt").write_text("a third text\n\n" * 20)
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "paragraphs", "--vocabulary", "abc.txt", "-o", "no_val", "text.txt")
    names, weights, m = ["characters", "no_val", "second"], (30, 25, 10), 10
    heads, w = [check_manifest(name) for name in names], mixture.scaled(weights)
    want, text = [], b""
    for split, name in enumerate(("train", "val")):
        tokens = [head[name]["tokens"] for head in heads]
        parts = [i for i in range(3) if tokens[i] > 16]
        total = sum(w[i] for i in parts)
        text = f"0 {min(m, (sum(tokens) - 1) // 16)} 16".encode()
        for i in parts:
            count, most = -(-m * w[i] // total), (tokens[i] - 1) // 16
            to_end = count > most and (tokens[i] - 1) % 16 > 0
            want += [(split, 9, i + 1, 16, sample) for sample in range(min(count, most))] + [(split, 10, i + 1, 16, 0)] * to_end
            text += b" to the end" * to_end + f"\n{names[i]} {tokens[i]} {w[i]}".encode()
    seen, rules = evaluate([f"{name}:{weight}" for name, weight in zip(names, weights)], f"--eval_tokens={m * 16}")
    assert len(seen) == len(want) and seen == want, (seen, want)
    assert rules == rule(text)
