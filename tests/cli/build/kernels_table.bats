#!/usr/bin/env bats
# What the compiler refuses about kernels/ops.def: swapped tensor arguments, and a row without its operation; and the team of threads
# in a program that is optimized when it is linked. Needs a C compiler.
# bats file_tags=ci

load ../helpers

setup() {
    cd "$ROOT" && export FILE="$BATS_TEST_TMPDIR/call.c"
    unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES SAN CUDA CFLAGS # of make check, which may run these
}

compile() { ${CC:-cc} -std=c11 -D_GNU_SOURCE -Werror=incompatible-pointer-types -fsyntax-only -I. "$FILE"; }

@test "tensor arguments in the right order compile, swapped ones do not" {
    call() { # ARGUMENTS of embed_forward
        cat >"$FILE" <<END
#include "kernels/backend.h"
void call(const Backend *ops, Res *res, Act *act, Par *par, Grad *grad, Moment *moment, const void *rows, void *any);
void call(const Backend *ops, Res *res, Act *act, Par *par, Grad *grad, Moment *moment, const void *rows, void *any) {
    (void)act, (void)grad, (void)moment, (void)any, (void)res, (void)par, (void)rows;
    ops->$1;
}
END
    }
    for right in "embed_forward(res, rows, NULL, par, par, 1, 1, 8, 16)" "embed_forward(any, any, any, any, any, 1, 1, 8, 16)" \
        "gelu_backward(act, grad, act, 1, 8, true, false)"; do
        call "$right"
        compile
    done
    for wrong in "embed_forward(act, rows, NULL, par, par, 1, 1, 8, 16)" "embed_forward(res, rows, NULL, res, par, 1, 1, 8, 16)" \
        "embed_forward(par, rows, NULL, res, par, 1, 1, 8, 16)" "gelu_backward(grad, act, act, 1, 8, true, false)" \
        "gelu_backward(act, par, act, 1, 8, true, false)" "adamw(moment, grad, 0, 0)" "adamw(moment, moment, &(Update){.params = grad}, 0)"; do
        call "$wrong"
        run compile
        [ "$status" -ne 0 ]
        [[ "$output" == *"incompatible"* ]]
    done
}

@test "a new row of ops.def needs its operation, and nothing else in the backend" {
    mkdir "$BATS_TEST_TMPDIR/kernels"
    { cat kernels/ops.def && echo 'OP(rms_norm, no, (Act * out, const Act *in, int N, int C))'; } >"$BATS_TEST_TMPDIR/kernels/ops.def"
    variant() { ${CC:-cc} -std=c11 -D_GNU_SOURCE -fopenmp -fsyntax-only -I"$BATS_TEST_TMPDIR" -I. -DACT_FP32 -DCPU_VARIANT=cpu_fp32_portable "$@" kernels/cpu/ops/variant.c; }
    run variant
    [ "$status" -ne 0 ]
    [[ "$output" == *"cpu_rms_norm"* ]]
    echo '#include "kernels/backend.h"
static void cpu_rms_norm(Act *out, const Act *in, int N, int C) { (void)out, (void)in, (void)N, (void)C; }' >"$BATS_TEST_TMPDIR/rms_norm.h"
    variant -include "$BATS_TEST_TMPDIR/rms_norm.h"
}

