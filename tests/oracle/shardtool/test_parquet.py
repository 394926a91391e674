"""shardtool's Parquet reader against pyarrow: files of every codec, page version and encoding, and parquet-testing."""
import glob, itertools, json, os, random, subprocess
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
import runner

TOOL = os.path.join(os.environ["BIN"], "shardtool")
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
ENCODINGS = ["PLAIN", "dictionary", "dictionary with fallback", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]


def tool(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, timeout=60)


def documents(*arguments):
    """What `shardtool decode --json` finds: the bytes of each document."""
    done = tool("decode", "-0", *arguments)
    assert done.returncode == 0 or (done.returncode == 66 and not done.stdout), (arguments, done)
    return done.stdout.split(b"\0")[:-1]


def values(path, column="text"):
    """What pyarrow finds: the bytes of each value that is not null."""
    table = pq.ParquetFile(path, page_checksum_verification=True).read(columns=[column])
    array = table.column(0).combine_chunks()
    for name in column.split(".")[1:]:
        array = pc.struct_field(array, name)
    found = array.cast(pa.large_binary()).to_pylist()
    return [value for value in found if value is not None]


def words(rng, length):
    return "".join(rng.choice("abcdefghij ,.\nßжあ🙂") for _ in range(length))


def texts(rng, count):
    """Empty ones, equal neighbours, common prefixes, several bytes a character."""
    stems = [words(rng, 40) for _ in range(5)]
    out = []
    for _ in range(count):
        kind = rng.randrange(8)
        if kind == 0:
            out.append("")
        elif kind == 1 and out:
            out.append(out[-1])
        elif kind < 5:
            out.append(rng.choice(stems)[: rng.randrange(40)] + words(rng, rng.randrange(10)))
        else:
            out.append(words(rng, rng.randrange(400)))
    return out


def write(path, texts, *, nullable=True, kind=pa.string(), encoding="dictionary", **options):
    schema = pa.schema([pa.field("text", kind, nullable=nullable)])
    options.setdefault("write_page_checksum", True)
    if encoding.startswith("dictionary"):
        options["use_dictionary"] = True
        if encoding != "dictionary":
            options["dictionary_pagesize_limit"] = 2048
    else:
        options["use_dictionary"] = False
        options["column_encoding"] = encoding
    pq.write_table(pa.table({"text": pa.array(texts, kind)}, schema=schema), path, **options)


@runner.ci
def test_every_codec_page_version_and_encoding_is_read(folder):
    rng = random.Random(1)
    path = os.path.join(folder, "matrix.parquet")
    seen = 0
    for codec, version, encoding, nullable, kind, rows in itertools.product(
        CODECS, ["1.0", "2.0"], ENCODINGS, [False, True], [pa.string(), pa.large_string()], [37, 100000]
    ):
        wanted = texts(rng, 150)
        if nullable:
            wanted = [None if rng.random() < 0.2 else text for text in wanted]
        write(path, wanted, nullable=nullable, kind=kind, encoding=encoding, compression=codec, row_group_size=rows,
              data_page_version=version, data_page_size=4096, write_batch_size=20)  # fmt: skip
        assert documents(path) == values(path), (codec, version, encoding, nullable, kind, rows)
        seen += 1
    assert seen == 480


def test_a_column_that_gives_up_its_dictionary_is_read(folder):
    rng = random.Random(2)
    path = os.path.join(folder, "fallback.parquet")
    for version in "1.0", "2.0":
        write(path, texts(rng, 5000), data_page_version=version, dictionary_pagesize_limit=20000, write_batch_size=100)
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
        assert chunk.has_dictionary_page and "PLAIN" in chunk.encodings
        assert documents(path) == values(path)


def test_texts_larger_than_a_page_are_read(folder):
    rng = random.Random(3)
    path = os.path.join(folder, "large.parquet")
    for codec, encoding in itertools.product(["none", "snappy", "zstd"], ENCODINGS):
        wanted = ["", words(rng, 1000) * 1500, None, "x", "y" * 3_000_000, ""]
        write(path, wanted, encoding=encoding, compression=codec)
        assert documents(path) == values(path)


