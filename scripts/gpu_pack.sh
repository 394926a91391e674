#!/usr/bin/env bash
# Packs the CUDA tests and benchmarks for a machine that has a driver, cuBLASLt and python3, and nothing else of ours:
# gpu_pack.sh BUILD ARCHIVE. The archive holds the programs of BUILD, every shared object they need but those of libc, and the
# scripts. Its entry points are the scripts `run` and `bench` (suffix .sh): [--out DIR] [--only WORDS]; bench also takes --torch.
set -eu
cd "$(dirname "$0")/.."
build=$1 archive=$2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
pack=$work/gpu-pack
mkdir -p "$pack/bin" "$pack/lib" "$pack/tests/cuda" "$pack/tests/operations" "$pack/tests/bench" "$pack/tests/data"
cp "$build"/bin/{shardtool,loader,trainer} "$pack/bin"
cp "$build"/{test-gpu,bench_gpu} "$pack"
libc='^(libc|libm|libdl|librt|libpthread|ld-linux.*)\.so'
ldd "$pack"/bin/* "$pack/test-gpu" "$pack/bench_gpu" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    while read -r object; do
        [[ $(basename "$object") =~ $libc ]] || cp -L "$object" "$pack/lib"
    done
strip --strip-unneeded "$pack"/bin/* "$pack/test-gpu" "$pack/bench_gpu" "$pack"/lib/*
cp tests/operations/test_operations.c "$pack/tests/operations"
cp -r tests/cuda/device tests/cuda/*.c "$pack/tests/cuda" # the names of the tests are read from the sources
cp tests/bench/bench_gpu*.{py,json} tests/bench/nanogpt_model.py "$pack/tests/bench"
printf '#!/bin/sh\nexec "$(dirname "$0")/tests/cuda/device/run_device.sh" . "$@"\n' >"$pack/run.sh"
printf '#!/bin/sh\ncd "$(dirname "$0")" && exec python3 tests/bench/bench_gpu.py . "$@"\n' >"$pack/bench.sh"
chmod +x "$pack"/*.sh
mkdir -p "$(dirname "$archive")"
tar -C "$work" -caf "$archive" gpu-pack
