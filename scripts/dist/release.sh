#!/usr/bin/env bash
# release.sh check: whether this tree can be released: nothing is changed or unknown to git, and the version of the Makefile is that of
# CHANGELOG.md's first section with a date, of debian/changelog and of the Python client. release.sh pack DIST OUT: what make dist has made in
# DIST, with an archive of the source, SHA256SUMS and NOTES.md, the section of CHANGELOG.md, in OUT. release.sh versions: only that they agree.
set -eu
what=$1
[ "$what" != pack ] || { dist=$(cd "$2" && pwd) && mkdir -p "$3" && out=$(cd "$3" && pwd); }
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^VERSION := //p' Makefile)
bad=0
refuse() { echo "release: $1" >&2 && bad=1; }

# compare FILE FOUND WANT
compare() { [ "$2" = "$3" ] || refuse "$1 has version '$2', the Makefile's is $version: '$3'"; }
section=$(sed -n 's/^## //p' CHANGELOG.md | head -n 1) # 0.2.0 (unreleased), or 0.2.0 (2026-12-01)
compare CHANGELOG.md "${section%% *}" "${version%-dev}"
compare debian/changelog "$(sed -nE '1s/.*\((.*)\).*/\1/p' debian/changelog)" "${version/-/\~}-1"
compare loader/python/pyproject.toml "$(sed -nE 's/^version = "(.*)"/\1/p' loader/python/pyproject.toml)" "${version/-dev/.dev0}"
[ "$what" != versions ] || exit $bad

[ -z "$(git status --porcelain)" ] || refuse "files are changed or unknown to git: commit or remove them (git status)"
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || refuse "the Makefile's version '$version' is not that of a release: VERSION := ${version%-dev}"
[[ $section =~ \ \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$ ]] || refuse "the section '$section' of CHANGELOG.md has no date: ## ${version%-dev} ($(date +%F))"
[ $bad = 0 ] || exit 65
[ "$what" = pack ] || exit 0

name=millrace-gpt-$version
cd "$dist"
files=("$name-linux-$(uname -m).tar.xz" "millrace_gpt-$version"-*.whl "millrace-gpt_$version-1"_*.deb)
for file in "${files[@]}"; do [ -f "$file" ] || { echo "release: no file '$file' in $dist: make dist" >&2 && exit 66; }; done
commit=$(git -C "$OLDPWD" log -1 --abbrev=12 --format=%h)
"$name/bin/shardtool" --version | grep -q "^commit $commit of " || { echo "release: the programs in $dist are not of commit $commit: make dist" >&2 && exit 65; }
rm -rf "${out:?}"/*
cp -p "${files[@]}" "$out"
cd - >/dev/null
git archive --prefix="$name/" HEAD | gzip -9n >"$out/$name.tar.gz"
awk '/^## / { found++ } found == 1 && !/^## /' CHANGELOG.md | sed -e '/./,$!d' >"$out/NOTES.md"
cd "$out"
sha256sum -- *.tar.gz *.tar.xz *.whl *.deb >SHA256SUMS
"$dist/$name/bin/millrace-trainer" --version
echo "$out: $(ls "$out" | paste -sd ' ')"
