"""scripts/slurm/fineweb.sbatch on a FineWeb-shaped repository of the local hub, with a stand-in for sbatch."""
import glob, json, os, pathlib, random, signal, subprocess, time
import pyarrow as pa, pyarrow.parquet as pq
import remote_runs
from hostile_server import SECRET
from hub_server import Hub
from remote_runs import TOOL, environment, tool
from test_remote import journal_lines, make_texts

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/slurm/fineweb.sbatch"
PARTS = 4
web = hub = None
files = {}


def setup():
    global web, hub
    web = remote_runs.start()
    rng = random.Random(5)
    os.makedirs("local/sample/10BT")
    for number in range(10):  # the columns of FineWeb, in snappy or zstd
        texts = make_texts(rng, 500)
        path = f"sample/10BT/{number:03}_00000.parquet"
        columns = {"text": texts, "id": [f"<urn:uuid:{number}-{i}>" for i in range(len(texts))], "dump": ["CC-MAIN-2024-10"] * len(texts),
                   "url": [f"https://example.org/{i}" for i in range(len(texts))], "language": ["en"] * len(texts),
                   "language_score": [rng.random() for _ in texts], "token_count": [len(text) // 5 for text in texts]}
        pq.write_table(pa.table(columns), "local/" + path, compression=rng.choice(["snappy", "zstd"]), row_group_size=100)
        files[path] = open("local/" + path, "rb").read()
    hub = web.add("hub", Hub("owner/fineweb", files, token="hf_" + SECRET, survived=["cut", "503", "429", "short"], share=0.2))
    os.makedirs("build/bin")
    for program in ("millrace", "shardtool"):
        os.symlink(pathlib.Path(TOOL).parent / program, f"build/bin/{program}")


OPTIONS = ["--val", "0.01", "--shard-tokens", "40000", "--frame-tokens", "2000", "--where", "language_score>=0.65", "--retries", "3"]


def sbatch(*words, task=None, **more):
    """The stand-in: runs the script as Slurm starts a task of an array, or a job of its own."""
    slurm = {"SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "7"}
    if task:
        slurm |= {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(PARTS), "SLURM_ARRAY_TASK_MIN": "1",
                  "SLURM_ARRAY_TASK_MAX": str(PARTS), "SLURM_ARRAY_TASK_STEP": "1"}
    variables = environment(HF_ENDPOINT=web.url("origin", "hub"), HF_TOKEN="hf_" + SECRET, FINEWEB_WAIT_S="0", **slurm, **more)
    return subprocess.Popen(["bash", str(SCRIPT), *words], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


# fault 124
def test_parts_of_a_hub_of_which_one_is_killed_are_merged_to_the_documents_of_the_files():
    url = f"hf://datasets/owner/fineweb@{hub.main}/sample/10BT/*.parquet"
    jobs = [sbatch("night", *OPTIONS, url, task=task) for task in range(1, PARTS + 1)]
    while jobs[2].poll() is None and journal_lines("night/part-3-of-4") < 2:
        time.sleep(0.01)
    os.killpg(jobs[2].pid, signal.SIGKILL)
    logs = [job.communicate(timeout=300)[0].decode() for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0, -signal.SIGKILL, 0], logs
    merge = sbatch("night")
    log = merge.communicate(timeout=100)[0]
    assert merge.returncode == 66 and b"3 (not finished)" in log, log
    again = sbatch("night", "--part", "3/4", *OPTIONS, url)
    log = again.communicate(timeout=100)[0]
    assert again.returncode == 0 and b"continuing after" in log, log
    merge = sbatch("night")
    log += merge.communicate(timeout=100)[0]
    assert merge.returncode == 0 and b"all good" in log, log
    assert SECRET.encode() not in log and not any(SECRET in text for text in logs)
    for part in range(1, PARTS + 1):
        tool("tokenize", "-q", *OPTIONS, "--part", f"{part}/4", "-o", "here", "local/sample/10BT")
    tool("merge", "-q", "-o", "here/whole", *glob.glob("here/part-*"))
    shown = [json.loads(tool("info", "--json", folder + "/whole").stdout) for folder in ("night", "here")]
    assert shown[0]["fingerprint"] == shown[1]["fingerprint"] and shown[0]["train_tokens"] > 300000, shown


def test_a_hub_that_is_away_for_a_while_only_delays_a_part():
    session = web.add("hub", Hub("owner/fineweb", files, token="hf_" + SECRET, fatal="dead", fatal_from=1))
    job = sbatch("away", *OPTIONS, "--retries", "0", "--part", "1/1", "hf://datasets/owner/fineweb/sample/10BT/000_00000.parquet")
    while not session.fatal_seen and job.poll() is None:
        time.sleep(0.01)
    session.fatal = None
    log = job.communicate(timeout=100)[0]
    assert job.returncode == 0 and b"503" in log, log
