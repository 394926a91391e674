#!/usr/bin/env python3
"""report.py DIR: writes DIR/gpu-results.md from the results of run_device.sh (tests.txt) and bench_gpu.py (bench.jsonl) in DIR.

report.py DIR --begin FILE DEVICE: names commit, date and DEVICE of the results that FILE will receive, in DIR/FILE.of, and empties
FILE where it has those of another commit or device. In a checkout the report also renews docs/gpu-results.md. A section
without new results keeps the old ones, with the line of the commit that they are of.
"""
import json
import os
import re
import subprocess
import sys
import time

HEAD = """# On a GPU

Results of `make test-gpu` and `make bench-gpu`, with the device they ran on. They write this file. Without a GPU,
`make test` tests the CUDA backend in an emulator (tests/cuda/emulator).
"""
EXPECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/gpu/bench_gpu_expected.json")
TOLERANCE = 0.25
PEAKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../trainer/plan/gpu_cards.def")

STATES = {"bf16": "moments in bf16", "bf16_sr": "moments and parameters in bf16"}


def read(name):
    path = os.path.join(folder, name)
    return open(path).read() if os.path.exists(path) else ""


def read_rows():
    rows = []
    for line in read("bench.jsonl").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:  # the last line of a run that was ended
            pass
    return rows


def number(row, key, form, scale=1):
    return form.format(row[key] * scale) if row.get(key) else "-"


def share(rate, of):
    return f"{rate / of:.0%}" if rate and of else "-"


def settings(row):
    parts = [f"limit {row['limit']} GiB"] if row.get("limit") else []
    if row["what"] == "step":
        parts += [STATES[row["state"]]] if row.get("state", "fp32") != "fp32" else []
        parts += [f"recompute {row['recompute']}"] if row.get("recompute", "none") != "none" else []
        parts += [f"{row['offload']} offloaded"] if row.get("offload", "none") != "none" else []
        parts += [row["dtype"]] if "dtype" in row else []
        parts += [f"{row['accumulation']} micro-batches"] if int(row.get("accumulation", 1)) > 1 else []
        parts += [f"documents of {row['documents']} masked"] if row.get("documents") else []
        parts += ["gelu tanh"] if row.get("gelu") == "tanh" else []
    parts += ["deterministic" if row["deterministic"] else "not deterministic"] if "deterministic" in row else []
    return ", ".join(parts)


def peak_of(device):
    """TFLOP/s by the data sheet, of the first row of gpu_cards.def whose words are in the device's line."""
    with open(PEAKS) as file:
        rows = re.findall(r'^GPU_CARD\("([^"]+)", *([0-9]+),', file.read(), re.M)
    return next((int(rate) for name, rate in rows if name in device + ","), 0)


def steps(rows, device):
    if not any(r["what"] in ("step", "eager", "compile") for r in rows):
        return
    gemm = max((r.get("tflops", 0) for r in rows if r["what"] == "gemm"), default=0)
    peak = peak_of(device)
    # our own step says how many FLOPs a token takes: the peers' are the same model's
    flops = {r["model"]: r["flops_per_token"] for r in rows if r.get("flops_per_token")}
    context = max((r["opened_bytes"] - r["before_bytes"] for r in rows if r.get("opened_bytes")), default=0)
    yield ("## A training step\n\nT = 1024, median of three passes.\n\n"
           "- FLOPs are 6 a parameter and attention's, causal counted once. The trainer's own lines count all of attention,\n"
           "  as nanoGPT does: 7 % more.\n"
           f"- MFU is of {peak or 'an unknown number of'} TFLOP/s (data sheet).\n"
           f"- GEMM is the share of a bf16 product of 8192 cubed on the same device, {gemm:.0f} TFLOP/s.\n"
           "- used GiB is the card's memory after the passes, less before,"
           f" with the context ({context * 2**-30:.2f} GiB with libraries).\n"
           "  For PyTorch it is the peak of its tensors alone.\n"
           "- MHz and W are those of the card during the passes.\n")
    yield "| model | B | by | settings | ms | tok/s | TFLOP/s | MFU | GEMM | planned GiB | used GiB | MHz | W | note |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        if r["what"] not in ("step", "eager", "compile"):
            continue
        rate = r.get("tokens_per_second", 0) * flops.get(r.get("model"), 0) * 1e-12
        used = number(r, "used_bytes" if "used_bytes" in r else "peak_bytes", "{:.2f}", 2**-30)
        by = "millrace" if r["what"] == "step" else " ".join(["PyTorch", r.get("torch", "").split("+")[0], r["what"]])
        yield (f"| {r.get('model', '')} | {r.get('B', '')} | {by}"
               f" | {settings(r)} | {number(r, 'ms', '{:.1f}')} | {number(r, 'tokens_per_second', '{:,.0f}')}"
               f" | {f'{rate:.0f}' if rate else '-'} | {share(rate, peak)} | {share(rate, gemm)} | {number(r, 'planned_bytes', '{:.2f}', 2**-30)}"
               f" | {used} | {number(r, 'mhz', '{:.0f}')} | {number(r, 'watts', '{:.0f}')} | {'out of memory' if r.get('oom') else r.get('note', '')} |")


