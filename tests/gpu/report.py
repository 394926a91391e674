#!/usr/bin/env python3
"""Writes docs/gpu-results.md from what make test-gpu and make bench-gpu left in build/gpu."""
import json
import os
import subprocess
import time

HEAD = """# On a GPU

What `make test-gpu` and `make bench-gpu` found, with the device they ran on. They write this file; nothing in it is
typed by hand. Everything else about the CUDA backend is proven without a GPU by `make test` (tests/emu).
"""


def ask(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def gib(value):
    return f"{value / 2**30:.2f}" if value else "-"


def main():
    text = [HEAD]
    device = ask(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    toolkit = ask(["nvcc", "--version"]).splitlines()
    if device:
        text.append(f"{device}; {toolkit[-1] if toolkit else 'no nvcc'}; {time.strftime('%Y-%m-%d')}\n")
    else:
        text.append("**Not measured yet**: no machine with a GPU has run them.\n")
    if os.path.exists("build/gpu/tests.txt"):
        text.append("## Tests\n\n```\n" + open("build/gpu/tests.txt").read() + "```\n")
    if os.path.exists("build/gpu/bench.jsonl"):
        rows = [json.loads(line) for line in open("build/gpu/bench.jsonl")]
        peak = next((r["tflops"] for r in rows if r["what"] == "gemm"), 0)
        text.append("## A training step\n\nMFU is of the GEMM rate measured in the same run"
                    f" ({peak:.0f} TFLOP/s in bf16, 8192 cubed).\n")
        text.append("| model | B | by | ms | tok/s | TFLOP/s | of GEMM | planned GiB | used GiB | note |\n"
                    "|---|---|---|---|---|---|---|---|---|---|")
        for r in rows:
            if r["what"] not in ("step", "eager", "compile", "refused"):
                continue
            note = "out of memory" if r.get("oom") else r.get("note", "")
            text.append(f"| {r.get('model', '')} | {r.get('B', '')} | {'millrace' if r['what'] in ('step', 'refused') else 'PyTorch ' + r['what']} "
                        f"| {r.get('ms', 0):.1f} | {r.get('tokens_per_second', 0):,.0f} | {r.get('tflops', 0):.1f} "
                        f"| {r.get('tflops', 0) / peak if peak else 0:.0%} | {gib(r.get('planned_bytes'))} "
                        f"| {gib(r.get('used_bytes') or r.get('peak_bytes'))} | {note} |")
        text.append("\n## Each operation (124M, B=16, T=1024)\n\n| operation | us | TFLOP/s | GB/s |\n|---|---|---|---|")
        text += [f"| {r['name']} | {r['us']:.1f} | {r['tflops']:.1f} | {r['gbs']:.0f} |" for r in rows if r["what"] == "op"]
    os.makedirs("docs", exist_ok=True)
    with open("docs/gpu-results.md", "w") as out:
        out.write("\n".join(text).rstrip() + "\n")


main()
