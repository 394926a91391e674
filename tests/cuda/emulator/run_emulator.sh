#!/usr/bin/env bash
# The CUDA backend without a GPU: every kernel in the emulator against the reference, what ptxas reports of the registers,
# the PTX of kernels that are bound by their code, and planted bugs that must be caught.
# run_emulator.sh BUILD --list: one job a line, but for the bugs (--list-bugs); run_emulator.sh BUILD JOB...: runs it, 0 when it passes.
set -u
cd "$(dirname "$0")/../../.." || exit 2
build=$1
shift

# OPERATION(x) is the test operation_x (tests/operations/pair.h). CUDA has kernels for head widths of multiples of 8.
names() {
    grep -ohE '^(TEST|OPERATION)\(\w+' "$@" | sed -e 's/OPERATION(/operation_/' -e 's/TEST(//' | grep -vE every_head_width
}
# Models with options and in other ways: each of their operations has a test, and one model stays.
of_ci='cuda_(trains_a_gpt_(with|by)|replays|steps_repeat|chooses_products|streams|keeps_the_choice_of|times_again|attention_gradient|allocates)'
on_cuda="tests/cuda/*.c tests/operations/test_operations.c"
# PROGRAM TEST VARIABLE=VALUE...: a test in one of the ways a card could answer. The tests of a change are those of a card of
# compute capability 8.0 in bf16; CI runs the other types and cards, and compares registers and PTX.
list() {
    [ "${TIER:-all}" = ci ] || names $on_cuda tests/cuda/emulator/*.c | grep -vE "$of_ci" | sed 's/^/test-emu /'
    [ "${TIER:-all}" != test ] || return 0
    names $on_cuda tests/cuda/emulator/*.c | grep -E "$of_ci" | sed 's/^/test-emu /'
    names $on_cuda | grep -v by_what_was_fastest | sed 's/.*/test-emu & TEST_DTYPE=float16 PAIR_ORDERS=2/'
    names $on_cuda | grep -v by_what_was_fastest | sed 's/.*/test-emu & TEST_DTYPE=float32 PAIR_ORDERS=2/'
    names $on_cuda | grep attention | sed 's/.*/test-emu & EMU_CAPABILITY=90/'
    for type in bfloat16 float16; do
        echo "test-emu cuda_matmul_gelu_by_wgmma_agrees_with_the_reference EMU_CAPABILITY=90 EMU_MULTIPROCESSORS=1 TEST_DTYPE=$type"
    done
    names $on_cuda | grep attention_of_64 | sed 's/.*/test-emu & EMU_CAPABILITY=120/'
    names $on_cuda | grep -E 'attention_(of|with)' | sed 's/.*/test-emu-75 & EMU_CAPABILITY=75 EMU_BLOCKS=1/'
    echo registers
    echo ptx
}

case $1 in
--list) list ;;
--list-bugs) tests/cuda/emulator/mutant.sh --list | sed 's/^/bug /' ;;
ptx) tests/cuda/emulator/ptx.py "$CUDA_HOME/bin/nvcc" ;;
registers) tests/cuda/emulator/registers.py "$build/kernels/cuda" ;;
bug) tests/cuda/emulator/mutant.sh "$build" "$2" ;;
*)
    env "${@:3}" "$build/$1" --data tests/data --bin "${BIN:-$build/bin}" "$2" | awk '{ print } /^\[==*\] Running 0 test/ { exit 1 }' && [ "${PIPESTATUS[0]}" = 0 ]
    ;;
esac
