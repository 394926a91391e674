#!/usr/bin/env bash
# Behaviour: polars' str.len_bytes and len_chars give 32-bit numbers, and sum keeps that type: the size of all texts of a dataset above
#   4 GiB comes out modulo 4 GiB, without an error or a warning, also in SQL. sum widens numbers of 8 and 16 bits, but none of 32.
# Guess: the sum of a column is of 64 bits, as in pyarrow, DuckDB and NumPy. It was seen in a Parquet file of 4.68 GB of text.
# Versions: polars 2.1.0, pyarrow 26.0.1, duckdb 2.0.1, numpy 2.4.6
# Date: 2026-11-28
# Output seen (5,000 texts of 1 MiB):
#   pyarrow, duckdb, numpy: 5242880000 bytes
#   polars sum of len_bytes, of len_chars, SQL, lazy, group_by: 947912704 bytes each
#   polars, after a cast to 64 bits: 5242880000 bytes
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1 numpy==2.4.6
venv/bin/python - <<'END'
import duckdb, numpy, polars, pyarrow, pyarrow.compute
texts, size = 5000, 2**20
rows = polars.concat([polars.DataFrame({"k": 1, "text": ["x" * size]})] * texts, rechunk=False)  # the chunks share one text
arrow = pyarrow.table({"text": pyarrow.chunked_array([pyarrow.array(["x" * size])] * texts)})
true, wrapped = texts * size, texts * size % 2**32
column = polars.col("text").str
answers = {
    "pyarrow": (true, pyarrow.compute.sum(pyarrow.compute.binary_length(arrow["text"])).as_py()),
    "duckdb": (true, duckdb.sql("select sum(strlen(text)) from arrow").fetchall()[0][0]),
    "numpy, of the same uint32": (true, int(rows["text"].str.len_bytes().to_numpy().sum())),
    "polars, len_bytes": (wrapped, rows.select(column.len_bytes().sum()).item()),
    "polars, len_chars": (wrapped, rows.select(column.len_chars().sum()).item()),
    "polars, lazy": (wrapped, rows.lazy().select(column.len_bytes().sum()).collect().item()),
    "polars, group_by": (wrapped, rows.group_by("k").agg(column.len_bytes().sum())["text"].item()),
    "polars, SQL": (wrapped, polars.sql("select sum(octet_length(text)) as bytes from rows").collect().item()),
    "polars, after a cast": (true, rows.select(column.len_bytes().cast(polars.UInt64).sum()).item()),
}
for name, (_, got) in answers.items():
    print(f"{name}: {got} bytes")
raise SystemExit(any(want != got for want, got in answers.values()))
END
