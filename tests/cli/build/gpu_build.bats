#!/usr/bin/env bats
# How make chooses between the CPU and the CUDA build, and the pack for a machine with a GPU.
# bats file_tags=ci

load ../helpers

setup() { cd "$ROOT" && unset MAKELEVEL MAKEFLAGS CUDA SAN CFLAGS; }

toolkit() { # RELEASE: an nvcc that only prints its version
    printf '#!/bin/sh\ncase $1 in --version) echo "Cuda compilation tools, release %s, V%s.119";; --list-gpu-arch) printf "compute_80\\ncompute_90\\n";; esac\n' \
        "$1" "$1" >"$BATS_TEST_TMPDIR/nvcc" && chmod +x "$BATS_TEST_TMPDIR/nvcc"
}

# fault 61
@test "nvcc before 11.8 gives the CPU build, with one line that names the version" {
    for release in 11.5 9.2; do
        toolkit $release
        run_code 0 make -n NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" help
        [ "${lines[0]}" = "nvcc $release is older than 11.8: building without CUDA" ]
        run make -pn NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" help
        [[ "$output" == *"-DHAVE_CUDA=0"* || "$output" == *"/release-cpu"* ]]
    done
}

@test "nvcc from 11.8 on gives the CUDA build, for the architectures that it supports" {
    for release in 11.8 12.4 13.0; do
        toolkit $release
        run make -n NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" help
        [[ "$output" != *"older than"* ]]
        run make -pn NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" help
        grep -q '^NVARCH := 80 90$' <<<"$output"
        kernel="$BATS_TEST_TMPDIR/build/release/kernels/cuda/gelu.bf16.cu.o" hopper=sm_90a
        [ $release != 11.8 ] || hopper=sm_90 # compute_90a came with 12.0
        run make -n NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" "$kernel"
        [[ "$output" == *"code=$hopper "* ]]
    done
}

