"""A condition, then exact duplicates, and which went for which, beside DuckDB and datatrove: bench_documents.py SHARDTOOL FOLDER [MB].

JSON lines of random words with url, language and score, in two files; 3 of 100 documents are a copy of an earlier one. Each
program keeps the documents with language = 'en' and score > 0.3, of equal ones the first, with their url, and writes a list of the others
with the url of what stays. datatrove's list has the removed documents alone. Ours also tokenizes. The programs run in turn, with one
thread and with two (datatrove: processes). CPU seconds are those of all processes, memory is that of the largest one. How many documents
fail the condition, stay and are removed is compared between all, and the urls between DuckDB and ours.
"""
import contextlib
import ctypes
import json
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from timing import measured

HERE = os.path.abspath(__file__)
PR_SET_CHILD_SUBREAPER = 36
FILES = "a.jsonl", "b.jsonl"


def write_corpus(folder, megabytes):
    drawn = random.Random(1)
    words = ["".join(drawn.choices("etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1), k=drawn.randint(1, 9))) for _ in range(20000)]
    texts, number = [], 0
    for name in FILES:
        with open(f"{folder}/{name}", "w") as file:
            while file.tell() < int(megabytes) * 1e6 / len(FILES):
                copied = texts and drawn.random() < 0.03
                text = drawn.choice(texts) if copied else " ".join(drawn.choices(words, k=drawn.randint(30, 300)))
                texts += [text] if len(texts) < 5000 else []
                document = {"id": number, "text": text, "url": f"https://e{number % 997}.org/p/{number}?q={number}",
                            "language": drawn.choices(["en", "de", None], [80, 19, 1])[0], "score": round(drawn.random(), 3)}  # fmt: skip
                file.write(json.dumps(document) + "\n")
                number += 1


def run_duckdb(folder, threads):
    import duckdb

    base = duckdb.connect()
    base.execute(f"set threads={threads}; set enable_progress_bar=false")
    condition = "language = 'en' and score > 0.3"
    base.execute(f"""create temp table kept as select text, arg_min(url, id) as url, list(url order by id) as urls, count(*) as n
                     from read_json(['{folder}/a.jsonl', '{folder}/b.jsonl']) where {condition} group by text""")
    base.execute(f"copy (select url, text from kept) to '{folder}/duckdb/kept.parquet'")
    base.execute(f"copy (select unnest(urls[2:]) as url, url as kept from kept where n > 1) to '{folder}/duckdb/removed.jsonl' (format json)")


def run_datatrove(folder, processes):
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import ExactDedupFilter, ExactDedupSignature, ExactFindDedups
    from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig
    from datatrove.pipeline.filters import LambdaFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    def text(document) -> str:
        return document.text

    def meets(document):
        return document.metadata["language"] == "en" and document.metadata["score"] > 0.3

    threads, out, config = int(processes), f"{folder}/datatrove", ExactDedupConfig(content_getter=text)
    writer = lambda name: JsonlWriter(f"{out}/{name}", compression=None)
    stages = [
        [JsonlReader(folder, glob_pattern="?.jsonl"), LambdaFilter(meets), writer("met")],
        [JsonlReader(f"{out}/met"), ExactDedupSignature(f"{out}/hashes", config, finder_workers=threads)],
        [ExactFindDedups(f"{out}/hashes", f"{out}/numbers", config=config)],
        [JsonlReader(f"{out}/met"), ExactDedupFilter(f"{out}/numbers", config=config, exclusion_writer=writer("removed")), writer("kept")],
    ]
    for number, stage in enumerate(stages):
        LocalPipelineExecutor(stage, tasks=threads, workers=threads, logging_dir=f"{out}/logs{number}").run()


def peer(name, folder, threads):
    shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
    os.makedirs(f"{folder}/{name}")
    wall, cpu, memory = measured([sys.executable, HERE, "--run", name, folder, str(threads)], stderr=subprocess.DEVNULL)
    with contextlib.suppress(ChildProcessError):
        while True:  # processes of datatrove that it has not waited for
            usage = os.wait4(-1, 0)[2]
            cpu, memory = cpu + usage.ru_utime + usage.ru_stime, max(memory, usage.ru_maxrss / 1024)
    return wall, cpu, memory


def ours(tool, folder, threads):
    common = ["-q", "--force", "-j", str(threads), "-o"]
    where = ["--where", "language = 'en' and score > 0.3", "--keep", "url", "--val", "0"]
    made = measured([tool, "tokenize", *common, f"{folder}/met", *where, *(f"{folder}/{name}" for name in FILES)])
    found = measured([tool, "dedup", *common, f"{folder}/kept", "--report", f"{folder}/removed.jsonl", f"{folder}/met"])
    return made[0] + found[0], made[1] + found[1], max(made[2], found[2])


def lines(path):
    with open(path, encoding="utf-8") as file:
        return list(map(json.loads, file))


def check(folder, tool):
    """Prints the counts after the three programs have been found to agree. In a process of its own: the peak memory of a program counts
    from that of the process that started it."""
    import duckdb

    decoded = subprocess.run([tool, "decode", "--json", f"{folder}/kept"], check=True, stdout=subprocess.PIPE).stdout.splitlines()
    kept = {json.loads(line)["keys"]["url"] for line in decoded}
    removed = {(line["keys"]["url"], line["kept_keys"]["url"]) for line in lines(f"{folder}/removed.jsonl")}
    theirs = duckdb.sql(f"select url from '{folder}/duckdb/kept.parquet'").fetchall()
    assert kept == {url for (url,) in theirs} and len(kept) == len(theirs) == len(decoded)
    assert removed == {(line["url"], line["kept"]) for line in lines(f"{folder}/duckdb/removed.jsonl")}
    for part, count in ("kept", len(kept)), ("removed", len(removed)):
        assert sum(len(lines(entry.path)) for entry in os.scandir(f"{folder}/datatrove/{part}")) == count
    documents = sum(len(lines(f"{folder}/{name}")) for name in FILES)
    print(f"{documents} documents: {documents - len(kept) - len(removed)} fail the condition, {len(removed)} are copies, {len(kept)} stay")


def main(tool, folder, megabytes="120"):
    os.makedirs(folder, exist_ok=True)
    subprocess.run([sys.executable, HERE, "--run", "corpus", folder, megabytes], check=True)
    print(f"{megabytes} MB, {subprocess.getoutput(tool + ' --version').splitlines()[0]}, load {os.getloadavg()[0]:.1f}")
    for name in "duckdb", "datatrove.executor":
        print(f"import {name}: {measured([sys.executable, '-c', 'import ' + name])[1]:.2f} CPU s, which its rows below have too")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for threads in 1, 2:
        costs = {"shardtool": ours(tool, folder, threads)}
        costs.update((name, peer(name, folder, threads)) for name in ("duckdb", "datatrove"))
        subprocess.run([sys.executable, HERE, "--run", "check", folder, tool], check=True)
        for name, (wall, cpu, memory) in costs.items():
            print(f"{threads} thread{'s' * (threads > 1)}  {name:10}{wall:8.2f} s{cpu:8.2f} CPU s{memory:7.0f} MiB", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":  # the processes of datatrove import this file
    if sys.argv[1] == "--run":
        {"corpus": write_corpus, "duckdb": run_duckdb, "datatrove": run_datatrove, "check": check}[sys.argv[2]](*sys.argv[3:])
    else:
        main(os.path.abspath(sys.argv[1]), *sys.argv[2:])