def test_nulls_empty_texts_no_rows_and_small_pages_are_read(folder):
    rng = random.Random(4)
    path = os.path.join(folder, "edge.parquet")
    for version, encoding in itertools.product(["1.0", "2.0"], ENCODINGS):
        for wanted in [None] * 100, [""] * 100, [], [None] * 50 + ["a"] + [None] * 50, texts(rng, 3000):
            write(path, wanted, encoding=encoding, data_page_version=version, data_page_size=1, write_batch_size=3)
            assert documents(path) == values(path), (version, encoding, wanted[:3])
    # pyarrow's type where all values are null
    pq.write_table(pa.table({"text": [None] * 7, "id": range(7)}), path)
    assert pq.read_schema(path).field("text").type == pa.null()
    write(os.path.join(folder, "other.parquet"), ["a", None, "b"])
    done = subprocess.run([TOOL, "tokenize", "--json", "--val", "0", "-o", os.path.join(folder, "nulls"), path,
                           os.path.join(folder, "other.parquet")], capture_output=True, check=True)  # fmt: skip
    assert {"documents": 2, "null_texts": 8}.items() <= json.loads(done.stdout).items(), done.stdout


def test_columns_inside_structs_are_read(folder):
    path = os.path.join(folder, "struct.parquet")
    inner = [{"text": "a", "n": 1}, None, {"text": None, "n": 2}, {"text": "bé", "n": 3}] * 30
    pq.write_table(pa.table({"doc": pa.array(inner), "docs": pa.array([["x"], [], None, ["y", "z"]] * 30)}), path)
    assert documents("--text-column", "doc.text", path) == values(path, "doc.text") == [b"a", "bé".encode()] * 30
    twice = os.path.join(folder, "twice.parquet")  # pyarrow, polars and duckdb read the column whose own name it is
    for order in (0, 1), (1, 0):
        pq.write_table(pa.table({"doc": pa.array(inner), "doc.text": ["flat"] * 120}).select(order), twice)
        assert documents("--text-column", "doc.text", twice) == [row["doc.text"].encode() for row in pq.read_table(twice, columns=["doc.text"]).to_pylist()]
    for column in "doc", "docs", "docs.list.element", "text":
        done = tool("decode", "--json", "--text-column", column, path)
        assert done.returncode == 65 and b"its columns: doc.n (INT64), doc.text (STRING)" in done.stderr, done


def fineweb(path, rows=3000, **options):
    """The columns of FineWeb as its authors wrote it: a row group for each 1000 documents."""
    rng = random.Random(5)
    table = pa.table({
        "text": texts(rng, rows),
        "id": [f"<urn:uuid:{rng.getrandbits(128):032x}>" for _ in range(rows)],
        "dump": ["CC-MAIN-2013-20"] * rows,
        "url": [f"http://example.org/{i}" for i in range(rows)],
        "file_path": ["s3://commoncrawl/crawl-data"] * rows,
        "language": [rng.choice(["en", "de", None]) for _ in range(rows)],
        "language_score": [rng.choice([0.65, rng.random(), None, float("nan")]) for _ in range(rows)],
        "token_count": pa.array([rng.randrange(5000) for _ in range(rows)], pa.int64()),
        "small": pa.array([rng.choice([0.1, rng.random()]) for _ in range(rows)], pa.float32()),
        "int_score": pa.array([rng.randrange(-3, 6) for _ in range(rows)], pa.int32()),
        "unsigned": pa.array([rng.choice([0, 1, 2**63, 2**64 - 1]) for _ in range(rows)], pa.uint64()),
        "unsigned32": pa.array([rng.choice([0, 1, 2**31, 2**32 - 1]) for _ in range(rows)], pa.uint32()),
        "truth": [rng.choice([True, False, None]) for _ in range(rows)],
        "large": pa.array([rng.choice([2**53, 2**53 + 1, -(2**63), 2**63 - 1]) for _ in range(rows)], pa.int64()),
    })  # fmt: skip
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for batch in table.to_batches(max_chunksize=1000):
            writer.write_batch(batch)
    return table.to_pylist()


