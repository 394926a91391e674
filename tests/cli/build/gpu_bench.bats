#!/usr/bin/env bats
# The benchmark of a device and its report, as far as a machine without one can run them.
# bats file_tags=ci
load ../helpers

setup() { cd "$ROOT" && out="$BATS_TEST_TMPDIR"; }

small="dtype=float32 L=2 C=64 H=2 T=64 B=8"

@test "a trace has every operation of the step, and its rows add up to the step" {
    [ -x "$BIN/../bench_gpu" ] || skip "built without CUDA"
    "$BIN/../bench_gpu" trace device=cpu $small 2>/dev/null >"$out/trace"
    python3 - "$out/trace" <<'END'
import json, sys
rows = {row["name"]: row for row in map(json.loads, open(sys.argv[1]))}
step = rows.pop("step")["ms"]
assert abs(sum(row["ms"] for row in rows.values()) - step) < 1e-3 * len(rows), (rows, step)
assert rows["layernorm_forward"]["calls"] == 5 and rows["attention_backward"]["calls"] == 2, rows
assert "head, matmul_forward 512 x 50304 x 64" in rows and rows["adamw"]["calls"] in (1, 11), rows  # 11: each of the 9 weights apart, where they are packed
END
}

@test "the tokens of a benchmark are as frequent as those of text" {
    [ -x "$BIN/../bench_gpu" ] || skip "built without CUDA"
    "$BIN/../bench_gpu" step device=cpu $small steps=1 2>/dev/null >"$out/step"
    python3 -c 'import json, sys; share = json.load(open(sys.argv[1]))["most_frequent_token"]; assert 0.015 < share < 0.06, share' "$out/step"
}

@test "the report marks times that differ by more than 25 %, and keeps the sections without new results" {
    report() { python3 "$ROOT/tests/cuda/device/report.py" "$out" "$@"; }
    measured() { sed -n "/^## $1/,/^## $2/s/^Measured: //p" gpu-results.md; }
    cd "$out" && report --begin bench.jsonl "NVIDIA H200, 570.1, 143771 MiB"
    cat >"$out/bench.jsonl" <<'END'
{"what": "trace", "name": "attention_forward", "B": 64, "calls": 12, "ms": 5.0, "tflops": 200}
{"what": "trace", "name": "matmul_forward 65536 x 2304 x 768", "B": 64, "calls": 12, "ms": 9.0, "tflops": 600}
{"what": "trace", "name": "matmul_forward 65536 x 768 x 768", "B": 64, "calls": 12, "ms": 9.0, "tflops": 300}
{"what": "trace", "name": "step", "B": 64, "ms": 125.0}
{"what": "gemm", "tflops": 770}
{"what": "step", "model": "124M", "B": 64, "ms": 120, "tokens_per_second": 546133, "flops_per_token": 752500000, "mhz": 1755.0, "watts": 690.4, "before_bytes": 1073741824, "opened_bytes": 2147483648, "arena_bytes": 4294967296, "end_bytes": 4831838208}
END
    report
    [ "$(grep -cE '^Measured: no commit, 20..-..-.., NVIDIA H200, 570.1' gpu-results.md)" = "$(grep -c '^## ' gpu-results.md)" ] # out of a checkout
    grep -q '^| attention_forward | 12 | 5.000 | 200 | 5.2 |  |$' gpu-results.md
    grep -q '^| matmul_forward | 24 | 18.000 | 450 | 11.4 | \*\*off\*\* |$' gpu-results.md
    grep -q '^| step |  | 125.000 | - | 119.6 |  |$' gpu-results.md
    grep -qF 'with the context (1.00 GiB with libraries)' gpu-results.md
    grep -q ' | 411 | 42% | 53% | - | - | 1755 | 690 |  |$' gpu-results.md # of 989 TFLOP/s, trainer/plan/gpu_cards.def
    # a section without new results, and results of another commit, keep the line of their own commit
    echo 1234567 >commit
    report --begin tests.txt "NVIDIA H200, 570.1, 143771 MiB" && printf '%s\n' "passed loss (1 s)" "FAILED gelu: exit 3" >tests.txt && report
    grep -q '^1 of 2 passed\.$' gpu-results.md
    grep -q '^- FAILED gelu: exit 3$' gpu-results.md
    grep -q '^| attention_forward | 12' gpu-results.md
    [[ "$(measured Tests 'A step')" == "1234567, 20"*", NVIDIA H200, 570.1, 143771 MiB" ]]
    [[ "$(measured 'A step' E)" == "no commit, 20"* ]]
    echo 89abcde >commit
    report --begin bench.jsonl "NVIDIA H200, 570.1, 143771 MiB"
    echo '{"what": "trace", "name": "adamw", "B": 64, "calls": 1, "ms": 1.0}' >bench.jsonl && report
    [[ "$(measured Tests 'A step')" == "1234567, "* && "$(measured 'A step, ' E)" == "89abcde, "* ]]
    [[ "$(measured 'A training step' M)" == "no commit, "* ]] # of which this commit has no row
    not grep -q '^| attention_forward | 12' gpu-results.md
    # rows stay for more rows of the same commit and device, and for no others
    report --begin bench.jsonl "NVIDIA H200, 570.1, 143771 MiB"
    grep -q adamw bench.jsonl
    report --begin bench.jsonl "NVIDIA H100, 570.1, 81559 MiB"
    [ ! -s bench.jsonl ]
}

