#!/usr/bin/env bash
# The CUDA backend without a GPU: every kernel in the emulator against the CPU backend, planted bugs that must be
# caught, and what ptxas says of the registers. run.sh BUILD [WORD]; the last line is "N passed".
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1 word=${2:-}
[ -x "$build/test-emu" ] || { echo "built without CUDA: 0 passed" && exit 0; }
export ASAN_OPTIONS=detect_leaks=0 # oneDNN keeps a little
log=$(mktemp -d) && trap 'rm -rf "$log"' EXIT

one() { # a test by its name, in one of the ways a card could answer
    local name=$1 blocks=$2 multiprocessors=$3
    if EMU_BLOCKS=$blocks EMU_MULTIPROCESSORS=$multiprocessors "$build/test-emu" --data tests/data --bin "$build/bin" \
        "$name" >"$log/$name.$blocks.$multiprocessors" 2>&1; then echo "passed"; else
        echo "failed: $name (EMU_BLOCKS=$blocks EMU_MULTIPROCESSORS=$multiprocessors)"
        tail -25 "$log/$name.$blocks.$multiprocessors"
    fi
}
mutant() {
    if tests/emu/mutant.sh "$build" "$@" >"$log/mutant" 2>&1; then echo "passed"; else echo "failed: planted bug" "$@" && tail -8 "$log/mutant"; fi
}
export -f one mutant
export build log

{
    grep -ohE '^TEST\(\w+' tests/gpu/*.c tests/emu/*.c | grep -E "$word" | sed 's/TEST(\(.*\)/one \1 2 4/'
    # the other two forms of attention backward: two and three blocks a multiprocessor
    echo "one attention_of_64 1 0"
    echo "one attention_of_64 3 0"
    tests/emu/mutant.sh --list | sed 's/^/mutant /'
} | grep -E "$word" | xargs -P 2 -d '\n' -n 1 bash -c 'eval "$0"' >"$log/all"
tests/emu/registers.py "$build/kernels/cuda" >>"$log/all" && echo passed >>"$log/all" || echo "failed: registers" >>"$log/all"
grep -v '^passed' "$log/all"
echo "$(grep -c '^passed' "$log/all") passed"
! grep -q '^failed' "$log/all"
