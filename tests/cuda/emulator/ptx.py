#!/usr/bin/env python3
"""ptx.py NVCC [FOLDER]: the PTX of kernels whose speed depends on what the compiler makes of them, for sm_90 and bf16.

gelu has one thread for 8 numbers and is bound by instructions when it has more than MOST of them. The backward pass of
layer norm is bound by latency when it loads dsum only after its shuffles.
"""
import re
import subprocess
import sys
import tempfile

MOST = {"4geluIL10Activation1E": 150, "4geluIL10Activation0E": 120,  # the exact GELU; by tanh
        "13gelu_gradientIL10Activation1E": 300, "13gelu_gradientIL10Activation0E": 300}


def kernels(source):
    with tempfile.NamedTemporaryFile(suffix=".ptx") as ptx:
        subprocess.run([nvcc, "-I.", "-D_GNU_SOURCE", "-DHAVE_CUDA=1", "-DACT=bf16", "-DACT_BF16", "-O3", "-std=c++17", "-ptx", "-arch=compute_90", "-o", ptx.name,
                        f"{folder}/{source}"], check=True)
        text = ptx.read().decode()
    for match in re.finditer(r"\.entry (\w+)\(.*?\n\{(.*?)\n\}", text, re.S):
        yield match[1], [line.strip() for line in match[2].splitlines() if re.match(r"\s+(@!?%p\d+ )?[a-z]", line)]


nvcc, folder = sys.argv[1], (sys.argv[2:] or ["kernels/cuda"])[0]
wrong = checked = 0
for name, code in kernels("gelu.cu"):
    for part, most in MOST.items():
        if name.startswith("_Z" + part):
            checked += 1
            if len(code) > most:
                wrong += 1
                print(f"{name}: {len(code)} instructions, at most {most} are expected")
for name, code in kernels("layernorm_backward.cu"):
    if re.match(r"_Z18layernorm_gradientILi[345]E", name):
        checked += 1
        shuffle = next(i for i, line in enumerate(code) if line.startswith("shfl"))
        late = [line for line in code[shuffle:] if re.match(r"(@!?%p\d+ )?ld\.global\.v4", line)]  # weights are loaded by .nc
        if late:
            wrong += 1
            print(f"{name}: {len(late)} loads of dsum after the shuffles: {late[0]}")
print(f"{checked} kernels, {wrong} wrong")
sys.exit(wrong > 0 or checked != len(MOST) + 3)
