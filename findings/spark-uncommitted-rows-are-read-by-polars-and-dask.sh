#!/usr/bin/env bash
# Behaviour: a Spark job that was killed, or still runs, leaves the rows of its tasks in _temporary/ below the output folder.
#   pyarrow, pandas and DataFusion leave names that begin with "_" out, as Spark does. polars reads them, given the folder itself;
#   dask reads them too, although it reads through pyarrow; DuckDB has only globs, and its glob finds them. A committed folder of
#   Databricks (_committed_ID, _started_ID) is an error in polars.
# Guess: "_" hides a file in every reader of Parquet folders, as Hive and Spark have it; surely in dask, which uses pyarrow.
# Versions: pyarrow 26.0.1, pandas 3.1.1, polars 2.1.0, dask 2026.8.0, datafusion 55.0.0, duckdb 2.0.1
# Date: 2026-11-27
# Output seen (100 rows are committed, 100 are not):
#   pyarrow 100, pandas 100, datafusion 100, polars 200, polars ** 200, dask 200, duckdb ** 200
#   polars beside _committed_1: InvalidOperationError
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6 polars==2.1.0 'dask[dataframe]==2026.8.0' \
    datafusion==55.0.0 duckdb==2.0.1
venv/bin/python - <<'END'
import os, dask, dask.dataframe, datafusion, duckdb, pandas, polars, pyarrow, pyarrow.dataset, pyarrow.parquet
dask.config.set(scheduler="synchronous")
os.makedirs("out/_temporary/0/task_1")
rows = pyarrow.table({"id": range(100), "text": [f"document {i}" for i in range(100)]})
pyarrow.parquet.write_table(rows, "out/part-00000.parquet")
pyarrow.parquet.write_table(rows, "out/_temporary/0/task_1/part-00001.parquet")
reads = {
    ("pyarrow", 100): lambda: pyarrow.parquet.read_table("out").num_rows,
    ("pandas", 100): lambda: len(pandas.read_parquet("out")),
    ("datafusion", 100): lambda: datafusion.SessionContext().read_parquet("out").count(),
    ("polars", 200): lambda: polars.read_parquet("out").height,
    ("polars **", 200): lambda: polars.read_parquet("out/**/*.parquet").height,
    ("dask", 200): lambda: len(dask.dataframe.read_parquet("out")),
    ("duckdb **", 200): lambda: duckdb.sql("select count(*) from 'out/**/*.parquet'").fetchall()[0][0],
}
changed = False
for (name, want), read in reads.items():
    got = read()
    print(f"{name}: {got} rows")
    changed |= got != want
os.makedirs("done")
os.rename("out/part-00000.parquet", "done/part-00000.parquet")
open("done/_committed_1", "w").write('{"added":["part-00000.parquet"],"removed":[]}')
try:
    polars.read_parquet("done")
    changed = True
except polars.exceptions.InvalidOperationError as error:
    print(f"polars beside _committed_1: InvalidOperationError: {str(error)[:70]}")
raise SystemExit(changed)
END
