#!/usr/bin/env bash
# Tests the CUDA backend on a device: run_device.sh BUILD [--out DIR] [--only WORDS] [--seconds N].
#
# BUILD is the folder with bin/ and test-gpu, in a checkout or in a pack of make gpu-pack: nothing is built or installed
# here. DIR (build/gpu) receives tests.txt, device.txt and gpu-results.md, even when a test fails. WORDS is a regular
# expression: only tests with a matching name run. A test that finds none of the N seconds (450) left is skipped; one
# that exceeds its own limit fails.
set -u
from=$PWD
cd "$(dirname "$0")/../../.." || exit 2
build=$1 out=$PWD/build/gpu only='' seconds=450
shift
while [ $# -gt 1 ]; do
    case $1 in
    --out) out=$(cd "$from" && realpath -m "$2") ;;
    --only) only=$2 ;;
    --seconds) seconds=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# = 0 ] || { echo "run_device.sh: unexpected argument '$1'" >&2 && exit 2; }
timeout 60 nvidia-smi -L >/dev/null 2>&1 || { echo "test-gpu: no NVIDIA GPU or driver on this machine" >&2 && exit 80; }
mkdir -p "$out" && results=$out/tests.txt && : >"$results"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$out/device.txt"
# cuBLASLt may be in the toolkit or in a wheel that PyTorch installed.
cublaslt=$(find /usr/local/cuda*/lib64 /usr/lib /usr/local/lib/python3* ~/.local/lib -name 'libcublasLt.so.[0-9]*' 2>/dev/null | sort -V | tail -1)
[ -z "$cublaslt" ] || export LD_LIBRARY_PATH="$(dirname "$cublaslt")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
passed=0 failed=0 skipped=0
work=$(mktemp -d)
finish() {
    echo "$passed passed, $failed failed, $skipped skipped" | tee -a "$results"
    timeout 60 python3 tests/cuda/device/report.py "$out"
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

check() { # NAME SECONDS COMMAND...: a line of the results, and on failure how the output ended
    local name=$1 most=$2 start=$SECONDS status
    shift 2
    [[ -z $only || $name =~ $only ]] || return 0
    [ $most -le $((seconds - SECONDS)) ] || most=$((seconds - SECONDS))
    [ $most -gt 0 ] || { skipped=$((skipped + 1)) && echo "skipped $name: no time left" | tee -a "$results" && return; }
    timeout -k 5 $most "$@" >"$out/log" 2>&1 </dev/null
    status=$?
    if [ $status = 0 ]; then
        passed=$((passed + 1)) && echo "passed $name ($((SECONDS - start)) s)" | tee -a "$results"
    else
        failed=$((failed + 1)) && echo "FAILED $name (exit $status, $((SECONDS - start)) s)" | tee -a "$results"
        tail -40 "$out/log"
        tail -5 "$out/log" | cut -c1-200 | sed 's/^/    /' >>"$results"
    fi
}

one=("$build/test-gpu" --data tests/data --bin "$build/bin")
for name in $(grep -ohE '^(TEST|OPERATION)\(\w+' tests/cuda/*.c tests/operations/test_operations.c |
    sed -e 's/OPERATION(/operation_/' -e 's/TEST(//' | grep -vE every_head_width); do
    check "$name" 100 "${one[@]}" "$name"
    check "$name, float16" 100 env TEST_DTYPE=float16 "${one[@]}" "$name"
done

# A run of the programs: the loss of the CPU, the same bits again, and after a stop in the middle.
seq 1 200000 | sed 's/$/ is a number that follows another number/' >"$work/text.txt"
check "tokenize" 60 "$build/bin/shardtool" tokenize --val 0.05 -o "$work/data" "$work/text.txt"
train() { # NAME OUT DEVICE STEPS [--key=value...]
    check "$1" 90 "$build/bin/trainer" train --dataset="$work/data" --out_dir="$work/$2" --device="$3" --max_iters="$4" \
        --n_layer=4 --n_head=4 --n_embd=256 --block_size=256 --batch_size=8 --gradient_accumulation_steps=2 \
        --eval_interval=10 --eval_iters=4 --warmup_iters=5 --lr_decay_iters=20 --learning_rate=1e-3 --sample_tokens=0 \
        "${@:5}"
}
newest() { find "$work/$1" -name "$2" | sort -V | tail -1; }
train "train 20 steps" a cuda 20
train "train them again" b cuda 20
check "the same bits again" 20 cmp "$(newest a model.safetensors)" "$(newest b model.safetensors)"
train "train 10 steps" c cuda 10
train "go on to 20" c cuda 20
check "the same bits after a stop" 20 cmp "$(newest a optimizer.safetensors)" "$(newest c optimizer.safetensors)"
train "train on the CPU" d cpu 20 --dtype=float32
check "the CPU's losses" 20 python3 tests/cuda/device/losses.py "$work/a/metrics.jsonl" "$work/d/metrics.jsonl"
train "train in float16" h cuda 20 --dtype=float16
check "the CPU's losses, float16" 20 python3 tests/cuda/device/losses.py "$work/h/metrics.jsonl" "$work/d/metrics.jsonl"
train "train with deterministic=False" e cuda 20 --deterministic=False --gelu=tanh
train "the same GELU on the CPU" f cpu 20 --dtype=float32 --gelu=tanh
check "the CPU's losses, by what was fastest" 20 python3 tests/cuda/device/losses.py "$work/e/metrics.jsonl" "$work/f/metrics.jsonl"

# The memory and the races that only a device has, at the tests' small shapes; not the thousand launches.
# LAZY: it instruments every module that is loaded, and cuBLASLt alone has more than a thousand.
if command -v compute-sanitizer >/dev/null; then
    export CUDA_MODULE_LOADING=LAZY
    for word in embedding layernorm gelu attention_of loss update matmul; do
        check "memcheck $word" 100 compute-sanitizer --tool memcheck --error-exitcode 1 "${one[@]}" "$word"
    done
    for word in loss attention_of_64 gelu_agrees; do
        check "racecheck $word" 100 compute-sanitizer --tool racecheck --error-exitcode 1 "${one[@]}" "$word"
    done
else
    echo "skipped compute-sanitizer: not installed" | tee -a "$results"
fi
[ $failed = 0 ]
