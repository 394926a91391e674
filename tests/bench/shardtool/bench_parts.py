"""Near-duplicates in parts beside datatrove, on the same documents: bench_parts.py SHARDTOOL FOLDER [DOCUMENTS].

Documents of 60 to 400 words, drawn from 20,000 made-up ones. Each fifth is a copy of one of the last 1,000, which may be a copy, too,
with 0 to 10 % of its words changed. Both remove near-duplicates at 0.8 in 4 parts (datatrove: its default of
14 buckets of 8, one worker). Of each: CPU seconds without the start of Python, bytes between the stages, documents removed, and those of them of which
no document that stays has a Jaccard similarity of 0.8 or more (sequences of 5 words, computed here). Then each runs once more without
what one part wrote: its exit code, and the copies that stay.
"""
import json
import os
import random
import resource
import shutil
import subprocess
import sys

PARTS, LEAST = 4, 0.8


def corpus(folder, count):
    drawn, texts = random.Random(4), []
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9))) for _ in range(20000)]
    for at in range(count):
        text = drawn.choices(words, k=drawn.randint(60, 400))
        if at % 5 == 4:
            share = drawn.choice((0, 0.01, 0.02, 0.05, 0.1))
            text = [drawn.choice(words) if drawn.random() < share else word for word in drawn.choice(texts[-1000:])]
        texts.append(text)
    os.makedirs(f"{folder}/input")
    for part in range(PARTS):
        with open(f"{folder}/input/{part}.jsonl", "w") as file:
            for at in range(count * part // PARTS, count * (part + 1) // PARTS):
                file.write(json.dumps({"text": " ".join(texts[at]), "id": str(at)}) + "\n")
    return texts


def shingles(words):
    return {hash(" ".join(words[at : at + 5])) for at in range(max(1, len(words) - 4))}


def without_partner(texts, removed):
    """How many removed documents have no near-duplicate that stays: each is compared with all that share a sequence."""
    sets = [shingles(text) for text in texts]
    places = {}
    for number, own in enumerate(sets):
        if number not in removed:
            for value in own:
                places.setdefault(value, []).append(number)
    alone = 0
    for number in removed:
        own = sets[number]
        candidates = {other for value in own for other in places.get(value, ())}
        alone += not any(len(own & sets[other]) >= LEAST * len(own | sets[other]) for other in candidates)
    return alone


def cpu_of(action):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, status


def size(*folders):
    return sum(os.path.getsize(os.path.join(path, name)) for folder in folders for path, _, names in os.walk(folder) for name in names)


def ours(tool, folder, lost=None):
    out, files = f"{folder}/ours", [f"{folder}/input/{part}.jsonl" for part in range(PARTS)]
    command = [tool, "dedup", "-q", "-j", "1", "--similar", str(LEAST), "-o", out]
    shutil.rmtree(out, ignore_errors=True)
    if not os.path.exists(f"{folder}/data"):
        subprocess.run([tool, "tokenize", "-q", "--val", "0", "-o", f"{folder}/data", *files], check=True)
    signing, _ = cpu_of(lambda: [subprocess.run([*command, "--part", f"{part}/{PARTS}", f"{folder}/data"], check=True) for part in range(1, PARTS + 1)])
    disk = size(out)
    if lost is not None:
        os.unlink(f"{out}/bands-{lost + 1}-of-{PARTS}")
    report = f"{folder}/report"
    done = []
    deciding, _ = cpu_of(lambda: done.append(subprocess.run([*command, "--report", report, f"{folder}/data"], stderr=subprocess.PIPE, text=True)))
    removed = set()
    if done[0].returncode == 0:
        with open(report) as file:
            removed = {json.loads(line)["document"] for line in file}
    return signing + deciding, disk, done[0].returncode, removed, done[0].stderr.strip()


def trove_stage(folder, stage):
    """Runs in a process of its own: a stage of datatrove, or its imports alone."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import minhash
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    out, config, reader = f"{folder}/trove", minhash.MinhashConfig(), JsonlReader(f"{folder}/input")
    stages = {
        "1": (PARTS, lambda: [reader, minhash.MinhashDedupSignature(f"{out}/signatures", config)]),
        "2": (config.num_buckets, lambda: [minhash.MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)]),
        "3": (1, lambda: [minhash.MinhashDedupCluster(f"{out}/buckets", f"{out}/removed", config=config)]),
        "4": (PARTS, lambda: [reader, minhash.MinhashDedupFilter(f"{out}/removed"), JsonlWriter(f"{out}/unique", compression=None)]),
    }
    if stage in stages:
        tasks, steps = stages[stage]
        LocalPipelineExecutor(steps(), tasks=tasks, workers=1, logging_dir=f"{out}/logs{stage}").run()


def trove(folder, lost=None):
    out, spent, statuses, log = f"{folder}/trove", 0, [], ""
    shutil.rmtree(out, ignore_errors=True)

    def run(stage):
        return subprocess.run([sys.executable, os.path.abspath(__file__), "--stage", folder, stage], stderr=subprocess.PIPE, text=True)

    start, _ = cpu_of(lambda: run("0"))
    for stage in "1234":
        seconds, done = cpu_of(lambda: run(stage))
        spent += seconds - start
        statuses.append(done.returncode)
        log += done.stderr
        for path, _, names in os.walk(f"{out}/signatures") if lost is not None and stage == "1" else ():
            for name in names:
                if name == f"{lost:05d}.minhash.sig":
                    os.unlink(os.path.join(path, name))
    kept = set()
    for name in os.listdir(f"{out}/unique"):
        with open(f"{out}/unique/{name}") as file:
            kept |= {int(json.loads(line)["id"]) for line in file}
    return spent, size(f"{out}/signatures", f"{out}/buckets", f"{out}/removed"), max(statuses), kept, log


def main():
    tool, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    shutil.rmtree(folder, ignore_errors=True)
    texts = corpus(folder, count)
    everything = set(range(count))
    seconds, disk, status, removed, _ = ours(tool, folder)
    seconds2, disk2, status2, kept, log = trove(folder)
    for name, cpu, size_, code, gone in (("dedup --part", seconds, disk, status, removed), ("datatrove", seconds2, disk2, status2, everything - kept)):
        print(f"{name:14}{cpu:7.2f} CPU s  {size_ / count:6.0f} bytes a document  exit {code}  {len(gone)} removed, {without_partner(texts, gone)} of them without a partner")
    print(f"CPU: 1 to {seconds2 / seconds:.0f}; {count} documents")
    _, _, status, gone, said = ours(tool, folder, lost=1)
    print(f"without part 2 of {PARTS}: dedup ends with {status}: {said}")
    _, _, status2, kept2, lost_log = trove(folder, lost=1)
    print(f"without the signatures of task 1 of {PARTS}: datatrove's four stages end with {status2}; {len(kept2) - len(kept)} documents more stay; {lost_log.count('WARNING')} warnings, {log.count('WARNING')} before")


if sys.argv[1] == "--stage":
    trove_stage(*sys.argv[2:])
else:
    main()
