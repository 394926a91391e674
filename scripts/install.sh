#!/usr/bin/env bash
# install.sh BIN PREFIX: installs the programs (as shardtool, millrace-loader, millrace-trainer), man pages and shell
# completion.
set -eu
bin=$1 prefix=$2
for program in shardtool loader trainer; do
    name=$program
    [ $program = shardtool ] || name=millrace-$program
    install -D -m 755 "$bin/$program" "$prefix/bin/$name"
    install -d "$prefix/share/man/man1" "$prefix/share/bash-completion/completions"
    "$prefix/bin/$name" --man >"$prefix/share/man/man1/$name.1"
    "$prefix/bin/$name" --completion >"$prefix/share/bash-completion/completions/$name"
done
mpi=$bin/../lib/millrace/mpi.so # only where MPI was installed at build time
[ ! -e "$mpi" ] || install -D -m 755 "$mpi" "$prefix/lib/millrace/mpi.so"
echo "installed shardtool, millrace-loader and millrace-trainer under $prefix"
