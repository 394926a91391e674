#!/usr/bin/env bash
# Packs the CUDA tests and benchmarks for a machine that has a driver, cuBLASLt and python3, and nothing else of ours:
# gpu_pack.sh BUILD ARCHIVE. The archive holds the programs of BUILD, every shared object they need but those of libc, and the
# scripts. Its entry points are the scripts `run` and `bench` (suffix .sh): [--out DIR] [--only WORDS]; bench also takes --torch.
# compat/ starts the same programs with the libc of this machine, for machines with an older one (environment.sh).
set -eu
cd "$(dirname "$0")/.."
build=$1 archive=$2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
pack=$work/gpu-pack
mkdir -p "$pack/bin" "$pack/lib" "$pack/tests/cuda" "$pack/tests/operations" "$pack/tests/bench/gpu" "$pack/tests/oracle/trainer" "$pack/tests/data"
cp "$build"/bin/{shardtool,loader,trainer} "$pack/bin"
cp "$build"/{test-gpu,bench_gpu} "$pack"
libc='^(libc|libm|libdl|librt|libpthread|ld-linux.*)\.so'
ldd "$pack"/bin/* "$pack/test-gpu" "$pack/bench_gpu" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    while read -r object; do
        [[ $(basename "$object") =~ $libc ]] || cp -L "$object" "$pack/lib"
    done
cublaslt=$(grep -aoE 'libcublasLt\.so\.[0-9]+' "$pack/bin/trainer" | head -1)
cuda=${cublaslt##*.}
mkdir -p "$pack/compat/bin" "$pack/compat/libc"
ldd "$pack/bin/trainer" "$pack/test-gpu" | grep -oE '/[^ ]+\.so[^ ]*' | sort -u | while read -r object; do
    ! [[ $(basename "$object") =~ $libc ]] || cp -L "$object" "$pack/compat/libc"
done
mv "$pack"/compat/libc/ld-linux* "$pack/compat/bin/ld.so" # where /proc/self/exe is then, the trainer looks for the loader
for program in bin/shardtool bin/loader bin/trainer test-gpu bench_gpu; do
    cat >"$pack/compat/$program" <<'END'
#!/bin/sh
compat=$(cd "$(dirname "$0")" && pwd)
compat=${compat%/bin}
path=$compat/libc:$compat/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
END
    echo "exec \"\$compat/bin/ld.so\" --library-path \"\$path\" \"\$compat/../$program\" \"\$@\"" >>"$pack/compat/$program"
    chmod +x "$pack/compat/$program"
done
strip --strip-unneeded "$pack"/bin/* "$pack/test-gpu" "$pack/bench_gpu" "$pack"/lib/*
git rev-parse --short=7 HEAD >"$pack/commit"
cp tests/operations/test_operations.c "$pack/tests/operations"
mkdir -p "$pack/trainer/plan" && cp trainer/plan/gpu_cards.def "$pack/trainer/plan" # for report.py
cp -r tests/cuda/device tests/cuda/*.c "$pack/tests/cuda" # the names of the tests are read from the sources
cp tests/bench/gpu/*.{py,json} "$pack/tests/bench/gpu"
cp tests/bench/{nanogpt_model,timing}.py "$pack/tests/bench"
cp tests/oracle/rooms.py "$pack/tests/oracle" && cp tests/oracle/trainer/philox.py "$pack/tests/oracle/trainer"
printf '#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/tests/cuda/device/run_device.sh" . "$@"\n' >"$pack/run.sh"
cat >"$pack/bench.sh" <<'END'
#!/usr/bin/env bash
export CALLED_FROM=$PWD
cd "$(dirname "$(readlink -f "$0")")" && build=. && . tests/cuda/device/environment.sh && exec python3 tests/bench/gpu/bench_gpu.py "$build" "$@"
END
chmod +x "$pack"/*.sh
cat >"$pack/README.txt" <<END
millrace: tests and benchmarks of the CUDA backend, for a machine with an NVIDIA GPU. Nothing is installed or built.

Needs: a driver for CUDA $cuda or newer, $cublaslt (of the CUDA toolkit $cuda or of PyTorch's wheels for it), bash, python3.
Where libc is older than that of the machine that made this archive, compat/ has one.

./run.sh [--out DIR] [--only WORDS] [--seconds 450]      tests: 0 all passed, 1 not all, 80 no GPU, 65 the archive is damaged
./bench.sh [--out DIR] [--only WORDS] [--seconds 450]    figures; with --torch those of PyTorch, with --run a run beside it
./run.sh --dry-run --out DIR                             what run.sh does with the programs, on the CPU

DIR (build/gpu) receives gpu-results.md. Rows of an earlier run stay where a later one has none.
END
mkdir -p "$(dirname "$archive")"
(cd "$pack" && find . -type f ! -name sha256sums -exec sha256sum {} + >sha256sums)
partial=$(dirname "$archive")/.partial-$(basename "$archive")
tar -C "$work" -caf "$partial" gpu-pack
mv "$partial" "$archive"
