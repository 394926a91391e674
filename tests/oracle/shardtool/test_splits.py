"""Two laws of validation splits, for every command that makes or joins datasets. The split of a document depends on its bytes, --val and
--seed alone, however its file is packed. And no document that one dataset validates on is trained on, unnoticed, after it was joined with
another. The expected splits are those of dataset/dataset.h, by Python's xxhash."""
import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import zipfile

import pyarrow
import pyarrow.parquet
import xxhash
import zstandard

import runner

BIN = pathlib.Path(os.environ["BIN"]).resolve()
TEXTS = {f"{'sub/' * (i % 3 == 0)}{i:03}.txt": f"mill {i} grinds {i * 7919 % 1000} sacks{' of rye' * (i % 5)}.".encode() for i in range(60)}
TEXTS |= {"bom.txt": b"a mill", "crlf.txt": b"a\r\nmill\r\n", "line.txt": b"\n", "long.txt": b"x" * 70000 + b" one", "long2.txt": b"x" * 70000 + b" two"}
TEXTS |= {"twice.txt": TEXTS["001.txt"], "nul.txt": b"a\0b", "accent.txt": "a moulin à vent".encode()}
BAD = {"bad.txt": b"not \xff UTF-8"}  # U+FFFD, but the split is that of the file's bytes


def tool(*arguments, code=0, **options):
    done = subprocess.run([BIN / "shardtool", *map(str, arguments)], capture_output=True, **options)
    assert done.returncode == code, (arguments, done.returncode, done.stderr.decode())
    return done.stderr.decode()


def is_val(text, share, seed):
    return xxhash.xxh3_64_intdigest(text[:65536], seed) < int(share * 2**64)


def expected(texts, share, seed):
    """The texts of train and val, sorted."""
    return [sorted(text.decode("utf-8", "replace") for text in texts if is_val(text, share, seed) == val) for val in (False, True)]


def found(dataset):
    splits = []
    for split in "train", "val":
        lines = subprocess.run([BIN / "shardtool", "decode", "-q", "--json", "--split", split, dataset], capture_output=True, check=True).stdout
        splits.append(sorted(json.loads(line)["text"] for line in lines.splitlines()))
    return splits


# ---- packings: each writes the texts into the current folder, and returns the inputs and what comes from a pipe


def folder(texts, change=lambda data: data, end=""):
    for name, text in texts.items():
        path = pathlib.Path("files", name + end)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(change(text))
    return ["files"]


def tar(texts, mode="w", name="files.tar"):
    with tarfile.open(name, mode) as archive:
        for member, text in texts.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return [name]


def wrap(names, change, end):
    pathlib.Path(names[0] + end).write_bytes(change(pathlib.Path(names[0]).read_bytes()))
    os.remove(names[0])
    return [names[0] + end]


