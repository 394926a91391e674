"""s3:// inputs against a bucket of the hostile server, whose signatures botocore checks, and against moto, a server for tests of AWS."""
import json, logging, os, subprocess, sys, time
import remote_runs, runner
from hostile_server import SECRET, Session
from remote_runs import TOOL, environment, has_secret, tool
from s3_server import KEY, Bucket

TOKEN = "session-token/" + SECRET + "+=="
files = {"data/b.jsonl": b'{"text":"two"}\n', "data/a.txt": b"one", "data/deep/c d+e&f%/\xc3\xa9.txt".encode("latin1").decode(): b"three", "data/empty/": b"",
         "data/_SUCCESS": b"", "data-not/x.txt": b"no", "data/z..z/./w.txt": b"four", "data/q?x=1#y.txt": b"five", "alone.txt": b"six"}
web = None


def endpoint():
    return web.url("origin").rstrip("/")


def s3(*arguments, code=0, signed=True, **more):
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET} if signed else {}
    return tool(*arguments, code=code, **{"AWS_ENDPOINT_URL": endpoint(), **keys, **more})


def local_text(folder):
    return tool("decode", "-0", folder).stdout


def setup():
    global web
    web = remote_runs.start()
    web.add("bucket", Bucket(files, {KEY: (SECRET, None)}))
    for name, content in files.items():
        if not name.endswith("/"):
            os.makedirs(os.path.dirname("local/" + name) or ".", exist_ok=True)
            open("local/" + name, "wb").write(content)


def test_a_prefix_is_read_as_the_folder_that_it_would_be():
    bucket = web.sessions["bucket"]
    want = local_text("local/data")
    assert sorted(want.split(b"\0")) == sorted([b"one", b"two", b"three", b"four", b"five", b""])
    for name in ("s3://bucket/data/", "s3://bucket/data"):
        bucket.listed = 0
        assert sorted(s3("decode", "-0", name).stdout.split(b"\0")) == sorted(want.split(b"\0")), name
        assert bucket.listed == 4, bucket.listed  # pages of three, and one that looks for the manifest of a dataset
    assert s3("decode", "-0", "s3://bucket/alone.txt").stdout == b"six\0"
    assert s3("decode", "-0", "--include", "*.jsonl", "s3://bucket").stdout == b"two\0"
    assert s3("decode", "-0", "s3://bucket/data/q?x=1#y.txt").stdout == b"five\0"
    s3("decode", "--json", "s3://bucket/data/none", code=66)
    s3("decode", "--json", "s3://bucket/none/", code=66)


def test_the_order_is_that_of_names():
    assert s3("decode", "-0", "s3://bucket/data/").stdout == b"one\0two\0three\0five\0four\0"


def test_the_files_of_a_table_with_a_log_are_refused():
    """Whatever names them: the table, a folder in it, a file, and with --include."""
    parquet = open(os.environ["DATA"] + "/small.parquet", "rb").read()
    names = {"t/lang=en/a.parquet": parquet, "t/_delta_log/00000000000000000000.json": b"{}", "i/data/a.parquet": parquet,
             "i/metadata/00000-a.metadata.json": b"{}", "plain/a.parquet": parquet}
    web.add("tables", Bucket(names, {KEY: (SECRET, None)}))
    for name in ("t/", "t/lang=en/", "t/lang=en/a.parquet", "i/", "i/data/", "i/data/a.parquet"):
        said = s3("decode", "--json", "--max-bad", "100%", "--include", "*.parquet", f"s3://tables/{name}", code=65).stderr
        assert (b"Iceberg table" if name[0] == "i" else b"Delta table") in said, (name, said)
    s3("decode", "--json", "s3://tables/plain/")
    s3("decode", "--json", "s3://tables/plain/a.parquet")


def test_rows_that_a_spark_job_has_not_committed_are_left_out():
    names = {"in/lang=en/part-0.txt": b"kept", "in/_temporary/0/task_1/part-1.txt": b"not committed", "in/_SUCCESS": b"", "in/_started_12": b"",
             "in/_committed_12": b'{"added": ["part-0.txt"], "removed": []}', "in/not_temporary/part-2.txt": b"kept too"}
    web.add("spark", Bucket(names, {KEY: (SECRET, None)}))
    for name in ("in", "in/", ""):
        assert s3("decode", "-0", f"s3://spark/{name}").stdout == b"kept\0kept too\0", name


