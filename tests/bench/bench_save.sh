#!/usr/bin/env bash
# make bench-save: what a checkpoint costs the training beside it.
set -eu
cd "$(dirname "$0")/../.."
bin=$1
shift
mkdir -p build/bench
[ -e build/bench/data/dataset.jsonl ] || "$bin/shardtool" tokenize --val 0.05 -o build/bench/data "${TEXT:-$(scripts/corpus.sh)}"
python3 tests/bench/bench_save.py "$bin" build/bench/data build/bench "$@"
