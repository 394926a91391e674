#!/usr/bin/env bash
# install.sh install BIN PREFIX: copies the programs of BIN (as millrace, shardtool, millrace-loader, millrace-trainer) with manual pages,
# shell completion, configurations, job scripts and documentation. Builds nothing. install.sh uninstall BIN PREFIX removes what install has
# copied, by the list that it left.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd) bin=$2 prefix=$3 list=$3/share/millrace/installed
if [ "$1" = uninstall ]; then
    [ -e "$list" ] || { echo "nothing is installed under '$prefix': there is no '$list'" >&2 && exit 66; }
    (cd "$prefix" && xargs -d '\n' rm -f <share/millrace/installed &&
        sed 's|/[^/]*$||' share/millrace/installed | sort -ru | while read -r folder; do rmdir -p --ignore-fail-on-non-empty "$folder" 2>/dev/null || true; done
        rm -f share/millrace/installed && rmdir --ignore-fail-on-non-empty share/millrace)
    echo "removed millrace, shardtool, millrace-loader and millrace-trainer from $prefix"
    exit
fi
for program in millrace shardtool loader trainer; do
    [ -x "$bin/$program" ] || { echo "'$bin/$program' is not built: run make first" >&2 && exit 66; }
done
umask 022 # what is installed is for all users
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
man=$work/share/man doc=$work/share/doc/millrace
install -d "$man/man1" "$man/man5" "$work"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d,millrace/{config,slurm}} "$doc"
for program in shardtool loader trainer millrace; do # millrace prints what the others have
    name=$program
    [[ $program != [lt]* ]] || name=millrace-$program
    install -D -m 755 "$bin/$program" "$work/bin/$name"
    "$work/bin/$name" --completion >"$work/share/bash-completion/completions/$name"
    "$work/bin/$name" --completion zsh >"$work/share/zsh/site-functions/_$name"
    "$work/bin/$name" --completion fish >"$work/share/fish/vendor_completions.d/$name.fish"
    "$work/bin/$name" --man >"$man/man1/$name.1"
done
sed -nE 's/^\.BR millrace\\-([a-z-]+) \(([15])\)$/\1 \2/p' "$man/man1/millrace.1" | while read -r page section; do
    "$work/bin/millrace" --man "$page" >"$man/man$section/millrace-$page.$section"
done
"$root/scripts/formats.sh" man "$(head -n 1 "$man/man1/shardtool.1" | cut -d ' ' -f 4-)" >"$man/man5/millrace-shard.5"
with=
for mpi in "$bin"/../lib/millrace/mpi*.so; do # only where MPI was installed at build time
    [ ! -e "$mpi" ] || { install -D -m 755 -t "$work/lib/millrace" "$mpi" && with=", with MPI"; }
done
cp "$root"/config/*.conf "$work/share/millrace/config"
cp "$root"/scripts/slurm/*.sbatch "$work/share/millrace/slurm"
cp -r "$root"/{README.md,CHANGELOG.md,CONTRIBUTING.md,LICENSE,NOTICE,docs} "$doc"
install -D -m 644 -t "$doc/loader/python" "$root/loader/python/README.md" # to which the pages link
chmod -R u=rwX,go=rX "$work"
mkdir -p "$prefix"
(cd "$work" && find . -type f | sed 's|^\./||' | sort) >"$work/installed"
mv "$work/installed" "$work/share/millrace"
cp -dR --no-preserve=ownership,timestamps "$work"/* "$prefix"
echo "installed millrace, shardtool, millrace-loader and millrace-trainer under $prefix$with"
