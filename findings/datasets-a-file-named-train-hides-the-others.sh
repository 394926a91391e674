#!/usr/bin/env bash
# Behaviour: datasets.load_dataset(FOLDER) looks for the words train, test, eval, dev, valid and validation in the names of the files,
#   between characters that are no letters. One file with such a word makes splits of names: files without one are in no split. Their
#   rows are absent, without a word. The words inside another word, as in latest.jsonl, do not count.
# Guess: the documentation names such files as a way to make splits, so other files stay in the split train; or a line names them.
# Versions: datasets 5.2.0
# Date: 2026-11-28
# Output seen (10 rows a file):
#   rivers.jsonl mills.jsonl: 20 of 20 rows, splits train
#   train-stations.jsonl rivers.jsonl mills.jsonl: 10 of 30 rows, splits train
#   ab-test.jsonl rivers.jsonl mills.jsonl: 10 of 30 rows, splits test
#   wikipedia_dev.jsonl rivers.jsonl mills.jsonl: 10 of 30 rows, splits validation
#   latest.jsonl rivers.jsonl mills.jsonl: 30 of 30 rows, splits train
#   data_files=[...] of train-stations.jsonl rivers.jsonl mills.jsonl: 30 rows
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datasets==5.2.0 pyarrow==25.0.1 pandas==3.1.1 numpy==2.4.6
export HF_HOME=$dir/home HF_HUB_OFFLINE=1
venv/bin/python - <<'END'
import glob, json, os, datasets
datasets.disable_progress_bars()
cases = [(["rivers", "mills"], 20, ["train"]), (["train-stations", "rivers", "mills"], 10, ["train"]),
         (["ab-test", "rivers", "mills"], 10, ["test"]), (["wikipedia_dev", "rivers", "mills"], 10, ["validation"]),
         (["latest", "rivers", "mills"], 30, ["train"])]
changed = False
for number, (names, want, splits) in enumerate(cases):
    os.makedirs(f"folder{number}")
    for name in names:
        with open(f"folder{number}/{name}.jsonl", "w") as out:
            out.writelines(json.dumps({"text": f"{name} {i}"}) + "\n" for i in range(10))
    got = datasets.load_dataset(f"folder{number}")
    rows = sum(split.num_rows for split in got.values())
    print(f"{' '.join(n + '.jsonl' for n in names)}: {rows} of {10 * len(names)} rows, splits {' '.join(got)}")
    changed |= rows != want or list(got) != splits
rows = datasets.load_dataset("json", data_files=sorted(glob.glob("folder1/*")), split="train").num_rows
print(f"data_files=[...] of train-stations.jsonl rivers.jsonl mills.jsonl: {rows} rows")
raise SystemExit(changed or rows != 30)
END
