#!/usr/bin/env bash
# tree.sh BIN FLOOR TREE VERSION MACHINE [PRINTERS]: the folder that make dist hands out: what install.sh copies, and the licences of the
# libraries that are linked into the programs; then the same as .tar.xz, as wheel and, for this machine, as Debian package beside it. The programs
# in PRINTERS print the pages of those in BIN that are for another machine. The same sources give the same bytes: times
# are that of the commit (SOURCE_DATE_EPOCH).
set -eu
umask 022
bin=$1 floor=$2 tree=$3 version=$4 machine=$5 here=$(cd "$(dirname "$0")" && pwd)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
rm -rf "$tree"
"$here/../install.sh" install "${6:-$bin}" "$tree"
if [ $# = 6 ]; then
    rm -rf "$tree/lib"
    for program in "$tree"/bin/*; do name=${program##*/} && cp "$bin/${name#millrace-}" "$program"; done
fi
rm "$tree/share/millrace/installed"
licences=$tree/share/doc/millrace/licences
cp -r "$floor/licences" "$licences"
for licence in OpenAI-modified-MIT Unicode-3.0; do # of the merges of GPT-2 and of the tables of Unicode, which are in the programs
    sed -n "/^License: $licence\$/,/^\$/p" "$here/../../debian/copyright" >"$licences/$licence"
done
mkdir "$licences/common" # the texts that the others name as those of Debian
grep -rhoE '/usr/share/common-licenses/[A-Z][A-Za-z0-9.-]*[A-Za-z0-9]' "$licences" | sort -u | while read -r text; do [ ! -f "$text" ] || cp -L "$text" "$licences/common"; done
cuda=$("${6:-$bin}/trainer" --version | sed -nE 's/^CUDA ([0-9.]+) .*/libcudart_static \1/p')
[ -z "$cuda" ] || sed -n '/^libcudart_static$/,/^$/p' "$here/../../NOTICE" >"$licences/libcudart_static"
echo "$cuda" | sort - "$floor/versions" | sed '/^$/d' >"$licences/versions"
chmod -R u=rwX,go=rX "$tree"
find "$tree" -exec touch -h -d "@$epoch" {} +
cd "$(dirname "$tree")"
rm -f ./*.tar.xz ./*.whl ./*.deb
name=$(basename "$tree")
[[ $version != *-dev ]] || version=$version$(date -u -d "@$epoch" +%Y%m%d%H%M) # pip and apt replace an older build by a newer one
tar --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" | xz -T1 >".partial-$name"
mv ".partial-$name" "$name-linux-$machine.tar.xz"
"$here/wheel.py" "$name" "$version" . "manylinux_2_31_$machine"
[ $# = 6 ] || "$here/deb.sh" "$name" "$version" .
du -h --apparent-size -- "$name-linux-$machine.tar.xz" ./*.whl $(compgen -G "./*.deb")
