#!/usr/bin/env bash
# Behaviour: of a Delta table with column mapping by name, DeltaTable.to_pyarrow_table and to_pandas of deltalake give each value as
#   null, without a word. Of a table with a deletion vector they end with an error, but DeltaTable.count() counts the deleted rows, and
#   so does "select count(*)" of chdb, which leaves them out when it reads a column. deltalake's own QueryBuilder is right for both
#   tables. polars and daft are right or end with an error.
# Guess: a reader that does not know a feature of the protocol refuses the table, as the protocol demands; count() is the number of
#   rows that a read returns.
# Versions: deltalake 1.6.6, polars 2.1.0, daft 0.7.26, chdb 4.4.0, pyarrow 25.0.1
# Date: 2026-11-28
# Output seen (5 rows with mapped names; 100 rows of which 40 are deleted):
#   mapped names: to_pyarrow_table 0 of 5 texts, to_pandas 0, QueryBuilder 5, chdb 5, daft 5, polars DeltaProtocolError
#   deletion vector: to_pyarrow_table DeltaProtocolError, count() 100, QueryBuilder 60, polars 60, daft NotImplementedError
#   deletion vector: chdb count() 100, chdb count() beside min(id) 60
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check deltalake==1.6.6 polars==2.1.0 daft==0.7.26 chdb==4.4.0 pyarrow==25.0.1 pandas==3.1.1 \
    numpy==2.4.6
venv/bin/python - <<'END' 2>/dev/null
import json, os, struct, uuid, zlib, chdb, daft, deltalake, polars, pyarrow, pyarrow.parquet

def table(folder, protocol, configuration, columns, add):
    """A table of two columns, id and text, whose names in the Parquet file are `columns`."""
    fields = [pyarrow.field(name, kind, metadata={"PARQUET:field_id": str(i + 1)})
              for i, (name, kind) in enumerate(zip(columns, (pyarrow.int64(), pyarrow.string())))]
    rows = add.pop("rows")
    values = [pyarrow.array(range(rows), pyarrow.int64()), pyarrow.array([f"document {i}" for i in range(rows)])]
    os.makedirs(f"{folder}/_delta_log")
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(values, schema=pyarrow.schema(fields)), f"{folder}/part-0.parquet")
    mapped = columns[0] != "id"
    schema = {"type": "struct", "fields": [
        {"name": name, "type": kind, "nullable": True,
         "metadata": {"delta.columnMapping.id": i + 1, "delta.columnMapping.physicalName": columns[i]} if mapped else {}}
        for i, (name, kind) in enumerate((("id", "long"), ("text", "string")))]}
    file = {"path": "part-0.parquet", "partitionValues": {}, "size": os.path.getsize(f"{folder}/part-0.parquet"), "modificationTime": 1,
            "dataChange": True, "stats": json.dumps({"numRecords": rows, "tightBounds": False})}
    actions = [{"protocol": protocol}, {"metaData": {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "createdTime": 1,
               "schemaString": json.dumps(schema), "partitionColumns": [], "configuration": configuration}}, {"add": file | add}]
    with open(f"{folder}/_delta_log/{0:020d}.json", "w") as log:
        log.writelines(json.dumps(action) + "\n" for action in actions)

def z85(data):
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = [int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4)]
    return "".join(digits[word // 85**place % 85] for word in words for place in range(4, -1, -1))

table("mapped", {"minReaderVersion": 2, "minWriterVersion": 5}, {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
      ["col-a1", "col-b2"], {"rows": 5})
bitmap = struct.pack("<IQIIIHHI40H", 1681511377, 1, 0, 12346, 1, 0, 39, 16, *range(40))  # one Roaring array with the numbers 0 to 39
name = uuid.uuid4()
feature = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
vector = {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1, "sizeInBytes": len(bitmap), "cardinality": 40}
table("deleted", feature, {"delta.enableDeletionVectors": "true"}, ["id", "text"], {"rows": 100, "deletionVector": vector})
with open(f"deleted/deletion_vector_{name}.bin", "wb") as out:
    out.write(b"\1" + struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap)))

def ask(folder, what):
    return [int(x) for x in chdb.query(f"select {what} from deltaLakeLocal('{os.path.abspath(folder)}')").bytes().split(b",")][0]
def query(folder):
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(folder))
    return pyarrow.table(builder.execute("select * from t").read_all())["text"].to_pylist()
texts = lambda values: sum(isinstance(value, str) for value in values)
checks = [
    ("mapped names", "to_pyarrow_table", 0, lambda f: texts(deltalake.DeltaTable(f).to_pyarrow_table()["text"].to_pylist())),
    ("mapped names", "to_pandas", 0, lambda f: texts(deltalake.DeltaTable(f).to_pandas()["text"])),
    ("mapped names", "QueryBuilder", 5, lambda f: texts(query(f))),
    ("mapped names", "chdb", 5, lambda f: ask(f, "count(text), min(id)")),
    ("mapped names", "daft", 5, lambda f: texts(daft.read_deltalake(f).to_pydict()["text"])),
    ("mapped names", "polars", "DeltaProtocolError", lambda f: texts(polars.read_delta(f)["text"])),
    ("deletion vector", "to_pyarrow_table", "DeltaProtocolError", lambda f: texts(deltalake.DeltaTable(f).to_pyarrow_table()["text"].to_pylist())),
    ("deletion vector", "count()", 100, lambda f: deltalake.DeltaTable(f).count()),
    ("deletion vector", "QueryBuilder", 60, lambda f: texts(query(f))),
    ("deletion vector", "polars", 60, lambda f: texts(polars.read_delta(f)["text"])),
    ("deletion vector", "daft", "NotImplementedError", lambda f: texts(daft.read_deltalake(f).to_pydict()["text"])),
    ("deletion vector", "chdb count()", 100, lambda f: ask(f, "count()")),
    ("deletion vector", "chdb count() beside min(id)", 60, lambda f: ask(f, "count(), min(id)")),
]
changed = False
for kind, name, want, read in checks:
    try:
        got = read("mapped" if kind == "mapped names" else "deleted")
    except Exception as error:
        got = type(error).__name__
    print(f"{kind}: {name}: {got}", flush=True)
    changed |= got != want
raise SystemExit(changed)
END
