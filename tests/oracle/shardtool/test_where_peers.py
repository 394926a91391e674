# peers: duckdb
"""Conditions of --where against DuckDB, on JSON lines and Parquet files of the same rows."""
import json
import math
import os
import random
import subprocess

import duckdb

SHARDTOOL = os.path.join(os.environ["BIN"], "shardtool")
COLUMNS = {"text": "VARCHAR", "whole": "BIGINT", "unsigned": "UBIGINT", "real": "DOUBLE", "truth": "BOOLEAN",
           "word": "VARCHAR", "deep": "STRUCT(whole BIGINT)"}  # fmt: skip
WHOLE = [0, 1, -1, 2, 5, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, -(2**63), -(2**53) - 1]
UNSIGNED = [0, 1, 2, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
REAL = [0.0, -0.0, 1, 0.1, 0.1 + 0.2, 0.5, -1.5, 5, 2.0**53, 1e38, -1e38, 5e-324, math.nan, math.inf, -math.inf]
WORDS = ["", "en", "de", "EN", "en ", "é", "z", "🙂", "5", "true", "it's", 'a "word"', "a\0b", "a and b = 1", "nan"]
NUMBERS = ["0", "1", "-1", "2", "5", "+5", "0.0", "-0.0", "0.5", "-0.5", ".1", "1.", "0.1", "1e-1", "5e0", "1.5", "-1.5", "1e38", "1e400", "0.3",
           "9007199254740992", "9007199254740993", "9007199254740992.5", "9007199254740993e0", "9223372036854775806.9", "9223372036854775807",
           "9223372036854775808", "-9223372036854775808", "-9223372036854775808.5", "-9223372036854775809", "18446744073709551614.5",
           "18446744073709551615", "18446744073709551616", "1.8446744073709551615e19"]  # fmt: skip


def rows(rng, count):
    for i in range(count):
        row = {"text": f"row {i}", "whole": rng.choice(WHOLE), "unsigned": rng.choice(UNSIGNED), "real": rng.choice(REAL),
               "truth": rng.choice([True, False]), "word": rng.choice(WORDS), "deep": {"whole": rng.choice(WHOLE)}}  # fmt: skip
        for key in rng.sample(sorted(row), len(row)):
            draw = rng.random()
            if key != "text" and draw < 0.3:
                row[key] = None
                if draw < 0.15:
                    del row[key]
        if row.get("deep") and rng.random() < 0.2:
            row["deep"] = rng.choice([{}, {"whole": None}])
        yield {key: row[key] for key in rng.sample(sorted(row), len(row))}


def comparison(rng, real):
    """For the tool and for DuckDB, whose names of structs need no quotes and whose texts have single ones."""
    column = rng.choice(["whole", "unsigned", real, real, "truth", "word", "word", "deep.whole"])
    op = rng.choice(["=", "==", "!=", "<>", "<", "<=", ">", ">="])
    if column == "word":
        word = rng.choice(WORDS).replace("\0", "")
        sql = "'" + word.replace("'", "''") + "'"
        ours = rng.choice([sql, '"' + word.replace('"', '""') + '"'])
        if word.isalpha() and word not in ("true", "nan"):
            ours = rng.choice([ours, word])
    elif column == "truth":
        ours = sql = rng.choice(["true", "false", "TRUE", "'true'", "0", "1", "2"])
    elif column == real and rng.random() < 0.3:
        ours = sql = rng.choice(["'nan'", "'inf'", "'-inf'", "'0.5'", "'0.1'", "'1e-1'"])
    else:
        ours = sql = rng.choice(NUMBERS if column == real else NUMBERS + ["true", "false"])
    space = rng.choice(["", " ", "  "])
    name = rng.choice([column, f'"{column}"'])
    return f"{name}{space}{op}{space}{ours}", f"{column} {op} {sql}"


def condition(rng, real="real"):
    pairs = [comparison(rng, real) for _ in range(rng.choice([1, 1, 2, 3]))]
    return rng.choice([" and ", " AND  "]).join(pair[0] for pair in pairs), " and ".join(pair[1] for pair in pairs)


def documents(path, *conditions):
    done = subprocess.run([SHARDTOOL, "decode", "-0", "-q", *(word for text in conditions for word in ("--where", text)), path], capture_output=True)
    assert done.returncode == 0 or (done.returncode == 66 and not done.stdout), (conditions, done)
    return done.stdout.decode().split("\0")[:-1]


def files(folder, count=120):
    paths = {"json": os.path.join(folder, "rows.jsonl")}
    with open(paths["json"], "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(random.Random(1), count))
    database = duckdb.connect()
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
    database.sql(f"create table json as from read_json('{paths['json']}', format = 'newline_delimited', columns = {{{columns}}})")
    database.sql("create table parquet as select *, real::FLOAT single from json")
    for version in "v1", "v2":  # bits, and runs of bits
        paths[version] = os.path.join(folder, f"{version}.parquet")
        database.sql(f"copy parquet to '{paths[version]}' (format parquet, parquet_version {version})")
    return database, paths


def test_conditions_choose_the_rows_that_duckdb_chooses(folder):
    database, paths = files(folder)
    rng = random.Random(2)
    chosen = 0
    for number in range(600):
        real = rng.choice(["real", "single"]) if number % 2 else "real"
        ours, sql = condition(rng, real)
        table = "parquet" if number % 2 else "json"
        wanted = [row[0] for row in database.sql(f"select text from {table} where {sql} order by rowid").fetchall()]
        for path in [paths["v1"], paths["v2"]] if number % 2 else [paths["json"], paths["v1"]]:
            assert documents(path, ours) == wanted, (path, ours, sql)
        chosen += bool(wanted)
    assert chosen > 200, chosen


def test_what_duckdb_cannot_compare_is_refused(folder):
    database, paths = files(folder)
    for text in "word = 5", "word > 0.5", "word = true", "whole > 'high'", "real = 'en'", "whole = 'true'", "truth = 'en'", "deep = 5":
        try:
            found = database.sql(f"select text from json where {text}").fetchall()
        except duckdb.Error:
            found = None
        assert found is None, (text, found)
        for path in paths.values():
            done = subprocess.run([SHARDTOOL, "decode", "-0", "--where", text, path], capture_output=True)
            assert done.returncode in (2, 65) and b"--where" in done.stderr, (text, done)


def test_what_duckdb_converts_keeps_its_type(folder):
    """It casts texts to numbers, which it rounds, and gives a column of JSON one type."""
    path = os.path.join(folder, "rows.jsonl")
    with open(path, "w") as file:
        file.write('{"text": "a", "word": "2", "whole": 2, "large": 9007199254740993, "mixed": 1}\n'
                   '{"text": "b", "word": "1.5", "whole": 1, "large": 0.5, "mixed": "en"}\n')  # fmt: skip
    for condition, theirs, ours in [("word = 2", "ab", None), ("whole = '1.5'", "a", ""), ("large = 9007199254740992", "a", ""),
                                    ("mixed = 'en'", None, None), ("mixed <> '1'", "b", "b")]:  # fmt: skip
        try:
            found = "".join(row[0] for row in duckdb.sql(f"select text from '{path}' where {condition}").fetchall())
        except duckdb.Error:
            found = None
        assert found == theirs, (condition, found)
        done = subprocess.run([SHARDTOOL, "decode", "-0", "-q", "--where", condition, path], capture_output=True)
        found = {0: done.stdout.decode().replace("\0", ""), 66: "", 65: None}[done.returncode]
        assert found == ours, (condition, done)
