#!/usr/bin/env bash
# style.sh format: rewrites sources in the house style. style.sh lint: names what is off, includes that point up too.
set -u
cd "$(dirname "$0")/.." || exit 2
sources() { git ls-files --cached --others --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' | grep -v 'unicode_table.h$'; }
if [ "$1" = format ]; then
    sources | xargs clang-format -i
    exit
fi

bad=0
say() { echo "$1" && bad=1; }
while read -r file; do
    clang-format --dry-run --Werror "$file" 2>/dev/null || say "$file: not in the house format (make format)"
done < <(sources)

up() { # FOLDER, FOLDERS it may not see
    hits=$(grep -rnE "^#include \"($2)/" --include='*.[ch]' --include='*.cu' --include='*.cuh' "$1" 2>/dev/null)
    [ -z "$hits" ] || say "includes that point up or sideways: $hits"
}
up common 'tokenizer|shardtool|loader|kernels|trainer'
up tokenizer 'shardtool|loader|kernels|trainer'
up kernels 'tokenizer|shardtool|loader|trainer'
up shardtool 'loader|kernels|trainer'
up loader 'tokenizer|kernels|trainer'
up trainer 'shardtool'
hits=$(grep -rlE '^#include "tokenizer/' trainer | grep -vE 'trainer/run/sample_text\.c$')
[ -z "$hits" ] || say "only sample_text may see the tokenizer: $hits"
hits=$(grep -rlE '^#include "loader/' trainer | xargs -r grep -hE '^#include "loader/' | grep -vE 'loader/(client/feed|protocol/wire)\.h')
[ -z "$hits" ] || say "trainer sees more of the loader than feed.h and wire.h: $hits"

for word in TODO FIXME XXX; do
    hits=$(git grep -nIw "$word" -- '*.c' '*.h' '*.cu' '*.cuh')
    [ -z "$hits" ] || say "left open: $hits"
done
exit $bad
