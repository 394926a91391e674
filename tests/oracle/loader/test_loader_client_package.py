# peers: mypy, torch, wheel
"""The Python client (loader/python) as a package: its installation as the README has it, its types and its checksum."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import runner
import test_loader_client as client

README = client.ROOT / "loader/python/README.md"


def readme_blocks(language):
    return [block.split("```", 1)[0] for block in README.read_text().split(f"```{language}\n")[1:]]


def test_the_readme_commands_install_the_package_and_serve_a_dataset():
    if not any(importlib.util.find_spec(name) for name in ("wheel", "setuptools.command.bdist_wheel")):
        raise runner.Skip("pip cannot build a package here: no module wheel")
    client.make_data()
    os.makedirs("clone/loader", exist_ok=True)
    os.makedirs("clone/data", exist_ok=True)
    subprocess.run(["cp", "-r", client.PACKAGE, "clone/loader/python"], check=True)
    os.symlink(os.path.abspath("data"), "clone/data/fineweb")
    (block,) = readme_blocks("sh")
    script = (f'pip() {{ {sys.executable} -m pip -q "$@" --no-deps --no-index --no-build-isolation --target installed; }}\n'
              f"set -e\n{block}\necho $! >pid")
    home = {**os.environ, "XDG_RUNTIME_DIR": os.path.abspath("clone"), "PATH": f"{client.BIN}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", script], cwd="clone", stdout=subprocess.DEVNULL, env=home, check=True)
    loader = int(pathlib.Path("clone/pid").read_text())
    try:
        code = ("import millrace_loader, importlib.metadata as m; print(millrace_loader.__file__);"
                "print(m.metadata('millrace-loader')['Author'], m.metadata('millrace-loader')['License']);"
                "print(next(iter(millrace_loader.TokenBatches(None, 64, 4, timeout=60)))[0].shape)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="clone",
                              env={**home, "PYTHONPATH": "installed"})
        assert done.returncode == 0, done.stderr
        assert "installed" in done.stdout and "millrace developers MIT" in done.stdout and "4, 64" in done.stdout, done.stdout
        assert os.path.exists("clone/installed/millrace_loader/py.typed")
    finally:
        os.kill(loader, 15)


def test_the_package_is_typed():
    for module in ("mypy", "torch"):  # torch: TokenBatches has a base class of it
        if not importlib.util.find_spec(module):
            raise runner.Skip(f"no module {module}")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.path.abspath("mypy-cache"), "millrace_loader"],
                          cwd=client.PACKAGE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_checksum_without_the_package_is_crc32c():
    from millrace_loader import checksum

    def by_bits(data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    assert checksum._by_numpy(b"123456789") == 0xE3069283  # of wire.h
    for size in (0, 1, 3, 4, 5, 1019, 1020, 1021, 70000):
        data = np.random.default_rng(size).bytes(size)
        assert checksum._by_numpy(data) == checksum._by_numpy(memoryview(bytearray(data))) == by_bits(data), size
