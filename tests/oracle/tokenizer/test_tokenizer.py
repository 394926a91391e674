"""The tokenizer against tiktoken: real texts on each instruction set, and random ones. The generated table too."""
import glob
import os
import subprocess
import sys
import sysconfig

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
import runner
import fuzz_tokenizer
import gpt2

TIMER = os.path.join(os.environ["BIN"], "..", "bench_tokenizer")


def test_the_unicode_table_is_made_of_its_source():
    made = subprocess.run([sys.executable, f"{ROOT}/tokenizer/unicode_table.py"], check=True, stdout=subprocess.PIPE).stdout
    with open(f"{ROOT}/tokenizer/merge/unicode_table.h", "rb") as file:
        assert file.read() == made, "run tokenizer/unicode_table.py"


def real_text_on(path):
    if path not in fuzz_tokenizer.paths():
        raise runner.Skip(f"this processor has no {path}")
    documents = []
    for name in sorted(glob.glob(os.path.join(sysconfig.get_path("stdlib"), "*.py")))[:60]:
        with open(name, "rb") as file:
            documents.append(file.read())
    assert documents
    assert fuzz_tokenizer.millrace(TIMER, path, documents) == fuzz_tokenizer.reference(gpt2.encoding(), documents)


def test_real_text_has_the_ids_of_tiktoken_portable():
    real_text_on("portable")


def test_real_text_has_the_ids_of_tiktoken_avx2():
    real_text_on("avx2")


def test_real_text_has_the_ids_of_tiktoken_avx512():
    real_text_on("avx512")


def test_random_text_has_the_ids_of_tiktoken_on_every_path_of_this_processor():
    assert fuzz_tokenizer.fuzz(TIMER, 0, seed=1, batch=5000) == 0  # more: make fuzz F=tokenizer