@test "another NVARCH compiles the kernels and the version again, and the same one nothing" {
    toolkit 13.0
    build=$BATS_TEST_TMPDIR/build/release
    built() { make NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" NVARCH="$1" "${@:2}"; }
    kernel=$build/kernels/cuda/gelu.bf16.cu.o
    mkdir -p "$build/kernels/cuda"
    built 86 -t -o "$build/deps.ok" "$kernel"
    [[ "$(built 86 -n "$kernel")" != *code=sm_* ]]
    [[ "$(built 75 -n "$kernel")" == *code=sm_80* ]] # bf16 has no code for 7.5
    [[ "$(built '86 90' -n "$kernel")" == *code=sm_86*code=sm_90a* ]]
    [[ "$(built '86 90' -n "$build/common/cli/version.o")" == *'for compute capability 8.6 9.0'* ]]
}

nvcc_of() { "$@" make -pn CUDA=0 help | sed -n 's/^NVCC := //p' | xargs; } # COMMAND...

@test "nvcc is that of CUDA_HOME before the one in PATH, and ccache in PATH under its name starts it" {
    unset NVCC
    mkdir -p "$BATS_TEST_TMPDIR"/{home/bin,path,cache}
    toolkit 12.4 && cp "$BATS_TEST_TMPDIR/nvcc" "$BATS_TEST_TMPDIR/home/bin"
    toolkit 13.0 && cp "$BATS_TEST_TMPDIR/nvcc" "$BATS_TEST_TMPDIR/path"
    cp "$BATS_TEST_TMPDIR/nvcc" "$BATS_TEST_TMPDIR/cache/ccache" && ln -s ccache "$BATS_TEST_TMPDIR/cache/nvcc"
    cd "$ROOT"
    home=$BATS_TEST_TMPDIR/home path=$BATS_TEST_TMPDIR/path cache=$BATS_TEST_TMPDIR/cache
    [ "$(nvcc_of env CUDA_HOME="$home" PATH="$path:$PATH")" = "$home/bin/nvcc" ]
    [ "$(nvcc_of env CUDA_HOME="$home" PATH="$cache:$path:$PATH")" = "$cache/ccache $home/bin/nvcc" ]
    [ "$(nvcc_of env CUDA_HOME="$path" PATH="$path:$PATH")" = "$path/nvcc" ] # a folder without bin/nvcc
    [ "$(nvcc_of env -u CUDA_HOME PATH="$path:$PATH")" = "$path/nvcc" ]
    [ "$(nvcc_of env CUDA_HOME="$home" NVCC=other PATH="$path:$PATH")" = other ]
}

@test "the runtime of CUDA is that of nvcc's toolkit, wherever that has its libraries, or make stops before it compiles" {
    home="$BATS_TEST_TMPDIR/home" build="$BATS_TEST_TMPDIR/build"
    mkdir -p "$home/bin" "$home/include"
    toolkit 13.5 && cp "$BATS_TEST_TMPDIR/nvcc" "$home/bin"
    built() { env -u NVCC make CUDA_HOME="$home" BUILD="$build" "$@"; }
    run_match 2 "missing: the toolkit '$home' of nvcc 13.5 has no cuda_runtime_api.h" built "$build/release/deps.ok"
    echo '#define CUDART_VERSION 13050' >"$home/include/cuda_runtime_api.h"
    run_match 2 "missing: the toolkit '$home' of nvcc 13.5 has no libcudart_static.a" built "$build/release/kernels/cuda/gelu.bf16.cu.o"
    [[ "$output" != *NVCC* ]]
    for folder in targets/x86_64-linux/lib lib lib64; do # each goes before those that were made earlier
        mkdir -p "$home/$folder" && touch "$home/$folder/libcudart_static.a"
        rm -rf "$build"
        run_code 0 built "$build/release/deps.ok"
        steps=$(built -n "$build/release/bin/trainer")
        # the others are those of a build without CUDA
        [ "$(grep -oE "^[a-z]*cc .* -o $build/release/[a-z0-9_/]*\.o" <<<"$steps" | sed 's|.*/release/||' | grep -v kernels/cuda | sort | xargs)" = "common/cli/version.o kernels/backend.o trainer/main.o" ]
        grep -- "-o $build/release/bin/trainer$" <<<"$steps" | grep -q " $home/$folder/libcudart_static.a "
    done
    echo '#define CUDART_VERSION 13000' >"$home/include/cuda_runtime_api.h"
    rm -rf "$build"
    run_match 2 "toolkit: nvcc is of CUDA 13.5, and '$home/include' of 13.0" built "$build/release/deps.ok"
}

@test "kernels have line tables in a build with -g and in the pack, and not in a program that make dist builds" {
    toolkit 13.0
    compiled() { make -n NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" "$@" | grep -- '-o .*/gelu.bf16.cu.o'; }
    kernel=$BATS_TEST_TMPDIR/build/release/kernels/cuda/gelu.bf16.cu.o
    [[ "$(compiled "$kernel")" == *" -lineinfo "* ]]
    [[ "$(compiled "$kernel" CFLAGS=-O3)" != *" -lineinfo "* ]]
    [[ "$(compiled -B gpu-pack NVARCH=90)" == *" -lineinfo "* ]] # also where the pack is up to date
    grep -q '^## dist ' Makefile && sed -n '/^dist:/,/^$/p' Makefile | grep -q ' CFLAGS=-O3 '
}

# The pack is made of the programs as they are built here, so LD_LIBRARY_PATH stands for the run path of make gpu-pack.
@test "the programs of a pack start where there is nothing but libc, and its scripts report a missing GPU" {
    build="$BIN/.." pack="$BATS_TEST_TMPDIR/gpu-pack"
    [ -x "$build/test-gpu" ] && [ -x "$build/bench_gpu" ] || skip "built without CUDA"
    [ "$(id -u)" = 0 ] || skip "chroot needs root"
    ! command -v nvidia-smi || skip "this machine has an NVIDIA driver"
    scripts/gpu_pack.sh "$build" "$pack.tar"
    LD_LIBRARY_PATH=/gpu-pack/lib tests/cuda/device/check_pack.sh "$pack.tar"
    tar -C "$BATS_TEST_TMPDIR" -xf "$pack.tar"
    for script in run.sh bench.sh; do
        run_code 80 "$pack/$script" --out "$BATS_TEST_TMPDIR/out"
        [[ "$output" == *": no NVIDIA GPU or driver on this machine" ]]
    done
    cd "$pack" && report() { python3 tests/cuda/device/report.py "$BATS_TEST_TMPDIR/out" "$@"; }
    mkdir -p "$BATS_TEST_TMPDIR/out" && report --begin bench.jsonl "NVIDIA H200"
    echo '{"what": "step", "model": "124M", "B": 64, "ms": 1}' >"$BATS_TEST_TMPDIR/out/bench.jsonl" && report
    grep -q 'MFU is of 989 TFLOP/s' "$BATS_TEST_TMPDIR/out/gpu-results.md"
    for wrong in "--only loss extra" "--only (" "--seconds abc" "--only"; do
        run_code 2 "$pack/run.sh" $wrong
    done
    run_code 1 "$pack/run.sh" --dry-run --only no-such-test --out "$BATS_TEST_TMPDIR/out"
    printf x >>"$pack/tests/cuda/device/losses.py"
    run_code 65 "$pack/run.sh" --dry-run --out "$BATS_TEST_TMPDIR/out"
    not grep -rnE '(^|[;&|(] *|\[")(make|apt|apt-get|pip|pip3)\>' "$pack"/*.sh "$pack/tests" --include='*.sh' --include='*.py'
}

# A device is played by an nvidia-smi and a test-gpu of this test.
@test "the device's tests end at Ctrl-C, and a later run keeps the rows that it does not repeat" {
    cp -r tests/cuda tests/operations "$BATS_TEST_TMPDIR" # in a checkout the report also goes to docs
    cd "$BATS_TEST_TMPDIR" && mkdir -p fake build/bin tests && mv cuda operations tests && cp "$BIN"/{trainer,shardtool,loader} build/bin && export PATH="$PWD/fake:$PATH"
    printf '#!/bin/sh\necho "NVIDIA of this test"\n' >fake/nvidia-smi
    printf '#!/bin/sh\n[ ! -e hangs ] || { touch hangs.now; exec sleep 600; }\nexit ${BAD:-0}\n' | sed "s|hangs|$PWD/hangs|g" >build/test-gpu
    chmod +x fake/nvidia-smi build/test-gpu
    device() { exec env --default-signal=INT tests/cuda/device/run_device.sh "$PWD/build" --out "$PWD/out" "$@" 3>&-; }
    run_code 0 device --only 'operation_(loss|gelu)'
    BAD=3 run device --only operation_loss
    [ "$status" = 1 ]
    grep -q "^FAILED operation_loss.*exit 3" out/tests.txt
    [ "$(grep -c '^passed operation_gelu' out/tests.txt)" -ge 2 ]
    not grep -q "^passed operation_loss" out/tests.txt
    touch hangs
    device --only operation_loss >stderr &
    wait_until test -e hangs.now
    kill -INT $!
    local status=0
    wait $! || status=$?
    [ "$status" = 130 ]
    grep -q "FAILED operation_loss.*: interrupted" out/tests.txt
    rm hangs && echo 1234567 >commit # another one
    run_code 0 device --only operation_gelu
    not grep -q operation_loss out/tests.txt
    grep -q '^Measured: 1234567, ' out/gpu-results.md
}
