#!/usr/bin/env bash
# make test-gpu: the CUDA backend on a device. run.sh BUILD; writes what happened to build/gpu/tests.txt and renews
# docs/gpu-results.md. Needs the toolkit and a driver, nothing else. Meant to take less than eight minutes.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1
nvidia-smi -L >/dev/null 2>&1 || { echo "test-gpu: no NVIDIA GPU or driver here" >&2 && exit 80; }
mkdir -p build/gpu && results=build/gpu/tests.txt && : >$results
passed=0 failed=0

check() { # NAME COMMAND...: one line of the results, the output on failure
    local name=$1 start=$SECONDS
    shift
    if timeout 400 "$@" >build/gpu/log 2>&1; then
        passed=$((passed + 1)) && echo "passed $name ($((SECONDS - start)) s)" | tee -a $results
    else
        failed=$((failed + 1)) && echo "FAILED $name (exit $?)" | tee -a $results && tail -40 build/gpu/log
    fi
}
tests() { "$build/test-gpu" --data tests/data --bin "$build/bin" "$@"; }
export -f tests 2>/dev/null
export build

names=$(grep -ohE '^TEST\(\w+' tests/gpu/*.c | sed 's/TEST(//')
for name in $names; do check "$name" tests "$name"; done

# The memory and the races that only a device has, at the tests' small shapes.
if command -v compute-sanitizer >/dev/null; then
    for word in embedding layernorm gelu attention loss update; do
        check "memcheck $word" compute-sanitizer --tool memcheck --error-exitcode 1 "$build/test-gpu" --data tests/data --bin "$build/bin" "$word"
    done
    for word in loss attention_of_64 gelu; do
        check "racecheck $word" compute-sanitizer --tool racecheck --error-exitcode 1 "$build/test-gpu" --data tests/data --bin "$build/bin" "$word"
    done
else
    echo "skipped compute-sanitizer: not installed" | tee -a $results
fi

# A run of the programs: the loss of the CPU, the same bits again, and after a stop in the middle.
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
seq 1 200000 | sed 's/$/ is a number that follows another number/' >"$work/text.txt"
check "tokenize" "$build/bin/shardtool" tokenize --val 0.05 -o "$work/data" "$work/text.txt"
train() { # OUT DEVICE ITERS
    "$build/bin/trainer" train --dataset="$work/data" --out_dir="$work/$1" --device="$2" --max_iters="$3" --dtype="$4" \
        --n_layer=4 --n_head=4 --n_embd=256 --block_size=256 --batch_size=8 --gradient_accumulation_steps=2 \
        --eval_interval=10 --eval_iters=4 --warmup_iters=5 --lr_decay_iters=20 --learning_rate=1e-3 --sample_tokens=0
}
newest() { find "$work/$1" -name "$2" | sort -V | tail -1; }
check "train 20 steps" train a cuda 20 auto
check "train them again" train b cuda 20 auto
check "the same bits again" cmp "$(newest a model.safetensors)" "$(newest b model.safetensors)"
check "train 10 steps" train c cuda 10 auto
check "go on to 20" train c cuda 20 auto
check "the same bits after a stop" cmp "$(newest a optimizer.safetensors)" "$(newest c optimizer.safetensors)"
check "train on the CPU" train d cpu 20 float32
check "the CPU's losses" python3 tests/gpu/losses.py "$work/a/metrics.jsonl" "$work/d/metrics.jsonl"

echo "$passed passed, $failed failed" | tee -a $results
python3 tests/gpu/report.py
[ $failed = 0 ]
