"""shardtool on URLs against its own runs on the same local files: a hostile server, seeded sessions, kills."""
import base64, concurrent.futures, glob, gzip, http.server, json, lzma, os, random, re, shutil, signal, subprocess, threading, time
import pyarrow as pa, pyarrow.parquet as pq, zstandard
import remote_runs, runner
from hostile_server import FATAL, SECRET, SURVIVED, Session
from hub_server import Hub
from remote_runs import TOOL, environment, has_secret, peak, tool
from s3_server import KEY, Bucket

SESSIONS = int(os.environ.get("SESSIONS", "2000" if os.environ.get("MILLRACE_SWEEP") else "24"))
web = None


def make_texts(rng, count):
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyzäß") for _ in range(rng.randrange(2, 9))) for _ in range(3000)]
    return [" ".join(rng.choice(words) for _ in range(rng.randrange(20, 400))) for _ in range(count)]


def make_files():
    """One file of each kind, of several blocks of 2 MiB where it matters."""
    texts = make_texts(random.Random(1), 5000)
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    table = pa.table({"id": [str(i) for i in range(len(texts))], "text": texts})
    pq.write_table(table, "a.parquet", compression="none", row_group_size=400, use_dictionary=False, write_page_checksum=True)
    return {
        "a.jsonl": lines,
        "a.jsonl.gz": gzip.compress(lines, 1),
        "a.jsonl.zst": zstandard.ZstdCompressor(level=1, write_checksum=True).compress(lines),
        "small.jsonl.xz": lzma.compress(lines[:20000].rpartition(b"\n")[0] + b"\n"),
        "a.parquet": open("a.parquet", "rb").read(),
        "empty.txt": b"",
    }


files = {}
local = {}  # what `text -0` prints of each local file


def code_of(name):
    return 66 if name.startswith("empty") else 0


def setup():
    global web
    web = remote_runs.start()
    files.update(make_files())
    web.add("plain-files", Session(files))
    for name, content in files.items():
        open(name, "wb").write(content)
        local[name] = tool("decode", "-0", name, code=code_of(name)).stdout


def test_each_format_is_read_as_from_disk():
    for name in files:
        for role in ("origin", "plain"):
            url = web.url(role, "plain-files/" + name)
            assert tool("decode", "-0", url, code=code_of(name)).stdout == local[name], name


