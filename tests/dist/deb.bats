# The Debian package of make dist, beside TREE: lintian, and install, use, upgrade and purge in the system of Debian 11.
load ../cli/helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    deb=$(ls "${TREE%/*}"/millrace-gpt_*.deb)
    root=$BATS_TEST_TMPDIR/root
}
in_dpkg() { dpkg --root="$root" --force-depends "$@" >log 2>&1 || { cat log && return 1; }; } # the system has no configured libc6

@test "lintian finds no error and no warning in the Debian package" {
    command -v lintian >/dev/null || skip "no lintian"
    run_code 0 lintian --allow-root --fail-on error,warning "$deb"
}

@test "the Debian package is installed, runs, is upgraded and purged, and leaves the system as it was" {
    [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || skip "needs root and debootstrap"
    "$ROOT/tests/dist/root.sh" bullseye "$root"
    files() { (cd "$root" && find . -path ./var/lib/dpkg -prune -o -path ./var/log -prune -o -print | sort); }
    files >before
    in_dpkg --install "$deb"
    cp "$ROOT/tests/dist/first_steps.sh" "$root/tmp"
    for folder in proc dev; do mkdir -p "$root/$folder"; done
    unshare --net --mount bash -c 'mount --rbind /proc "$1/proc" && mount --rbind /dev "$1/dev" && chmod 1777 "$1/tmp"
        exec env -i PATH=/usr/bin:/bin HOME=/tmp /usr/sbin/chroot --userspec=65534:65534 "$1" sh /tmp/first_steps.sh /usr' - "$root" >log 2>&1 ||
        { tail -n 30 log && false; }
    rm -rf "$root"/tmp/*
    echo "# edited" >>"$root/etc/default/millrace-loader"
    mkdir next && "$ROOT/scripts/dist/deb.sh" "$TREE" 99.0 next
    in_dpkg --install next/*.deb
    [ "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Version}' millrace-gpt)" = 99.0-1 ]
    grep -q '^# edited' "$root/etc/default/millrace-loader"
    in_dpkg --purge millrace-gpt
    diff before <(files)
}

@test "the service names a program and an option that exist, and systemd accepts the unit" {
    dpkg-deb -x "$deb" tree
    unit=tree/usr/lib/systemd/system/millrace-loader.service
    [ -x "tree$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' $unit)" ]
    . tree/etc/default/millrace-loader 2>/dev/null || true
    run_match 0 "--state FILE" tree/usr/bin/millrace-loader serve --help
    command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
    sed -i "s|/usr/bin/millrace-loader|$PWD/tree&|" $unit
    run_code 0 systemd-analyze verify --man=no $unit
}
