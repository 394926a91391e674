#!/usr/bin/env bash
# Behaviour: in DuckDB and DataFusion NaN is greater than every number, so `score >= 0.65` is true for it. But a row group whose
#   greatest score is below 0.65 is skipped by its statistics, which leave NaN out. So the same rows in one row group or in two give
#   another number of rows. polars keeps them in both files; pandas and pyarrow leave them out in both.
# Guess: these engines know that the statistics of Parquet leave NaN out, and the result does not depend on row groups.
# Versions: duckdb 2.0.1, datafusion 55.0.0, polars 2.1.0, pyarrow 25.0.1, pandas 3.1.1
# Date: 2026-11-28
# Output seen (rows with score >= 0.65, of 10 with 0.1, 10 with 0.9, and 2 with NaN, one behind each ten):
#   duckdb: 12 in one row group, 11 in two
#   datafusion: 12 in one row group, 11 in two
#   polars: 12 in one row group, 12 in two
#   pyarrow: 10 in one row group, 10 in two
#   pandas: 10 in one row group, 10 in two
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1 datafusion==55.0.0 polars==2.1.0 pyarrow==25.0.1 pandas==3.1.1 numpy==2.4.6
venv/bin/python - <<'END'
import datafusion, duckdb, pandas, polars, pyarrow, pyarrow.compute, pyarrow.dataset, pyarrow.parquet

nan = float("nan")
table = pyarrow.table({"score": [0.1] * 10 + [nan] + [0.9] * 10 + [nan]})
for name, rows in ("one", 22), ("two", 11):
    pyarrow.parquet.write_table(table, f"{name}.parquet", row_group_size=rows)
    assert pyarrow.parquet.read_metadata(f"{name}.parquet").num_row_groups == {"one": 1, "two": 2}[name]


def of_datafusion(path):
    context = datafusion.SessionContext()
    context.register_parquet("rows", path)
    return context.sql("select score from rows where score >= 0.65").to_pandas().shape[0]


counts = {
    "duckdb": (lambda path: len(duckdb.sql(f"select score from '{path}' where score >= 0.65").fetchall()), (12, 11)),
    "datafusion": (of_datafusion, (12, 11)),
    "polars": (lambda path: polars.scan_parquet(path).filter(polars.col("score") >= 0.65).collect().height, (12, 12)),
    "pyarrow": (lambda path: pyarrow.dataset.dataset(path).to_table(filter=pyarrow.compute.field("score") >= 0.65).num_rows, (10, 10)),
    "pandas": (lambda path: len(pandas.read_parquet(path).query("score >= 0.65")), (10, 10)),
}
changed = False
for name, (count, want) in counts.items():
    got = count("one.parquet"), count("two.parquet")
    print(f"{name}: {got[0]} in one row group, {got[1]} in two")
    changed |= got != want
raise SystemExit(changed)
END
