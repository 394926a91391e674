#!/usr/bin/env bash
# deb.sh TREE VERSION OUT: the Debian package millrace-gpt from the folder of make dist. It needs libc6 alone and has no maintainer scripts:
# installing starts nothing, and purging leaves what the service has put in /var/lib/millrace.
set -eu
tree=$(cd "$1" && pwd) version=${2/-/\~}-1 out=$(cd "$3" && pwd)
cd "$(dirname "$0")/../.."
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
doc=$work/usr/share/doc/millrace-gpt mail=${DEBEMAIL:-millrace@localhost}
epoch=$(stat -c %Y "$tree")
mkdir -p "$work/usr" "$work/DEBIAN" "$work/etc/default" "$work/usr/lib/systemd/system" "$work/usr/share/lintian/overrides"
cp -R "$tree/." "$work/usr"
mv "$work/usr/share/doc/millrace" "$doc"
mv "$doc/CHANGELOG.md" "$doc/changelog"
rm "$doc/LICENSE"
{
    cat LICENSE && printf '\nThe data in the programs:\n\n' && cat NOTICE
    printf '\nEach library in the programs has its licence in licences/ beside this file. The text of the Apache licence is in\n/usr/share/common-licenses/Apache-2.0.\n'
} >"$doc/copyright"
printf 'millrace-gpt (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- millrace developers <%s>  %s\n' \
    "$version" "$mail" "$(LC_ALL=C date -u -R -d "@$epoch")" | gzip -9n >"$doc/changelog.Debian.gz"
gzip -9n "$doc/changelog"
find "$work/usr/share/man" -type f -exec gzip -9n {} +
cp scripts/millrace-loader.service "$work/usr/lib/systemd/system"
cp scripts/millrace-loader.default "$work/etc/default/millrace-loader"
echo /etc/default/millrace-loader >"$work/DEBIAN/conffiles"
# The libraries are linked into the programs on purpose (libraries.sh), and the project has no address of its own.
printf 'millrace-gpt: %s\n' embedded-library bogus-mail-host bogus-mail-host-in-debian-changelog initial-upload-closes-no-bugs >"$work/usr/share/lintian/overrides/millrace-gpt"
cat >"$work/DEBIAN/control" <<END_CONTROL
Package: millrace-gpt
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: millrace developers <$mail>
Installed-Size: $(du -sk --apparent-size "$work/usr" | cut -f 1)
Depends: libc6 (>= 2.31)
Suggests: openmpi-bin
Section: science
Priority: optional
Description: trainer of GPTs of GPT-2's size, with tokenizer and loader
 millrace trains GPTs of GPT-2's size on the machine you have, from raw
 text to a model that transformers loads. It is three programs in C:
 shardtool tokenizes text, millrace-loader serves batches of tokens, and
 millrace-trainer trains on a GPU or on the CPU.
END_CONTROL
(cd "$work" && find usr etc -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
chmod -R u=rwX,go=rX "$work"
find "$work" -exec touch -h -d "@$epoch" {} +
SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group -Zxz --build "$work" "$out/millrace-gpt_${version}_$(dpkg --print-architecture).deb"
