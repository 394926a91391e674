#!/usr/bin/env bash
# deb.sh TREE VERSION OUT: the Debian package millrace-gpt from the folder of make dist, by the rules in debian/: for each Debian and Ubuntu with
# glibc 2.31 or later.
set -eu
tree=$(cd "$1" && pwd) version=$2 out=$(cd "$3" && pwd)
cd "$(dirname "$0")/../.."
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
cp -R debian CHANGELOG.md "$work/source"
sed -i "1s/(.*)/(${version/-/\~}-1)/" "$work/source/debian/changelog"
SOURCE_DATE_EPOCH=$(stat -c %Y "$tree")
export SOURCE_DATE_EPOCH
(cd "$work/source" && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS DEB_BUILD_OPTIONS=noautodbgsym TREE="$tree" debian/rules binary) >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
mv "$work"/*.deb "$out"
