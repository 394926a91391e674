#!/usr/bin/env bash
# deb.sh TREE OUT: the Debian package millrace-gpt from the folder of make dist, by the rules in debian/: for each Debian and Ubuntu with
# glibc 2.31 or later. Its version is that of debian/changelog.
set -eu
tree=$(cd "$1" && pwd) out=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
cp -R debian CHANGELOG.md "$work/source"
SOURCE_DATE_EPOCH=$(stat -c %Y "$tree")
export SOURCE_DATE_EPOCH
(cd "$work/source" && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS DEB_BUILD_OPTIONS=noautodbgsym TREE="$tree" debian/rules binary) >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
mv "$work"/*.deb "$out"
