#!/usr/bin/env bash
# Installs the packages needed to build (deps.sh build), to test (deps.sh test) or to compare with other programs in Python
# (deps.sh peers). Without root it prints the command that installs Debian's.
set -u
cd "$(dirname "$0")/.." || exit 2
build="gcc libc6-dev make libzstd-dev zlib1g-dev liblzma-dev libbz2-dev libsnappy-dev liblz4-dev libbrotli-dev libarchive-dev libzmq3-dev libjansson-dev libxxhash-dev libssl-dev libdnnl-dev libcurl4-openssl-dev"
tests="libcmocka-dev bats zip bzip2 zstd xz-utils jq strace python3-venv clang libclang-rt-14-dev libomp-14-dev clang-format-14 universal-ctags groff-base mandoc libopenmpi-dev openmpi-bin parallel zsh fish"

if [ "${1:-build}" = headers ]; then # deps.sh headers CC: prints the packages of headers that CC cannot find
    missing=()
    for pair in zstd.h:libzstd-dev zlib.h:zlib1g-dev lzma.h:liblzma-dev bzlib.h:libbz2-dev snappy-c.h:libsnappy-dev lz4.h:liblz4-dev brotli/decode.h:libbrotli-dev archive.h:libarchive-dev zmq.h:libzmq3-dev jansson.h:libjansson-dev \
        xxhash.h:libxxhash-dev openssl/evp.h:libssl-dev oneapi/dnnl/dnnl.h:libdnnl-dev curl/curl.h:libcurl4-openssl-dev; do
        echo "#include <${pair%:*}>" | ${2:-cc} -E -x c - >/dev/null 2>&1 || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -eq 0 ] && exit 0
    echo "missing: run 'make deps' as root, or: sudo apt-get install ${missing[*]}" >&2
    exit 71
fi

want=$build
[ "${1:-build}" = test ] && want="$build $tests"

if [ "${1:-build}" = peers ]; then
    exec build/venv/bin/pip install -q --disable-pip-version-check torch==2.15.0 torchdata==0.11.0 transformers==5.23.0 tensorboard==2.21.0 \
        datatrove==0.10.1 megatron-core==0.16.1 gguf==0.19.0 mypy==2.4.1 wheel mlcroissant==1.1.1 rustbpe==0.1.0 gigatoken==0.10.0 awkward
fi

missing=()
for package in $want; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "missing: run this, then again:  sudo apt-get install ${missing[*]}" >&2
        exit 71
    fi
    echo "installing ${missing[*]}"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null || exit 71
fi
[ "${1:-build}" = test ] || exit 0
[ -x build/venv/bin/python ] || python3 -m venv build/venv || exit 71
build/venv/bin/python -c 'import tiktoken, numpy, zstandard, pyarrow, zmq, moto, xxhash' 2>/dev/null ||
    build/venv/bin/pip install -q --disable-pip-version-check tiktoken==0.14.0 numpy zstandard pyarrow==22.0.0 pyzmq xxhash 'moto[server]==5.2.5' || exit 71
