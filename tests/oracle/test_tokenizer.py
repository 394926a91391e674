"""The tokenizer against tiktoken: random texts on every path for a while, and real ones. The generated table too."""
import glob
import os
import subprocess
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [HERE, os.path.join(HERE, "..", "fuzz")]
import fuzz_tokenizer
import gpt2

TIMER = os.path.join(os.environ["BIN"], "..", "bench_tokenizer")
SECONDS = 60


def table_is_made_of_its_source():
    made = subprocess.run([sys.executable, f"{ROOT}/tokenizer/unicode_table.py"], check=True, stdout=subprocess.PIPE).stdout
    with open(f"{ROOT}/tokenizer/unicode_table.h", "rb") as file:
        assert file.read() == made, "run tokenizer/unicode_table.py"


def real_text_has_the_ids_of_tiktoken():
    documents = []
    for path in sorted(glob.glob(os.path.join(sysconfig.get_path("stdlib"), "*.py")))[:60]:
        with open(path, "rb") as file:
            documents.append(file.read())
    assert documents
    want = fuzz_tokenizer.reference(gpt2.encoding(), documents)
    for path in fuzz_tokenizer.PATHS:
        assert fuzz_tokenizer.millrace(TIMER, path, documents) == want, path


table_is_made_of_its_source()
real_text_has_the_ids_of_tiktoken()
assert fuzz_tokenizer.fuzz(TIMER, SECONDS) == 0
