"""shardtool against tiktoken, zstd, python-zstandard and the json module."""
import functools, gzip, hashlib, io, json, lzma, os, random, re, struct, subprocess, tarfile
import numpy as np
import zstandard
import gpt2, philox, runner

BIN, DATA = os.environ["BIN"], os.environ["DATA"]
TOOL = os.path.join(BIN, "shardtool")
EOT = 50256
ENCODING = gpt2.encoding()


def run(*arguments, **more):
    return runner.call(TOOL, *arguments, **more).stdout


def ids_of(documents):
    """What nanoGPT's prepare.py writes: each document, then 50256."""
    out = bytearray()
    for document in documents:
        text = document if isinstance(document, str) else document.decode("utf-8", "replace")
        ids = ENCODING.encode_ordinary(text) + [EOT]
        out += struct.pack(f"<{len(ids)}H", *ids)
    return bytes(out)


def zstd_dc(path):
    return subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout


def shards(directory, split):
    found = []
    for folder, _, names in os.walk(os.path.join(directory, split)):
        found += [os.path.join(folder, name) for name in names if name.endswith(".zst")]
    return sorted(found)


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def vectors(count):
    with open(os.path.join(DATA, "tokenizer_vectors.jsonl"), encoding="utf-8") as file:
        for line in list(file)[:count]:
            row = json.loads(line)
            if "text" in row:
                yield row["text"]


def words(rng, count):
    letters = "abcdefghijklmnop éßжあ🙂0123456789.,'\n\t"
    return "".join(rng.choice(letters) * rng.choice([1, 1, 1, 2]) for _ in range(count))


@functools.lru_cache
def set_of_shards():
    """The documents and the shards of the dataset `set`."""
    rng = random.Random(1)
    documents = [words(rng, rng.randrange(1, 3000)) for _ in range(60)] + [""] + [words(rng, 100000)]
    write("a.jsonl", "".join(json.dumps({"id": i, "text": d}) + "\n" for i, d in enumerate(documents)).encode())
    run("tokenize", "-o", "set", "--val", "0", "--shard-tokens", "32768", "a.jsonl")
    paths = shards("set", "train")
    assert len(paths) > 1, "several shards, so that documents are cut"
    return documents, paths


