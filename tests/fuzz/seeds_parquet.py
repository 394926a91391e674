"""Seeds of the Parquet fuzzers: small files of every codec and encoding: seeds_parquet.py parquet|parquet_page FOLDER."""
import itertools
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

TARGET, FOLDER = sys.argv[1:3]
CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
ENCODINGS = ["dictionary", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"]
NUMBERS = {"PLAIN": "PLAIN", "BYTE_STREAM_SPLIT": "BYTE_STREAM_SPLIT"}
TEXTS = ["some", "some text", None, "", "text", "some"] * 3
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, None]
TALKS = [TALK, None, [], TALK[:2], TALK[:1], None] * 3
TABLE = pa.table({"text": TEXTS, "n": pa.array(range(len(TEXTS)), pa.int32()), "b": [True, None, False] * 6})
TURNS = TABLE.append_column("messages", [TALKS]).append_column("tools", [pa.array([{"a": [[1], None, []]}, None] * 9)])

for i, (codec, version, encoding) in enumerate(itertools.product(CODECS, ["1.0", "2.0"], ENCODINGS)):
    path = os.path.join(FOLDER, str(i))
    options = {"use_dictionary": encoding == "dictionary", "write_statistics": i % 5 == 0}
    if encoding != "dictionary":
        options["column_encoding"] = {"text": "PLAIN" if encoding in NUMBERS else encoding,
                                      "n": NUMBERS.get(encoding, "DELTA_BINARY_PACKED"),
                                      "b": "RLE" if version == "2.0" else "PLAIN"}  # fmt: skip
    pq.write_table(TURNS if i % 2 and TARGET == "parquet" else TABLE, path, compression=codec, data_page_version=version, store_schema=False, row_group_size=9,
                   data_page_size=20, write_batch_size=4, **options)  # fmt: skip
    with open(path, "rb") as file:
        data = file.read()
    if TARGET == "parquet":  # the last two bytes become the footer's length
        assert data[-6:-4] == b"\0\0"
        data = data[:-8] + data[-8:-6]
    else:
        number = i % 3
        column = pq.ParquetFile(path).metadata.row_group(0).column(number)
        begin = column.dictionary_page_offset or column.data_page_offset
        options = bytes([CODECS[codec], [0, 1, 5][number], 1, 9])
        data = options + data[begin : begin + column.total_compressed_size]
    with open(path, "wb") as file:
        file.write(data)
