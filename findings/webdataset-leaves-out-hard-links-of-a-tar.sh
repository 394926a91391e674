#!/usr/bin/env bash
# Behaviour: tar stores a file with two names once, and the second name as a hard link (type 1), for example in a folder whose equal
#   files were joined to save space. webdataset and the webdataset reader of datasets leave these members out without a word. Python's
#   tarfile, by which both read, gives their contents.
# Guess: both read by tarfile, whose extractfile follows hard links, so each name has its text.
# Versions: webdataset 1.0.2, datasets 5.2.0; Python 3.11.7, GNU tar 1.34
# Date: 2026-11-28
# Output seen:
#   tarfile: a.txt b.txt c.txt
#   webdataset: a.txt b.txt
#   datasets: a.txt b.txt
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check webdataset==1.0.2 datasets==5.2.0 numpy==2.4.6 pyarrow==25.0.1
mkdir samples
echo 'the text of two samples' >samples/a.txt
echo 'another text' >samples/b.txt
ln samples/a.txt samples/c.txt
tar -cf samples.tar -C samples a.txt b.txt c.txt
HF_HOME=$dir/cache HF_HUB_OFFLINE=1 venv/bin/python - <<'END'
import tarfile
import datasets, webdataset

with tarfile.open("samples.tar") as tar:
    held = [member.name for member in tar if tar.extractfile(member).read()]
readers = {
    "webdataset": webdataset.WebDataset("samples.tar", shardshuffle=False),
    "datasets": datasets.load_dataset("webdataset", data_files="samples.tar", split="train", streaming=True),
}
found = {"tarfile": held} | {name: [sample["__key__"] + ".txt" for sample in reader if sample["txt"]] for name, reader in readers.items()}
for name, members in found.items():
    print(f"{name}: {' '.join(members)}")
raise SystemExit(list(found.values()) != [["a.txt", "b.txt", "c.txt"]] + [["a.txt", "b.txt"]] * 2)
END
