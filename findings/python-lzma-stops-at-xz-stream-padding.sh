#!/usr/bin/env bash
# Behaviour: the xz format allows zero bytes, a multiple of four, between two streams ("stream padding"), and xz reads on after
#   them. Python's lzma.open and lzma.decompress end at the padding without an error. So pandas, dask and smart_open lose the rest.
# Guess: Python's module is liblzma itself, so it reads what xz reads. gzip.open skips zeros between members; lzma does the same.
# Versions: Python 3.11.7, pandas 3.1.1, dask 2026.8.0, smart_open 9.0.2; xz 5.4.1, where there is one
# Date: 2026-11-27
# Output seen:
#   xz -dc: 200 lines
#   gzip.open, zeros between members: 200 lines
#   lzma.open, streams that touch: 200 lines
#   lzma.open, lzma.decompress, pandas.read_json, dask.bag, smart_open, padding between streams: 100 lines each
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pandas==3.1.1 numpy==2.4.6 dask==2026.8.0 smart_open==9.0.2
venv/bin/python - <<'END'
import gzip, json, lzma
halves = ["".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(at, at + 100)).encode() for at in (0, 100)]
open("touch.jsonl.xz", "wb").write(b"".join(map(lzma.compress, halves)))
open("padded.jsonl.xz", "wb").write(bytes(8).join(map(lzma.compress, halves)))
open("padded.jsonl.gz", "wb").write(bytes(8).join(map(gzip.compress, halves)))
END
if command -v xz >/dev/null; then
    lines=$(xz -dc padded.jsonl.xz | wc -l)
    echo "xz -dc: $lines lines" && [ "$lines" = 200 ]
fi
venv/bin/python - <<'END'
import gzip, lzma, dask, dask.bag, pandas, smart_open
dask.config.set(scheduler="synchronous")
padded = "padded.jsonl.xz"
reads = {
    ("gzip.open, zeros between members", 200): lambda: gzip.open("padded.jsonl.gz").read().count(b"\n"),
    ("lzma.open, streams that touch", 200): lambda: lzma.open("touch.jsonl.xz").read().count(b"\n"),
    ("lzma.open", 100): lambda: lzma.open(padded).read().count(b"\n"),
    ("lzma.decompress", 100): lambda: lzma.decompress(open(padded, "rb").read()).count(b"\n"),
    ("pandas.read_json", 100): lambda: len(pandas.read_json(padded, lines=True)),
    ("dask.bag.read_text", 100): lambda: len(dask.bag.read_text(padded, compression="xz").compute()),
    ("smart_open", 100): lambda: len(smart_open.open(padded).readlines()),
}
changed = False
for (name, want), read in reads.items():
    got = read()
    print(f"{name}: {got} lines")
    changed |= got != want
raise SystemExit(changed)
END
