# scripts/deps.sh: what the build needs and lacks, for each package manager. Compilers and package managers are stand-ins.
# bats file_tags=ci
load ../helpers

setup() {
    enter_test
    mkdir bin
    for tool in bash dirname awk sed grep cut paste cat make; do ln -s "$(command -v $tool)" bin/$tool; done
    stand_in gcc "PATH=$PATH exec gcc \"\$@\""
    stand_in id 'echo 1000'
    stand_in cc 'exec gcc "$@"'
}
stand_in() { { echo "#!$(command -v bash)" && echo "$2"; } >"bin/$1" && chmod +x "bin/$1"; }
without() { stand_in cc "case \"\$*\" in *-dump*) exec gcc \"\$@\" ;; esac; sed 's/<\($1\)>/<no_such_\1>/' | gcc \"\$@\""; } # HEADER, a pattern of sed
deps() { PATH=$BATS_TEST_TMPDIR/bin "$ROOT/scripts/deps.sh" "$@"; }
refused() { # MESSAGE ARGUMENT...: with 71 and this line alone
    local message=$1
    shift
    run deps "$@"
    [ "$status" = 71 ] && [ "$output" = "$message" ] || { echo "status $status: $output" && return 1; }
}

@test "a missing library is named in one line with the command of the distribution that installs it" {
    stand_in apt-get ''
    without xxhash.h
    refused "missing: run 'make deps' as root, or: sudo apt-get install libxxhash-dev" headers cc
    rm bin/apt-get
    for manager in dnf zypper; do
        stand_in $manager ''
        without 'xxhash.h\|lzma.h'
        refused "missing: run this, then again:  sudo $manager install xz-devel xxhash-devel" build
        rm bin/$manager
    done
    stand_in pacman ''
    refused "missing: run this, then again:  sudo pacman -S --needed xz xxhash" build
    rm bin/pacman
    refused "missing: run this, then again:  install what provides (docs/install.md names packages): lzma.h xxhash.h" build
}

@test "without a compiler all packages are named, and nothing is installed by who is not root" {
    stand_in apt-get ": >$PWD/installed"
    rm bin/gcc bin/cc bin/make
    refused "missing: run this, then again:  sudo apt-get install $(deps packages apt)" build
    [ ! -e installed ]
}

@test "root installs what is missing" {
    stand_in apt-get "echo \"\$@\" >>$PWD/installed"
    stand_in id 'echo 0'
    without 'zmq.h'
    run_match 0 "installing libzmq3-dev" deps build
    [ "$(cat installed)" = $'update -qq\ninstall -y -qq libzmq3-dev' ]
}

@test "a compiler that is too old, another machine and another oneDNN are one line each" {
    says() { stand_in cc "case \"\$*\" in *-dumpmachine*) echo $1 ;; *) gcc \"\$@\" | sed 's/^\"value\" __clang_major__ .*/\"value\" $2/; s/^\"value\" [0-9]* [0-9]*u\$/\"value\" $3 ${4:-2u}/' ;; esac"; }
    says x86_64-linux-gnu '__clang_major__ 10' 2
    refused "compiler: 'cc' is gcc 10: gcc 11 or later is needed, or clang 14 or later (make CC=...)" headers cc
    says aarch64-redhat-linux '13 4' 3
    refused "compiler: 'cc' is clang 13: clang 14 or later is needed, or gcc 11 or later (make CC=...)" headers cc
    says x86_64-pc-linux-gnu '__clang_major__ 11' 4
    refused "library: oneDNN is of version 4: 2 or 3 is needed" headers cc
    says x86_64-pc-linux-gnu '__clang_major__ 11' 3 512u
    refused "library: oneDNN is built for the CPU runtime 512 (DNNL_CPU_RUNTIME): one for OpenMP (2) or one thread (1) is needed" headers cc
    says riscv64-linux-gnu '__clang_major__ 13' 3
    refused "machine: the programs are for Linux on x86-64 and aarch64; 'cc' compiles for riscv64-linux-gnu" headers cc
    says x86_64-suse-linux '14 4' 3
    run_code 0 deps headers cc
}

@test "docs/install.md has the table of packages, and the source includes each header of it" {
    diff <(deps table) <(sed -n '/^| needed | apt/,/^$/p' "$ROOT/docs/install.md" | sed '/^$/d')
    cd "$ROOT"
    for header in $(scripts/deps.sh table | sed -nE 's/^\| ([a-z0-9/-]+\.h) .*/\1/p'); do
        git grep -qE "#include <$header>" -- '*.c' '*.h' || { echo "$header" && false; }
    done
}
