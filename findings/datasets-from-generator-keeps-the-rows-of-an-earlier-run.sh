#!/usr/bin/env bash
# Behaviour: Dataset.from_generator keeps its rows in the cache under a hash of the generator and its arguments. A generator that reads
#   a file gives the old rows after the file has grown, in the same process and in a later one, without a word. load_dataset and
#   Dataset.from_text of the same file see the change.
# Guess: a generator is run each time, or the cache knows the files by their times as that of load_dataset does.
# Versions: datasets 5.2.0
# Date: 2026-11-28
# Output seen (the file has 2 lines, then 4; each time in a new process):
#   2 lines: from_generator 2, from_text 2, load_dataset 2, IterableDataset.from_generator 2
#   4 lines: from_generator 2, from_text 4, load_dataset 4, IterableDataset.from_generator 4
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datasets==5.2.0 pyarrow==25.0.1 pandas==3.1.1 numpy==2.4.6
export HF_HOME=$dir/home HF_HUB_OFFLINE=1
cat >count.py <<'END'
import sys, datasets
datasets.disable_progress_bars()
def lines(path):
    with open(path) as file:
        for line in file:
            yield {"text": line.rstrip("\n")}
path = "corpus.txt"
got = [datasets.Dataset.from_generator(lines, gen_kwargs={"path": path}).num_rows, datasets.Dataset.from_text(path).num_rows,
       datasets.load_dataset("text", data_files=path, split="train").num_rows,
       sum(1 for _ in datasets.IterableDataset.from_generator(lines, gen_kwargs={"path": path}))]
print("{} lines: from_generator {}, from_text {}, load_dataset {}, IterableDataset.from_generator {}".format(sys.argv[1], *got))
raise SystemExit(got != [int(word) for word in sys.argv[2:]])
END
printf 'one\ntwo\n' >corpus.txt
venv/bin/python count.py 2 2 2 2 2
printf 'three\nfour\n' >>corpus.txt
venv/bin/python count.py 4 2 4 4 4