def test_keys_come_from_the_environment_or_a_profile():
    keys = {KEY: (SECRET, None), "AKIDOTHER": (SECRET + "-other", TOKEN)}
    for region in ("us-east-1", "eu-west-3"):
        web.add("keyed", Bucket(files, keys, region=region))
        read = lambda code=0, **more: s3("decode", "-0", "s3://keyed/alone.txt", code=code, signed=False, **more)
        assert read(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION=region).stdout == b"six\0"
        assert read(AWS_ACCESS_KEY_ID="AKIDOTHER", AWS_SECRET_ACCESS_KEY=SECRET + "-other", AWS_SESSION_TOKEN=TOKEN, AWS_DEFAULT_REGION=region).stdout == b"six\0"
        read(code=77, AWS_REGION=region)  # not signed
        wrong = read(code=77, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY="wrong", AWS_REGION=region)
        assert b"the server answers 403 (SignatureDoesNotMatch)" in wrong.stderr
    os.mkdir("home/.aws")
    open("home/.aws/credentials", "w").write(f"""# keys
[other]
aws_access_key_id=AKIDOTHER
AWS_SECRET_ACCESS_KEY =  {SECRET}-other
aws_session_token = {TOKEN}
[default]
aws_access_key_id = {KEY}\r
aws_secret_access_key = {SECRET}\r
""")
    open("home/.aws/config", "w").write("[default]\ns3 =\n  region = nested\nregion = eu-west-3\n[profile other]\nregion = eu-west-3\n[profile login]\nsso_session = x\n")
    assert read().stdout == b"six\0"
    assert read(AWS_PROFILE="other").stdout == b"six\0"
    assert b"no profile 'none'" in read(code=2, AWS_PROFILE="none").stderr
    assert b"export-credentials" in read(code=2, AWS_PROFILE="login").stderr
    read(code=77, AWS_REGION="us-east-1")
    os.remove("home/.aws/credentials"), os.remove("home/.aws/config")
    assert b"control character" in read(code=2, AWS_ACCESS_KEY_ID=KEY + "\r\nX: y", AWS_SECRET_ACCESS_KEY=SECRET).stderr


