# What --version prints, and where the build finds the commit.
load ../helpers

setup() {
    git -C "$ROOT" rev-parse HEAD >/dev/null 2>&1 && [ -e "$ROOT/.git" ] || skip "this tree is not a checkout of git"
    unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES SAN CUDA CFLAGS # of make check, which may run these
    cd "$BATS_TEST_TMPDIR"
}
new_commit() { git -C tree -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m "$1"; }
commit_of() { git -C "$1" log -1 --abbrev=12 --format="$2"; }

@test "--version prints version, commit, date, instruction sets and CUDA" {
    changed=$([ -z "$(git -C "$ROOT" status --porcelain --untracked-files=no)" ] || echo +)
    version=$(sed -n 's/^VERSION := //p' "$ROOT/Makefile")
    for program in shardtool loader trainer; do
        MILLRACE_ISA=portable run_code 0 "$BIN/$program" --version
        [ "${lines[0]}" = "$program (millrace) $version" ]
        [ "${lines[1]}" = "commit $(commit_of "$ROOT" %H | cut -c -12)$changed of $(commit_of "$ROOT" %cs)" ]
        [[ "${lines[2]}" == "instructions "*"; this processor: portable" ]]
        [[ "${lines[3]}" == "without CUDA" || "${lines[3]}" == "without CUDA, MPI" || "${lines[3]}" == *"CUDA "*" for compute capability "*"; cuBLASLt 12 or 13; driver "*" or later; driver of this machine: "* ]]
        [ "${#lines[@]}" = 4 ]
    done
}

@test "--version names the CUDA that the driver of this machine supports, or that there is none" {
    [[ "$("$BIN/trainer" --version)" != *"without CUDA"* ]] || skip "built without CUDA"
    echo 'int cuDriverGetVersion(int *version) { return *version = 12040, 0; }' | gcc -shared -x c - -o libcuda.so.1
    LD_LIBRARY_PATH=$PWD run_match 0 "; driver of this machine: for CUDA 12.4" "$BIN/trainer" --version
    echo 'int cuDriverGetVersion(int *version) { return *version = 0, 100; }' | gcc -shared -x c - -o libcuda.so.1
    LD_LIBRARY_PATH=$PWD run_match 0 "; driver of this machine: none" "$BIN/trainer" --version
}

@test "--version names what the program does not have: CUDA, MPI" {
    named() { make -C "$ROOT" -n CUDA=0 BUILD="$PWD/build" "$@" "$PWD/build/release-cpu/commit.h" | grep -o 'without [^"]*'; }
    [ "$(named MPICC= MPICC_ABI=)" = "without CUDA, MPI" ]
    [ "$(named MPICC=mpicc MPICC_ABI=)" = "without CUDA" ]
}

@test "the oldest driver that the program needs follows from the version of nvcc" {
    for pair in 11.8:450 12.4:525 13.0:580; do
        printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V1"\n' "${pair%:*}" >nvcc && chmod +x nvcc
        make -C "$ROOT" -n NVCC="$PWD/nvcc" BUILD="$PWD/build" NVARCH=80 "$PWD/build/release/common/cli/version.o" >steps
        grep -qF "CUDA ${pair%:*} for compute capability 8.0; cuBLASLt 12 or 13; driver ${pair#*:} or later" steps
    done
}

@test "an archive of git names its commit, a checkout says that files were changed, and a copy without git knows neither" {
    git clone -q "$ROOT" tree
    mkdir archive copy
    git -C tree archive HEAD scripts Makefile | tar -x -C archive
    expected="\"$(commit_of tree %H | cut -c -12)\" \"$(commit_of tree %cs)\""
    found() { "$1/scripts/commit.sh" | cut -d ' ' -f 3 | xargs -n 1 printf '"%s"\n' | paste -sd ' '; }
    [ "$(found archive)" = "$expected" ]
    [ "$(found tree)" = "$expected" ]
    echo >>tree/README.md
    [ "$(found tree)" = "${expected/\" /+\" }" ]
    cp -r tree/scripts copy
    [ "$(found copy)" = '"" ""' ]
}

# bats test_tags=ci
@test "another commit compiles one object again, and the same commit none" {
    git clone -q "$ROOT" tree
    version_object() { make -C tree CUDA=0 build/release-cpu/common/cli/version.o | grep -c 'CC  *common/cli/version.c' || true; }
    [ "$(version_object)" = 1 ]
    [ "$(version_object)" = 0 ]
    new_commit next
    [ "$(version_object)" = 1 ]
    grep -q "$(commit_of tree %H | cut -c -12)" tree/build/release-cpu/common/cli/version.o
}
