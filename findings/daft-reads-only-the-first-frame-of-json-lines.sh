#!/usr/bin/env bash
# Behaviour: daft.read_json of a .zst, .bz2 or .xz file of several frames or streams returns the rows of the first one, without an
#   error. Of a .gz file it reads all members. The files are what `cat a.zst b.zst`, pbzip2 and a log appended to make.
# Guess: all rows, as pandas, polars and DuckDB read the same files; and if not, an error or a warning, and gzip alike.
# Versions: daft 0.7.26, pandas 3.1.1, polars 2.1.0, zstandard 0.25.0
# Date: 2026-11-27
# Output seen (200 rows in two parts):
#   two.jsonl.gz: daft 200, pandas 200
#   two.jsonl.bz2: daft 100, pandas 200
#   two.jsonl.xz: daft 100, pandas 200
#   two.jsonl.zst: daft 100, pandas 200, polars 200
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check daft==0.7.26 pandas==3.1.1 numpy==2.4.6 polars==2.1.0 zstandard==0.25.0
venv/bin/python - <<'END'
import bz2, gzip, json, lzma, daft, pandas, polars, zstandard
halves = ["".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(at, at + 100)).encode() for at in (0, 100)]
compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}
changed = False
for ending, function in compress.items():
    name = f"two.jsonl.{ending}"
    open(name, "wb").write(b"".join(map(function, halves)))
    got = {"daft": daft.read_json(name).count_rows(), "pandas": len(pandas.read_json(name, lines=True))}
    if ending == "zst":
        got["polars"] = polars.read_ndjson(name).height
    print(f"{name}: " + ", ".join(f"{reader} {rows}" for reader, rows in got.items()))
    changed |= got.pop("daft") != (200 if ending == "gz" else 100) or set(got.values()) != {200}
raise SystemExit(changed)
END
