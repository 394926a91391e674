#!/usr/bin/env bash
# Tests the CUDA backend on a device: run_device.sh BUILD [--out DIR] [--only WORDS] [--seconds N] [--dry-run].
#
# BUILD is the folder with bin/ and test-gpu, in a checkout or in a pack of make gpu-pack: nothing is built or installed
# here. DIR (build/gpu) receives tests.txt, logs/ and gpu-results.md, even when a test fails; rows of an earlier
# run of this commit on the same device stay where this one has none. WORDS is a regular expression: only tests with a matching name
# run. A test that finds none of the N seconds (450) left is skipped; one that exceeds its own limit fails. 0: all that were asked for passed. --dry-run needs no GPU: the programs train on the
# CPU, tiny, in place of the GPU, so that a mistake of this script is found before there is one.
set -u
from=$PWD
cd "$(dirname "$0")/../../.." || exit 2
usage() { echo "run_device.sh: $1" >&2 && exit 2; }
[ $# -gt 0 ] && [ -d "$1" ] || usage "needs the folder of the built programs"
build=$1 out=$PWD/build/gpu only='' seconds=450 gpu=cuda
shift
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) gpu=cpu && shift && continue ;;
    --out | --only | --seconds) [ $# -gt 1 ] || usage "$1 needs a value" ;;
    *) usage "unexpected argument '$1'" ;;
    esac
    case $1 in
    --out) out=$(cd "$from" && realpath -m "$2") ;;
    --only) only=$2 ;;
    --seconds) seconds=$2 ;;
    esac
    shift 2
done
[[ $seconds =~ ^[0-9]+$ ]] || usage "--seconds '$seconds' is not a number"
[[ '' =~ $only ]] 2>/dev/null
[ $? != 2 ] || usage "--only '$only' is not a regular expression"
if [ $gpu = cuda ]; then
    timeout 60 nvidia-smi -L >/dev/null 2>&1 || { echo "test-gpu: no NVIDIA GPU or driver on this machine" >&2 && exit 80; }
fi
. tests/cuda/device/environment.sh
work=$(mktemp -d) || exit 73
mkdir -p "$out/logs" && results=$work/tests.txt && : >"$results" && touch "$out/tests.txt" || exit 73
device="the CPU, in a dry run"
[ $gpu = cpu ] || device=$(timeout 60 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader) || device="a GPU that nvidia-smi does not describe"
timeout 60 python3 tests/cuda/device/report.py "$out" --begin tests.txt "$device" || exit 73
passed=0 failed=0 skipped=0 status=0 running='' child=''
finish() {
    awk '/^[a-zA-Z]+ / { name = $0; sub(/^[^ ]+ /, "", name); sub(/( \(|: ).*/, "", name) }
        part == 1 { new[name]; next }
        part == 3 || !(name in new)' part=1 "$results" part=2 "$out/tests.txt" part=3 "$results" >"$work/all.txt" && cp "$work/all.txt" "$out/tests.txt"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $gpu = cpu ] || timeout 60 python3 tests/cuda/device/report.py "$out"
    rm -rf "$work"
}
interrupted() {
    [ -z "$child" ] || kill -TERM -- "-$child" 2>/dev/null # timeout is the leader of its group
    failed=$((failed + 1)) && echo "FAILED $running: interrupted" | tee -a "$results"
    exit 130
}
trap finish EXIT
trap interrupted INT TERM

