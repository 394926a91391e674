# Where cuBLASLt and NCCL are looked for: stand-ins of the same names, and the search of the CUDA backend compiled by itself.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    cat >main.c <<'C'
#include "kernels/cuda/libraries/library_search.h"
#include <stdio.h>
int main(int count, char **names) {
    FoundLibrary found;
    (void)count;
    library_search((const char *const *)names + 1, &found);
    puts(found.handle ? found.path : found.why);
}
C
    gcc -D_GNU_SOURCE -I"$ROOT" main.c "$ROOT"/kernels/cuda/libraries/library_search.c "$ROOT"/common/*.c "$ROOT"/common/file/*.c \
        -o search -ljansson -lzstd -lcrypto -ldl -lpthread -lm
    echo 'int in_stand_in;' | gcc -shared -x c - -o stand-in.so
}
setup() {
    enter_test
    unset LD_LIBRARY_PATH CUDA_HOME CUDA_PATH
    venv="$PWD/a folder[1]" && mkdir -p "$venv/bin" && cp "$BATS_FILE_TMPDIR/search" "$venv/bin"
}
put() { for folder in "$@"; do install -D "$BATS_FILE_TMPDIR/stand-in.so" "$folder"; done; } # FILE...
finds() { # FILE [NAME...]
    local want=$1
    shift
    [ $# -gt 0 ] || set -- libstandin.so.13 libstandin.so.12
    run_code 0 "$venv/bin/search" "$@"
    [ "$(realpath "$output")" = "$(realpath "$want")" ]
}

@test "a library of CUDA is found beside the program and in wheels of its environment, of either version" {
    wheels=$venv/lib/python3.11/site-packages/nvidia
    put "$wheels/cublas/lib/libstandin.so.12"
    finds "$wheels/cublas/lib/libstandin.so.12"
    put "$wheels/cu13/lib/libstandin.so.13"
    finds "$wheels/cu13/lib/libstandin.so.13"
    put "$venv/lib/millrace/libstandin.so.12" # nearer, though of the other version
    finds "$venv/lib/millrace/libstandin.so.12"
    rm -r "$venv/lib"
    put "$venv/lib/python3.11/dist-packages/nvidia/nccl/lib/libstandin.so.2"
    finds "$venv/lib/python3.11/dist-packages/nvidia/nccl/lib/libstandin.so.2" libstandin.so.2
}

@test "a library of CUDA is found in the folder of pip install --target and in an environment of conda" {
    put "$venv/nvidia/cublas/lib/libstandin.so.12"
    finds "$venv/nvidia/cublas/lib/libstandin.so.12"
    put "$venv/lib/libstandin.so.13"
    finds "$venv/nvidia/cublas/lib/libstandin.so.12"
    rm -r "$venv/nvidia"
    finds "$venv/lib/libstandin.so.13"
}

@test "LD_LIBRARY_PATH goes before the program's folder, and that before the toolkit and the system" {
    put path/libstandin.so.12 toolkit/lib64/libstandin.so.13
    CUDA_HOME=toolkit finds toolkit/lib64/libstandin.so.13
    put wheel/lib/libstandin.so.13 && CUDA_HOME=wheel finds wheel/lib/libstandin.so.13
    CUDA_PATH=$PWD/toolkit finds toolkit/lib64/libstandin.so.13
    put "$venv/lib/millrace/libstandin.so.13"
    CUDA_HOME=toolkit finds "$venv/lib/millrace/libstandin.so.13"
    LD_LIBRARY_PATH=nowhere::$PWD/path finds path/libstandin.so.12
}

@test "a library of the system is found by its name, and its path is printed" {
    run_code 0 "$venv/bin/search" libstandin.so.9 libz.so.1
    [ "$(realpath "$output")" = "$(realpath "$(ldconfig -p | sed -n 's/.*libz\.so\.1 (libc6,x86-64) => //p' | head -n 1)")" ]
}

@test "without the library the reason is the first one: a file that does not load, or the name" {
    run_match 0 "libstandin.so.13: cannot open shared object file" "$venv/bin/search" libstandin.so.13 libstandin.so.12
    mkdir -p "$venv/lib/millrace" && echo text >"$venv/lib/millrace/libstandin.so.12"
    run_match 0 "lib/millrace/libstandin.so.12: " "$venv/bin/search" libstandin.so.13 libstandin.so.12
}
