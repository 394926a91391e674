# The image of scripts/dist/Containerfile, built from the archive of make dist on the system of Debian 12 from the mirror, without a registry.
load ../cli/helpers

setup_file() {
    [ "$(id -u)" = 0 ] && command -v buildah >/dev/null && command -v debootstrap >/dev/null || return 0
    cd "$BATS_FILE_TMPDIR"
    export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs STORE=$BATS_FILE_TMPDIR/store
    "$ROOT/tests/dist/root.sh" bookworm "$BATS_FILE_TMPDIR/root"
    rm -rf root/var/cache/apt root/debootstrap root/dev/*
    store from --name base scratch >/dev/null
    store copy base root / >/dev/null
    store commit --rm base localhost/base >log 2>&1
    store build --build-arg BASE=localhost/base -t millrace-gpt -f "$ROOT/scripts/dist/Containerfile" "${TREE%/*}" >log 2>&1 || { cat log && return 1; }
}
store() { buildah --root "$STORE/root" --runroot "$STORE/run" "$@"; }
setup() {
    [ -n "${STORE:-}" ] || skip "needs root, buildah and debootstrap"
    cd "$BATS_TEST_TMPDIR"
}
teardown_file() { [ -z "${STORE:-}" ] || store rm --all >/dev/null 2>&1 || true; }

@test "the programs run in the image as a user who is not root" {
    container=$(store from localhost/millrace-gpt)
    run_match 0 "millrace " store run "$container" -- millrace --version
    [ "$(store run "$container" -- id -u)" = 1000 ]
    store copy "$container" "$ROOT/tests/dist/first_steps.sh" /tmp/first_steps.sh
    store run "$container" -- sh /tmp/first_steps.sh /opt/millrace >log 2>&1 || { tail -n 30 log && false; }
}

@test "the image has at most 90 MB, compressed" {
    store push localhost/millrace-gpt "oci-archive:$PWD/image.tar" >log 2>&1 || { cat log && false; }
    mkdir image && tar -xf image.tar -C image
    [ "$(du -sb image/blobs | cut -f 1)" -le 90000000 ]
}