skip() { skipped=$((skipped + 1)) && echo "skipped $1: $2" | tee -a "$results"; } # NAME REASON
check() { # NAME SECONDS COMMAND...: a line of the results, and on failure how the output ended
    local name=$1 most=$2 start=$SECONDS log
    shift 2
    [[ -z $only || $name =~ $only ]] || return 0
    [ $most -le $((seconds - SECONDS)) ] || most=$((seconds - SECONDS))
    [ $most -gt 0 ] || { skip "$name" "no time left" && return; }
    running=$name log=$out/logs/${name//[^a-zA-Z0-9_]/-}.txt
    timeout -k 5 $most "$@" >"$log" 2>&1 </dev/null &
    child=$!
    wait $child
    status=$?
    running='' child=''
    if [ $status = 0 ]; then
        passed=$((passed + 1)) && echo "passed $name ($((SECONDS - start)) s)" | tee -a "$results"
    else
        failed=$((failed + 1)) && echo "FAILED $name (exit $status, $((SECONDS - start)) s)" | tee -a "$results"
        tail -40 "$log"
        tail -5 "$log" | cut -c1-200 | sed 's/^/    /' >>"$results"
    fi
}

# Runs of the programs: the losses of the CPU, the same bits again, and after a stop in the middle. All of them or none.
train() { # NAME OUT DEVICE STEPS [--key=value...]
    check "train $1" 90 "$build/bin/trainer" train --dataset="$work/data" --out_dir="$work/$2" --device="$3" --max_iters="$4" \
        --n_layer=4 --n_head=4 --n_embd=$embd --block_size=$block --batch_size=$batch --gradient_accumulation_steps=2 \
        --eval_interval=10 --eval_iters=4 --warmup_iters=5 --lr_decay_iters=20 --learning_rate=1e-3 --sample_tokens=0 \
        "${@:5}"
}
compare() { # NAME OUT OUT FILE COMMAND...: the newest FILE of two runs
    local one two name=$1 a=$2 b=$3 file=$4
    shift 4
    one=$(find "$work/$a" -name "$file" 2>/dev/null | sort -V | tail -1)
    two=$(find "$work/$b" -name "$file" 2>/dev/null | sort -V | tail -1)
    if [ -n "$one" ] && [ -n "$two" ]; then check "$name" 20 "$@" "$one" "$two"; else skip "$name" "its runs left no $file"; fi
}
train_and_compare() {
    local only='' embd=256 block=256 batch=8 losses=(python3 tests/cuda/device/losses.py)
    [ $gpu = cuda ] || embd=32 block=32 batch=1
    seq 1 200000 | sed 's/$/ is a number that follows another number/' >"$work/text.txt"
    check "tokenize" 60 "$build/bin/shardtool" tokenize --docs lines --val 0.05 -o "$work/data" "$work/text.txt"
    train "20 steps" a $gpu 20
    train "them again" b $gpu 20
    compare "the same bits again" a b model.safetensors cmp
    train "10 steps" c $gpu 10
    train "on to 20" c $gpu 20
    compare "the same bits after a stop" a c optimizer.safetensors cmp
    train "on the CPU" d cpu 20 --dtype=float32
    compare "the CPU's losses" a d metrics.jsonl "${losses[@]}"
    train "in float16" h $gpu 20 --dtype=float16
    compare "the CPU's losses, float16" h d metrics.jsonl "${losses[@]}"
    train "with deterministic=False" e $gpu 20 --deterministic=False --mlp=gelu:tanh
    train "with the same GELU on the CPU" f cpu 20 --dtype=float32 --mlp=gelu:tanh
    compare "the CPU's losses, with the fastest products" e f metrics.jsonl "${losses[@]}"
}
[[ -n $only && ! train =~ $only ]] || train_and_compare

one=("$build/test-gpu" --data tests/data --bin "$build/bin")
for name in $([ $gpu = cpu ] || grep -ohE '^(TEST|OPERATION)\(\w+' tests/cuda/*.c tests/operations/test_operations.c |
    sed -e 's/OPERATION(/operation_/' -e 's/TEST(//' | grep -vE every_head_width); do
    check "$name" 60 "${one[@]}" "$name"
    for dtype in float16 float32; do
        [ $status = 124 ] || check "$name, $dtype" 60 env TEST_DTYPE=$dtype "${one[@]}" "$name"
    done
done

[ $gpu = cpu ] || check "a GPU that hangs ends the program" 30 sh -c '"$0" hang timeout=3; [ $? = 80 ]' "$build/bench_gpu"

# The memory and the races that only a device has, at the tests' small shapes; not the thousand launches.
# LAZY: it instruments every module that is loaded, and cuBLASLt alone has more than a thousand.
if [ $gpu = cpu ]; then
    :
elif command -v compute-sanitizer >/dev/null; then
    export CUDA_MODULE_LOADING=LAZY
    for word in embedding layernorm gelu attention_of by_tma loss update matmul; do
        check "memcheck $word" 100 compute-sanitizer --tool memcheck --error-exitcode 1 "${one[@]}" "$word"
    done
    # Not attention by TMA: it reports races between writes that mbarriers order through a third thread.
    for word in loss attention_of_fewer attention_of_more gelu_agrees; do
        check "racecheck $word" 100 compute-sanitizer --tool racecheck --error-exitcode 1 "${one[@]}" "$word"
    done
else
    echo "without compute-sanitizer: not installed" | tee -a "$results"
fi
[ $passed -gt 0 ] && [ $failed = 0 ] && [ $skipped = 0 ]
