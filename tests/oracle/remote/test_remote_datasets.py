"""Datasets by URL: info, verify, cat, get and others print what they print of the same files on this disk."""
import json, os, random
import remote_runs, runner
from hostile_server import SECRET, SURVIVED, Session
from hub_server import Hub
from remote_runs import peak, tool
from s3_server import KEY, Bucket

SESSIONS = int(os.environ.get("SESSIONS", "200" if os.environ.get("MILLRACE_SWEEP") else "6"))
web = None
files = {}


def read_folder(folder):
    return {os.path.relpath(os.path.join(root, name), folder): open(os.path.join(root, name), "rb").read()
            for root, _, names in os.walk(folder) for name in names if not name.startswith(".")}


def make_dataset(folder, *options, documents=3000):
    rng = random.Random(1)
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(2, 9))) for _ in range(2000)]
    text = b"".join(json.dumps({"text": " ".join(rng.choices(words, k=rng.randrange(20, 300)))}).encode() + b"\n" for _ in range(documents))
    open(folder + ".jsonl", "wb").write(text)
    tool("tokenize", "-q", "-o", folder, "--val", "0.05", "--shard-tokens", "600000", "--frame-tokens", "4096", *options, folder + ".jsonl")
    return {f"sets/{folder}/{name}": content for name, content in read_folder(folder).items()}


def setup():
    global web
    web = remote_runs.start()
    files.update(make_dataset("set"))
    web.add("plain", Session(files))


def url(path="set", session="plain"):
    return web.url("origin", f"{session}/sets/{path}")


SHARD = "/train/000/000001.zst"
COMMANDS = [["cat"], ["cat", "--split", "val"], ["cat", "?", "0:10", "100000:170000", "300:301"], ["cat", "--ids", "?", "1000:1010"], ["decode", "?", "--doc", "7"],
            ["info", "--docs"]]


def both(command, path, remote, **more):
    """The output of a command on a path of this disk and on a URL."""
    here, there = [[word if word != "?" else name for word in (command if "?" in command else command + ["?"])] for name in (path, remote)]
    return tool(*here).stdout, tool(*there, **more).stdout


def test_commands_print_of_a_url_what_they_print_of_the_files():
    for command in COMMANDS:
        here, there = both(command, "set", url())
        assert here == there and here, command
        if "val" not in command:
            here, there = both([word.replace("170000", "110000") for word in command], "set" + SHARD, url() + SHARD)
            assert here == there, command
    for path in ("", SHARD):
        shown = [json.loads(tool("info", "--json", name + path).stdout) for name in ("set", url())]
        assert shown[0] | {"path": ""} == shown[1] | {"path": ""}
    for options in ([], ["--quick"], ["-j", "1"]):
        assert b"all good" in tool("verify", *options, url(), url() + SHARD).stderr
    assert tool("diff", "--ids", "set", url()).returncode == 0


def test_the_vocabulary_of_a_dataset_is_checked():
    open("abc.txt", "wb").write(tool("train-vocabulary", "--characters", "set.jsonl").stdout)
    own = make_dataset("own", "--vocabulary", "abc.txt", documents=100)
    web.add("own", Session(own))
    assert b"all good" in tool("verify", url("own", "own")).stderr
    assert tool("decode", url("own", "own"), "--doc", "3").stdout == tool("decode", "own", "--doc", "3").stdout
    web.add("own", Session({name: content for name, content in own.items() if name.endswith(("zst", "dataset.jsonl"))}))
    assert b"copy the file of the vocabulary" in tool("verify", url("own", "own"), code=1).stdout


def test_only_the_frames_of_a_range_are_requested():
    session = web.add("counted", Session(files))
    tool("cat", url(session="counted"), "700000:700010")
    spans = [(path, headers.get("Range", "bytes=0-0").removeprefix("bytes=").split("-")) for _, path, headers in session.seen]
    asked = sum(int(last) - int(first) + 1 for path, (first, last) in spans if path.endswith("zst"))
    assert asked < len(files["sets/set" + SHARD]), spans


def test_buckets_and_hubs_hold_datasets():
    web.add("bucket", Bucket(files, {KEY: (SECRET, None)}))
    more = {"AWS_ENDPOINT_URL": web.url("origin").rstrip("/"), "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    assert b"all good" in tool("verify", "s3://bucket/sets/set", **more).stderr
    hub = web.add("hub", Hub("owner/name", files))
    for revision in ("", "@" + hub.main):
        here, there = both(["cat", "--ids", "?", "9:99"], "set", f"hf://datasets/owner/name{revision}/sets/set", HF_ENDPOINT=web.url("origin", "hub"))
        assert here == there


# fault 117
def test_a_dataset_that_is_damaged_changed_or_missing_at_its_url_is_refused():
    def altered(**changes):
        web.add("bad", Session({**files, **{"sets/set/" + name: content for name, content in changes.items()}}))
        return url(session="bad")

    shard, manifest = files["sets/set" + SHARD], files["sets/set/dataset.jsonl"]
    flipped = shard[:5000] + bytes([shard[5000] ^ 1]) + shard[5001:]
    assert b"000001.zst" in tool("verify", altered(**{SHARD[1:]: flipped}), code=1).stdout
    assert b"damaged" in tool("cat", url(session="bad"), code=65).stderr
    assert b"size" in tool("verify", altered(**{SHARD[1:]: shard + files["sets/set/train/000/000000.zst"]}), code=1).stdout
    tool("cat", altered(**{SHARD[1:]: shard[:-5]}), code=65)
    tool("info", altered(**{"dataset.jsonl": manifest[:-2]}), code=65)
    tool("info", altered(**{"dataset.jsonl": b"<html>"}), code=65)
    tool("info", altered(**{"dataset.jsonl": b""}), code=65)
    web.add("bad", Session({name: content for name, content in files.items() if SHARD not in name}))
    tool("cat", url(session="bad"), code=66)
    tool("info", url("none"), code=66)
    tool("info", web.url("stranger", "plain/sets/set"), code=76)
    tool("info", "https://localhost:1/set", "--retries", "0", code=74)
    assert b"TMPDIR" in tool("cat", url(), code=73, TMPDIR="/none").stderr


# fault 118
@runner.ci
def test_seeded_hostile_sessions_of_datasets_end_with_the_same_bytes():
    want = tool("cat", "set").stdout
    first = int(os.environ.get("SEED", 1))
    print(f"seeds {first} to {first + SESSIONS - 1} of the sessions of datasets", flush=True)
    for seed in range(first, first + SESSIONS):
        rng = random.Random(seed)
        redirects = rng.random() < 0.3
        survived = [fault for fault in rng.sample(SURVIVED, 4) if redirects or fault != "expire"]
        web.add("rough", Session(files, seed, survived, redirects=redirects))
        done = tool("cat", "--retries", "4", "--timeout", "1", url(session="rough"))
        assert done.stdout == want, seed


@runner.ci
def test_memory_does_not_grow_with_a_shard():
    folder = "large"
    large = make_dataset(folder, "--shard-tokens", "20000000", documents=40000)
    web.add("large", Session(large))

    here, there = (peak("verify", "-j", "1", path) for path in (folder, url(folder, "large")))
    libraries = 12  # of libcurl and TLS
    print(f"verify: {here:.0f} MiB of files, {there:.0f} MiB by URL")
    assert there < here + 16 + libraries, (here, there)
