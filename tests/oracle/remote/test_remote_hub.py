"""hf:// inputs against a hub written from its API: pages, patterns, pinned revisions, hashes, tokens."""
import gzip, hashlib, json, os, random
import pyarrow as pa, pyarrow.parquet as pq
import remote_runs
from hostile_server import SECRET
from hub_server import Hub
from remote_runs import has_secret, tool

TOKEN = "hf_" + SECRET
REPOSITORY = "an-owner/a.set_1"
START = f"hf://datasets/{REPOSITORY}"
web = None
files = {}


def make_files():
    texts = [f"text {i} " + "word " * (i % 50) for i in range(3000)]
    table, pad = pa.table({"text": [text * 12 for text in texts]}), 0
    for _ in range(2):  # the second time, its last block of 2 MiB has a part of the footer alone
        options = dict(compression="none", use_dictionary=False, row_group_size=500, store_schema=False)
        pq.write_table(table.replace_schema_metadata({"pad": "x" * pad}), "a.parquet", **options)
        pad = (2 << 20) - os.path.getsize("a.parquet") % (2 << 20) + 500
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    noise = random.Random(1).randbytes(4 << 20).hex().encode()  # of more than one block
    return {"README.md": b"# about", ".gitattributes": b"x", "sample/10BT/000_00000.parquet": open("a.parquet", "rb").read(), "sample/10BT/001 ü+%.jsonl": lines,
            "sample/100BT/000.jsonl.gz": gzip.compress(lines, 1), "sample/small.jsonl": b'{"text":"small"}\n', "other/noise.txt": noise}


def hub(*arguments, code=0, session="hub", **more):
    return tool(*arguments, code=code, **{"HF_ENDPOINT": web.url("origin", session), **more})


def setup():
    global web
    web = remote_runs.start()
    files.update(make_files())
    for name, content in files.items():
        os.makedirs(os.path.dirname("local/" + name), exist_ok=True)
        open("local/" + name, "wb").write(content)


def test_files_folders_and_patterns_are_read_as_from_disk():
    web.add("hub", Hub(REPOSITORY, files))
    local = lambda *names: b"".join(tool("decode", "-0", "local/" + name).stdout for name in names)
    read = lambda path, *options: hub("decode", "-0", *options, START + path).stdout
    parquet, jsonl = "sample/10BT/000_00000.parquet", "sample/10BT/001 ü+%.jsonl"
    assert read("/" + parquet) == local(parquet) and read("@main/" + jsonl) == local(jsonl)
    assert read("/sample/10BT/") == read("/sample/10BT") == local(parquet, jsonl)
    assert read("/sample/*.jsonl*") == local("sample/100BT/000.jsonl.gz", jsonl, "sample/small.jsonl")
    assert read("/sample/10BT/*.parquet") == read("@refs/convert/parquet/sample/10BT/0*.parquet") == local(parquet)
    assert read("", "--include", "*.parquet") == local(parquet)
    assert read("") == local("")  # README.md is about the others, and .gitattributes hidden
    for missing in ("/none", "/none/", "/sample/*.csv", "@none/sample/"):
        hub("decode", "--json", START + missing, code=66)
    for wrong in ("hf://datasets/owner", "hf://datasets/owner/", "hf://datasets//name/x", "hf://datasets/a/b@/x"):
        hub("decode", "--json", wrong, code=2)


def test_the_files_of_a_table_with_a_log_are_refused():
    """Of a folder and of a pattern, which leaves out the log."""
    parquet = files["sample/10BT/000_00000.parquet"]
    web.add("tables", Hub(REPOSITORY, {"t/a.parquet": parquet, "t/_delta_log/0.json": b"{}", "i/data/a.parquet": parquet, "i/metadata/0.metadata.json": b"{}"}))
    for path, table in (("/t/", b"Delta table"), ("/t/*.parquet", b"Delta table"), ("/i/*.parquet", b"Iceberg table"), ("", b"table")):
        assert table in hub("decode", "--json", "--max-bad", "100%", "--include", "*.parquet", START + path, code=65, session="tables").stderr, path


