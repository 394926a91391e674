#!/usr/bin/env bash
# Behaviour: readers of JSON lines take the columns from the first lines. A key that first occurs later is no column: its values are
#   absent, without an error or a warning. The sample is 100 lines in polars, 1,000 in DataFusion, and the first MiB in daft and
#   pyarrow.dataset. So one file has the column in some readers and not in others, and a folder of the same rows in small files has it
#   in all. pandas and pyarrow.json read the key in each file. DuckDB (20,480 lines) and datasets end with an error.
# Guess: a new key later in the file is a new column, or an error; all readers agree.
# Versions: polars 2.1.0, datafusion 55.0.0, duckdb 2.0.1, daft 0.7.26, pyarrow 25.0.1, pandas 3.1.1, datasets 5.2.0
# Date: 2026-11-28
# Output seen (the key "text" is in the last two lines; lines before them: its values, or - for no column):
#   lines    polars datafusion duckdb daft pyarrow.dataset pandas pyarrow.json datasets
#   50       2      2          2      2    2               2      2            2
#   150      -      2          2      2    2               2      2            2
#   1100     -      -          2      2    2               2      2            2
#   30000    -      -          error  -    -               2      2            error
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 datafusion==55.0.0 duckdb==2.0.1 daft==0.7.26 pyarrow==25.0.1 \
    pandas==3.1.1 numpy==2.4.6 datasets==5.2.0
export HF_HOME=$dir/home HF_HUB_OFFLINE=1 DAFT_PROGRESS_BAR=0
venv/bin/python - <<'END' 2>/dev/null
import json, daft, datafusion, datasets, duckdb, pandas, polars, pyarrow.dataset, pyarrow.json
datasets.disable_progress_bars()
def read_duckdb(path):
    rows = duckdb.sql(f"from '{path}'")
    return dict(zip(rows.columns, zip(*rows.fetchall())))
readers = {
    "polars": lambda path: polars.read_ndjson(path).to_dict(as_series=False),
    "datafusion": lambda path: datafusion.SessionContext().read_json(path, file_extension=".jsonl").to_pydict(),
    "duckdb": read_duckdb,
    "daft": lambda path: daft.read_json(path).to_pydict(),
    "pyarrow.dataset": lambda path: pyarrow.dataset.dataset(path, format="json").to_table().to_pydict(),
    "pandas": lambda path: pandas.read_json(path, lines=True).to_dict("list"),
    "pyarrow.json": lambda path: pyarrow.json.read_json(path).to_pydict(),
    "datasets": lambda path: datasets.load_dataset("json", data_files=path, split="train").to_dict(),
}
wanted = {50: "22222222", 150: "-2222222", 1100: "--222222", 30000: "--e--22e"}
changed = False
print("lines    " + " ".join(readers))
for lines, want in wanted.items():
    path = f"late{lines}.jsonl"
    with open(path, "w") as out:
        out.writelines(json.dumps({"id": i, "url": "u" * (1000 if lines == 30000 else 5)}) + "\n" for i in range(lines))
        out.writelines(json.dumps({"id": i, "url": "u", "text": f"document {i}"}) + "\n" for i in range(2))
    row = []
    for name, read in readers.items():
        try:
            rows = read(path)
            row.append(str(sum(isinstance(text, str) for text in rows["text"])) if "text" in rows else "-")
        except Exception:
            row.append("error")
    print(f"{lines:<8} " + " ".join(value.ljust(len(name)) for name, value in zip(readers, row)), flush=True)
    changed |= "".join(value[0] for value in row) != want
raise SystemExit(changed)
END
