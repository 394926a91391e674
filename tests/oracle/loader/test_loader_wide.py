"""Datasets of more than 65,536 ids through the loader and the Python client: the ids that zstd unpacks, and who is refused."""
import os
import subprocess

import numpy as np
import test_loader_client as client
import wide_vocabulary
from millrace_loader import Feed, LoaderError
from test_loader_client import BIN, Loader, T


def make_wide():
    """The ids of dataset `wide`."""
    if not os.path.exists("wide"):
        wide_vocabulary.write("wide.tiktoken")
        with open("wide.txt", "w") as file:
            file.writelines(f"the mill grinds {i} sacks of {i * 7919 % 1000} grains\n" for i in range(4000))
        subprocess.run([BIN / "shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0.1", "--vocabulary", "wide.tiktoken",
                        "--pattern", "gpt4", "--frame-tokens", "3000", "-o", "wide", "wide.txt"], check=True)  # fmt: skip
    raw = subprocess.run([BIN / "shardtool", "cat", "wide"], check=True, capture_output=True).stdout
    ids = np.frombuffer(raw, "<u4")
    assert ids.max() == 65792 and (ids > 65535).mean() > 0.3
    return ids


def test_rows_equal_zstd_in_every_mode_over_ring_ipc_and_tcp():
    client.check_every_mode("wide", make_wide(), 600, eot=65792)  # 600 rows: several pieces


def refused(*arguments, **named):
    try:
        Feed(*arguments, timeout=60, **named)
    except LoaderError as error:
        return str(error)
    raise AssertionError("not refused")


def test_smaller_models_and_batches_beyond_the_limit_are_refused_by_name():
    make_wide()
    with Loader("ipc://old", "wide"):
        assert "has 65793 ids" in refused("ipc://old", T, 8, vocab_size=65536)
        text = refused("ipc://old", 1023, 20000)
        assert "64 MiB" in text and "the ids of dataset 'wide' have 4 bytes" in text, text


def test_mixtures_of_other_widths_are_refused():
    make_wide()
    client.make_data(lines=2000)
    done = subprocess.run([BIN / "loader", "serve", "wide:1", "data:1", "--endpoint", "ipc://mixed"], capture_output=True)
    assert done.returncode == 65 and b"have different vocabularies" in done.stderr, done