def test_conditions_choose_the_rows(folder):
    path = os.path.join(folder, "fineweb.parquet")
    single = pa.array([0.1], pa.float32()).to_pylist()[0]
    rows = [
        (["language_score>=0.65"], lambda r: r["language_score"] is not None and not r["language_score"] < 0.65),  # or NaN
        (["language_score == 0.65"], lambda r: r["language_score"] == 0.65),
        (["language_score!=0.65"], lambda r: r["language_score"] is not None and r["language_score"] != 0.65),
        (["language=en and token_count<2500"], lambda r: r["language"] == "en" and r["token_count"] < 2500),
        (["language>'de'"], lambda r: r["language"] == "en"),
        (["truth=false"], lambda r: r["truth"] is False),
        (["small==0.1"], lambda r: r["small"] == single),
        (["int_score>2.5"], lambda r: r["int_score"] > 2.5),
        (["int_score<=-1"], lambda r: r["int_score"] <= -1),
        (["unsigned>=18446744073709551615"], lambda r: r["unsigned"] == 2**64 - 1),
        (["unsigned32>2147483647"], lambda r: r["unsigned32"] > 2**31 - 1),
        (["large==9007199254740993"], lambda r: r["large"] == 2**53 + 1),
        (["text!=''", "dump==CC-MAIN-2013-20"], lambda r: r["text"] != ""),
    ]
    for options in {}, {"use_dictionary": False, "compression": "zstd"}, {"data_page_version": "2.0"}, \
            {"use_dictionary": False, "column_encoding": {"token_count": "DELTA_BINARY_PACKED", "large": "DELTA_BINARY_PACKED",
             "unsigned": "DELTA_BINARY_PACKED", "unsigned32": "DELTA_BINARY_PACKED", "int_score": "DELTA_BINARY_PACKED"}}, \
            {"use_dictionary": False, "compression": "zstd", "column_encoding": dict.fromkeys(
                ["language_score", "token_count", "small", "int_score", "unsigned", "unsigned32"], "BYTE_STREAM_SPLIT")}:  # fmt: skip
        table = fineweb(path, **options)
        for conditions, holds in rows:
            where = [argument for condition in conditions for argument in ("--where", condition)]
            wanted = [row["text"].encode() for row in table if holds(row)]
            assert documents(*where, path) == wanted, (options, conditions)


def test_json_lines_and_shards_of_a_parquet_file_hold_its_documents(folder):
    path = os.path.join(folder, "fineweb.parquet")
    table = fineweb(path)
    lines = tool("decode", "--json", path).stdout.decode().splitlines()
    assert [json.loads(line)["text"] for line in lines] == [row["text"] for row in table]
    jsonl = os.path.join(folder, "same.jsonl")
    with open(jsonl, "w") as file:
        file.writelines(json.dumps({"text": row["text"]}) + "\n" for row in table)
    ids = []
    for source in path, jsonl:
        shard = os.path.join(folder, "shard.zst")
        with open(shard, "wb") as file:
            file.write(tool("tokenize", "-q", "-o", "-", source).stdout)
        ids.append(tool("cat", "--raw", shard).stdout)
    assert ids[0] and ids[0] == ids[1]


def test_a_flipped_byte_is_found_or_changes_nothing_with_checksums(folder):
    path = os.path.join(folder, "whole.parquet")
    rng = random.Random(6)
    for version, encoding, codec in itertools.product(["1.0", "2.0"], ENCODINGS, ["none", "snappy"]):
        write(path, texts(rng, 30), encoding=encoding, compression=codec, data_page_version=version)
        data = bytearray(open(path, "rb").read())
        wanted = documents(path)
        for _ in range(10):
            at = rng.randrange(4, len(data) - 8)
            damaged = bytearray(data)
            damaged[at] ^= 1 << rng.randrange(8)
            with open(path, "wb") as file:
                file.write(damaged)
            done = tool("decode", "-0", path)
            assert done.returncode in (0, 65), (at, done)
            assert done.returncode or done.stdout.split(b"\0")[:-1] == wanted, (version, encoding, codec, at)


