#!/usr/bin/env bash
# What building (deps.sh build) and testing (deps.sh test) need: installs what is missing as root, else prints the line.
set -u
cd "$(dirname "$0")/.." || exit 2
build="gcc make libzstd-dev libarchive-dev libzmq3-dev libjansson-dev libxxhash-dev libssl-dev libdnnl-dev"
tests="libcmocka-dev bats zstd xz-utils jq strace python3-venv clang libomp-14-dev clang-format-14"
want=$build
[ "${1:-build}" = test ] && want="$build $tests"

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
build/venv/bin/python -c 'import tiktoken, numpy, zstandard' 2>/dev/null ||
    build/venv/bin/pip install -q --disable-pip-version-check tiktoken==0.14.0 numpy zstandard || exit 71
