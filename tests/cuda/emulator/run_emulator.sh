#!/usr/bin/env bash
# The CUDA backend without a GPU: every kernel in the emulator against the CPU backend, planted bugs that must be
# caught, and what ptxas says of the registers. run_emulator.sh BUILD [WORD]; the last line is "N passed".
set -u
cd "$(dirname "$0")/../../.." || exit 2
build=$1 word=${2:-}
[ -x "$build/test-emu" ] || { echo "built without CUDA: 0 passed" && exit 0; }
export ASAN_OPTIONS=detect_leaks=0 # oneDNN keeps a little
log=$(mktemp -d) && trap 'rm -rf "$log"' EXIT

one() { # PROGRAM TEST VARIABLE=VALUE...: a test by its name, in one of the ways a card could answer
    local program=$1 name=$2 words="$log/$*"
    shift 2
    if env "$@" "$build/$program" --data tests/data --bin "$build/bin" "$name" >"$words" 2>&1; then echo "passed"; else
        echo "failed: $program $name $*" && tail -25 "$words"
    fi
}
mutant() {
    if tests/cuda/emulator/mutant.sh "$build" "$@" >"$log/mutant" 2>&1; then echo "passed"; else echo "failed: planted bug" "$@" && tail -8 "$log/mutant"; fi
}
export -f one mutant
export build log

names() { grep -ohE '^TEST\(\w+' "$@" | sed 's/TEST(//'; }
{
    names tests/cuda/*.c tests/cuda/emulator/*.c | sed 's/^/one test-emu /'
    names tests/cuda/*.c | grep -v by_what_was_fastest | sed 's/.*/one test-emu & TEST_DTYPE=float16/'
    names tests/cuda/*.c | grep attention_of | sed 's/.*/one test-emu-75 & EMU_CAPABILITY=75 EMU_BLOCKS=1/'
    # the other two forms of attention backward: two and three blocks a multiprocessor
    echo "one test-emu attention_of_64 EMU_BLOCKS=1 EMU_MULTIPROCESSORS=0"
    echo "one test-emu attention_of_64 EMU_BLOCKS=3 EMU_MULTIPROCESSORS=0"
    tests/cuda/emulator/mutant.sh --list | sed 's/^/mutant /'
} | grep -E "$word" | xargs -P 2 -d '\n' -n 1 bash -c 'eval "$0"' >"$log/all"
tests/cuda/emulator/registers.py "$build/kernels/cuda" >>"$log/all" && echo passed >>"$log/all" || echo "failed: registers" >>"$log/all"
grep -v '^passed' "$log/all"
echo "$(grep -c '^passed' "$log/all") passed"
! grep -q '^failed' "$log/all"
