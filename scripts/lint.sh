#!/usr/bin/env bash
# lint.sh format: rewrites sources in the house style. lint.sh lint: lists what breaks it: format, structure (structure.py), comments
# (comments.py), names, references to files that are gone, prose.
set -u
cd "$(dirname "$0")/.." || exit 2
sources() { git ls-files --cached --others --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' | grep -v 'unicode_table.h$'; }
if [ "$1" = format ]; then
    sources | xargs clang-format -i
    exit
fi

bad=0
say() { echo "$1" && bad=1; }
hits=$(sources | xargs -P "$(nproc)" -n 20 clang-format --dry-run --Werror 2>&1 | sed -nE 's/^([^:]*):[0-9]+:[0-9]+: error: .*/\1/p' | sort -u)
[ -z "$hits" ] || say "not in the house format (make format):
$hits"

# What the files of a folder may include beside those of their own folder: folders, or single headers. Above common, its
# name stands for its sub-folders, too.
layers() {
    cat <<'END'
common
common/file         common
common/zstd         common
common/machine      common common/file
common/math         common
common/cli          common common/machine/cpu.h
millrace            common
remote              common
dataset             common remote/url_map.h
tokenizer/merge     common
tokenizer/cache     common tokenizer/merge
tokenizer/files     common tokenizer/merge
tokenizer           common tokenizer/merge tokenizer/cache
tokenizer/training  common tokenizer/merge tokenizer
kernels             common
kernels/cpu         common kernels
kernels/cpu/ops     common kernels kernels/cpu
kernels/cuda/libraries common
kernels/cuda        common kernels kernels/cuda/libraries
kernels/cuda/attention common kernels kernels/cuda
kernels/mpi         kernels
shardtool/ingest    common remote dataset
shardtool/where     common
shardtool/conversation common shardtool/ingest/source_options.h
shardtool/jsonl     common shardtool/where shardtool/conversation shardtool/ingest/source_options.h shardtool/ingest/input_format.h shardtool/ingest/stream.h
shardtool/parquet   common shardtool/where shardtool/conversation shardtool/ingest/input_format.h shardtool/ingest/stream.h
shardtool/pipeline  common dataset shardtool/ingest tokenizer
shardtool/vocabulary common shardtool/ingest shardtool/pipeline tokenizer tokenizer/files tokenizer/merge/pretokenize.h tokenizer/training
shardtool/support   common remote/url_map.h dataset shardtool/ingest shardtool/where shardtool/pipeline tokenizer tokenizer/files tokenizer/merge/pattern.h
shardtool/print     common dataset shardtool/ingest shardtool/support tokenizer
shardtool/interchange common remote/url_map.h dataset shardtool/support
shardtool/similar   common remote/url_map.h dataset shardtool/ingest shardtool/support tokenizer tokenizer/files
shardtool           common remote dataset shardtool/ingest shardtool/conversation shardtool/pipeline shardtool/support shardtool/print shardtool/similar shardtool/interchange shardtool/vocabulary tokenizer
loader/protocol     common dataset
loader/client       common dataset loader/protocol
loader/server       common dataset loader/protocol
loader              common remote loader/protocol loader/client loader/server
trainer/config      common kernels loader/client/feed.h
trainer/shape       common kernels trainer/config
trainer/plan        common kernels trainer/config trainer/shape
trainer/model       common kernels trainer/shape trainer/plan loader/client/batch_stream.h
trainer/optim       common kernels trainer/config trainer/shape trainer/model loader/client/batch_stream.h
trainer/checkpoint  common kernels/dtype.h kernels/backend.h tokenizer tokenizer/files trainer/config trainer/shape trainer/model trainer/optim
trainer/import      common kernels/backend.h trainer/shape trainer/checkpoint
trainer/export      common kernels/dtype.h tokenizer tokenizer/files trainer/shape trainer/checkpoint
trainer/setup       common dataset kernels loader/client/feed.h loader/protocol/sampling.h tokenizer tokenizer/files trainer/config trainer/shape trainer/model/answers.h trainer/checkpoint
trainer/records     common dataset trainer/config trainer/plan trainer/model trainer/checkpoint
trainer/inference   common tokenizer trainer/config trainer/plan trainer/model trainer/checkpoint trainer/setup trainer/records/metrics.h
trainer/ranks       common kernels trainer/config trainer/model trainer/setup
trainer/items       common kernels tokenizer trainer/plan trainer/model trainer/ranks
trainer/engine     common kernels trainer/config trainer/plan trainer/model trainer/optim trainer/checkpoint trainer/setup trainer/records trainer/ranks
trainer/run         common kernels trainer/config trainer/plan trainer/model trainer/optim trainer/checkpoint trainer/setup trainer/records trainer/ranks trainer/items trainer/engine
trainer/audit       common dataset loader/protocol trainer/config trainer/checkpoint trainer/setup trainer/records trainer/engine
trainer             common dataset/dataset.h trainer/config trainer/plan trainer/model trainer/optim trainer/checkpoint trainer/import trainer/export trainer/setup trainer/inference trainer/items trainer/records trainer/engine trainer/run trainer/audit
END
}
hits=$(layers | scripts/structure.py) || say "$hits"

hits=$(git ls-files --cached --others --exclude-standard | grep -v '^debian/' | sed 's:.*/::' | grep -vE '^(main\.c|README\.md|\..*)$' | sort | uniq -d)
[ -z "$hits" ] || say "file names that occur twice: $hits"

# Comments and pages that name a file of the tree. Not meant: a placeholder, or a file of another project.
foreign='^(name|cmd_name|tokens_name|a|llm|sysexits|quantize)\.(c|h|cu)$|^_internal\.h$'
foreign+="|^($(scripts/deps.sh table | sed -nE 's:^\| (.*/)?([a-z0-9-]+)\.h .*:\2:p' | paste -sd '|'))\.h$"
hits=$(git grep -nI '' -- '*.[ch]' '*.cc' '*.cu' '*.cuh' '*.def' '*.sh' '*.bats' '*.bash' '*.py' '*.md' Makefile ':!CHANGELOG.md' | awk -v foreign="$foreign" '
    NR == FNR { n = split($0, part, "/"); path = part[n]; files[path]; for (i = n - 1; i; i--) files[path = part[i] "/" path]; next }
    {
        split($0, part, ":"); text = $0; sub(/^[^:]*:[^:]*:/, "", text)
        if (part[1] ~ /\.([ch]|cc|cu|cuh|def)$/) { if (!sub(/.*\/\/ ?/, "", text)) next }
        else if (part[1] !~ /\.md$/ && !sub(/^ *# /, "", text)) next
        while (match(text, /[A-Za-z0-9_\/.-]*[A-Za-z0-9_]\.(c|h|cc|cu|cuh|def|sh|bats)([^A-Za-z0-9_.\/]|$)/)) {
            name = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
            sub(/[^A-Za-z0-9_]$/, "", name); gsub(/^(\.\.?\/)+/, "", name); short = tolower(name); sub(/.*\//, "", short)
            if (!(name in files) && short !~ foreign && name !~ /^build\//) print part[1] ":" part[2] ": " name
        }
    }' <(git ls-files --cached --others --exclude-standard) -)
[ -z "$hits" ] || say "files that do not exist:
$hits"

hits=$({ sources; git ls-files '*.def'; } | xargs grep -nE '^ *//.{119}' | grep -E '^[^:]*:[^:]*:.{121}')
[ -z "$hits" ] || say "comments of more than 120 columns: $hits"
hits=$(scripts/comments.py) || say "$hits"
hits=$(scripts/subjects.sh 75497fde)
[ -z "$hits" ] || say "subjects of more than 72 characters:
$hits"
hits=$(git ls-files '*.h' '*.c' | xargs grep -nE '^ +(const |unsigned |struct )*(u?int[0-9]*_t|size_t|double|float|char|int|unsigned|bool)( \*)?$|^[a-z].*\($' | grep -vE '^[^:]*\.c:[0-9]*:[a-z]')
[ -z "$hits" ] || say "members cut by the formatter; the comment goes above: $hits"
hits=$(git ls-files '*.c' | grep -v '^tests/' | while read -r file; do head -1 "$file" | grep -q '^//' || echo "$file"; done)
[ -z "$hits" ] || say "files that do not begin with what they are for: $hits"

hits=$(sources | grep -v emu.h | xargs grep -nE '^ *# *define [a-z][A-Za-z0-9_]*(\([^)]*\))? +[a-z_][A-Za-z0-9_]*(\([^)]*\))?$')
[ -z "$hits" ] || say "lower-case macros that rename a function: $hits"

# A test's name is a sentence: three words at least.
hits=$(
    git grep -nE '^TEST(_CI|_ON_EACH_ISA)?\([a-z0-9]+(_[a-z0-9]+)?\)' -- tests
    git grep -nE '^def test_[a-z0-9]+(_[a-z0-9]+)?\(' -- tests
    git grep -nE '^@test "[^ "]+( [^ "]+)?"' -- tests
)
[ -z "$hits" ] || say "test names of less than three words:
$hits"

hits=$(python3 scripts/prose.py README.md CONTRIBUTING.md tests/README.md loader/python/README.md docs/*.md)
[ -z "$hits" ] || say "$hits"

hits=$(scripts/waits.sh)
[ -z "$hits" ] || say "tests that wait for a time, expect a size of this processor, or are of no tier:
$hits"

hits=$(scripts/figures.sh README.md loader/python/README.md docs/*.md)
[ -z "$hits" ] || say "$hits"

hits=$(scripts/peers.py) || say "$hits"

scripts/formats.sh page | cmp -s - docs/formats.md || say "docs/formats.md is old: scripts/formats.sh page >docs/formats.md"

hits=$(tests/faults/run_faults.sh --check)
[ -z "$hits" ] || say "$hits"

hits=$(scripts/dist/release.sh versions 2>&1) || say "$hits"

for word in TODO FIXME XXX; do
    hits=$(git grep -nIw "$word" -- '*.c' '*.h' '*.cu' '*.cuh')
    [ -z "$hits" ] || say "left open: $hits"
done
exit $bad