def test_a_range_that_is_answered_with_status_200_is_a_part():
    """As the S3 server of rclone, whose listings have ETags without quotes. The whole file with such a field is the whole file; another range
    is refused as one."""
    bucket = web.add("status", Bucket({**files, "one.txt": b"1"}, {KEY: (SECRET, None)}, bad="bare etag"))
    bucket.range_status = 200
    keys = {"AWS_ENDPOINT_URL": web.url("origin").rstrip("/"), "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    for name in [*files, "one.txt"]:
        assert tool("decode", "-0", f"s3://status/{name}", code=code_of(name), **keys).stdout == local.get(name, b"1\0"), name
    assert tool("decode", "-0", "--include", "a.*", "s3://status/", **keys).stdout == b"".join(local[name] for name in sorted(files) if name[:2] == "a.")
    bucket.fatal, bucket.fatal_from = "wrong range", bucket.requests + 2
    assert b"another range" in tool("decode", "-0", "s3://status/a.jsonl", code=65, **keys).stderr
    whole = web.add("whole", Session(files))
    whole.ranges, size = False, len(files["a.jsonl"])
    whole.fields = {"Content_Range": f"bytes 0-{size - 1}/{size}"}
    assert tool("decode", "-0", web.url("origin", "whole/a.jsonl")).stdout == local["a.jsonl"]


def test_an_empty_file_is_left_out():
    names = ["empty.txt", "small.jsonl.xz"]  # the answer 416 has no ETag
    tool("tokenize", "-o", "with-empty", *(web.url("origin", "plain-files/" + name) for name in names))
    tool("tokenize", "-o", "local-empty", *names)
    assert tool("cat", "with-empty").stdout == tool("cat", "local-empty").stdout


def test_an_empty_web_page_in_place_of_a_file_is_refused():
    web.add("page", Session({**files, "portal": b""}, fatal="portal", fatal_from=1))
    assert b"web page" in tool("tokenize", "-o", "page", web.url("origin", "page/a.jsonl"), "small.jsonl.xz", code=65).stderr


def test_a_list_of_urls_is_read_in_the_order_of_names():
    names = sorted(name for name in files if not name.startswith("empty"))
    urls = [web.url("origin", "plain-files/" + name) for name in names]
    open("list", "w").write("\n".join(reversed(urls)))
    want = b"".join(local[name] for name in names)
    assert tool("decode", "-0", "--files-from", "list").stdout == want
    assert tool("decode", "-0", *urls).stdout == want


def test_only_the_footer_and_the_pages_of_the_columns_are_requested():
    rng = random.Random(2)
    noise = [rng.randbytes(20000) for _ in range(1500)]
    table = pa.table({"noise": noise, "text": [f"row {i}" for i in range(1500)]})
    pq.write_table(table, "wide.parquet", compression="none", row_group_size=500, use_dictionary=False)
    session = web.add("wide", Session({"wide.parquet": open("wide.parquet", "rb").read()}))
    assert tool("decode", "-0", web.url("origin", "wide/wide.parquet")).stdout == b"".join(b"row %d\0" % i for i in range(1500))
    ranges = [headers["Range"].removeprefix("bytes=").split("-") for _, _, headers in session.seen]
    assert sum(int(last) - int(first) + 1 for first, last in ranges) < os.path.getsize("wide.parquet") / 1.5


def test_what_may_not_be_requested_is_refused():
    session = web.add("refused", Session(files))
    elsewhere = "http://192.0.2.1/a.txt"  # an address for documentation
    assert b"--allow-http" in tool("decode", "--json", elsewhere, code=2).stderr
    assert b"user name" in tool("decode", "--json", f"https://me:{SECRET}@localhost:{web.ports['origin']}/refused/a.jsonl", code=2).stderr
    assert b"certificate" in tool("decode", "--json", web.url("stranger", "refused/a.jsonl"), code=76).stderr
    assert b"certificate" in tool("decode", "--json", web.url("origin", "refused/a.jsonl"), code=76, CURL_CA_BUNDLE="/etc/ssl/certs/ca-certificates.crt").stderr
    tool("decode", "--json", web.url("origin", "refused/missing"), code=66)
    tool("decode", "--json", "--retries", "0", "--timeout", "2", "https://localhost:1/a", code=74)
    tool("decode", "--json", "--retries", "0", "https://no-such-host.invalid/a", code=74)
    for scheme in ("ftp", "HTTPS"):
        assert b"no URL that is read" in tool("decode", "--json", f"{scheme}://localhost/a", code=2).stderr
    url = web.url("origin", "refused/a.jsonl")
    assert b"query alone" in tool("decode", "--json", f"{url}?file=1", f"{url}?file=2", code=2).stderr
    session.etag = " "  # and no Last-Modified: a file that changes between two requests, or after a kill, would look the same
    assert b"no ETag and no Last-Modified" in tool("tokenize", "-o", "unknown", url, code=65).stderr


def test_small_files_are_requested_side_by_side():
    many = {f"{i:02}.txt": f"text {i}".encode() for i in range(13)}  # the first is requested alone
    bucket = web.add("beside", Bucket(many, {KEY: (SECRET, None)}, page=100))
    together, route = threading.Barrier(4), bucket.route

    def wait(handler, file, query):
        if file and file not in ("00.txt", "dataset.jsonl"):  # is it a dataset?
            together.wait(60)  # of files that are requested one after another, this ends with an error
        return route(handler, file, query)

    bucket.route = wait
    keys = {"AWS_ENDPOINT_URL": web.url("origin").rstrip("/"), "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    done = tool("decode", "-0", "--retries", "0", "s3://beside/", **keys)
    assert done.stdout == b"".join(text + b"\0" for text in many.values())


def test_a_wait_that_the_server_asks_for_is_kept_and_printed():
    session = web.add("later", Session(files))
    answers = iter([("429", "3")])

    def route(handler, file, query):
        code, after = next(answers, (None, None))
        if code:
            handler.answer(int(code), b"later", Retry_After=after)
        return bool(code)

    session.route = route
    started = time.monotonic()
    done = tool("decode", "-0", web.url("origin", "later/small.jsonl.xz"))
    assert done.stdout == local["small.jsonl.xz"] and time.monotonic() - started >= 3
    assert b"429" in done.stderr and b"trying again in 3 s" in done.stderr, done.stderr


def test_the_limit_of_the_hub_is_waited_for():
    """RateLimit as huggingface_hub reads it: with no request left, t seconds and one more; it has no Retry-After."""
    session, asked = web.add("limited", Session(files)), []

    def route(handler, file, query):
        asked.append(time.monotonic())
        if len(asked) == 1:
            handler.answer(429, b"later", RateLimit='"resolvers";r=0;t=2')
        return len(asked) == 1

    session.route = route
    done = tool("decode", "-0", "--retries", "1", web.url("origin", "limited/small.jsonl.xz"))
    assert done.stdout == local["small.jsonl.xz"] and asked[1] - asked[0] >= 3 and b"trying again in 3 s" in done.stderr


def test_a_weak_etag_that_becomes_strong_is_that_of_the_same_file():
    session = web.add("weak", Session(files))

    def route(handler, file, query):
        session.etag = 'W/"1"' if not session.seen or len(session.seen) < 2 else '"1"'
        return False

    session.route, session.etag = route, 'W/"1"'
    assert tool("decode", "-0", web.url("origin", "weak/small.jsonl.xz")).stdout == local["small.jsonl.xz"]


def test_a_server_that_sends_all_for_the_first_byte_is_read():
    """As BusyBox; and a file of one byte, of which two are asked for."""
    session = web.add("busybox", Session({**files, "one.txt": b"x"}))

    def route(handler, file, query):
        if handler.headers.get("Range") == "bytes=0-0":
            del handler.headers["Range"]
            handler.headers["Range"] = f"bytes=0-{len(session.files[file]) - 1}"
        return False

    session.route = route
    assert tool("decode", "-0", web.url("origin", "busybox/small.jsonl.xz")).stdout == local["small.jsonl.xz"]
    assert tool("decode", "-0", web.url("origin", "busybox/one.txt")).stdout == b"x\0"


def test_a_server_without_ranges_is_read_in_order():
    """Python's http.server; each file takes a look and one request, also Parquet, whose footer is at its end. A .zst may be a shard, which
    takes one look more."""
    seen = []

    class Simple(http.server.SimpleHTTPRequestHandler):
        def log_request(self, *arguments):
            seen.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Simple) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        names = sorted(files)
        server.handle_error = lambda *connection: None  # a look ends its connection
        for name in names:
            url = f"http://127.0.0.1:{server.server_address[1]}/{name}"
            assert tool("decode", "-0", url, code=code_of(name)).stdout == local[name], name
        assert sorted(seen) == sorted("/" + name for name in names for _ in range((2 if files[name] else 1) + name.endswith(".zst"))), seen
        server.shutdown()


def test_a_file_in_order_is_read_on_after_cuts_kills_and_a_change():
    name = "a.jsonl.gz"
    session = web.add("ordered", Session(dict(files), survived=["cut", "cut header", "503", "drip"], share=1))
    session.ranges = False
    url = web.url("origin", "ordered/" + name)
    assert tool("decode", "-0", "--retries", "3", url).stdout == local[name]
    command = [TOOL, "tokenize", *SMALL_SHARDS, "-o", "ordered", url]
    run = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
    while run.poll() is None and journal_lines("ordered") < 3:
        time.sleep(0.002)
    run.kill()
    run.communicate()
    tool(*command[1:])
    tool("tokenize", "-q", *SMALL_SHARDS, "-o", "ordered-local", name)
    assert shards("ordered") == shards("ordered-local")
    changed = web.add("changed", Session(dict(files), fatal="swap", fatal_from=2))
    changed.ranges = False
    assert b"the file changed" in tool("decode", "-0", web.url("origin", "changed/" + name), code=65).stderr


def test_a_file_that_is_replaced_after_the_look_is_called_changed():
    """As nginx: a range whose If-Range has another ETag is answered by the whole file."""
    session = web.add("replaced", Session(dict(files)))

    def route(handler, file, query):
        if len(session.seen) == 1:
            return False
        handler.answer(200, files["a.jsonl"][:-9], ETag='"new"')
        return True

    session.route = route
    error = tool("decode", "-0", web.url("origin", "replaced/a.jsonl"), code=65).stderr
    assert b"the file changed" in error and b"start again" in error and b"ranges" not in error, error


def test_the_encoding_that_a_stored_file_has_is_no_compression_of_the_transfer():
    """Servers label the stored bytes of .gz so: Twisted, mini-httpd, objects of S3 with that metadata."""
    lines = lzma.decompress(files["small.jsonl.xz"])
    packed = gzip.compress(lines)
    stored = {"a.jsonl": lines, "a.jsonl.gz": packed, "object": packed, "a.jsonl.zst": zstandard.ZstdCompressor().compress(lines)}
    session = web.add("labels", Session(stored))
    cases = [("a.jsonl.gz", "x-gzip", 0), ("object", "GZIP", 0), ("a.jsonl.gz", "gzip,aws-chunked", 0), ("a.jsonl", "aws-chunked", 0),
             ("a.jsonl.zst", "zstd", 0), ("a.jsonl", "gzip", 65), ("a.jsonl.zst", "gzip", 65), ("a.jsonl.gz", "gzip, gzip", 65),
             ("a.jsonl.gz", "br", 65)]
    for session.ranges in (True, False):
        for name, label, code in cases:
            session.fields = {"Content_Encoding": label}
            done = tool("decode", "-0", web.url("origin", "labels/" + name), code=code)
            assert done.stdout == (b"" if code else local["small.jsonl.xz"]), (name, label)
            assert not code or b"compresses the transfer (Content-Encoding: " + label.encode() in done.stderr


def test_an_empty_file_whose_ranges_are_refused_is_empty():
    """As webfs: 400 to each range of an empty file."""
    session = web.add("webfs", Session(files))

    def route(handler, file, query):
        refused = file == "empty.txt" and "Range" in handler.headers
        if file == "empty.txt":
            handler.answer(400 if refused else 200, b"no" if refused else b"")
        return file == "empty.txt"

    session.route = route
    urls = [web.url("origin", "webfs/" + name) for name in ("empty.txt", "small.jsonl.xz")]
    assert tool("decode", "-0", *urls).stdout == local["small.jsonl.xz"]


def test_what_a_url_cannot_be_is_said():
    web.add("said", Session(files))
    for name in ("said/many/", "said/*.jsonl"):
        assert b"https has no folders and patterns" in tool("decode", "--json", web.url("origin", name), code=66).stderr
    assert b"write %20 for a space" in tool("decode", "--json", web.url("origin", "said/a b.txt"), code=2).stderr
    error = tool("decode", "--json", web.url("origin", "said/a.jsonl"), code=76, CURL_CA_BUNDLE="nowhere.pem").stderr
    assert b"the file of certificates (CURL_CA_BUNDLE, else SSL_CERT_FILE) is not read" in error and b"of the server" not in error, error


def test_a_proxy_that_refuses_is_asked_once():
    asked, answer = [], "407 Proxy Authentication Required"

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self):
            asked.append(self.path)
            self.wfile.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())
            self.close_connection = True

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        through = {"https_proxy": f"http://127.0.0.1:{server.server_address[1]}"}
        for answer, what in (("407 No", b"user or password"), ("403 No", b"does not connect to this host")):
            asked.clear()
            error = tool("decode", "--json", web.url("origin", "plain-files/a.jsonl"), code=77, **through).stderr
            assert len(asked) == 1 and b"https_proxy answers " + answer[:3].encode() in error and what in error, (asked, error)
        answer = "503 Later"
        asked.clear()
        tool("decode", "--json", "--retries", "1", web.url("origin", "plain-files/a.jsonl"), code=74, **through)
        assert len(asked) == 2
        server.shutdown()


