#!/usr/bin/env bats
# What the compiler refuses about kernels/ops.def: swapped tensor arguments. Needs the C compiler that built the tests.

setup() { cd "$BATS_TEST_DIRNAME/../.." && export FILE="$BATS_TEST_TMPDIR/call.c"; }

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
        call "$right" && compile
    done
    for wrong in "embed_forward(act, rows, par, par, 1, 1, 8)" "embed_forward(res, rows, res, par, 1, 1, 8)" \
        "embed_forward(par, rows, res, par, 1, 1, 8)" "gelu_backward(grad, act, act, 1, 8, true, false)" \
        "gelu_backward(act, par, act, 1, 8, true, false)" "adamw(par, 0, grad, moment, grad, 0, 8, 8, 0, 0, 0)"; do
        call "$wrong"
        run compile
        [ "$status" -ne 0 ]
        [[ "$output" == *"incompatible"* ]]
    done
}
