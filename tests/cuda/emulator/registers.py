#!/usr/bin/env python3
"""What ptxas said of every kernel when it was built, against what the kernels were tuned for.

registers.py FOLDER: reads *.cu.o.ptxas of FOLDER. No kernel may spill or use a stack, for no architecture; the ones below
may not use more registers than leaves them the blocks a multiprocessor that their launch bounds ask for. Products of
a warpgroup (wgmma) may not wait for each other because their registers are used in between, and where warpgroups give
registers to others (setmaxnreg) they must be enough.
"""
import glob
import re
import sys

CEILINGS = {  # by the mangled name up to its template arguments
    "24attention_forward_kernel": 255, "26attention_queries_gradient": 168,
    "23attention_keys_gradientI17Keys64ThreeBlocksE": 168, "23attention_keys_gradientI11Keys64SplitE": 168,  # three blocks of 128 threads
    "11matmul_gelu": 168, "22attention_gradient_tma": 128, "21attention_forward_tma": 128, "23attention_keys_gradientI15Keys64TwoBlocksE": 255,
    "18layernorm_gradientILi3E": 168, "18layernorm_gradientILi4E": 168, "18layernorm_gradientILi5E": 255,
    "24layernorm_forward_kernel": 64, "20cross_entropy_kernel": 64, "12adamw_update": 72, "13gelu_gradient": 64, "4gelu": 48, "5embed": 40,
    "19embed_gather_tokens": 64, "21embed_gather_frequent": 64,
}
FP32_CEILINGS = {"18layernorm_gradient": 255, "24layernorm_forward_kernel": 128}  # rows in registers, of twice the size
SHARED_CEILING = 50176  # static; 1 KiB more a block and sm_86 holds one of them less

kernels, wrong, architectures = 0, [], set()
for log in sorted(glob.glob(sys.argv[1] + "/**/*.cu.o.ptxas", recursive=True)):
    name = arch = None
    for line in open(log):
        if m := re.search(r"Compiling entry function '(\S+)' for '(sm_\d+a?)'", line):
            name, arch = m.groups()
            kernels, architectures = kernels + 1, architectures | {arch}
        elif "wgmma.mma_async instructions are serialized" in line or "'setmaxnreg' ignored" in line:
            wrong.append(line.strip())
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line):
            if m.groups() != ("0", "0"):
                wrong.append(f"{arch} {name}: {m[1]} bytes of stack, {m[2]} spilled")
        elif m := re.search(r"Used (\d+) registers", line):
            for part, most in CEILINGS.items():
                if arch == "sm_120" and ("keys_gradient" in part or "queries_gradient" in part):
                    most = 255  # two blocks a multiprocessor (attention.cuh)
                if arch == "sm_75":  # 1,024 threads share the registers of 2,048, and attention is alone
                    most = 64 if most <= 64 else 255
                if ".fp32." in log:
                    most = next((wide for of, wide in FP32_CEILINGS.items() if part.startswith(of)), most)
                if name.startswith("_Z" + part) and int(m[1]) > most:
                    wrong.append(f"{arch} {name}: {m[1]} registers, {most} are its ceiling")
            shared = re.search(r"(\d+) bytes smem", line)
            if shared and int(shared[1]) > SHARED_CEILING:
                wrong.append(f"{arch} {name}: {shared[1]} bytes of static shared memory")
print("\n".join(wrong))
print(f"{kernels} kernel builds for {', '.join(sorted(architectures)) or 'nothing'}, {len(wrong)} over their ceilings")
sys.exit(bool(wrong) or kernels == 0)
