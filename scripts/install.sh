#!/usr/bin/env bash
# install.sh BIN PREFIX: installs the programs (as shardtool, millrace-loader, millrace-trainer), man pages and shell
# completion.
set -eu
bin=$1 prefix=$2 man=$2/share/man
install -d "$man/man1" "$man/man5" "$prefix"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
for program in shardtool loader trainer; do
    name=$program
    [ $program = shardtool ] || name=millrace-$program
    install -D -m 755 "$bin/$program" "$prefix/bin/$name"
    "$prefix/bin/$name" --completion >"$prefix/share/bash-completion/completions/$name"
    "$prefix/bin/$name" --completion zsh >"$prefix/share/zsh/site-functions/_$name"
    "$prefix/bin/$name" --completion fish >"$prefix/share/fish/vendor_completions.d/$name.fish"
    "$prefix/bin/$name" --man >"$man/man1/$name.1"
    sed -nE 's/^\.BR .*-([a-z]+) \(([15])\)$/\1 \2/p' "$man/man1/$name.1" | while read -r page section; do
        "$prefix/bin/$name" --man "$page" >"$man/man$section/$name-$page.$section"
    done
done
"$(dirname "$0")/formats.sh" man "$(head -n 1 "$man/man1/shardtool.1" | cut -d ' ' -f 4-)" >"$man/man5/millrace-shard.5"
mpi=$bin/../lib/millrace/mpi.so # only where MPI was installed at build time
[ ! -e "$mpi" ] || install -D -m 755 "$mpi" "$prefix/lib/millrace/mpi.so"
echo "installed shardtool, millrace-loader and millrace-trainer under $prefix"
