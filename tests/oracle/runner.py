"""runner.py FILE [WORD]: runs the test_* functions of a file, those with the word in their name, and prints one line for each, which
tests/run.sh counts: ok NAME MILLISECONDS, not ok NAME MILLISECONDS, or skipped NAME: REASON. A test that imports what is not
installed is skipped, and so are all of a file that does.

The tests of a file run in one temporary folder, in order, after its function `setup`, if there is one; a function with an argument gets an
empty folder of its own."""
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import rooms  # of all tests


class Skip(Exception):
    """Raised with the reason by a test that this machine cannot run."""


def call(*command, stdin=b"", code=0):
    """The finished process; its exit code is `code`."""
    done = subprocess.run(command, input=stdin, capture_output=True)
    assert done.returncode == code, (command, done.returncode, done.stderr.decode())
    return done


def reason(error):
    """Of an import of what is not installed; an import of our own raises."""
    if error.name and list(pathlib.Path(rooms.TESTS).glob(f"*/**/{error.name}.py")):
        raise error
    return str(error)


def ci(test):
    """Marks a test that CI and releases run, and `make test` does not (tests/README.md)."""
    test.ci = True
    return test


def each(rows, quick=()):
    """A test for each of the rows, whose name ends with it. `make test` runs those in `quick`."""

    def mark(test):
        def of_row(row):
            run_row = lambda: test(row)
            return run_row if row in quick else ci(run_row)

        test.rows = {row: of_row(row) for row in rows}
        return test

    return mark


def in_tier(test):
    return {"test": not hasattr(test, "ci"), "ci": hasattr(test, "ci")}.get(os.environ.get("TIER"), True)


def run(name, test, home):
    started = time.monotonic()
    try:
        try:
            test(*[tempfile.mkdtemp(dir=home)][: test.__code__.co_argcount])
        except ImportError as error:
            raise Skip(reason(error)) from None
    except Skip as why:
        print(f"skipped {name}: {why}", flush=True)
        return True
    except Exception:
        traceback.print_exc()
        print(f"not ok {name} {(time.monotonic() - started) * 1000:.0f}", flush=True)
        return False
    print(f"ok {name} {(time.monotonic() - started) * 1000:.0f}", flush=True)
    return True


def load(path):
    """The functions of a file, or what skips its tests."""
    try:
        return vars(importlib.import_module(pathlib.Path(path).stem))
    except ImportError as error:
        why = reason(error)

    def skipped(mark):
        def skip():
            raise Skip(why)

        return ci(skip) if mark else skip

    return {name: skipped(mark) for mark, name in re.findall(r"^(@runner\.ci\n)?def (test_\w+)", pathlib.Path(path).read_text(), re.M)}


def main(path, word=""):
    functions = load(path)
    named = [(name, test) for name, test in functions.items() if name.startswith("test_")]
    tests = [((f"{name}_{row}").rstrip("_"), case) for name, test in named for row, case in getattr(test, "rows", {"": test}).items()]
    tests = [(name, test) for name, test in tests if word in name and in_tier(test)]
    if not tests:
        sys.exit(bool(word))
    home = tempfile.mkdtemp(prefix="millrace-test-")
    os.chdir(home)
    try:
        functions.get("setup", lambda: None)()
        failed = [name for name, test in tests if not run(name, test, home)]
    finally:
        os.chdir("/")
        shutil.rmtree(home)
    sys.exit(bool(failed))


if __name__ == "__main__":
    sys.modules["runner"] = sys.modules["__main__"]  # of whose Skip a file raises
    main(*sys.argv[1:])