def trace(rows, device):
    """The operations of a step with the time that was expected of them, summed over the shapes of an operation."""
    rows = [r for r in rows if r["what"] == "trace"]
    if not rows:
        return
    with open(EXPECTED) as file:
        expected = json.load(file)
    yield ("\n## A step, operation by operation\n\n124M, T = 1024, without a graph. The rows add up to the step. The expected times were computed"
           f"\nbefore any measurement, for an {expected['device']}. **off** marks a difference of more than {TOLERANCE:.0%}.\n")
    for B in [max(r["B"] for r in rows)]:
        yield f"\nB = {B}\n\n| operation | calls | ms | TFLOP/s | expected ms | |\n|---|---|---|---|---|---|"
        sums = {}
        for r in rows:
            if r["B"] != B or "name" not in r:
                continue
            key = re.sub(r" \d+ x \d+ x \d+$", "", r["name"])
            calls, ms, flops = sums.get(key, (0, 0, 0))
            sums[key] = calls + r.get("calls", 0), ms + r["ms"], flops + r.get("tflops", 0) * r["ms"]
        for key, (calls, ms, flops) in sums.items():
            wanted = expected["ms"].get(key) if B == expected["B"] else None
            off = wanted and expected["device"] in device and abs(ms - wanted) > TOLERANCE * wanted
            yield (f"| {key} | {calls or ''} | {ms:.3f} | {f'{flops / ms:.0f}' if flops else '-'} |"
                   f" {wanted if wanted else '-'} | {'**off**' if off else ''} |")
    for r in rows:
        if "note" in r:
            yield f"\nB={r['B']}: {r['note']}"


def attention(rows):
    rows = [r for r in rows if r["what"] == "sdpa" or r["what"] in ("flash", "cudnn")]
    if rows:
        yield ("\n## Attention in PyTorch\n\nscaled_dot_product_attention of one layer of 124M, T = 1024, ms.\n\n"
               "| implementation | B | forward | backward | note |\n|---|---|---|---|---|")
    for r in rows:
        yield (f"| {r.get('by', r['what'])} | {r['B']} | {number(r, 'forward_ms', '{:.3f}')} |"
               f" {number(r, 'backward_ms', '{:.3f}')} | {r.get('note', '')} |")