@test "a report in a checkout does not make its commit another one, and a changed file does" {
    mkdir -p "$out"/{docs,results} && cp -r tests "$out" && cd "$out" && echo one >docs/gpu-results.md
    git init -q . && git add docs tests && git -c user.name=test -c user.email=test commit -qm one
    report() { python3 tests/cuda/device/report.py results "$@"; }
    report --begin tests.txt "a GPU" && echo "passed loss (1 s)" >results/tests.txt && report
    grep -q "^Measured: $(git rev-parse --short=7 HEAD), 20..-..-.., a GPU$" docs/gpu-results.md
    report --begin tests.txt "a GPU" && [ -s results/tests.txt ]
    echo >>tests/README.md
    report --begin tests.txt "a GPU" && [ ! -s results/tests.txt ]
    echo "passed loss (1 s)" >results/tests.txt && report
    grep -q "^Measured: $(git rev-parse --short=7 HEAD)-dirty, " docs/gpu-results.md
}

@test "a planner that cannot run is not a model that does not fit" {
    mkdir -p "$out"/{fake,build/bin,trainer/plan} && cp -r tests "$out" && cp trainer/plan/gpu_cards.def "$out/trainer/plan" # in a checkout the report also goes to docs
    cd "$out" && export PATH="$PWD/fake:$PATH"
    printf '#!/bin/sh\necho "NVIDIA of this test"\n' >fake/nvidia-smi
    printf '#!/bin/sh\necho broken >&2; exit 127\n' >build/bin/trainer
    chmod +x fake/nvidia-smi build/bin/trainer
    run_code 1 python3 tests/bench/gpu/bench_gpu.py build --out results --only "limit 124M"
    not grep -q "no micro-batch fits" results/bench.jsonl
    grep -q "trainer plan: broken" results/bench.jsonl
    # a later run in which the planner works replaces the note
    ln -sf /bin/true build/bin/trainer
    printf '#!/bin/sh\necho "{\\"ms\\": 5}"\n' >build/bench_gpu && chmod +x build/bench_gpu
    python3 tests/bench/gpu/bench_gpu.py build --out results --only "limit 124M|step" || true
    grep -q '"ms": 5' results/bench.jsonl
    not grep -q "trainer plan: broken" results/bench.jsonl
    # a table has the rows of one commit
    echo 1234567 >commit
    python3 tests/bench/gpu/bench_gpu.py build --out results --only "no such command" || true
    [ ! -s results/bench.jsonl ]
}
