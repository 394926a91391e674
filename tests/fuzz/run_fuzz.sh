#!/usr/bin/env bash
# run_fuzz.sh NAME FUZZER SHARDTOOL [SECONDS]: runs a fuzzer with seeds made of tests/data. Findings are kept in build/fuzz/NAME.
set -eu
name=$1 fuzzer=$(realpath "$2") shardtool=$(realpath "$3") seconds=${4:-60}
vectors=$PWD/tests/data/tokenizer_vectors.jsonl
mkdir -p "build/fuzz/$name/seeds" "build/fuzz/$name/found" && cd "build/fuzz/$name"
case $name in
shard)
    for tokens in 64 1024; do
        grep "^{\"text\"" "$vectors" | head -40 | "$shardtool" tokenize -q -o - --frame-tokens $tokens --shard-tokens 4096 - >seeds/$tokens.zst
    done
    ;;
bpe_cache)
    for lines in 1 20; do
        head -$lines "$vectors" >lines.jsonl
        "$shardtool" tokenize -q --force -o dataset lines.jsonl
        cp dataset/.bpe-cache seeds/cache$lines
    done
    ;;
jsonl) # the first byte chooses the options
    head -20 "$vectors" >lines.jsonl
    for option in '\x00' '\x01' '\x02' '\x0c'; do
        (printf "$option" && cat lines.jsonl) >"seeds/lines${option#*x}"
        (printf "$option" && tar -c lines.jsonl | gzip -n) >"seeds/tar${option#*x}"
        (printf "$option" && xz <lines.jsonl) >"seeds/xz${option#*x}"
    done
    ;;
parquet | parquet_page)
    ../../venv/bin/python ../../../tests/fuzz/seeds_parquet.py "$name" seeds
    ;;
esac
exec "$fuzzer" -max_total_time="$seconds" -max_len=20000 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 found seeds
