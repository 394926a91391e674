#!/usr/bin/env bash
# make bench-cpu: tokens a second of a training step beside PyTorch. Installs torch into build/venv (large).
set -eu
cd "$(dirname "$0")/../.."
bin=$1
shift
build/venv/bin/python -c 'import torch' 2>/dev/null || build/venv/bin/pip install -q torch numpy
mkdir -p build/bench
[ -e build/bench/data/dataset.jsonl ] || "$bin/shardtool" tokenize --val 0.05 -o build/bench/data "${TEXT:-$(scripts/corpus.sh)}"
build/venv/bin/python tests/bench/bench_cpu_step.py "$bin" build/bench/data build/bench "$@"
