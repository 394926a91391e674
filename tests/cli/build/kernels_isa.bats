#!/usr/bin/env bats
# The CPU backend's other instruction sets: the kernel tests again, under MILLRACE_ISA. A program of its own each,
# because oneDNN takes such a limit only once.
# bats file_tags=ci

load ../helpers

setup() { cd "$BATS_TEST_TMPDIR"; }

kernels() {
    for word in kernels_ operation_; do TIER=all "$BIN/../test" --data "$DATA" --bin "$BIN" "$word" || return; done
}

@test "kernels agree with the reference and keep their bits on AVX2" {
    needs_cpu avx2 bmi2 fma
    MILLRACE_ISA=avx2 run kernels
    [ "$status" -eq 0 ]
    [[ "$output" == *"does not multiply bfloat16"* ]]
}

@test "kernels agree with the reference and keep their bits without vector instructions of their own" {
    MILLRACE_ISA=portable run kernels
    [ "$status" -eq 0 ]
}
