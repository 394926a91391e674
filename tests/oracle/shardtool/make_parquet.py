"""Makes tests/data/parquet, and tests/data/turns beside it, files of writers that `make deps` does not install:
make_parquet.py FOLDER. The checked-in files were made with fastparquet 2026.9.0, pandas 3.1.1 and duckdb 2.0.0."""
import io, os, sys
import duckdb, fastparquet, numpy as np, pandas as pd

FOLDER = sys.argv[1]
COUNT = 30
texts = ["", "some text", "Grüße", "x" * 40, "a\nb"]
table = pd.DataFrame({
    "text": [texts[i % 5] + str(i) if i % 5 else "" for i in range(COUNT)],
    "score": [i / 7 for i in range(COUNT)],
    "small": np.array([i / 7 for i in range(COUNT)], np.float32),
    "n": np.array([i - 9 for i in range(COUNT)], np.int32),
})  # fmt: skip
nulls = table.assign(text=[None if i % 4 == 1 else text for i, text in enumerate(table["text"])])

os.makedirs(FOLDER, exist_ok=True)
for codec in "UNCOMPRESSED", "ZSTD":
    for data, name in (table, "whole"), (nulls, "nulls"):
        path = os.path.join(FOLDER, f"fastparquet_{codec.lower()}_{name}.parquet")
        fastparquet.write(path, data[["text", "n"]], compression=codec, object_encoding="utf8", write_index=False)
fastparquet.write(os.path.join(FOLDER, "hive"), nulls[["text", "n"]], file_scheme="hive", row_group_offsets=15,
                  object_encoding="utf8", write_index=False)  # fmt: skip
for version in "V1", "V2":
    duckdb.sql(f"COPY nulls TO '{FOLDER}/duckdb_{version.lower()}.parquet' (FORMAT parquet, PARQUET_VERSION {version})")
pairs = pd.read_csv(io.StringIO("prompt,completion\nWhat is 1?,one\n"), sep=",", keep_default_na=False)
os.makedirs(os.path.join(FOLDER, "..", "turns"), exist_ok=True)
pairs.to_parquet(os.path.join(FOLDER, "..", "turns", "rows.parquet"))
pairs.rename(columns={"prompt": "question", "completion": "answer"}).to_parquet(os.path.join(FOLDER, "..", "turns", "qa.parquet"))