def test_the_revision_is_pinned_in_the_manifest_and_a_run_reads_one_commit():
    session = web.add("hub", Hub(REPOSITORY, files))
    commit = session.main
    hub("tokenize", "-q", "-o", "pinned", START + "/sample/", START + "/other/noise.txt")
    sources = json.loads(open("pinned/dataset.jsonl").readline())["sources"]
    assert [source["path"] for source in sources] == [f"{START}@{commit}/other/noise.txt", f"{START}@{commit}/sample/"], sources
    assert b"already complete" in hub("tokenize", "-o", "pinned", START + "/sample/", START + "/other/noise.txt").stderr
    session.commit({**files, "sample/small.jsonl": b'{"text":"newer"}\n'})
    refused = hub("tokenize", "-o", "pinned", START + "/sample/", START + "/other/noise.txt", code=2).stderr
    assert b"other inputs" in refused and commit.encode() in refused or session.main.encode() in refused, refused
    hub("tokenize", "-q", "-o", "old", f"{START}@{commit}/sample/", START + f"@{commit}/other/noise.txt")
    assert open("old/dataset.jsonl").read() == open("pinned/dataset.jsonl").read()


def test_the_token_goes_to_the_hub_alone_and_is_kept_nowhere():
    web.add("hub", Hub(REPOSITORY, files, token=TOKEN))  # it answers 400 where another host receives the token
    assert b"credentials" in hub("decode", "--json", START + "/sample/small.jsonl", code=77).stderr
    hub("decode", "--json", START + "/sample/", code=77)
    done = hub("tokenize", "-o", "gated", START + "/sample/", HF_TOKEN=TOKEN)
    os.makedirs("home/.cache/huggingface")
    open("home/.cache/huggingface/token", "w").write(TOKEN + "\n")
    assert hub("decode", "-0", START + "/sample/small.jsonl").stdout == b"small\0"
    os.remove("home/.cache/huggingface/token")
    open("token", "w").write(TOKEN)
    assert hub("decode", "-0", START + "/sample/small.jsonl", HF_TOKEN_PATH="token").stdout == b"small\0"
    assert not has_secret("gated", TOKEN) and TOKEN.encode() not in done.stderr
    assert b"control character" in hub("decode", "--json", START + "/x", code=2, HF_TOKEN="a\nX: b").stderr


# fault 114
def test_a_hub_that_lies_ends_the_run():
    for bad in ("hash", "size", "outside", "negative", "endless", "other host", "cut json", "object", "sha", "commit", "linked etag", "linked size"):
        web.add("hub", Hub(REPOSITORY, files, bad=bad, token=TOKEN))
        done = hub("decode", "-0", "--retries", "1", START + "/sample/", code=65, HF_TOKEN=TOKEN)
        assert START.encode() in done.stderr, (bad, done.stderr)
    web.add("hub", Hub(REPOSITORY, files, bad="no commit"))
    assert b"X-Repo-Commit" in hub("decode", "--json", START + "/other/noise.txt", code=65).stderr
    for bad in ("commit", "linked etag"):  # after the first response
        session = web.add("hub", Hub(REPOSITORY, files, bad=bad))
        session.bad_from = 2
        assert b"changed" in hub("decode", "--json", START + "/other/noise.txt", code=65).stderr, bad


# fault 115
def test_damaged_bytes_of_a_file_that_was_read_whole_are_found_by_its_hash():
    for name in ("other/noise.txt", "sample/10BT/000_00000.parquet", "sample/10BT/001 ü+%.jsonl"):
        session = web.add("hub", Hub(REPOSITORY, files))
        sha = hashlib.sha256(files[name]).hexdigest()
        content = session.files["lfs/" + sha]
        place = 70 if name.startswith("other") else content.index(b"text 700")
        session.files["lfs/" + sha] = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        for named in (name, os.path.dirname(name) + "/*" + name[-8:]):
            done = hub("decode", "-0", START + "/" + named, code=65)
            assert b"hash" in done.stderr, done.stderr
