#!/usr/bin/env bash
# libraries.sh FLOOR MACHINE: what `make dist` links for x86_64 or aarch64, in FLOOR/sysroot: glibc 2.31 of Debian 11, so that the programs start on each
# system since 2020, and every other library as a static one. Those are the packages of Debian 12, and others that are compiled here:
#   libarchive  without XML, of which its package links libxml2 and ICU (34 MB); we read tar and zip
#   libzmq      with libsodium alone; its package also links Kerberos, PGM and NORM
#   snappy      because it is in C++, whose library in Debian 12 needs a later glibc
#   zstd        only if a later Debian has a version without the fault of Debian 12's (zstd_floor below, faults.txt)
#   oneDNN      3, of Debian 13, with products and reorders alone: the package has every operation (40 MB), and no static library. Not for aarch64,
#               where it takes hours under a cross-compiler: 24 of its files need 80 to 90 s each
# The compiler is that of Debian 12, as in other builds; the library of C++ is that of Debian 11.
# Packages come from the mirror that apt uses on this machine.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
machine=$2 triplet=$2-linux-gnu debian=amd64 cross=
[ "$machine" = x86_64 ] || { debian=arm64 && cross=$triplet-; }
mkdir -p "$1" && cd "$1"
floor=$PWD sysroot=$PWD/sysroot libraries=$PWD/sysroot/usr/lib/$triplet gcc=12
cc=${cross}gcc-$gcc cxx=${cross}g++-$gcc
for tool in "$cc" "$cxx" cmake dpkg-source; do
    command -v "$tool" >/dev/null || { echo "missing: scripts/deps.sh dist $machine" >&2 && exit 71; }
done
stamp=$(cat "$here/libraries.sh" | sha256sum)
[ "$(cat made 2>/dev/null)" != "$stamp" ] || exit 0
echo "libraries for $triplet with glibc 2.31: about ten minutes, once"

# packages NAME SUITE...: a configuration of apt that sees these suites alone.
packages() {
    local name=$1 suite site
    shift
    mkdir -p "apt/$name/lists/partial" "apt/$name/cache/archives/partial"
    site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep '/debian/$' | sort -u | head -1)
    for suite in "$@"; do
        case $suite in *-security) site=${site%/debian/}/debian-security/ ;; esac
        printf 'deb%s [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "" "$site" "$suite" -src "$site" "$suite"
    done >"apt/$name/sources"
    cat >"apt/$name/conf" <<END_CONF
Dir::Etc::SourceList "$PWD/apt/$name/sources";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$PWD/apt/$name/lists";
Dir::State::Status "/dev/null";
Dir::Cache "$PWD/apt/$name/cache";
APT::Architecture "$debian";
APT::Architectures { "$debian"; };
APT::Sandbox::User "root";
END_CONF
    APT_CONFIG=$PWD/apt/$name/conf apt-get update -qq
}

# compiler NAME LANGUAGE OUT: OUT starts a cross-compiler with the headers of the sysroot, before which it would take those of its own glibc.
compiler() {
    local headers
    headers=$("$1" --sysroot="$sysroot" -E -v -x "$2" /dev/null 2>&1 | sed -n '/^#include </,/^End/s/^ //p' | grep -v "/$triplet/include\$" | sed 's/^/-isystem /')
    echo '#!/bin/sh
exec' "$1" -nostdinc $headers '"$@"' >"$3"
    chmod +x "$3"
}