@test "a new row of dtypes.def is a type that tensors are stored in, with its two conversions alone" {
    mkdir "$BATS_TEST_TMPDIR/kernels"
    sed 's/^ *ROW(FP16,.*/& \\\n    ROW(FP8, fp8, uint8_t, "float8", "F8_E5M2", NARROW, NONE, 0, CUDA_R_8F_E5M2, __VA_ARGS__)/' kernels/dtypes.def >"$BATS_TEST_TMPDIR/kernels/dtypes.def"
    echo '#include "kernels/half.h"
static inline float fp8_value(uint8_t bits) { return fp16_value((uint16_t)(bits << 8)); }
static inline uint8_t fp8_of(float value) { return (uint8_t)(fp16_of(value) >> 8); }' >"$BATS_TEST_TMPDIR/fp8.h"
    echo '#include "kernels/dtype.h"
#include <stdio.h>
int main(void) {
    const float values[] = {1.5f, -0.25f};
    float read[2];
    unsigned char stored[2];
    Dtype type;
    dtype_write(stored, DTYPE_FP8, values, 2), dtype_read(read, DTYPE_FP8, stored, 2);
    printf("%d %s %g %g %zu\n", dtype_parse_file_name("F8_E5M2", &type) && type == DTYPE_FP8, dtype_name(DTYPE_FP8), (double)read[0], (double)read[1], dtype_bytes(DTYPE_FP8));
}' >"$FILE"
    typed() { ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fopenmp -I"$BATS_TEST_TMPDIR" -I. -include "$BATS_TEST_TMPDIR/fp8.h" "$@"; }
    typed -o "$BATS_TEST_TMPDIR/types" "$FILE" kernels/dtype.c
    run "$BATS_TEST_TMPDIR/types"
    [ "$output" = "1 float8 1.5 -0.25 1" ]
    typed -fsyntax-only kernels/cpu/*.c kernels/cpu/ops/variant.c trainer/checkpoint/*.c trainer/config/*.c trainer/export/*.c trainer/model/*.c trainer/cmd_export_model.c \
        -DACT_FP32 -DCPU_VARIANT=cpu_fp32_portable
    [ "$(make -n CUDA=0 BUILD="$BATS_TEST_TMPDIR/build" 2>/dev/null | grep -c fp8)" = 0 ]
}

@test "a new row of dtypes.def with kernels is compiled for CUDA, with its conversions and its loads and stores alone" {
    [ -e "$(realpath "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")" ] || skip "no nvcc"
    tar -c --exclude=./build --exclude=./.git . | tar -x -C "$BATS_TEST_TMPDIR" && cd "$BATS_TEST_TMPDIR"
    sed -i 's/^ *ROW(FP16,.*/& \\\n    ROW(FP9, fp9, uint16_t, "float9", "F9", NARROW, ON_BOTH, 75, CUDA_R_16F, __VA_ARGS__)/' kernels/dtypes.def
    printf '#define fp9_value fp16_value\n#define fp9_of fp16_of\n' >>kernels/half.h
    sed -i 's/^#elif defined ACT_FP16$/& || defined ACT_FP9/; s/^#ifdef ACT_FP16$/#if defined ACT_FP16 || defined ACT_FP9/' kernels/cuda/ptx.cuh
    objects=$(make -n CUDA=1 BUILD=build build/release/test-emu | grep -oE 'build/release/emu/kernels/cuda/[a-z0-9_/]*\.cu\.fp9\.o' | sort -u)
    [ "$(wc -w <<<"$objects")" = "$(ls kernels/cuda/*.cu kernels/cuda/*/*.cu | wc -l)" ]
    make -n CUDA=1 BUILD=build build/release/bin/trainer | grep -q -- '-DACT=fp9 -DACT_FP9 .* -o build/release/kernels/cuda/heads.fp9.cu.o'
    # shellcheck disable=SC2086  # names
    make -s CUDA=1 BUILD=build EMUFLAGS=-fsyntax-only WERROR=-Werror $objects build/release/emu/kernels/cuda/device.c.o \
        build/release/emu/kernels/cuda/matmul_cublaslt.c.o build/release/emu/tests/operations/pair.c.o
}

@test "a loop of the team runs in pieces where the linker optimizes the program" {
    ! is_sanitized || skip "the libraries of this build need its sanitizers"
    cat >"$FILE" <<END
#include "kernels/cpu/team.h"
#include "common/err.h"
#include <stdio.h>
// Each number becomes the size of its piece.
TEAM_LOOP(set_sizes, int, (int *, sizes)) {
    for (int i = first; i < end; i++) sizes[i] += end - first;
}
int main(void) {
    int sizes[48] = {0};
    if (team_set_threads(2) < 0) return puts(err_text()), 1;
    set_sizes(48, 1, sizes);
    for (int i = 0; i < 48; i++) printf("%d", sizes[i]);
    return 0;
}
END
    options=(-fno-lto -flto)
    [[ $(${CC:-cc} --version) == *clang* ]] || options+=("-flto -flto-partition=max")
    for lto in "${options[@]}"; do
        # shellcheck disable=SC2086 # words
        ${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 $lto -I. -o "$BATS_TEST_TMPDIR/program" "$FILE" kernels/cpu/team.c kernels/cpu/places.c \
            "$BIN/../core.a" -lpthread
        [ "$("$BATS_TEST_TMPDIR/program")" = "$(printf '3%.0s' {1..48})" ] # 8 pieces for each thread
    done
}

@test "the programs that are optimized when they are linked train the same bits" {
    ! is_sanitized || skip "the release build is compared"
    [[ $(${CC:-cc} --version) != *clang* ]] || skip "needs gcc"
    LTO=$BATS_TEST_TMPDIR/lto
    make -s -j"$(nproc)" CUDA=0 MPICC= MPICC_ABI= AR=gcc-ar CFLAGS="-O3 -flto=auto" LDFLAGS=-O3 BUILD="$LTO" all
    cd "$BATS_TEST_TMPDIR"
    make_data 600 0.1 --vocabulary ascii
    write_tiny_conf tiny.conf
    for build in "$LTO/release-cpu/bin" "$BIN"; do
        "$build/trainer" train tiny.conf --dataset=data --vocabulary=data/characters.txt --quiet --out_dir="run$((++runs))"
    done
    cmp run1/ckpt-00000024/model.safetensors run2/ckpt-00000024/model.safetensors
}
