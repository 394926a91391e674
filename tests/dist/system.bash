# Systems of Debian releases in the folder `root`, made by mmdebstrap from the mirror that apt uses here: configured, with apt.

needs_systems() { [ "$(id -u)" = 0 ] && command -v mmdebstrap >/dev/null || skip "needs root and mmdebstrap"; }
enter_systems() {
    cd "$BATS_TEST_TMPDIR"
    root=$PWD/root
}
new_system() { # SUITE [PACKAGE]
    local site
    site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
    mmdebstrap --quiet --variant=minbase --include="apt-utils${2:+,$2}" "$1" "$root" "$site" >log 2>&1 || { tail -n 30 log && return 1; }
    in_system apt-get update
}
# in_system COMMAND...: as root in it, with this machine's files in /host.
in_system() {
    unshare --mount bash -c 'mkdir -p "$1/host" && mount --rbind /proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --bind / "$1/host"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$@"' - "$root" "$@" >log 2>&1 ||
        { tail -n 30 log && return 1; }
}