# unpack NAME PACKAGE...: into the sysroot; the copyright and the version of each into licences/.
unpack() {
    local name=$1 deb package
    shift
    rm -rf debs && mkdir -p debs licences
    (cd debs && APT_CONFIG=$floor/apt/$name/conf apt-get download -qq "$@")
    for deb in debs/*.deb; do
        dpkg-deb -x "$deb" sysroot
        package=$(dpkg-deb -f "$deb" Package)
        cp -L "sysroot/usr/share/doc/$package/copyright" "licences/$package" 2>/dev/null || true
        dpkg-deb -W --showformat '${Package} ${Version}\n' "$deb" >>versions
    done
}

# source_of NAME PACKAGE [OPTION]: its source in src/PACKAGE, with the patches of the package unless --skip-patches.
source_of() {
    rm -rf "src/$2" && mkdir -p "src/$2.files"
    (cd "src/$2.files" && APT_CONFIG=$floor/apt/$1/conf apt-get source -qq --download-only "$2" && dpkg-source --no-check "${@:3}" -x ./*.dsc "../$2") >/dev/null
    cp "src/$2/debian/copyright" "licences/$2"
    sed -n "s/^Version: /$2 /p" "src/$2.files"/*.dsc | head -1 >>versions
}

# compile PACKAGE TARGET OPTION...: a static library by cmake, into the sysroot.
compile() {
    local package=$1 target=$2 build=build/$1 source=src/$1
    shift 2
    [ ! -e "$source/build/cmake/CMakeLists.txt" ] || source+=/build/cmake
    echo "  $package"
    cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$machine" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_SYSROOT="$sysroot" -DCMAKE_LIBRARY_ARCHITECTURE="$triplet" \
        -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY \
        -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" "$@" >"$build.log" 2>&1 &&
        cmake --build "$build" --target "$target" -j "$(nproc)" >>"$build.log" 2>&1 || { tail -30 "$build.log" && exit 1; }
    find "$build" -name 'lib*.a' -exec cp {} "$libraries" \;
}

rm -rf sysroot licences versions src build apt made
mkdir -p licences src build
packages floor bullseye
packages static bookworm bookworm-security
packages later trixie
packages newest trixie sid
zstd_floor=1.6.0 zstd=libzstd-dev
if dpkg --compare-versions "$(APT_CONFIG=$floor/apt/newest/conf apt-cache showsrc libzstd | sed -n 's/^Version: //p' | sort -V | tail -1)" ge $zstd_floor; then zstd=; fi
unpack floor gcc-10-base libc6 libc6-dev linux-libc-dev libstdc++-10-dev libgcc-10-dev
find sysroot -type l -lname '/*' | while read -r link; do ln -sfnr "sysroot$(readlink "$link")" "$link"; done
cp sysroot/usr/lib/gcc/"$triplet"/10/{libstdc++.a,libgcc_eh.a} "$("$cc" -print-file-name=libgomp.a)" "$libraries"
rm -rf sysroot/usr/lib/gcc
if [ -n "$cross" ]; then
    compiler "$cc" c "$floor/cc" && cc=$floor/cc
    compiler "$cxx" c++ "$floor/c++" && cxx=$floor/c++
fi
# The headers of GCC 12 call one function that the library of GCC 10 does not have.
echo '#include <new>
namespace std { void __throw_bad_array_new_length() { throw bad_array_new_length(); } }' |
    "$cxx" -O2 -ffunction-sections -x c++ -c - -o length.o
ar rD "$libraries/libstdc++.a" length.o
unpack static zlib1g-dev $zstd liblzma-dev libbz2-1.0 libbz2-dev liblz4-dev libbrotli-dev libjansson-dev libxxhash-dev libssl-dev libsodium-dev libcurl4-openssl-dev # its headers: programs load the library
for library in z ${zstd:+zstd} lzma bz2 lz4 brotlidec brotlicommon jansson xxhash crypto sodium; do
    [ -s "$libraries/lib$library.a" ] || { echo "no static lib$library" && exit 1; }
    rm -f "$libraries/lib$library.so"*
done

# -B: else the linker takes the start files and libraries of this machine first.
flags="-B$libraries -O2 -ffunction-sections -fdata-sections -ffile-prefix-map=$floor=."
if [ -z "$zstd" ]; then
    source_of newest libzstd
    cp src/libzstd/lib/z*.h sysroot/usr/include
    compile libzstd libzstd_static -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_SHARED=OFF -DZSTD_BUILD_TESTS=OFF
fi
for package in libarchive zeromq3 snappy; do source_of static $package; done
compile snappy snappy -DSNAPPY_BUILD_TESTS=OFF -DSNAPPY_BUILD_BENCHMARKS=OFF
compile libarchive archive_static -DENABLE_TEST=OFF -DENABLE_TAR=OFF -DENABLE_CPIO=OFF -DENABLE_CAT=OFF -DENABLE_LIBXML2=OFF -DENABLE_EXPAT=OFF \
    -DENABLE_OPENSSL=OFF -DLIBMD_LIBRARY= -DENABLE_NETTLE=OFF -DENABLE_ICONV=OFF -DENABLE_ACL=OFF -DENABLE_XATTR=OFF -DENABLE_LZ4=OFF -DENABLE_LZO=OFF \
    -DENABLE_LIBB2=OFF -DENABLE_PCREPOSIX=OFF -DENABLE_PCRE2POSIX=OFF
compile zeromq3 libzmq-static -DBUILD_SHARED=OFF -DBUILD_TESTS=OFF -DWITH_LIBSODIUM=ON -DENABLE_CURVE=ON -DWITH_DOC=OFF -DWITH_PERF_TOOL=OFF -DENABLE_DRAFTS=OFF \
    -DENABLE_WS=OFF -DWITH_TLS=OFF -DWITH_LIBBSD=OFF -DENABLE_CPACK=OFF -DZMQ_BUILD_TESTS=OFF
cp src/snappy/snappy-c.h src/libarchive/libarchive/archive{,_entry}.h src/zeromq3/include/zmq*.h sysroot/usr/include
if [ -z "$cross" ]; then
    source_of later onednn --skip-patches # one of them requires spdlog
    # Operations that no product needs are left out before they are compiled: half of the time.
    unused='^(rnn|x64/(lrn|prelu|rnn|shuffle))/|^x64/[^/]*(conv(olution)?[_.]|pool|normalization|resampling|softmax|deconv|inner_product|_sum)'
    unused+='|^(ref|nchw|nhwc|simple)_[^/]*(conv|pool|norm|resampling|softmax|inner_product|lrn|prelu|shuffle)|^gemm_[^/]*(conv|inner)'
    (cd src/onednn/src/cpu && find . -name '*.cpp' -printf '%P\n' | grep -E "$unused" | grep -vE 'cvt|convert_xf16|gemm_inner_product_utils' | xargs rm)
    compile onednn dnnl -DONEDNN_LIBRARY_TYPE=STATIC -DONEDNN_BUILD_TESTS=OFF -DONEDNN_BUILD_EXAMPLES=OFF -DONEDNN_BUILD_GRAPH=OFF \
        -DONEDNN_ENABLE_PRIMITIVE='MATMUL;REORDER' -DONEDNN_ENABLE_WORKLOAD=INFERENCE -DONEDNN_CPU_RUNTIME=OMP \
        -DONEDNN_ENABLE_JIT_PROFILING=OFF -DONEDNN_ENABLE_ITT_TASKS=OFF -DONEDNN_VERBOSE=OFF -DONEDNN_ARCH_OPT_FLAGS= \
        -DOpenMP_{C,CXX}_FLAGS=-fopenmp -DOpenMP_{C,CXX}_LIB_NAMES=gomp -DOpenMP_gomp_LIBRARY="$libraries/libgomp.a"
    cp -r src/onednn/include/oneapi build/onednn/include/oneapi sysroot/usr/include
fi
rm -rf debs src build apt length.o
echo "$stamp" >made
