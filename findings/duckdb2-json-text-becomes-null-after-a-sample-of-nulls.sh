#!/usr/bin/env bash
# Behaviour: DuckDB 2.0.1 gives a JSON key the type "NULL" when the first 20,480 rows have null there. Each later text of the key is
#   then read as NULL: no error, no warning. DuckDB 1.5.5 reads the same file right, and so does 2.0.1 with sample_size=-1.
# Guess: the column becomes JSON or VARCHAR, as before; or the first text is an error, as in polars and DataFusion.
# Versions: duckdb 2.0.1, duckdb 1.5.5, polars 2.1.0, datafusion 55.0.0
# Date: 2026-11-27
# Output seen:
#   20479 nulls first: duckdb 2.0.1 has 3 of 3 texts, type VARCHAR
#   20480 nulls first: duckdb 2.0.1 has 0 of 3 texts, type "NULL"
#   20480 nulls first, sample_size=-1: 3 of 3 texts
#   20480 nulls first, columns given: 3 of 3 texts
#   20480 nulls first: duckdb 1.5.5 has 3 of 3 texts
#   polars 2.1.0: ComputeError; datafusion 55.0.0: an error
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
for version in 1.5.5 2.0.1; do
    python3 -m venv v$version && v$version/bin/pip install --quiet --disable-pip-version-check duckdb==$version
done
v2.0.1/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 datafusion==55.0.0 pyarrow==26.0.1
python3 - <<'END'
import json
for nulls in 20479, 20480:
    with open(f"{nulls}.jsonl", "w") as file:
        for i in range(nulls):
            print(json.dumps({"id": i, "text": None}), file=file)
        for i in range(3):
            print(json.dumps({"id": i, "text": f"text {i}"}), file=file)
END
cat >count.py <<'END'
import sys, duckdb
want, reads = int(sys.argv[1]), sys.argv[2]
got, kind = duckdb.sql(f"select count(text), max(typeof(text)) from {reads}").fetchall()[0]
print(f"duckdb {duckdb.__version__}, {reads}: {got} of 3 texts, type {kind}")
sys.exit(got != want)
END
v2.0.1/bin/python count.py 3 "read_json('20479.jsonl')"
v2.0.1/bin/python count.py 0 "read_json('20480.jsonl')"
v2.0.1/bin/python count.py 3 "read_json('20480.jsonl', sample_size=-1)"
v2.0.1/bin/python count.py 3 "read_json('20480.jsonl', columns={id: 'BIGINT', text: 'VARCHAR'})"
v1.5.5/bin/python count.py 3 "read_json('20480.jsonl')"
v2.0.1/bin/python - <<'END'
import datafusion, polars
for name, read in ("polars", lambda: polars.read_ndjson("20480.jsonl")), ("datafusion", lambda: datafusion.SessionContext().read_json("20480.jsonl", file_extension=".jsonl").collect()):
    try:
        read()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
    else:
        raise SystemExit(f"{name} has read it")
END
