#!/usr/bin/env bash
# run_fuzz.sh NAME FUZZER SHARDTOOL [SECONDS]: runs a fuzzer with seeds made of tests/data. Findings are kept in build/fuzz/NAME.
set -eu
name=$1 fuzzer=$(realpath "$2") shardtool=$(realpath "$3") seconds=${4:-60}
vectors=$PWD/tests/data/tokenizer_vectors.jsonl
mkdir -p "build/fuzz/$name/seeds" "build/fuzz/$name/found" && cd "build/fuzz/$name"
case $name in
shard)
    for tokens in 64 1024; do
        grep "^{\"text\"" "$vectors" | head -40 | "$shardtool" tokenize -q -o - --frame-tokens $tokens - >seeds/$tokens.zst
    done
    cp ../../../tests/data/fuzz/shard/wide* seeds # of ids of 4 bytes
    ;;
jsonl) # the first byte chooses the options
    head -20 "$vectors" >lines.jsonl
    for option in '\x00' '\x01' '\x02' '\x0c'; do
        (printf "$option" && cat lines.jsonl) >"seeds/lines${option#*x}"
        (printf "$option" && tar -c lines.jsonl | gzip -n) >"seeds/tar${option#*x}"
        (printf "$option" && xz <lines.jsonl) >"seeds/xz${option#*x}"
    done
    for option in '\x10' '\x18' '\x38'; do
        jq -c '{messages: [{role: "user", content: .text}, {role: "assistant", content: .text}], id: 1e9}, {prompt: .text, completion: .text}, .' \
            lines.jsonl | (printf "$option" && cat) >"seeds/turns${option#*x}"
    done
    for option in '\x48' '\x5c'; do # with a condition
        jq -c '{a: {n: .text[:1]}, n: (.text | length), b: true, text: .text}, {n: 0.5, text: .text}' lines.jsonl |
            (printf "$option%s\n" "a.n >= 'A' and n<>3 and \"b\"=true" && cat) >"seeds/where${option#*x}"
    done
    jq -c '{a: [.text, 1, -0.5e3, null, true, {}]}' lines.jsonl | awk '{ printf "\20%s", $0 >"seeds/value" NR }'
    ;;
archive) # the first byte chooses the options and the name
    mkdir -p in && echo one >in/a.txt && head -3 "$vectors" >in/b.jsonl && echo three >in/c.md
    (cd in && tar cf ../a.tar . && zip -qr ../a.zip . && zip -q0r ../stored.zip . && xz -c a.txt >a.txt.xz && tar cf ../nest.tar . && tar cf ../link.tar --transform 's:^:../:' a.txt)
    gzip -kf a.tar && xz -kf a.tar && bzip2 -kf a.tar && zstd -qf a.tar && cat a.tar a.tar >two.tar
    for option in '\x00' '\x01' '\x03' '\x12' '\x21' '\x3f'; do
        for file in a.tar two.tar nest.tar link.tar a.tar.gz a.tar.xz a.tar.bz2 a.tar.zst a.zip stored.zip; do
            (printf "$option" && cat $file) >"seeds/${option#*x}.$file"
        done
    done
    ;;
manifest)
    grep "^{\"text\"" "$vectors" | head -40 >lines.jsonl
    for share in 0 0.5; do
        "$shardtool" tokenize -q --force --val $share --frame-tokens 64 --shard-tokens 1024 -o dataset$share lines.jsonl
    done
    ../../venv/bin/python ../../../tests/fuzz/seeds_manifest.py seeds dataset*/dataset.jsonl
    ;;
vocabulary)
    ../../venv/bin/python ../../../tests/fuzz/seeds_vocabulary.py seeds
    ;;
wire | words | part | piece_run | provenance | receipt | response | listing | record | state | config | vocabulary_config)
    cp ../../../tests/data/fuzz/"$name"/* seeds
    ;;
import) # made by torch.save where torch is installed
    cp ../../../tests/data/fuzz/import/* seeds
    ../../venv/bin/python ../../../tests/fuzz/seeds_import.py seeds || true
    ;;
parquet | parquet_page)
    ../../venv/bin/python ../../../tests/fuzz/seeds_parquet.py "$name" seeds
    ;;
esac
exec "$fuzzer" -max_total_time="$seconds" -max_len=20000 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 found seeds