def runs(rows):
    rows = [r for r in rows if r["what"] == "run"]
    if rows:
        yield ("\n## A run beside nanoGPT\n\nThe same text, initial weights, batches and steps go through the trainer and through nanoGPT's model"
               " and loop in\nPyTorch.\n\n"
               "- difference: the greatest one of the losses of a step.\n"
               "- kill -9: the losses and weights of a second run, killed after its checkpoint and started again.\n"
               "- process: the time of the whole process, s.\n"
               "- used GiB: the card's memory, most during the run less before.\n\n"
               "| model | B | type | steps | tokens | difference | at step | kill -9 | PyTorch | note |\n"
               "|---|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        tokens = r.get("B", 0) * r.get("accumulation", 0) * r.get("T", 0) * r.get("steps", 0)
        kill = f"at {r['killed_at']} of {r['steps']}: {'the same bits' if r['equal'] else '**other bits**'}" if "equal" in r else "-"
        off = f"{r['difference']:.5f} | {r['difference_step']}" if "difference" in r else "- | -"
        yield (f"| {r.get('model', '')} | {r.get('accumulation', '-')} x {r.get('B', '-')} x {r.get('T', '-')} | {r.get('dtype', '-')} | {r.get('steps', '-')}"
               f" | {tokens:,} | {off} | {kill}"
               f" | {r.get('torch', '').split('+')[0]} {r.get('by', '')} | {r.get('note', '')} |")
    if rows:
        yield "\n| by | model | last loss | process | ms a step | used GiB |\n|---|---|---|---|---|---|"
    for r in rows:
        for by, of in ("millrace", ""), ("PyTorch", "torch_"):
            yield (f"| {by} | {r.get('model', '')} | {number(r, of + 'last_loss', '{:.4f}')} | {number(r, of + 'seconds', '{:.1f}')}"
                   f" | {number(r, of + 'ms', '{:.1f}')} | {number(r, of + 'used_bytes', '{:.2f}', 2**-30)} |")


def sections(text):
    """The sections of a report by their "## " heading; the text above the first heading is under ""."""
    parts = re.split(r"^(## .*)$", text, flags=re.M)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2]))


def write(path, new):
    old = sections(open(path).read()) if os.path.exists(path) else {}
    with open(path, "w") as out:
        out.write("".join(heading + body.rstrip() + "\n\n" for heading, body in (old | new).items()).rstrip() + "\n")


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True)


def commit():
    """With "-dirty" where files were changed since, those of docs aside, which a report renews."""
    if os.path.exists("commit"):  # in the archive of make gpu-pack
        return open("commit").read().strip()
    name = git("rev-parse", "--short=7", "HEAD").stdout.strip()
    changed = name and git("diff", "--quiet", "HEAD", "--", ".", ":!docs").returncode
    return (name or "no commit") + ("-dirty" if changed else "")


def begin(name, device):
    old, new = read(f"{name}.of").strip(), f"{commit()}, {time.strftime('%Y-%m-%d')}, {device.strip()}"
    if not old or [*old.split(", ")[:1], *old.split(", ")[2:]] != [*new.split(", ")[:1], *new.split(", ")[2:]]:
        open(os.path.join(folder, name), "w").close()
    with open(os.path.join(folder, f"{name}.of"), "w") as out:
        out.write(new + "\n")


def new_sections(name, lines_of):
    """The sections that `lines_of` yields of the results in DIR/NAME, each with the line of their commit, date and device."""
    of = read(f"{name}.of").strip()
    parts = sections("\n".join(lines_of(of))) if of and read(name) else {}
    return {heading: f"\n\nMeasured: {of}{body}" for heading, body in parts.items() if heading}


def benchmarks(of):
    rows = read_rows()
    parts = [*steps(rows, of), *trace(rows, of), *attention(rows), *runs(rows)]
    return parts + [f"\nGEMM: {r['note']}" for r in rows if r["what"] == "gemm" and "note" in r]


def tests(_):
    """How many passed, and the lines of the others; DIR/tests.txt has all."""
    lines = read("tests.txt").splitlines()
    others = [line for line in lines if not line.startswith("passed ")]
    yield f"## Tests\n\n{len(lines) - len(others)} of {len(lines)} passed.\n"
    yield from (f"- {line}" for line in others)


def main():
    new = new_sections("tests.txt", tests)
    new |= new_sections("bench.jsonl", benchmarks)
    write(os.path.join(folder, "gpu-results.md"), {"": HEAD} | new)
    if os.path.isdir("docs") and new:
        write("docs/gpu-results.md", {"": HEAD} | new)


folder = sys.argv[1]
begin(*sys.argv[3:5]) if sys.argv[2:3] == ["--begin"] else main()