def zipped(texts, kind=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile("files.zip", "w", kind) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return ["files.zip"]


def json_lines(texts):
    pathlib.Path("files.jsonl").write_text("".join(json.dumps({"text": text.decode(), "name": name}) + "\n" for name, text in texts.items()))
    return ["files.jsonl"]


def rows():
    return {"mills.jsonl": pathlib.Path(json_lines(TEXTS)[0]).read_bytes(), **ABOUT}


def parquet(texts):
    pyarrow.parquet.write_table(pyarrow.table({"text": [text.decode() for text in texts.values()]}), "files.parquet", row_group_size=7)
    return ["files.parquet"]


def zstd(data):
    return zstandard.ZstdCompressor().compress(data)


def nested(texts):
    inner = pathlib.Path(tar(texts, "w:gz", "inner.tar.gz")[0])
    data = inner.read_bytes()
    inner.unlink()
    return tar({"a/inner.tar.gz": data, "plain.txt": b"beside it"})


# Not read: by a name that begins with a dot, files about the others, and what Spark writes beside its rows
ABOUT = {"README.md": b"# Mills", "sub/LICENSE": b"No rights.", "dataset_infos.json": b'{\n "mills": {}\n}\n'}
FILES = {**TEXTS, **ABOUT, "bom.txt": b"\xef\xbb\xbf" + TEXTS["bom.txt"], **BAD, ".hidden.txt": b"hidden", ".git/x.txt": b"x", "sub/.git/y.txt": b"y", "sub/_temporary/0/z.txt": b"z"}
PLAIN = {**FILES, "_SUCCESS": b"done", "_metadata": b"an index", "sub/_started_7": b"started"}
PACKINGS = {
    "folder": lambda: folder(PLAIN),
    "tar": lambda: tar(PLAIN),
    "tar in another order": lambda: tar(dict(reversed(FILES.items()))),
    "tar.gz": lambda: tar(FILES, "w:gz", "files.tar.gz"),
    "tar.bz2": lambda: tar(FILES, "w:bz2", "files.tar.bz2"),
    "tar.xz": lambda: tar(FILES, "w:xz", "files.tar.xz"),
    "tar.zst": lambda: wrap(tar(FILES), zstd, ".zst"),
    "zip": lambda: zipped({"./" + name: text for name, text in PLAIN.items()}),
    "stored zip": lambda: zipped(FILES, zipfile.ZIP_STORED),
    "gzip files": lambda: folder(FILES, gzip.compress, ".gz"),
    "zstd files": lambda: folder(FILES, zstd, ".zst"),
    "xz files": lambda: folder(FILES, lzma.compress, ".xz"),
    "bzip2 files": lambda: folder(FILES, bz2.compress, ".bz2"),
    "tar of gzip files": lambda: tar({name + ".gz": gzip.compress(text) for name, text in FILES.items()}),
    "zip in a tar": lambda: tar({"files.zip": pathlib.Path(zipped(FILES)[0]).read_bytes()}),
    "folder with JSON lines": lambda: folder(rows()),
    "tar with JSON lines": lambda: tar(rows()),
    "zip with JSON lines": lambda: zipped(rows()),
    "JSON lines": lambda: json_lines(TEXTS),
    "JSON lines.zst": lambda: wrap(json_lines(TEXTS), zstd, ".zst"),
    "Parquet": lambda: parquet(TEXTS),
}  # fmt: skip


def make(out, inputs, share, seed, *options, **given):
    return tool("tokenize", "-q", "-j", 2, "--val", share, "--seed", seed, *options, "-o", out, *inputs, **given)


def test_a_document_has_its_split_however_it_is_packed(home):
    share, seed = 0.3, 5
    for name, pack in PACKINGS.items():
        place = pathlib.Path(home, name.replace(" ", "-"))
        place.mkdir()
        os.chdir(place)
        inputs = pack()
        has_bad = "JSON" not in name and name != "Parquet"
        want = expected([*TEXTS.values(), *(BAD.values() if has_bad else [])], share, seed)
        make("out", inputs, share, seed)
        assert found("out") == want, name
        if name in ("tar", "tar.gz", "JSON lines"):  # from a pipe
            make("piped", ["-"], share, seed, input=pathlib.Path(inputs[0]).read_bytes())
            assert found("piped") == want, name
    os.chdir(home)
    shutil.rmtree("nested", ignore_errors=True)
    os.mkdir("nested")
    os.chdir("nested")
    make("out", nested(FILES), share, seed)
    assert found("out") == expected([*TEXTS.values(), *BAD.values(), b"beside it"], share, seed)


def test_a_document_has_its_split_in_whatever_steps_a_dataset_is_made(home):
    share, seed = 0.3, 5
    os.chdir(home)
    names = sorted(TEXTS)
    for number in range(3):
        for name in names[number::3]:
            path = pathlib.Path(f"files{number}", name.replace("/", "-"))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(TEXTS[name])
    folders, want = [f"files{number}" for number in range(3)], expected(TEXTS.values(), share, seed)
    make("whole", folders, share, seed)
    assert found("whole") == want
    for number in range(3):
        make("parts", folders, share, seed, "--part", f"{number + 1}/3")
    for number in range(3):
        make("appended", folders[number : number + 1], share, seed, *["--append"] * (number > 0))
        make(f"one{number}", folders[number : number + 1], share, seed)
    ones = [f"one{number}" for number in range(3)]
    tool("split", "-q", "--parts", 4, "-o", "cut", "whole")
    for out, command in (("merged", ["merge", *ones]), ("joined", ["merge", *sorted(map(str, pathlib.Path("parts").iterdir()))]),
                         ("again", ["merge", *sorted(map(str, pathlib.Path("cut").iterdir()))]), ("shuffled", ["shuffle", *ones]),
                         ("filtered", ["filter", *ones, "--min-tokens", "1"]), ("distinct", ["dedup", *ones]), ("small", ["merge", *ones, "--allow-duplicates"])):  # fmt: skip
        tool(command[0], "-q", "-o", out, *command[1:])
    for out in "appended", "merged", "joined", "again", "shuffled", "filtered", "small":
        assert found(out) == want, out
        head = json.loads(pathlib.Path(out, "dataset.jsonl").read_text().splitlines()[0])
        assert (head["val_share"], head["val_seed"]) == ("0.3", seed), (out, head)
    assert found("distinct") == [sorted(set(texts)) for texts in want]


# ---- datasets of two rules

RULES = {"same": ((0.3, 5), (0.3, 5)), "shares": ((0.3, 5), (0.1, 5)), "seeds": ((0.3, 5), (0.3, 6)), "none": ((0, 0), (0.3, 5)), "all": ((1, 0), (0, 0)), "no val": ((0, 1), (0, 2))}  # fmt: skip
JOINS = {"merge": [], "filter": ["--min-tokens", "1"], "shuffle": [], "split": ["--parts", "2"], "decontaminate": ["--against", "item.txt"]}




def test_no_document_of_validation_comes_into_training(home):
    os.chdir(home)
    texts = [text for name, text in TEXTS.items() if name not in ("long.txt", "long2.txt", "twice.txt")]
    halves = texts[:40], texts[20:]  # with 20 in both
    pathlib.Path("item.txt").write_text("nothing of this item occurs in any of the texts at all, whatever is compared\n")
    for number, half in enumerate([*halves, texts[40:]]):
        os.mkdir(f"texts{number}")
        for i, text in enumerate(half):
            pathlib.Path(f"texts{number}/{i:03}").write_bytes(text)
    refused = 0
    for name, rules in RULES.items():
        for (share, seed), out, source in zip([*rules, rules[1]], "abc", range(3), strict=False):
            make(out, [f"texts{source}"], share, seed, "--force")
        words = [f"--val {share:g} --seed {seed if 0 < share < 1 else 0}" for share, seed in rules]
        wanted = [[*expected(half, *rule)] for half, rule in zip([*halves, texts[40:]], [*rules, rules[1]], strict=True)]
        apart = [sorted(wanted[0][split] + wanted[1][split]) for split in (0, 1)]
        conflict = bool(set(apart[0]) & set(apart[1]))
        assert conflict == (name not in ("same", "no val")), name
        for command, options in JOINS.items():
            if command != "merge" and name not in ("same", "shares"):
                continue
            for left, right in (("a", "b"), ("b", "a"))[: 2 if command == "merge" else 1]:
                shutil.rmtree("out", ignore_errors=True)
                said = tool(command, "-q", *options, "-o", "out", left, right, code=2 if conflict else 0)
                if conflict:
                    assert all(f"'{dataset}' ({rule})" in said for dataset, rule in zip("ab", words, strict=True)) and "dedup" in said, (name, command, said)
                    refused += 1
            if not conflict and command != "split":
                assert found("out") == apart, (name, command)
            # of datasets that share no document the splits stay
            shutil.rmtree("out", ignore_errors=True)
            tool(command, "-q", *options, "-o", "out", "a", "c")
            if command != "split":
                assert found("out") == [sorted(wanted[0][split] + wanted[2][split]) for split in (0, 1)], (name, command)
                share = json.loads(pathlib.Path("out/dataset.jsonl").read_text().splitlines()[0])["val_share"]
                assert share == (f"{rules[0][0]:g}" if not conflict else "mixed"), (name, command, share)
        tool("dedup", "-q", "--force", "-o", "out", "a", "b")
        splits = found("out")
        assert not set(splits[0]) & set(splits[1]) and set(splits[0]) | set(splits[1]) == {text.decode() for text in texts}, name
        tool("merge", "-q", "--force", "--allow-duplicates", "-o", "out", "a", "b")
        assert found("out") == apart, name
        if conflict:  # a merged dataset has no rule
            said = tool("merge", "-q", "--force", "-o", "out2", "out", "b", code=2)
            assert "no one --val and --seed" in said, said
        if rules[0] != rules[1]:
            said = tool("tokenize", "-q", "--append", "--val", rules[1][0], "--seed", rules[1][1], "-o", "a", "texts2", code=2)
            item, at = ("--val", 0) if rules[0][0] != rules[1][0] else ("--seed", 1)
            assert all(f"{item}={rule[at]:g}" in said for rule in rules) and "merge the two" in said, said
        said = serve("a", "b")
        assert "ready: " in said, (name, said)  # a warning, no refusal
        assert all(rule in said for rule in words) == conflict and ("only merge and dedup compare" in said) == conflict, (name, said)
    assert refused == 4 * 2 + len(JOINS) - 1
    make("validated", ["texts0"], 1, 0), make("trained", ["texts0"], 0, 0)
    said = tool("dedup", "-q", "-o", "empty", "validated", "trained")
    assert "the validation split is empty: none of the 40 validation documents" in said and "one --val and --seed" in said, said
    assert found("empty") == [sorted(text.decode() for text in halves[0]), []]


def serve(*datasets):
    """What the loader of a mixture prints up to its readiness."""
    process = subprocess.Popen([BIN / "loader", "serve", *datasets, "--endpoint", "ipc://mix"], stderr=subprocess.PIPE, text=True)
    said = ""
    for line in process.stderr:
        said += line
        if "ready" in line:
            process.send_signal(signal.SIGTERM)
    return said


def test_other_tools_files_and_other_vocabularies_are_not_joined_unseen(home):
    os.chdir(home)
    folder(TEXTS)
    make("data", ["files"], 0.3, 5)
    tool("export-tokens", "-q", "--format", "nanogpt", "-o", "bins", "data")
    tool("import-tokens", "-q", "--format", "nanogpt", "-o", "imported", *sorted(map(str, pathlib.Path("bins").glob("*.bin"))))
    make("plain", ["files"], 0, 0)
    tool("import-tokens", "-q", "--format", "nanogpt", "-o", "imported2", "bins/train.bin")
    for other in "plain", "data":  # an imported val split has a rule that nobody knows
        said = tool("merge", "-q", "--force", "-o", "out", "imported", other, code=2 if other == "plain" else 0)
        assert other == "data" or ("no one --val and --seed" in said and "'plain' (--val 0 --seed 0)" in said), said
    tool("train-vocabulary", "-q", "-V", 260, "-o", "words", "files")
    make("others", ["files"], 0.3, 5, "--vocabulary", "words")
    pathlib.Path("item.txt").write_text("no item")
    for command, options in JOINS.items():
        said = tool(command, "-q", *options, "-o", "other", "data", "others", code=65)
        sizes = [json.loads(pathlib.Path(name, "dataset.jsonl").read_text().splitlines()[0])["vocab_size"] for name in ("data", "others")]
        assert "'data' and 'others'" in said and all(f" of {size}" in said for size in sizes) and "--vocabulary" in said, said


SHAPE = ["--n_layer=1", "--n_head=1", "--n_embd=8", "--block_size=8", "--batch_size=1", "--gradient_accumulation_steps=1", "--max_iters=1", "--eval_interval=0",
         "--sample_tokens=0", "--device=cpu", "--dtype=float32", "--threads=1"]  # fmt: skip


def test_a_run_that_begins_with_a_model_compares_the_rules_of_both_datasets(home):
    os.chdir(home)
    folder({name: text for name, text in TEXTS.items() if not name.startswith("long")})
    tool("train-vocabulary", "-q", "-V", 260, "-o", "words", "files")
    rows = {"base": (0.3, 5), "equal": (0.3, 5), "more": (0.4, 5), "seeded": (0.3, 6)}
    for name, (share, seed) in rows.items():
        make(name, ["files"], share, seed, "--vocabulary", "words", *["--max-tokens", 900] * (name == "equal"))

    def train(dataset, out, *options):
        done = subprocess.run([BIN / "trainer", "train", *SHAPE, f"--dataset={dataset}", f"--out_dir={out}", *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "the weights were trained" not in train("base", "runs/base")
    checkpoint = "--init_from=runs/base/ckpt-00000001"
    for name, begins in itertools.product(rows, ([checkpoint], ["--branch_from=runs/base", "--max_iters=2"])):
        share, seed = rows[name]
        said = train(name, f"runs/on-{name}{len(begins)}", *begins)
        want = f"the weights were trained on 'base', made with --val 0.3 --seed 5, and '{name}' was made with --val {share:g} --seed {seed}:"
        assert (want in said) == (name in ("more", "seeded")) and ("the weights were trained" in said) == (want in said), (name, said)
    assert "the weights were trained" not in train("more", "runs/on-more1", "--max_iters=2")  # goes on
    os.rename("base", "moved")
    assert "how that and 'more' chose their validation documents is not known here" in train("more", "runs/late", checkpoint)