def test_the_endpoint_of_a_profile_is_that_of_botocore():
    """`services`, whose settings are indented below "s3 =", before endpoint_url; and what ignores both."""
    web.add("served", Bucket(files, {KEY: (SECRET, None)}))
    here = web.url("origin").rstrip("/")
    os.makedirs("home/.aws", exist_ok=True)
    open("home/.aws/credentials", "w").write(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    services = f"[services loc]\ndynamodb =\n  endpoint_url = https://127.0.0.1:1\ns3 =\n  # ours\n  endpoint_url = {here}\nec2 =\n    endpoint_url = https://127.0.0.1:2\n"
    configs = [("services = loc\n", {}, services), ("endpoint_url = https://127.0.0.1:3\nservices = loc\n", {}, services),
               (f"endpoint_url = {here}\ns3 =\n  endpoint_url = https://127.0.0.1:4\n", {}, ""),
               ("services = loc\n", {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, services),
               ("services = loc\nignore_configured_endpoint_urls = true\n", {}, services),
               ("", {"AWS_ENDPOINT_URL": here, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, services)]
    for i, (profile, _, rest) in enumerate(configs):
        open(f"home/.aws/config{i}", "w").write("[default]\nregion = us-east-1\n" + profile + rest)
    variables = [{"AWS_CONFIG_FILE": os.path.abspath(f"home/.aws/config{i}"), **more} for i, (_, more, _) in enumerate(configs)]
    code = "import botocore.session, json, os, sys\nfor more in json.loads(sys.argv[1]):\n  os.environ.pop('AWS_ENDPOINT_URL', 0), os.environ.update(more)\n" \
           "  print(botocore.session.Session().create_client('s3').meta.endpoint_url)\n  for name in more: del os.environ[name]"
    run = subprocess.run([sys.executable, "-c", code, json.dumps(variables)], capture_output=True, check=True, env=environment())
    want = run.stdout.decode().split()
    assert want.count(here) == 3 and len(want) == len(configs), want
    for found, more in zip(want, variables):
        done = tool("decode", "-0", "--retries", "0", "s3://served/alone.txt", code=None, https_proxy="http://127.0.0.1:1", no_proxy="localhost", **more)
        assert (done.returncode == 0) == (found == here), (more, found, done.stderr)
    os.remove("home/.aws/credentials")


def test_a_public_bucket_is_read_without_keys():
    web.add("public", Bucket(files))
    assert s3("decode", "-0", "s3://public/alone.txt", signed=False).stdout == b"six\0"
    assert s3("decode", "-0", "s3://public/alone.txt", "--s3-endpoint", endpoint(), signed=False, AWS_ENDPOINT_URL="https://localhost:1").stdout == b"six\0"


# fault 112
def test_a_listing_that_lies_ends_the_run():
    for bad in ("etag", "size", "outside", "nul", "endless", "cut xml", "entity", "deep", "html"):
        web.add("lies", Bucket(files, {KEY: (SECRET, None)}, page=100, bad=bad))
        done = s3("decode", "-0", "--retries", "1", "s3://lies/data/", code=65)
        assert b"s3://lies/data/" in done.stderr, (bad, done.stderr)
    session = web.add("elsewhere", Session(files))
    session.route = lambda handler, file, query: handler.answer(301, b"", x_amz_bucket_region="eu-west-3") or True
    assert b"eu-west-3, set AWS_REGION" in s3("decode", "--json", "s3://elsewhere/alone.txt", code=66).stderr


def test_a_signature_is_not_sent_to_a_host_to_which_a_bucket_redirects():
    bucket = web.add("moves", Bucket(files, {KEY: (SECRET, None)}, redirects=True))
    assert s3("decode", "-0", "s3://moves/alone.txt").stdout == b"six\0"
    hosts = {role: [headers for at, _, headers in bucket.seen if at == role] for role in ("origin", "cdn")}
    assert hosts["cdn"] and all("Authorization" in headers for headers in hosts["origin"])
    assert not any("Authorization" in headers or "x-amz-date" in headers for headers in hosts["cdn"])


def test_no_key_is_in_a_dataset_a_message_or_the_arguments_of_the_process():
    web.add("quiet", Bucket({"a.jsonl": b'{"text":"hello"}\n' * 50}, {"AKIDOTHER": (SECRET + "-other", TOKEN)}, survived=["stall"], share=1, stall_s=1))
    secrets = {"AWS_ACCESS_KEY_ID": "AKIDOTHER", "AWS_SECRET_ACCESS_KEY": SECRET + "-other", "AWS_SESSION_TOKEN": TOKEN, "AWS_ENDPOINT_URL": endpoint()}
    run = subprocess.Popen([TOOL, "tokenize", "-o", "quiet", "--timeout", "2", "s3://quiet/"], env=environment(**secrets), stderr=subprocess.PIPE)
    seen = b""
    while run.poll() is None:
        try:
            seen += open(f"/proc/{run.pid}/cmdline", "rb").read()
        except OSError:
            pass
        found = has_secret("quiet", SECRET, "AKIDOTHER") if os.path.isdir("quiet") else None
        assert not found, found
        time.sleep(0.01)
    log = run.communicate()[1]
    assert run.returncode == 0, log
    for text in (seen, log):
        assert SECRET.encode() not in text and b"AKIDOTHER" not in text
    assert not has_secret("quiet", SECRET, "AKIDOTHER")
    manifest = json.loads(open("quiet/dataset.jsonl").readline())
    assert manifest["sources"][0]["path"] == "s3://quiet/"


def test_moto_accepts_the_signatures_and_its_listings_are_read():
    import boto3
    from moto import settings
    from moto.server import ThreadedMotoServer
    os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = "50"  # of a page
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://127.0.0.1:{port}"
    make = lambda service, **more: boto3.client(service, endpoint_url=url, region_name="us-east-1", **more)
    try:
        iam = make("iam", aws_access_key_id="x", aws_secret_access_key="x")
        iam.create_user(UserName="reader")
        everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
        iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(everything))
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        store = make("s3", aws_access_key_id="x", aws_secret_access_key="x")
        store.create_bucket(Bucket="here")
        names = [f"many/{i:04}+ ü%.txt" for i in range(123)]
        for name in names:
            store.put_object(Bucket="here", Key=name, Body=name.encode())
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # from now on signatures are checked
        read = lambda secret, code: tool("decode", "-0", "s3://here/many/", code=code, AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID=key["AccessKeyId"], AWS_SECRET_ACCESS_KEY=secret)
        assert read(key["SecretAccessKey"], 0).stdout == b"".join(name.encode() + b"\0" for name in names)
        read("wrong", 77)
    finally:
        server.stop()