def test_a_password_of_netrc_is_sent_to_its_host_alone():
    session = web.add("basic", Session(files))
    right = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()

    def route(handler, file, query):
        if handler.headers.get("Authorization") != right:
            handler.answer(401, b"no", WWW_Authenticate='Basic realm="x"')
            return True
        return False

    session.route = route
    url = web.url("origin", "basic/small.jsonl.xz")
    tool("decode", "--json", url, code=77)
    open("home/.netrc", "w").write(f"machine localhost login me password {SECRET}\n")
    assert tool("decode", "-0", url).stdout == local["small.jsonl.xz"]
    tool("decode", "--json", url.replace("localhost", "127.0.0.1"), code=77)
    os.remove("home/.netrc")


def test_a_signed_url_leaves_no_signature_in_the_dataset():
    session = web.add("signed", Session(files))
    url = web.url("origin", "signed/a.jsonl.gz") + f"?X-Amz-Signature={SECRET}"
    tool("tokenize", "-o", "signed", "--retries", "1", url)
    assert not has_secret("signed", SECRET)
    assert b"already complete" in tool("tokenize", "-o", "signed", url + "-2").stderr  # another signature, the same file
    session.files = {**files, "a.jsonl.gz": files["a.jsonl.gz"] + files["a.jsonl.gz"]}
    assert b"has changed" in tool("tokenize", "-o", "signed", url, code=2).stderr