def test_shards_are_nanogpts_file():
    documents, paths = set_of_shards()
    joined = b"".join(zstd_dc(path) for path in paths)
    assert joined == ids_of(documents)
    assert all(len(zstd_dc(path)) == 65536 for path in paths[:-1])
    for path in paths:
        subprocess.run(["zstd", "-tq", path], check=True)
        with open(path, "rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            assert reader.read() == zstd_dc(path)
    assert run("cat", *paths) == joined
    run("verify", "set")


def test_layout_is_the_seekable_format():
    """Parsed here from the public format alone: every frame found through the table decodes to its place."""
    path = set_of_shards()[1][0]
    with open(path, "rb") as file:
        data = file.read()
    count, descriptor, magic = struct.unpack("<IBI", data[-9:])
    assert magic == 0x8F92EAB1 and descriptor == 0x80
    table = len(data) - 9 - 12 * count - 8
    assert struct.unpack("<II", data[table : table + 8]) == (0x184D2A5E, 12 * count + 9)
    offset, out, names = 0, b"", []
    for i in range(count):
        size, raw, checksum = struct.unpack_from("<III", data, table + 8 + 12 * i)
        block = data[offset : offset + size]
        if raw:
            frame = zstandard.get_frame_parameters(block)
            assert frame.content_size == raw and frame.has_checksum and frame.dict_id == 0
            assert frame.window_size == raw, "single segment"
            assert struct.unpack("<I", block[-4:])[0] == checksum
            out += zstandard.ZstdDecompressor().decompress(block)
        else:
            assert checksum == 0x51D8E999
            names.append(block[:4][::-1].hex())
        offset += size
    assert offset == table and out == zstd_dc(path)
    assert names == ["fd2fb528", "184d2a50", "184d2a51", "184d2a52"], names
    # the trailer's numbers
    size = struct.unpack_from("<I", data, table + 8 + 12 * (count - 1))[0]
    trailer = data[table - size + 8 : table]
    tokens, documents, source = struct.unpack_from("<QQQ", trailer)
    assert tokens * 2 == len(out) and trailer[24:56] == hashlib.sha256(out).digest()


def test_val_split_is_by_hash_and_loses_nothing():
    rng = random.Random(2)
    documents = [f"{i} " + words(rng, 50) for i in range(400)]
    write("b.jsonl", "".join(json.dumps({"text": d}) + "\n" for d in documents).encode())
    run("tokenize", "-o", "split", "--val", "0.25", "b.jsonl")
    read = {}
    for split in ("train", "val"):
        ids = b"".join(zstd_dc(path) for path in shards("split", split))
        ids = struct.unpack(f"<{len(ids) // 2}H", ids)
        rows, row = [], []
        for i in ids:
            if i == EOT:
                rows.append(ENCODING.decode(row))
                row = []
            else:
                row.append(i)
        assert not row
        read[split] = rows
    assert sorted(read["train"] + read["val"]) == sorted(documents)
    assert [d for d in documents if d in set(read["train"])] == read["train"], "in order"
    assert 60 < len(read["val"]) < 140
    # stable under order and neighbours
    write("c.jsonl", "".join(json.dumps({"text": d}) + "\n" for d in reversed(documents[100:])).encode())
    run("tokenize", "-o", "split2", "--val", "0.25", "c.jsonl")
    text = run("decode", "--raw", stdin=b"".join(zstd_dc(p) for p in shards("split2", "val"))).decode()
    assert set(text.split("<|endoftext|>")[:-1]) == set(read["val"]) & set(documents[100:])


def tree(directory):
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = file.read()
    found.pop(".lock", None)
    return found


# fault 26
def test_bytes_do_not_depend_on_threads():
    rng = random.Random(3)
    write("d.jsonl", "".join(json.dumps({"text": words(rng, rng.randrange(5000))}) + "\n" for _ in range(300)).encode())
    write("d.txt", (words(rng, 9000) * 90).encode())
    arguments = ["--val", "0.3", "--shard-tokens", "64k", "--frame-tokens", "4096", "d.jsonl", "d.txt"]
    seen = None
    for threads in (1, 2, 5):
        out = f"threads{threads}"
        run("tokenize", "-o", out, "-j", str(threads), *arguments)
        seen = seen or tree(out)
        assert tree(out) == seen, threads


@runner.ci
def test_a_level_changes_the_size_and_not_the_ids():
    rng = random.Random(8)
    phrases = [words(rng, rng.randrange(2, 20)) for _ in range(3000)]
    texts = [" ".join(phrases[min(int(rng.expovariate(1 / 300)), 2999)] for _ in range(rng.randrange(300))) for _ in range(300)]
    write("level.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts).encode())
    sizes = {}
    for level in range(1, 20):
        out = f"level{level}"
        run("tokenize", "-o", out, "--val", "0", "--level", str(level), "level.jsonl")
        (path,) = shards(out, "train")
        assert zstd_dc(path) == zstd_dc(shards("level1", "train")[0]), level
        sizes[level] = os.path.getsize(path)
        run("verify", "-q", out)
    assert sizes[1] > sizes[3] > sizes[9] > sizes[19] and sizes[2] < 1.03 * sizes[3], sizes
    run("tokenize", "-o", "level", "--val", "0", "level.jsonl")
    assert tree("level") == tree("level2")
    refused = runner.call(TOOL, "tokenize", "-o", "level1", "--val", "0", "level.jsonl", code=2).stderr
    assert b"--level" in refused, refused  # other bytes than those there
    for level in "0", "20", "-1":
        run("tokenize", "-o", "none", "--level", level, "level.jsonl", code=2)


@runner.ci
def test_long_document_equals_the_whole():
    rng = random.Random(4)
    text = words(rng, 9000) * 50 + "x" * 1200000 + words(rng, 9000) * 50  # several windows, one of them a single word
    write("long.txt", text.encode())
    assert zstd_bytes(run("tokenize", "-o", "-", "long.txt")) == ids_of([text])
    write("long.jsonl", (json.dumps({"text": text}) + "\n" + json.dumps({"text": "next"}) + "\n").encode())
    assert zstd_bytes(run("tokenize", "-o", "-", "long.jsonl")) == ids_of([text, "next"])


@runner.ci
def test_documents_may_cross_batches_and_windows():
    """Documents that do not fit what is left of a batch, and one in windows that goes to validation whole."""
    rng = random.Random(10)
    documents = [f"{i} " + words(rng, 3000) * 110 for i in range(7)] + [words(rng, 5000) * 500, "last"]
    write("straddle.jsonl", "".join(json.dumps({"text": d}) + "\n" for d in documents).encode())
    want = ids_of(documents)
    run("tokenize", "-o", "straddle", "--val", "0", "-j", "2", "straddle.jsonl")
    assert b"".join(zstd_dc(p) for p in shards("straddle", "train")) == want
    run("tokenize", "-o", "straddle", "--force", "--val", "1", "straddle.jsonl")
    assert shards("straddle", "train") == []
    assert b"".join(zstd_dc(p) for p in shards("straddle", "val")) == want
    rows = [json.loads(line) for line in open("straddle/dataset.jsonl")]
    assert rows[1]["documents"] == 9 and rows[1]["source_bytes"] == sum(len(d.encode()) for d in documents)
    assert rows[1]["from"]["document"] == 0 and rows[1]["to"]["document"] == 8


def zstd_bytes(data):
    return subprocess.run(["zstd", "-dcq"], input=data, check=True, capture_output=True).stdout


def documents_of(*arguments, **more):
    return [json.loads(line)["text"] for line in run("decode", "--json", *arguments, **more).splitlines()]


def surrogates(text):
    """Pairs joined, lone halves replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# fault 9
def test_json_lines_are_read_as_by_the_json_module():
    rng = random.Random(5)
    pieces = ["a", "\\n", "\\u0041", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\u0000", '\\"', "\\\\", "é", "🙂", "\\/", "\\b\\f\\r\\t"]
    values = ["1", "-0.5e+3", "null", "true", '[1, [2, {}], {"text": "no"}]', '{"text": "no"}', "NaN", '"text"']
    keys = ["text", "te\\u0078t"]
    lines, want = [], []
    for i in range(3000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(40)))
        others = [f'"k{j}": {rng.choice(values)}' for j in range(rng.randrange(4))]
        fields = others + [f'"{rng.choice(keys)}" {rng.choice(["", " "])}:\t"{text}"']
        if rng.random() < 0.1:
            fields = ['"text": "the first of two"'] + fields
        rng.shuffle(fields)
        line = "{" + ", ".join(fields) + "}"
        lines.append(line + rng.choice(["", " ", "\r"]))
        want.append(surrogates(json.loads(line)["text"]))
    write("j.jsonl", b"\xef\xbb\xbf" + "\n\n".join(lines).encode())
    assert documents_of("j.jsonl") == want


def test_text_writes_what_the_json_module_reads():
    rng = random.Random(7)
    runs = [b"plain ASCII", b"\xc3\xa9", b"\xe4\xb8\xad", b"\xf0\x9f\x98\x80", b'"', b"\\", b"\n", b"\t", b"\0", b"\x1f", b"\x7f", b"/"]
    broken = [b"\x80", b"\xff", b"\xe4\xb8", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]
    documents = []
    for i in range(4000):
        pieces = [rng.choice(runs)[: rng.randrange(1, 12)] if rng.random() < 0.4 else b"x" * rng.randrange(20) for _ in range(rng.randrange(20))]
        if i % 3 == 0:
            pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(broken))
        documents.append(b"".join(pieces))
    lines = [b'{"text": ' + json.dumps(d.decode("latin-1"), ensure_ascii=False).encode("latin-1") + b"}" for d in documents]
    write("t.jsonl", b"\n".join(lines))
    assert run("decode", "-0", "t.jsonl") == b"".join(document + b"\0" for document in documents)
    out = run("decode", "--json", "t.jsonl").decode().split("\n")[:-1]
    assert [json.loads(line)["text"] for line in out] == [document.decode("utf-8", "replace") for document in documents]


# fault 9
def test_bad_json_lines_are_those_of_the_json_module():
    good = '{"text": "x", "n": [1, {"a": null}]}'
    rng = random.Random(6)
    lines = []
    for _ in range(4000):
        line = bytearray(good.encode())
        for _ in range(rng.randrange(1, 3)):
            i = rng.randrange(len(line))
            if rng.random() < 0.5:
                line[i] = rng.choice(b'{}[]",:\\ x0-.eE\x01u')
            else:
                del line[i]
        lines.append(bytes(line))

    def parse(line):
        """A text; None for a null text, and for an object without the key; False for a bad line."""
        try:
            row = json.loads(line)
        except ValueError:
            return False
        text = row.get("text") if isinstance(row, dict) else False
        return text if text is None or isinstance(text, str) else False

    blank = [line for line in lines if not line.strip(b" \t\r")]
    want = [surrogates(t) for t in map(parse, lines) if isinstance(t, str)]
    bad = sum(t is False for t in map(parse, lines)) - len(blank)
    assert bad > 1000 and len(want) > 100
    write("bad.jsonl", good.encode() + b"\n" + b"\n".join(lines) + b"\n")
    assert documents_of("--max-bad", str(bad), "bad.jsonl") == ["x"] + want
    run("decode", "--json", "--max-bad", str(bad - 1), "bad.jsonl", code=65)


# fault 8
def test_dotted_paths_and_long_lines_are_read():
    texts = ["short", "y\n" * 700000, "z"]
    rows = [json.dumps({"text": "no", "meta": {"pad": "p" * 600000, "body": {"text": t}, "x": 1}}) for t in texts]
    write("deep.jsonl", "\n".join(rows).encode())
    assert documents_of("--text-field", "meta.body.text", "deep.jsonl") == texts
    # a key that is spelled with dots counts before the nested one, as of columns of Parquet
    flat = {"meta.body.text": "spelled", "meta": {"body": {"text": "nested"}}}
    rows = [flat, dict(reversed(flat.items())), {"meta.body.text": None} | flat, {"meta": {"meta.body.text": "no", "body.text": "no", "body": {"text": "nested"}}}]
    write("flat.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    assert documents_of("--text-field", "meta.body.text", "flat.jsonl") == ["spelled"] * 3 + ["nested"]
    run("tokenize", "--turns", "--val", "0", "--text-field", "meta.body.text", "-o", "flat", "flat.jsonl")
    assert documents_of("flat") == ["spelled"] * 3 + ["nested"]


def paragraphs(text):
    return [p for p in re.split(r"\r?\n(?:[ \t\r]*\n)+", re.sub(r"\A(?:[ \t\r]*\n)+", "", text)) if p.strip("\r\n")]


def test_lines_and_paragraphs_become_documents():
    rng = random.Random(7)
    for round in range(40):
        text = "".join(rng.choice(["a", "b c", " ", "\n", "\n", "\r\n", "\n\n", "\t", "é"]) for _ in range(rng.randrange(200)))
        text = "start" + text + "end"
        if round == 0:
            text = "start" + "long line " * 60000 + "\n \n" + "x\n" * 300000 + "\r\n\r\n" + "end"
        write("t.txt", text.encode())
        assert documents_of("t.txt") == [text]
        assert documents_of("--docs", "lines", "t.txt") == [l.removesuffix("\r") for l in text.split("\n") if l.removesuffix("\r")]
        assert documents_of("--docs", "paragraphs", "t.txt") == paragraphs(text), repr(text)
    assert run("decode", "-0", "--docs", "lines", stdin=b"a\nb\xff\n") == b"a\0b\xff\0"
    # a byte order mark at the head of a file is none of its text
    text = "é\n\nb\ufeff"
    for marks in range(3):
        write("marked.txt", b"\xef\xbb\xbf" * marks + text.encode())
        want = open("marked.txt", encoding="utf-8-sig").read()
        write("again.txt", b"\xef\xbb\xbf")
        assert documents_of("marked.txt", "again.txt") == [want]
        assert documents_of("--docs", "lines", "marked.txt", "again.txt") == want.split("\n\n")
        assert documents_of("--docs", "paragraphs", "marked.txt", "again.txt") == paragraphs(want)
        assert run("train-vocabulary", "--characters", "marked.txt").decode() == "".join(sorted(set(want)))
    assert documents_of(stdin=b"\xff\xe2\x28\xf0\x9f") == [b"\xff\xe2\x28\xf0\x9f".decode("utf-8", "replace")]


def tar_of(members, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return out.getvalue()


def test_members_of_archives_are_read_and_filtered():
    members = [("../b.txt", b"one"), ("dir/a.jsonl", b'{"text": "two"}\n{"text": "three"}\n'), ("e.txt", b""),
               (".hidden", b"no"), ("z" * 150 + "/long.txt", b"four " * 100000)]
    want = ["one", "two", "three", "four " * 100000]
    plain = tar_of(members)
    compress = {"": lambda d: d, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
    for name, squeeze in compress.items():
        write("x.tar" + name, squeeze(plain))
        assert documents_of("x.tar" + name) == want, name
        write("x.jsonl" + name, squeeze(b'{"text": "two"}\n{"text": "three"}\n'))
        assert documents_of("x.jsonl" + name) == ["two", "three"], name
        write("x.txt" + name, squeeze(b"plain\n"))
        assert documents_of(stdin=squeeze(b"plain\n")) == ["plain\n"], name
    write("two.gz", gzip.compress(b"a") + gzip.compress(b"b"))
    assert documents_of("two.gz") == ["ab"]
    write("nest.tar", tar_of([("in.tar.xz", lzma.compress(tar_of([("deep.txt", b"deep")])))]))
    assert documents_of("nest.tar") == ["deep"]


def test_decode_inverts_encode():
    rng = random.Random(9)
    # an empty file has no document, and a byte order mark at the head of a file is no text
    texts = [text for text in vectors(300) if text and text[0] != "\ufeff"] + [words(rng, 9000) * 30]
    for i, text in enumerate(texts):
        write(f"v/{i:03}", text.encode())
    paths = [f"v/{i:03}" for i in range(len(texts))]
    want = [ENCODING.encode_ordinary(text) for text in texts]
    raw = b"".join(struct.pack(f"<{len(ids)}H", *ids) for ids in want)
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in want).encode()
    assert run("tokenize", "--ids", "--format", "text", *paths) == lines
    assert run("tokenize", "--raw", "--format", "text", *paths) == raw
    assert run("tokenize", "--ids", "--format", "text", stdin=texts[-1].encode()) == lines.splitlines(keepends=True)[-1]
    assert run("decode", "--raw", stdin=raw) == run("decode", stdin=lines) == "".join(texts).encode()
    assert run("decode", stdin=b"15496 50256\n995") == ENCODING.decode_bytes([15496, EOT, 995])


def test_merged_shard_keeps_frames_and_documents():
    paths = set_of_shards()[1]
    run("cat", "-o", "merged.zst", *paths)
    assert zstd_dc("merged.zst") == b"".join(zstd_dc(p) for p in paths)
    run("verify", "merged.zst")
    with open("catted.zst", "wb") as out:
        for path in paths:
            with open(path, "rb") as file:
                out.write(file.read())
    run("verify", "catted.zst")
    merged, catted = (json.loads(run("info", "--json", p)) for p in ("merged.zst", "catted.zst"))
    for key in ("tokens", "documents", "source_bytes", "frames"):
        assert merged[key] == catted[key], key
    assert merged["documents"] == 62 and merged["content_hash"] == hashlib.sha256(zstd_dc("merged.zst")).hexdigest()


def test_the_manifest_has_the_fingerprints_of_its_shards():
    set_of_shards()
    with open("set/dataset.jsonl") as file:
        head, *lines = file.readlines()
    head, rows = json.loads(head), [json.loads(line) for line in lines]
    assert head["lines_hash"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert head["params_fp"] == hashlib.sha256((head["params"] + "\n").encode()).hexdigest()
    assert head["params"] == ("frame_tokens=32768;codec=pairs,4,13,13,17,1;eot=after;invalid=replace;docs=file;field=text;"
                              "val=0;val_seed=0;shard_tokens=32768")
    text = "".join(f"{r['split']} {r['tokens']} {r['documents']} {r['content_hash']}\n" for r in rows)
    text += "val=0 seed=0\n" + head["vocab_fp"]
    assert head["fingerprint"] == hashlib.sha256(text.encode()).hexdigest()
    vocabulary = b"GPT2BPE1\n"
    for i in range(50257):
        token = ENCODING.decode_single_token_bytes(i)
        vocabulary += struct.pack("<I", len(token)) + token
    assert head["vocab_fp"] == hashlib.sha256(vocabulary + struct.pack("<I", EOT)).hexdigest()
    assert sum(r["documents"] for r in rows) == 62 == head["train"]["documents"]


def reservoir(count, total, seed):
    """Algorithm R with the numbers of common/rng.h."""
    w = [x.tolist() for x in philox.words(seed, 0, np.arange(total))]
    chosen = list(range(min(count, total)))
    for i in range(count, total):
        place = ((w[1][i] << 32 | w[0][i]) * (i + 1)) >> 64
        if place < count:
            chosen[place] = i
    return sorted(chosen)


def test_random_documents_are_those_of_a_reservoir(folder):
    lines = [f"document {number}" for number in range(2000)]
    write(f"{folder}/in.txt", "\n".join(lines).encode())
    run("tokenize", "-q", "--docs", "lines", "--val", "0", "--shard-tokens", "1000", "-o", f"{folder}/set", f"{folder}/in.txt")
    times = np.zeros(len(lines), int)
    for seed in range(40):
        count = [1, 3, 100, 1999, 2000, 5000][seed % 6]
        got = [json.loads(line) for line in run("decode", "--json", "--random", str(count), "--seed", str(seed), f"{folder}/set").splitlines()]
        assert [row["document"] for row in got] == reservoir(count, len(lines), seed)
        assert [row["text"] for row in got] == [lines[row["document"]] for row in got]
    for seed in range(2000):  # each is chosen with the same probability: chi-square of 199 degrees of freedom, 5 deviations
        times[reservoir(20, 200, seed)] += 1
    assert abs(((times[:200] - 200) ** 2 / 180).sum() - 199) < 5 * 398**0.5
