#!/usr/bin/env python3
"""peers.py [PAGE]: rows of docs/peers.md whose last column names neither a test nor when it was looked at: `FILE WORDS`, a file below tests/
and words of a test's name there, or "by hand, DATE, COMMIT". figures.sh checks that the commits exist."""
import pathlib
import re
import sys

NAMES = {".py": r"^def test_(\w+)", ".bats": r'^@test "(.*)" \{', ".c": r"^TEST\w*\((\w+)"}
files = {path.name: path for kind in NAMES for path in pathlib.Path(__file__).parents[1].glob(f"tests/**/*{kind}")}


def is_test(file, words):
    path = files.get(file)
    names = re.findall(NAMES[path.suffix], path.read_text(), re.M) if path else []
    return any(words.replace(" ", "_") in name.replace(" ", "_") for name in names)


def is_source(cell):
    tests = re.findall(r"`(\S+) ([^`]+)`", cell)
    by_hand = re.search(r"by hand, 20\d\d-[01]\d-[0-3]\d, [0-9a-f]{7}\b", cell)
    return (tests or by_hand) and all(is_test(*test) for test in tests) and ("by hand" not in cell or by_hand)


page = sys.argv[1] if len(sys.argv) > 1 else "docs/peers.md"
rows = [line for line in open(page, encoding="utf-8") if re.match(r"\| (?!peer, version|---)", line)]
wrong = [row for row in rows if not is_source(row.rstrip(" |\n").rpartition(" | ")[2])]
for row in wrong:
    print(f"{page}: neither a test that exists nor `by hand, DATE, COMMIT`: {row.strip()}")
sys.exit(bool(wrong))
