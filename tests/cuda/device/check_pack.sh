#!/usr/bin/env bash
# check_pack.sh ARCHIVE [MIB]: an archive of make gpu-pack has at most that many MiB, and works in a chroot that holds libc, a
# shell and a few tools beside it: every program starts there, and run.sh ends with 80 because it finds no GPU. Needs root.
set -u
archive=$1 most=${2:-1024}
mib=$(($(stat -c %s "$archive") / 1048576))
[ $mib -le "$most" ] || { echo "$archive: $mib MiB, more than $most: build for fewer architectures (NVARCH=90)" && exit 1; }
root=$(mktemp -d) && trap 'rm -rf "$root"' EXIT
tar -C "$root" -xf "$archive" || exit 1
mkdir -p "$root"/{bin,usr/bin,tmp}
for tool in sh bash env dirname readlink timeout; do
    cp -L "$(command -v $tool)" "$root/bin" && cp -L "$(command -v $tool)" "$root/usr/bin"
done
libc='(libc|libm|libdl|librt|libpthread|libtinfo|ld-linux[^ ]*)'
ldd "$root"/bin/* "$root"/gpu-pack/lib/* "$root/gpu-pack/bin/trainer" | grep -oE "/[^ ]*/$libc\.so[^ ]*" | sort -u |
    while read -r object; do
        mkdir -p "$root$(dirname "$object")" && cp -L "$object" "$root$object"
    done
wrong=0
# LD_ORIGIN_PATH stands for /proc, from which the dynamic linker takes the folder of a program.
expect() { # STATUS WORDS COMMAND...: runs it in the chroot
    local status=$1 words=$2 output got
    shift 2
    output=$(LD_ORIGIN_PATH=/gpu-pack/bin chroot "$root" "$@" 2>&1 </dev/null)
    got=$?
    [ $got = "$status" ] && [[ $output == *"$words"* ]] && return
    echo "$*: exit $got instead of $status: $output" && wrong=1
}
expect 0 shardtool /gpu-pack/bin/shardtool --version
expect 0 loader /gpu-pack/bin/loader --version
expect 0 trainer /gpu-pack/bin/trainer --version
for program in shardtool loader trainer; do expect 0 $program /gpu-pack/compat/bin/$program --version; done
expect 80 "no NVIDIA driver on this machine" /gpu-pack/bench_gpu gemm
expect 1 "no NVIDIA driver on this machine" /gpu-pack/test-gpu --data /tmp --bin /tmp operation_loss
expect 80 "test-gpu: no NVIDIA GPU or driver on this machine" /gpu-pack/run.sh --out /out
# What run.sh does with the programs on a GPU, on the CPU and with the libc of the pack. Not in the chroot: it needs python3.
"$root/gpu-pack/tests/cuda/device/run_device.sh" ./compat --dry-run --out "$root/dry" >"$root/log" 2>&1 </dev/null || { cat "$root/log" && wrong=1; }
[ $wrong = 0 ] && echo "$archive: $mib MiB, every program starts"