def shards(folder):
    found = {}
    for path in glob.glob(folder + "/*/*/*.zst"):
        found[os.path.relpath(path, folder)] = open(path, "rb").read()
    return found


SMALL_SHARDS = ["--shard-tokens", "100000", "--frame-tokens", "2000", "--val", "0.1", "--retries", "3", "--timeout", "1"]


def journal_lines(folder):
    try:
        return open(f"{folder}/.journal", "rb").read().count(b"\n")
    except FileNotFoundError:
        return 0


# fault 110
def test_a_killed_run_continues_with_the_same_command_to_the_same_bytes():
    for seed, name in enumerate(["a.jsonl.gz", "a.parquet"]):
        web.add("killed", Session(files, seed, survived=["cut", "503"], share=0.1, redirects=True))
        folder = "killed-" + name
        command = [TOOL, "tokenize", *SMALL_SHARDS, "-o", folder, web.url("origin", "killed/" + name)]
        tool("tokenize", "-q", *SMALL_SHARDS, "-o", "whole-" + name, name)
        kills = 0
        for lines in (2, 4, 6, 1 << 30):  # killed when the journal has as many, then left alone
            run = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
            while run.poll() is None and journal_lines(folder) < lines:
                time.sleep(0.002)
            run.kill()
            log = run.communicate()[1]
            kills += run.returncode == -signal.SIGKILL
        assert kills >= 2 and run.returncode == 0, (kills, log)
        assert b"continuing after" in log or kills < 3, log
        assert shards(folder) == shards("whole-" + name), name


