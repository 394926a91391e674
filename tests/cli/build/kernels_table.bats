#!/usr/bin/env bats
# What the compiler refuses about kernels/ops.def: swapped tensor arguments, and a row without its operation. Needs a C
# compiler.

load ../helpers

setup() { cd "$ROOT" && export FILE="$BATS_TEST_TMPDIR/call.c"; }

compile() { ${CC:-cc} -std=c11 -D_GNU_SOURCE -Werror=incompatible-pointer-types -fsyntax-only -I. "$FILE"; }

@test "tensor arguments in the right order compile, swapped ones do not" {
    call() { # ARGUMENTS of embed_forward
        cat >"$FILE" <<END
#include "kernels/backend.h"
void call(const Backend *ops, Res *res, Act *act, Par *par, Grad *grad, Moment *moment, const uint16_t *rows, void *any);
void call(const Backend *ops, Res *res, Act *act, Par *par, Grad *grad, Moment *moment, const uint16_t *rows, void *any) {
    (void)act, (void)grad, (void)moment, (void)any, (void)res, (void)par, (void)rows;
    ops->$1;
}
END
    }
    for right in "embed_forward(res, rows, par, par, 1, 1, 8)" "embed_forward(any, any, any, any, 1, 1, 8)" \
        "gelu_backward(act, grad, act, 1, 8, true, false)"; do
        call "$right"
        compile
    done
    for wrong in "embed_forward(act, rows, par, par, 1, 1, 8)" "embed_forward(res, rows, res, par, 1, 1, 8)" \
        "embed_forward(par, rows, res, par, 1, 1, 8)" "gelu_backward(grad, act, act, 1, 8, true, false)" \
        "gelu_backward(act, par, act, 1, 8, true, false)" "adamw(par, 0, grad, moment, grad, 0, 8, 8, 0, 0, 0, 0)"; do
        call "$wrong"
        run compile
        [ "$status" -ne 0 ]
        [[ "$output" == *"incompatible"* ]]
    done
}

@test "a new row of ops.def needs its operation, and nothing else in the backend" {
    mkdir "$BATS_TEST_TMPDIR/kernels"
    { cat kernels/ops.def && echo 'OP(rms_norm, no, (Act * out, const Act *in, int N, int C))'; } >"$BATS_TEST_TMPDIR/kernels/ops.def"
    variant() { ${CC:-cc} -std=c11 -D_GNU_SOURCE -fopenmp -fsyntax-only -I"$BATS_TEST_TMPDIR" -I. -DACT_FP32 -DCPU_VARIANT=cpu_fp32_portable "$@" kernels/cpu/variant.c; }
    run variant
    [ "$status" -ne 0 ]
    [[ "$output" == *"cpu_rms_norm"* ]]
    echo '#include "kernels/backend.h"
static void cpu_rms_norm(Act *out, const Act *in, int N, int C) { (void)out, (void)in, (void)N, (void)C; }' >"$BATS_TEST_TMPDIR/rms_norm.h"
    variant -include "$BATS_TEST_TMPDIR/rms_norm.h"
}
