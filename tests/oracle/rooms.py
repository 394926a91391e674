"""Lets a file import those of all folders of tests/oracle and tests/bench, of tests/fuzz, and the Python client."""
import glob
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [f"{TESTS}/../loader/python", f"{TESTS}/fuzz", f"{TESTS}/bench", *sorted(glob.glob(f"{TESTS}/oracle/[a-z]*/") + glob.glob(f"{TESTS}/bench/[a-z]*/"))]
