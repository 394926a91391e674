#!/usr/bin/env bash
# Behaviour: where one line of the sample has a number, or true, at the key of the texts, DuckDB gives the column the type JSON. The
#   value of each text is then its JSON: in quotes, with \n and \" for line ends and quotes. COPY writes them so to Parquet, with the
#   type JSON, and to CSV. pyarrow and pandas read the column as strings, in quotes; polars reads it as binary. From the JSON lines polars
#   reads the texts as they are. text->>'$' takes the quotes off.
# Guess: the column becomes VARCHAR, with the number as "5", as in polars; or the number is an error, as in pyarrow.
# Versions: duckdb 2.0.1, polars 2.1.0, pyarrow 25.0.1
# Date: 2026-11-28
# Output seen (100 texts of 21 characters; in the second file the last one is the number 5):
#   texts alone: VARCHAR; the first text in Parquet, by pyarrow: 21 characters
#   a number among them: JSON; the first text in Parquet, by pyarrow: 26 characters, "a \"mill\"\nby the river"
#   a number among them, text->>'$': 21 characters
#   a number among them, the JSON lines by polars: 21 characters
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==25.0.1
venv/bin/python - <<'END'
import json, duckdb, polars, pyarrow.parquet
text = 'a "mill"\nby the river'
def write(path, last):
    with open(path, "w") as out:
        out.writelines(json.dumps({"text": value}) + "\n" for value in [text] * 99 + [last])
write("texts.jsonl", text)
write("mixed.jsonl", 5)
def copy(path, column="text"):
    duckdb.sql(f"copy (select {column} as text from '{path}') to 'rows.parquet'")
    kind = duckdb.sql(f"select text from '{path}'").types[0]
    return str(kind), pyarrow.parquet.read_table("rows.parquet")["text"][0].as_py()
kind, plain = copy("texts.jsonl")
print(f"texts alone: {kind}; the first text in Parquet, by pyarrow: {len(plain)} characters")
mixed_kind, quoted = copy("mixed.jsonl")
print(f"a number among them: {mixed_kind}; the first text in Parquet, by pyarrow: {len(quoted)} characters, {quoted}")
taken = copy("mixed.jsonl", "text->>'$'")[1]
print(f"a number among them, text->>'$': {len(taken)} characters")
other = polars.read_ndjson("mixed.jsonl")["text"][0]
print(f"a number among them, the JSON lines by polars: {len(other)} characters")
raise SystemExit(plain != text or taken != text or other != text or mixed_kind != "JSON" or quoted != json.dumps(text))
END
