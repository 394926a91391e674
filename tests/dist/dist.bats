# The folder of make dist, in TREE: what it needs, where it runs, and that the same sources give the same bytes. By make check-dist.
load ../cli/helpers

setup_file() { [ -d "$TREE" ] || { echo "no folder '$TREE': make dist" && false; }; }
setup() {
    cd "$BATS_TEST_TMPDIR"
    root=$BATS_TEST_TMPDIR/root
}

# in_root COMMAND...: as nobody, in the folder `root` as the whole system, without network, environment or this machine's files.
in_root() {
    unshare --net --mount bash -c 'root=$1 && shift
        mkdir -p "$root"/{proc,dev,tmp} && chmod 1777 "$root/tmp"
        mount --rbind /proc "$root/proc" && mount --rbind /dev "$root/dev"
        exec env -i PATH=/usr/bin:/bin TMPDIR=/tmp HOME=/tmp /usr/sbin/chroot --userspec=65534:65534 "$root" "$@"' - "$root" "$@"
}
first_steps_in() { # SUITE
    [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || skip "needs root and debootstrap"
    "$ROOT/tests/dist/root.sh" "$1" "$root"
    mkdir -p "$root/opt/a folder"
    cp -R "$TREE/." "$root/opt/a folder"
    cp "$ROOT/tests/dist/first_steps.sh" "$root"
    in_root sh /first_steps.sh "/opt/a folder" >log 2>&1 || { tail -n 30 log && return 1; }
}

@test "every file needs glibc 2.31 at most, and no other library" {
    "$ROOT/tests/dist/symbols.sh" "$TREE" 2.31
}

@test "programs of this machine are refused by the same check" {
    echo 'int arc4random(void); int main(void) { return arc4random(); }' | gcc -x c - -o new # of glibc 2.36
    run_match 1 "arc4random needs GLIBC_2.36" "$ROOT/tests/dist/symbols.sh" new 2.31
    echo '#include <zlib.h>
int main(void) { return (int)crc32(0, 0, 0); }' | gcc -x c - -o with -lz
    run_match 1 "with: needs libz.so.1" "$ROOT/tests/dist/symbols.sh" with 2.99
    echo 'int main(void) { return 0; }' | gcc -x c - -Wl,-rpath,/opt -o path
    run_match 1 "path: has a run path" "$ROOT/tests/dist/symbols.sh" path 2.99
    run_match 1 "no program under" "$ROOT/tests/dist/symbols.sh" "$ROOT/docs" 2.31
}

@test "no file names the folder that it was built in" {
    not grep -rlF "$ROOT" "$TREE"
}

@test "no program's file holds its empty tables: shardtool and loader have at most 8 MB" {
    [ -z "$(find "$TREE/bin" -size +8000000c ! -name millrace-trainer)" ]
}

@test "each static library has its licence in the folder" {
    others=onednn
    if [ -n "${DIST_MACHINE-}" ]; then # for another machine: by tests/aarch64
        others=
    elif [[ "$("$TREE/bin/millrace-trainer" --version)" != *"without CUDA"* ]]; then
        others+=" libcudart_static"
    fi
    for library in $others gcc-10-base libarchive libbrotli-dev libbz2-1.0 libjansson-dev liblz4-dev liblzma-dev libsodium-dev libssl-dev libxxhash-dev \
        snappy zeromq3 zlib1g-dev; do
        [ -s "$TREE/share/doc/millrace/licences/$library" ]
        grep -q "^$library " "$TREE/share/doc/millrace/licences/versions"
    done
    grep -qE '^libzstd(-dev)? ' "$TREE/share/doc/millrace/licences/versions"
    grep -q "We don't claim ownership of the content" "$TREE/share/doc/millrace/licences/OpenAI-modified-MIT"
    grep -q "NOTICE TO USER" "$TREE/share/doc/millrace/licences/Unicode-3.0"
    grep -q "Apache License" "$TREE/share/doc/millrace/licences/common/Apache-2.0"
}

@test "the versions inside are those whose faults were looked at" {
    run_code 0 "$ROOT/scripts/dist/faults.sh" '' "$TREE/share/doc/millrace/licences/versions"
}

@test "a run gives the same bits with one thread and with two, as a build on this machine does" {
    mkdir bin
    for program in loader trainer; do ln -s "$TREE/bin/millrace-$program" bin/$program; done
    ln -s "$TREE/bin/shardtool" bin
    BIN=$PWD/bin run_code 0 bats "$ROOT/tests/cli/trainer/trainer_resume.bats" -f 'number of threads|SIGKILL'
}

@test "Debian 11: the first steps run as a user, without network" { first_steps_in bullseye; }
@test "Debian 12: the first steps run as a user, without network" { first_steps_in bookworm; }
@test "Debian 13: the first steps run as a user, without network" { first_steps_in trixie; }

@test "the same sources in another folder give the same archive, wheel and package" {
    commit=$(git -C "$ROOT" log -1 --format=%ct)
    unset MAKELEVEL MAKEFLAGS
    for folder in one "another longer"; do
        mkdir -p "$folder/build" && git -C "$ROOT" archive HEAD | tar -x -C "$folder"
        ln -s "$ROOT/build/floor" "$folder/build/floor"
        CCACHE_DISABLE=1 SOURCE_DATE_EPOCH=$commit make -C "$folder" -j"$(nproc)" CUDA=0 dist
    done
    for kind in tar.xz whl deb; do cmp one/build/dist/*.$kind another*/build/dist/*.$kind; done
}
