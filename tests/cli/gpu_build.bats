#!/usr/bin/env bats
# How make chooses between the CPU and the CUDA build.

setup() { cd "$BATS_TEST_DIRNAME/../.." && unset MAKELEVEL MAKEFLAGS; }

toolkit() { # RELEASE: an nvcc that only prints its version
    printf '#!/bin/sh\ncase $1 in --version) echo "Cuda compilation tools, release %s, V%s.119";; --list-gpu-arch) printf "compute_80\\ncompute_90\\n";; esac\n' \
        "$1" "$1" >"$BATS_TEST_TMPDIR/nvcc" && chmod +x "$BATS_TEST_TMPDIR/nvcc"
}

@test "nvcc before 11.8 gives the CPU build, with one line that names the version" {
    for release in 11.5 9.2; do
        toolkit $release
        run make -n NVCC="$BATS_TEST_TMPDIR/nvcc" BUILD="$BATS_TEST_TMPDIR/build" help
        [ "$status" = 0 ]
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
    done
}
