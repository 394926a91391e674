#!/usr/bin/env python3
"""wheel.py TREE VERSION OUT: the wheel millrace-gpt from the folder of make dist. The programs go to the environment's bin, where pip
puts scripts; everything else beside it, as in the folder, so that the programs find each other and NVIDIA's wheels; but mpi*.so in libexec
instead of lib, which `pip install --target` leaves out. The Python client is inside. No build backend: a wheel is a zip archive with three text files. The same folder gives the same bytes."""
import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
tree, version, out = Path(sys.argv[1]), sys.argv[2].replace("-dev", ".dev"), Path(sys.argv[3])
platform = sys.argv[4] if len(sys.argv) > 4 else "manylinux_2_31_x86_64"
name = f"millrace_gpt-{version}"
tag = f"py3-none-{platform}"

METADATA = f"""Metadata-Version: 2.1
Name: millrace-gpt
Version: {version}
Summary: Trains GPTs of GPT-2's size on the machine you have: tokenizer, loader and trainer
License: MIT
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.9
Provides-Extra: client
Requires-Dist: numpy; extra == "client"
Requires-Dist: pyzmq; extra == "client"
Provides-Extra: cu12
Requires-Dist: nvidia-cublas-cu12; extra == "cu12"
Requires-Dist: nvidia-nccl-cu12; extra == "cu12"
Provides-Extra: cu13
Requires-Dist: nvidia-cublas>=13; extra == "cu13"
Requires-Dist: nvidia-nccl-cu13; extra == "cu13"
Description-Content-Type: text/markdown

The command `millrace` with its programs `shardtool`, `millrace-loader` and `millrace-trainer`, manual pages, completion and
configurations, and `millrace_loader`, the loader's client for Python (with the extra `client`). They need glibc 2.31 or later and nothing else; to train on
a GPU, a driver and the extra `cu12` or `cu13`.

    millrace tokenize -o data/books --val 0.01 books/
    millrace train --dataset=data/books --out_dir=runs/books
    millrace doctor

The manual is in `share/doc/millrace` of the environment. The licences of the libraries inside the programs are in its
`licences`; with the CUDA backend there is NVIDIA's CUDA runtime among them, under the End User License Agreement of the CUDA Toolkit.
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: millrace\nRoot-Is-Purelib: false\nTag: {tag}\n"


def entries():
    """Pairs of a name in the wheel and its bytes; a program is marked by its mode."""
    for path in sorted((ROOT / "loader/python/millrace_loader").iterdir()):
        if path.suffix in (".py", ".typed"):
            yield f"millrace_loader/{path.name}", path.read_bytes(), 0o644
    for path in sorted(p for p in tree.rglob("*") if p.is_file()):
        inside = path.relative_to(tree).as_posix()
        inside = inside.replace("lib/millrace/", "libexec/millrace/")
        place = f"scripts/{path.name}" if inside.startswith("bin/") else f"data/{inside}"
        yield f"{name}.data/{place}", path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644
    yield f"{name}.dist-info/METADATA", METADATA.encode(), 0o644
    yield f"{name}.dist-info/WHEEL", WHEEL.encode(), 0o644
    for licence in ("LICENSE", "NOTICE"):
        yield f"{name}.dist-info/{licence}", (ROOT / licence).read_bytes(), 0o644


def main():
    moment = time.gmtime(min(int(p.stat().st_mtime) for p in tree.rglob("*") if p.is_file()))[:6]
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}-{tag}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        def add(file, data, mode):
            info = zipfile.ZipInfo(file, moment)
            info.external_attr = (0o100000 | mode) << 16
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED)
        for file, data, mode in entries():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(data)}")
            add(file, data, mode)
        record.append(f"{name}.dist-info/RECORD,,")
        add(f"{name}.dist-info/RECORD", ("\n".join(record) + "\n").encode(), 0o644)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


main()