# fault 111
def test_documents_of_a_damaged_transfer_do_not_stay_in_shards():
    name = "a.jsonl.zst"  # whose checksum is at its end, after all documents
    tool("tokenize", "-q", *SMALL_SHARDS, "-o", "right", name)
    session = web.add("flipped", Session(dict(files)))
    place = len(files[name]) - 2  # in the checksum: all shards but the last are finished when it is read
    session.files[name] = files[name][:place] + bytes([files[name][place] ^ 1]) + files[name][place + 1 :]
    url = web.url("origin", "flipped/" + name)
    session.etag = '"of both"'
    tool("tokenize", "-q", *SMALL_SHARDS, "-o", "mended", url, code=65)
    assert len(shards("mended")) > 4
    session.files[name] = files[name]
    assert b"continuing after" not in tool("tokenize", *SMALL_SHARDS, "-o", "mended", url).stderr
    assert shards("mended") == shards("right")


@runner.ci
def test_memory_is_that_of_local_files_and_sixteen_mebibytes():
    big = gzip.compress(random.Random(3).randbytes(12 << 20).hex().encode(), 1)
    open("big.txt.gz", "wb").write(big)
    web.add("big", Session({"big.txt.gz": big}))
    libraries = 12  # of libcurl and TLS, which are loaded for a URL alone
    here, there = (peak("decode", "-0", path) for path in ("big.txt.gz", web.url("origin", "big/big.txt.gz")))
    print(f"text: {here:.0f} MiB of a file, {there:.0f} MiB by URL")
    assert there < here + 16 + libraries, (here, there)


