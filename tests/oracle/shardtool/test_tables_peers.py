# peers: pyarrow, chdb, daft, datasets, deltalake, pyiceberg, pypaimon, polars, duckdb, fastparquet, lance
"""Tables that other programs write: the texts of their Parquet files, and the commands that refusals of other tables name."""
import csv
import glob
import os
import re
import subprocess
import sys

import runner

import chdb
import daft
import datasets
import deltalake
import duckdb
import fastparquet
import lance
import pandas
import polars
import pyarrow
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pypaimon
from pyiceberg.catalog.sql import SqlCatalog

SHARDTOOL = os.path.join(os.environ["BIN"], "shardtool")
TEXTS = ["First, in English.", None, "Zweiter, auf Deutsch\n", "", "3: 水車 🌊 " * 50, *(f"a row {i % 7}" for i in range(3000))]


def table():
    return pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS})


def documents(path):
    return runner.call(SHARDTOOL, "decode", "-0", "-q", path).stdout.decode().split("\0")[:-1]


def by_pyarrow(path, codec, **options):
    pyarrow.parquet.write_table(table(), path, compression=codec, **options)


def by_polars(path, codec):
    polars.from_arrow(table()).write_parquet(path, compression=codec)


def by_duckdb(path, codec, version="v1"):
    rows = table()
    duckdb.sql(f"copy (from rows) to '{path}' (format parquet, compression {codec}, parquet_version {version})")


def by_fastparquet(path, codec):
    fastparquet.write(path, table().to_pandas(), compression=codec)


def by_daft(path, codec):
    daft.from_arrow(table()).write_parquet(f"{path}.folder", compression=codec)
    (written,) = glob.glob(f"{path}.folder/*")
    os.rename(written, path)


def by_chdb(path, codec):
    pyarrow.parquet.write_table(table(), f"{path}.in")
    chdb.query(f"select * from file('{path}.in', Parquet) into outfile '{path}' format Parquet settings output_format_parquet_compression_method='{codec}'")


WRITERS = [(by_pyarrow, codec, options) for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
           for options in ({}, {"data_page_version": "2.0", "use_dictionary": False})]  # fmt: skip
WRITERS += [(by_polars, codec, {}) for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4")]
WRITERS += [(by_duckdb, codec, {"version": version}) for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw")
            for version in ("v1", "v2")]  # fmt: skip
WRITERS += [(by_fastparquet, codec, {}) for codec in (None, "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4_RAW")]
WRITERS += [(write, codec, {}) for write in (by_daft, by_chdb) for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")]


def test_parquet_of_each_writer_and_codec_has_its_texts(folder):
    for number, (write, codec, options) in enumerate(WRITERS):
        path = f"{folder}/{number}.parquet"
        write(path, codec, **options)
        assert documents(path) == [text for text in TEXTS if text is not None], (write.__name__, codec, options)


def delta_table(folder, rows):
    path = f"{folder}/delta"
    deltalake.write_deltalake(path, rows.slice(0, 3))
    deltalake.write_deltalake(path, rows.slice(3), mode="append")
    deltalake.DeltaTable(path).delete("id = 2")
    return path


def iceberg_table(folder, rows):
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", schema=rows.schema)
    made.append(rows.slice(0, 3))
    made.append(rows.slice(3))
    made.delete("id == 2")
    return made.location().removeprefix("file://")


def paimon_table(folder, rows):
    catalog = pypaimon.CatalogFactory.create({"warehouse": folder})
    catalog.create_database("d", False)
    catalog.create_table("d.t", pypaimon.Schema.from_pyarrow_schema(rows.schema), False)
    for written in rows.slice(0, 3), pyarrow.concat_tables([rows.slice(0, 2), rows.slice(3)]):
        builder = catalog.get_table("d.t").new_batch_write_builder().overwrite()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(written)
        commit.commit(writer.prepare_commit())
    return f"{folder}/d.db/t"


def test_the_command_of_a_refused_table_writes_its_present_rows(folder):
    os.chdir(folder)
    present = [text for id, text in enumerate(TEXTS) if text is not None and id != 2]
    for make in delta_table, iceberg_table, paimon_table:
        path = make(folder, table())
        refusal = runner.call(SHARDTOOL, "decode", "--json", path, code=65).stderr.decode()
        command = re.search(r'python3 -c "(.*)"', refusal)[1]
        subprocess.run([sys.executable, "-c", command], check=True)
        assert sorted(documents("rows.parquet")) == sorted(present), (path, command)
        os.remove("rows.parquet")


def save_to_disk(rows, path):
    datasets.Dataset(rows).save_to_disk(path)


def split_to_disk(rows, path):
    datasets.DatasetDict({"train": datasets.Dataset(rows)}).save_to_disk(path)


def duckdb_file(rows, path):
    with duckdb.connect(path) as database:
        database.sql("create table t as from rows")


FOREIGN = [lambda rows, path, codec=codec: pyarrow.orc.write_table(rows, path, compression=codec) for codec in ("uncompressed", "snappy", "zlib", "zstd", "lz4")]
FOREIGN += [lambda rows, path, codec=codec: polars.from_arrow(rows).write_avro(path, codec) for codec in ("uncompressed", "deflate", "snappy")]
FOREIGN += [lambda rows, path, codec=codec: pyarrow.feather.write_feather(rows, path, codec) for codec in ("uncompressed", "lz4", "zstd")]
FOREIGN += [lambda rows, path: lance.write_dataset(rows, path), save_to_disk, split_to_disk, duckdb_file]


def converted(path):
    """The documents after the command that the refusal of a file or folder names."""
    names = {"pandas": pandas, "polars": polars, "duckdb": duckdb, "lance": lance, "pyarrow": pyarrow, "load_from_disk": datasets.load_from_disk}
    refusal = runner.call(SHARDTOOL, "decode", "--json", path, code=65).stderr.decode()
    command = re.search(r".*: (.*\)) converts", refusal)[1].replace("TABLE", "t")
    exec(command, names | {"FILE": path, "FOLDER": path})
    texts = documents("rows.parquet")
    os.remove("rows.parquet")
    return texts


def test_the_command_of_a_refused_format_writes_its_texts(folder):
    os.chdir(folder)
    for number, write in enumerate(FOREIGN):
        write(table(), f"{number}.rows")
        assert converted(f"{number}.rows") == [text for text in TEXTS if text is not None], number


def test_the_command_of_a_refused_csv_file_writes_its_texts(folder):
    os.chdir(folder)
    texts = [*TEXTS[2:], "NA", "null", "None", "one, \"two\";\tand\r\nthree"]
    for name, separator in (("a.csv", ","), ("b.csv", ";"), ("c.csv", "\t"), ("d.tsv", "\t")):
        with open(name, "w", newline="") as file:
            csv.writer(file, delimiter=separator).writerows([("id", "text"), *enumerate(texts)])
        assert converted(name) == texts, name
