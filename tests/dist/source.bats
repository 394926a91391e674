# The source on other releases of Debian, with the packages and the compiler that they have: make deps, the build and the first steps.
load ../cli/helpers
load system

setup() { enter_systems; }

new_source() { # SUITE: the tree of this commit in /src, and make
    needs_systems
    new_system "$1" "make"
    mkdir "$root/src" && git -C "$ROOT" archive HEAD | tar -x -C "$root/src"
}

build_in() { # SUITE
    new_source "$1"
    in_system make -C /src deps CUDA=0
    grep -q '^installing gcc libc6-dev ' log
    not grep -q 'No such file' log # make, about the compiler that comes with them
    in_system make -C /src CI=true CUDA=0 -j"$(nproc)"
    in_system make -C /src install PREFIX=/usr/local
    in_system unshare --net setpriv --reuid=65534 --regid=65534 --clear-groups sh /src/tests/dist/first_steps.sh /usr/local
}

@test "Debian 11: its compiler is named as too old, in one line" {
    new_source bullseye
    run_match 1 "compiler: 'cc' is gcc 10: gcc 11 or later is needed" in_system make -C /src deps CUDA=0
}
@test "Debian 12: make deps, make without a warning, and the first steps of what make install has installed" { build_in bookworm; }
@test "Debian 13: make deps, make without a warning, and the first steps of what make install has installed" { build_in trixie; }