# fault 15
def test_a_file_rewritten_while_it_is_read_is_an_error(folder):
    path, other = os.path.join(folder, "a.parquet"), os.path.join(folder, "b.parquet")
    for name, text in (path, "first"), (other, "other"):
        write(name, [text * 1000] * 2000, encoding="PLAIN", compression="none", row_group_size=10)
    first, second = open(path, "rb").read(), open(other, "rb").read()
    assert len(first) == len(second)
    for data, options in (second, []), (bytes(len(first)), []), (bytes(len(first)), ["--max-bad", "100%"]), (second + b"x", []):
        with open(path, "wb") as file:
            file.write(first)
        os.utime(path, (1, 1))
        process = subprocess.Popen([TOOL, "decode", "--json", *options, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(1)  # it has begun, and waits as long as nothing reads its output
        with open(path, "r+b") as file:
            file.write(data)
        message = process.communicate(timeout=60)[1]
        assert process.returncode == 74 and b"a.parquet' changed while it was read" in message, (options, message)


# fault 7
def test_a_small_file_of_endless_text_is_refused(folder):
    path = os.path.join(folder, "bomb.parquet")
    write(path, ["a long line of the same text " * 40] * 30000, encoding="dictionary")
    assert os.path.getsize(path) < 10000
    done = tool("decode", "--json", path)
    assert done.returncode == 65 and b"--max-ratio" in done.stderr, done.stderr
    assert tool("decode", "--json", "--max-ratio", "0", path).returncode == 0


def test_files_of_fastparquet_and_duckdb_are_read(folder):
    paths = sorted(glob.glob(os.path.join(os.environ["DATA"], "parquet", "**", "*.parquet"), recursive=True))
    assert len(paths) == 8, paths
    for path in paths:
        assert documents(path) == values(path), path
        rows = pq.read_table(path).to_pylist()
        conditions = {"n>3": lambda r: r["n"] > 3}
        if "duckdb" in path:
            conditions |= {"score<2": lambda r: r["score"] < 2, "small<=1.5": lambda r: r["small"] <= 1.5}
        for condition, holds in conditions.items():
            wanted = [row["text"].encode() for row in rows if holds(row) and row["text"] is not None]
            assert documents("--where", condition, path) == wanted, (path, condition)


def test_texts_of_the_type_json_are_read_with_a_warning(folder):
    """As DuckDB writes them, if one of the values that it read is a number."""
    texts = ['"a \\"b\\"\\nc"', "5"]
    paths = [f"{folder}/a.parquet", f"{folder}/b.parquet"]
    for path in paths:
        pq.write_table(pa.table({"text": pa.array(texts, pa.json_())}), path)
    done = tool("decode", "-0", *paths)
    assert done.stdout.split(b"\0")[:-1] == [text.encode() for text in texts * 2], done
    assert done.stderr.count(b"column 'text' is of the type JSON") == 1, done


def is_text(column):
    return (column.physical_type == "BYTE_ARRAY" and column.max_repetition_level == 0
            and column.logical_type.type in ("STRING", "JSON", "ENUM", "NONE"))  # fmt: skip


def test_parquet_testing_is_read_as_pyarrow_reads_it_or_refused(folder):
    root = os.environ.get("PARQUET_TESTING")
    if not root:
        raise runner.Skip("PARQUET_TESTING is not set to a copy of github.com/apache/parquet-testing")
    compared = 0
    for path in sorted(glob.glob(os.path.join(root, "**", "*.parquet"), recursive=True)
                       + glob.glob(os.path.join(root, "**", "*.encrypted"), recursive=True)):  # fmt: skip
        done = tool("decode", "--json", path)
        assert done.returncode in (0, 65), (path, done)
        try:
            file = pq.ParquetFile(path)
            columns = [file.metadata.row_group(0).column(i).path_in_schema for i in range(file.metadata.num_columns)
                       if is_text(file.schema.column(i))] if file.metadata.num_row_groups else []  # fmt: skip
        except Exception:
            continue  # pyarrow refuses the file; the first run shows that we do not crash
        for column in columns:
            try:
                wanted = values(path, column)
            except Exception:
                wanted = None
            done = tool("decode", "-0", "--text-column", column, path)
            if wanted is None:
                assert done.returncode == 65, (path, column, done)
            else:
                assert done.returncode == (0 if wanted else 66), (path, column, done)
                assert done.stdout == b"".join(value + b"\0" for value in wanted), (path, column)
                compared += 1
    assert compared >= 60, compared