def open_session(rng, seed, fatal, survived, redirects):
    """The session of a seed at a web server, a bucket or a hub; the start of its URLs, and the environment that they need."""
    plan = dict(seed=seed, survived=survived, fatal=fatal, fatal_from=rng.randrange(1, 8))
    kind = "https" if redirects else rng.choice(["https", "s3", "hub"])
    if kind == "s3":
        session = Bucket(files, {KEY: (SECRET, None)}, **plan)
        start, more = f"s3://s{seed}/", {"AWS_ENDPOINT_URL": web.url("origin").rstrip("/"), "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    elif kind == "hub":
        session = Hub("owner/name", files, token="hf_" + SECRET, **plan)
        start, more = "hf://datasets/owner/name/", {"HF_ENDPOINT": web.url("origin", f"s{seed}"), "HF_TOKEN": "hf_" + SECRET}
    else:
        session = Session(dict(files), redirects=redirects, **plan)
        session.ranges = fatal not in (None, "html", "swap", "resize", "flip") or "short" in survived or rng.random() < 0.6
        start, more = web.url("origin", f"s{seed}/"), {}
    session.files["portal"] = b"<html>"
    return kind, web.add(f"s{seed}", session), start, environment(**more)


def hostile(seed):
    """One seeded session. Returns what was wrong, or None."""
    rng = random.Random(seed)
    name = rng.choice([name for name in files if not name.startswith("empty")])
    fatal = rng.choice(list(FATAL)) if rng.random() < 0.5 else None
    survived = rng.sample(SURVIVED, rng.randrange(4)) if fatal or rng.random() < 0.9 else []
    redirects = rng.random() < 0.4 and fatal not in ("portal", "loop", "to http", "to stranger")
    if not redirects and "expire" in survived:
        survived.remove("expire")
    kind, session, start, variables = open_session(rng, seed, fatal, survived, redirects)
    if fatal == "flip" and kind != "hub" and not name.endswith(("gz", "zst", "xz")):  # a hub has hashes of all
        session.fatal = fatal = "swap"
    command = [TOOL, "decode", "-0", "--retries", "3", "--timeout", "1", start + name]
    done = subprocess.run(command, capture_output=True, timeout=300, env=variables)
    del web.sessions[f"s{seed}"]
    what = (seed, kind, name, fatal, session.fatal_from, survived, redirects, done.returncode, done.stderr.decode(errors="replace")[-400:])
    if SECRET.encode() in done.stderr:
        return "a secret", what
    if done.returncode == 0:
        return None if done.stdout == local[name] else ("other bytes", what)
    if not re.search(re.escape(name) + "/?'", done.stderr.decode(errors="replace")):  # a hub lists it as a folder first
        return "an error without the name", what
    if not session.fatal_seen or done.returncode != FATAL.get(fatal):
        return "another exit code", what
    return None


def killed(seed):
    """One seeded session in which tokenize is killed up to four times. Returns what was wrong, or None."""
    rng = random.Random(seed)
    name, folder = rng.choice(["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]), f"seed-{seed}"
    survived = rng.sample(["cut", "cut header", "429", "503", "500", "redirect", "drip", "short"], 3)
    kind, _, start, variables = open_session(rng, seed, None, survived, False)
    command = [TOOL, "tokenize", *SMALL_SHARDS, "-o", folder, start + name]
    for _ in range(rng.randrange(1, 5)):
        run = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE)
        try:
            run.communicate(timeout=rng.random() * 1.5)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
    done = subprocess.run(command, capture_output=True, timeout=300, env=variables)
    del web.sessions[f"s{seed}"]
    found = shards(folder) if done.returncode == 0 else None
    shutil.rmtree(folder, ignore_errors=True)
    return None if found == whole[name] else (seed, kind, name, survived, done.returncode, done.stderr.decode()[-400:])


whole = {}


# fault 123
@runner.ci
def test_seeded_hostile_sessions_that_are_killed_continue_to_the_same_bytes():
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"):
        tool("tokenize", "-q", *SMALL_SHARDS, "-o", "all-" + name, name)
        whole[name] = shards("all-" + name)
    run_sessions(killed, max(SESSIONS // 8, 3), "killed sessions")


def run_sessions(session, count, what):
    first = int(os.environ.get("SEED", 1))
    print(f"seeds {first} to {first + count - 1} of the {what}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wrong = [found for found in pool.map(session, range(first, first + count)) if found]
    for line in wrong:
        print(line)
    assert not wrong, len(wrong)


# fault 109, 113, 116
def test_seeded_hostile_sessions_end_with_the_same_bytes_or_the_right_code():
    run_sessions(hostile, SESSIONS, "hostile sessions")
