# The two Debian packages: that of the folder of make dist, beside TREE, and that of the source (debian/), built here from an archive of git.
# lintian, and a life in a system that mmdebstrap makes: installed by apt, its tests, its service under systemd, upgraded, purged.
load ../cli/helpers
load system

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null || return 0
    unset MAKELEVEL MAKEFLAGS MFLAGS MAKEOVERRIDES
    mkdir source folder
    git -C "$ROOT" archive HEAD | tar -x -C source
    (cd source && DEB_BUILD_OPTIONS=parallel=$(nproc) dpkg-buildpackage -b -us -uc) >log 2>&1 || { tail -n 30 log && return 1; }
    mkdir -p folder/scripts/dist && cp -R source/debian source/CHANGELOG.md folder && cp "$ROOT/scripts/dist/deb.sh" folder/scripts/dist
}
setup() { enter_systems; }
# The package of `folder` or `source`, and the same with a later version.
deb_of() { ls "$([ "$1" = folder ] && dirname "$TREE" || echo "$BATS_FILE_TMPDIR")"/millrace-gpt_*.deb; }
later_deb_of() {
    mkdir later && cp -a "$BATS_FILE_TMPDIR/$1" later
    (
        cd "later/$1"
        sed -i "1s/(.*)/(99.0-1)/" debian/changelog
        if [ "$1" = folder ]; then scripts/dist/deb.sh "$TREE" 99.0 ..; else debian/rules binary; fi
    ) >log 2>&1 || { tail -n 30 log && return 1; }
    ls "$PWD"/later/millrace-gpt_99*.deb
}

files() { (cd "$root" && find . \( -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./host \) -prune -o -print | sort); }

# package_life WHICH SUITE
package_life() {
    command -v dh >/dev/null || skip "needs debhelper"
    needs_systems
    local deb later
    deb=$(deb_of "$1")
    later=$(later_deb_of "$1") || { echo "$later" && return 1; }
    new_system "$2" systemd
    cp -a "$root" served
    mkdir -p "$root/var/lib/private" # systemd's
    files >before
    in_system apt-get install -y --no-install-recommends "/host$deb"
    cp "$ROOT/tests/dist/first_steps.sh" "$root/tmp"
    in_system unshare --net setpriv --reuid=65534 --regid=65534 --clear-groups sh /tmp/first_steps.sh /usr
    rm -rf "$root"/tmp/*
    echo "# edited" >>"$root/etc/default/millrace-loader"
    in_system apt-get install -y --no-install-recommends "/host$later"
    [ "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Version}' millrace-gpt)" = 99.0-1 ]
    grep -q '^# edited' "$root/etc/default/millrace-loader"
    mkdir -p "$root/var/lib/private/millrace/data" && ln -s private/millrace "$root/var/lib/millrace" # as the service leaves them
    touch "$root"/var/lib/millrace/{served,loader.key,allowed}
    in_system sh /var/lib/dpkg/info/millrace-gpt.postrm purge
    [ "$(ls -A "$root/var/lib/millrace/")" = data ] && rmdir "$root/var/lib/millrace/data" # datasets stay
    touch "$root/var/lib/millrace/served"
    in_system apt-get purge -y --autoremove millrace-gpt
    diff before <(files)
    root=$PWD/served
    in_system apt-get install -y --no-install-recommends "/host$deb"
    "$ROOT/tests/dist/boot.sh" "$root" "$ROOT/tests/dist/service.sh" || { tail -n 30 "$root.log" && return 1; }
}

@test "lintian finds no error and no warning in either package" {
    command -v lintian >/dev/null && command -v dh >/dev/null || skip "needs lintian and debhelper"
    run_code 0 lintian --allow-root --fail-on error,warning "$(deb_of folder)"
    run_code 0 lintian --allow-root --fail-on error,warning "$BATS_FILE_TMPDIR"/*.changes
}

@test "the package of the folder needs libc6 alone, and that of the source each library that deps.sh has" {
    [[ "$(dpkg-deb -f "$(deb_of folder)" Depends)" =~ ^libc6\ \(\>=\ 2\.(2[0-9]|3[01])\)$ ]]
    diff <(sed -n '/^Build-Depends/,/^$/p' "$ROOT/debian/control" | sed -nE 's/^ ([a-z0-9-]+-dev),$/\1/p' | grep -v openmpi | sort) \
        <("$ROOT/scripts/deps.sh" packages apt | tr ' ' '\n' | grep -- -dev | grep -v libc6 | sort)
}

@test "the package between releases has the time of its commit, so that apt takes the newer one, and completion where Debian looks" {
    version=$(sed -n 's/^VERSION := //p' "$ROOT/Makefile")
    [[ $version != *-dev ]] || version=${version/-/\~}$(TZ=UTC git -C "$ROOT" log -1 --date=format-local:%Y%m%d%H%M --format=%cd)
    [ "$(dpkg-deb -f "$(deb_of folder)" Version)" = "$version-1" ]
    dpkg-deb -c "$(deb_of folder)" | grep -q ' ./usr/share/zsh/vendor-completions/_shardtool$'
}

@test "the maintainer of a package is who DEBEMAIL names, and NVIDIA's runtime stands in its copyright" {
    command -v dh >/dev/null || skip "needs debhelper"
    [ "$(dpkg-deb -f "$(deb_of folder)" Maintainer)" = "millrace developers <${DEBEMAIL:-millrace@example.org}>" ]
    [ "$(dpkg-deb -f "$(DEBEMAIL=mill@example.com later_deb_of folder)" Maintainer)" = "millrace developers <mill@example.com>" ]
    dpkg-deb --fsys-tarfile "$(deb_of folder)" | tar -xO ./usr/share/doc/millrace-gpt/copyright | grep -q libcudart_static
}

@test "Debian 11: the package of the folder is installed, runs, serves under systemd, is upgraded and purged" { package_life folder bullseye; }
@test "Debian 12: the package of the source is installed, runs, serves under systemd, is upgraded and purged" { package_life source bookworm; }

@test "autopkgtest passes in Debian 12: README's two commands at a small size" {
    command -v dh >/dev/null && command -v autopkgtest >/dev/null || skip "needs debhelper and autopkgtest"
    needs_systems
    new_system bookworm
    unshare --mount bash -c 'mount --rbind /proc "$1/proc" && mount --rbind /dev "$1/dev" && exec autopkgtest -B "$2" "$3" -- chroot "$1"' - \
        "$root" "$(deb_of source)" "$BATS_FILE_TMPDIR/source/" >log 2>&1 || { tail -n 40 log && false; }
    [ "$(grep -aoE '^(demo|commands) +PASS$' log | sort -u | wc -l)" = 2 ] # each is there again in the summary
}
