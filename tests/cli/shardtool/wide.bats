# Vocabularies of more than 65,536 ids: shards of u32 through every command that reads or writes ids.
# bats file_tags=ci
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    for i in $(seq 700); do echo "the mill of line $i drives a wheel, sacks and $((i * 7)) carts \xc3\xa4pfel"; done >text.txt
    wide_vocabulary wide.tiktoken
    "$BIN/shardtool" tokenize -q --docs lines --val 0.2 --vocabulary wide.tiktoken --pattern gpt4 --frame-tokens 1000 --shard-tokens 5000 -o data text.txt
    "$BIN/shardtool" tokenize -q --docs lines --val 0.2 -o small text.txt
}

setup() {
    enter_test && data=$BATS_FILE_TMPDIR/data text=$BATS_FILE_TMPDIR/text.txt small=$BATS_FILE_TMPDIR/small
    wide=$BATS_FILE_TMPDIR/wide.tiktoken shard=$data/train/000/000000.zst
}

numbers() { od -An -v -tu4 -w4 "$@" | tr -d ' '; } # of raw ids

@test "a shard of a wide vocabulary is u32 for zstd, and each command prints the same ids" {
    shardtool info --json "$data" | jq -e '.vocab_size == 65793 and .train_tokens > 10000'
    shardtool info --json "$data" | jq -e '.bytes / (4 * (.train_tokens + .val_tokens)) / .ratio - 1 | fabs < 1e-3'
    [ "$(tail -c +30 "$shard" | head -c 1 | od -An -tu1 | tr -d ' ')" = 2 ]
    cat "$data"/train/*/*.zst | zstd -dcq >raw
    shardtool cat "$data" | cmp - raw
    n=$(($(stat -c %s raw) / 4))
    [ "$(shardtool info --json "$data" | jq .train_tokens)" = $n ]
    numbers raw >ids
    [ "$(sort -n ids | tail -n 1)" = 65792 ]
    [ "$(awk '$1 > 65535 && $1 != 65792' ids | wc -l)" -gt 1000 ]
    shardtool cat --ids "$data" 0:$n | tr ' ' '\n' | cmp - ids
    shardtool cat "$data" 5:3000 | cmp - <(tail -c +21 raw | head -c $((2995 * 4)))
    shardtool cat --ids --random 1:40 --seed 3 "$data" | tr ' ' '\n' >some
    shardtool cat --random 1:40 --seed 3 "$data" | numbers | cmp - some
    # encode gives the ids of one document
    shardtool decode --doc 0 "$data" >first
    shardtool tokenize --ids --format text --vocabulary "$data" first | tr ' ' '\n' | cmp - <(awk '$1 == 65792 { exit } 1' ids)
    shardtool tokenize --raw --format text --vocabulary "$wide" --pattern gpt4 first | shardtool decode --raw --vocabulary "$data" | cmp - first
    shardtool tokenize --ids --format text --vocabulary "$data" first | shardtool decode --vocabulary "$data" | cmp - first
    run_match 65 "not 4 bytes for each id: the last id is incomplete" shardtool decode --raw --vocabulary "$data" <(head -c 7 raw)
    sort <(shardtool decode "$data" | sed 's/<|endoftext|>/\n/g'; shardtool decode --split val "$data" | sed 's/<|endoftext|>/\n/g') | grep . | cmp - <(sort "$text")
    sort -n ids | uniq -c | sort -k1,1nr -k2,2n | awk '{print $2, $1}' | cmp - <(shardtool info --ids --json "$data" | jq -r '"\(.id) \(.count)"')
    shardtool info --ids --json "$data" | jq -s -e 'map(select(.token == "in") | .id > 65535) == [true]'
    run_code 0 shardtool verify "$data"
    run_code 0 shardtool info --lengths "$data"
}

@test "wide datasets are filtered, shuffled, deduplicated, merged, split, appended and rebuilt" {
    id=$(shardtool tokenize --ids --format text --vocabulary "$data" <(printf in) | tr -d " ") # of line, in each document
    [ "$id" -gt 65535 ]
    shardtool filter -q --contains-id "$id" -o all "$data"
    shardtool diff --ids all "$data"
    shardtool filter -q --contains-id 300 -o none "$data" && false
    run_match 2 "is not an id" shardtool filter --contains-id 1048576 -o none "$data"
    shardtool shuffle -q --seed 5 -o mixed "$data"
    shardtool dedup -q -o once mixed mixed
    shardtool merge -q -o joined mixed
    shardtool split -q --parts 2 -o parts "$data"
    for set in all mixed once joined parts/part-000000; do
        cmp "$data/tokenizer.json" $set/tokenizer.json
        shardtool verify -q $set
    done
    for key in train_tokens val_tokens train_documents val_documents source_bytes; do
        for set in all mixed once joined; do [ "$(shardtool info --json "$data" | jq .$key)" = "$(shardtool info --json $set | jq .$key)" ]; done
    done
    cmp <(shardtool decode mixed | sed 's/<|endoftext|>/\n/g' | sort) <(shardtool decode "$data" | sed 's/<|endoftext|>/\n/g' | sort)
    shardtool cat -o whole.zst "$data"
    zstd -dcq whole.zst | cmp - <(shardtool cat "$data")
    shardtool diff --ids --split train "$data" whole.zst
    # lost tables
    head -c -50 whole.zst >cut.zst
    shardtool verify --rebuild again.zst cut.zst
    shardtool diff --ids again.zst whole.zst
    # appended, and in one run
    head -n 350 "$text" >a.txt && tail -n 350 "$text" >b.txt
    options=(-q --docs lines --val 0.2 --vocabulary "$wide" --pattern gpt4 --frame-tokens 1000 --shard-tokens 5000)
    shardtool tokenize "${options[@]}" -o grown a.txt
    shardtool tokenize "${options[@]}" --append -o grown b.txt
    shardtool diff --ids grown "$data"
}

@test "bytes do not depend on -j, and a killed run continues to the same dataset" {
    options=(-q --docs lines --val 0.2 --vocabulary "$wide" --pattern gpt4 --frame-tokens 1000 --shard-tokens 5000)
    shardtool tokenize "${options[@]}" -j 5 -o five "$text"
    shardtool diff five "$data"
    for number in 2 4 6 9; do
        kill_at fdatasync $number "$BIN/shardtool" tokenize "${options[@]}" -j 1 -o "killed$number" "$text"
        [ ! -e "killed$number/dataset.jsonl" ]
        shardtool tokenize "${options[@]}" -o "killed$number" "$text"
        shardtool diff "killed$number" "$data"
    done
}

@test "vocabularies of other widths are not mixed, and a header with the other width is refused" {
    run_match 65 "have different vocabularies" shardtool cat -o both.zst "$shard" "$small/train/000/000000.zst"
    run_match 65 "vocabular" shardtool shuffle -q -o no "$data" "$small"
    run_match 65 "vocabular" shardtool merge -q -o no "$small" "$data"
    run_code 1 shardtool diff --ids "$data" "$small"
    python3 - "$shard" "$small/train/000/000000.zst" <<'END'
import struct, sys
table = []
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    table.append(c)
def crc(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = table[(c ^ byte) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF
for number, path in enumerate(sys.argv[1:]):
    for name, at, value in (("type", 12, bytes([3 - (2, 1)[number]])), ("size", 18, struct.pack("<I", (50257, 65793)[number])), ("other", 12, b"\3")):
        data = bytearray(open(path, "rb").read())
        data[17 + at : 17 + at + len(value)] = value
        data[17 + 94 : 17 + 98] = struct.pack("<I", crc(data[17 : 17 + 94]))
        open(f"{name}{number}.zst", "wb").write(data)
END
    run_match 1 "header: a vocabulary of 65793 ids of type 1" shardtool verify type0.zst
    run_match 1 "header: a vocabulary of 50257 ids of type 2" shardtool verify size0.zst
    run_match 1 "header: a vocabulary of 50257 ids of type 2" shardtool verify type1.zst
    run_match 1 "header: a vocabulary of 65793 ids of type 1" shardtool verify size1.zst
    run_match 1 "ids of type 3, this program reads types 1 (u16) and 2 (u32)" shardtool verify other0.zst
}

@test "wide ids are exported and imported by each format that has them" {
    for format in llmc megatron datatrove npy; do
        shardtool export-tokens -q --format $format -o "$format" "$data"
        shardtool import-tokens -q --format $format -o "back-$format" "$format"
        shardtool diff --ids "$data" "back-$format"
        shardtool verify -q "back-$format"
    done
    run_match 65 "nanoGPT reads ids of 2 bytes" shardtool export-tokens --format nanogpt -o no "$data"
    cmp <(tail -c +1025 llmc/train_000000.bin | head -c 4 | numbers) <(echo 65792)
    [ "$(head -c 8 llmc/train_000000.bin | numbers | tr '\n' ' ')" = "20240801 7 " ]
    cmp <(head -n 1 datatrove/train.ds.metadata) <(echo "$(shardtool info --json "$data" | jq -r .vocab_fp)|4")
    shardtool cat "$data" | cmp - datatrove/train.ds
    shardtool cat "$data" | cmp - megatron/train.bin
    # ids of 4 bytes of a small vocabulary, as datatrove has them by --token_size 4
    shardtool export-tokens -q --format datatrove -o narrow "$small"
    python3 - narrow/train.ds <<'END'
import array, sys
array.array("I", array.array("H", open(sys.argv[1], "rb").read())).tofile(open(sys.argv[1], "wb"))
END
    sed -i 's/gpt2|2/gpt2|4/' narrow/train.ds.metadata
    shardtool import-tokens -q --format datatrove -o back narrow
    shardtool diff --ids back "$small"
    # of 8 bytes, as torch and NumPy have them, each second id would be 0
    python3 - datatrove/train.ds <<'END'
import array, sys
ids = array.array("I", open(sys.argv[1], "rb").read())
ids.tofile(open("right.bin", "wb")), array.array("Q", ids).tofile(open("long.bin", "wb"))
END
    shardtool import-tokens -q --format nanogpt --vocabulary "$data" -o right right.bin
    shardtool cat right | cmp - right.bin
    run_match 65 "it looks like ids of 8 bytes, this program reads u32*astype('u4')" \
        shardtool import-tokens --format nanogpt --vocabulary "$data" -o long long.bin
}

@test "a model of a wide vocabulary is trained, killed, resumed, evaluated, sampled, exported and trained again" {
    PATH="$BIN:$PATH"
    tiny=(--n_layer=1 --n_head=2 --n_embd=16 --block_size=32 --batch_size=4 --gradient_accumulation_steps=1 --eval_iters=2
        --eval_interval=2 --dtype=float32 --threads=1 --warmup_iters=2 --lr_decay_iters=10 --device=cpu --sample_tokens=4)
    trainer plan "${tiny[@]}" --dataset="$data" >plan
    grep -q '^model *1\.06 M parameters' plan # (65,856 + 32) * 16, and the layer
    trainer train --quiet "${tiny[@]}" --dataset="$data" --out_dir=whole --max_iters=6
    cmp "$data/tokenizer.json" whole/ckpt-00000006/tokenizer.json
    jq -e '.vocab_size == 65793 and .eos_token_id == 65792' whole/ckpt-00000006/config.json
    # killed after step 4, and over a socket
    trainer train --quiet "${tiny[@]}" --dataset="$data" --out_dir=run --max_iters=4
    port=$(free_port)
    loader serve "$data" --insecure --quiet --endpoint "tcp://127.0.0.1:$port" 2>log 3>&- &
    loader=$!
    trainer train --quiet "${tiny[@]}" --loader="tcp://127.0.0.1:$port" --vocabulary="$data/tokenizer.json" --out_dir=run --max_iters=6
    kill $loader
    cmp run/ckpt-00000006/model.safetensors whole/ckpt-00000006/model.safetensors
    # bits per byte, of the text of the targets
    tokenize_two two "$text" --vocabulary "$wide" --pattern gpt4
    trainer eval --json --out_dir=run --dataset=two --eval_tokens=320 --eval_order=sequential --threads=1 --device=cpu >eval.json
    n=$(jq 'select(.split == "train").tokens' eval.json)
    bytes=$(shardtool decode two "1:$((n + 1))" | wc -c)
    head -n 1 eval.json | jq -e "(.bpb - .loss * $n / $bytes / (2 | log)) | fabs < 0.000001"
    head -n 1 eval.json | jq -e '.loss > 10 and .loss < 11.2' # ln 65,793 = 11.09 and less
    trainer sample --out_dir=run --start='the mill' --max_new_tokens=40 --num_samples=1 --device=cpu | grep -q '^the mill'
    echo '{"task": "mills", "id": 1, "kind": "choice", "span": "ending", "texts": [["the mill", " of line"], ["the mill", " drives a wheel"]], "label": 1}' >items
    trainer eval --out_dir=run --items=items --device=cpu >grade
    trainer export -q -o model --out_dir=run
    shardtool tokenize --ids --format text --vocabulary model "$text" | cmp - <(shardtool tokenize --ids --format text --vocabulary "$data" "$text")
    trainer sample --init_from=./model --start='the' --max_new_tokens=5 --num_samples=1 --device=cpu | grep -q '^the'
    trainer train --quiet "${tiny[@]}" --init_from=./model --dataset="$data" --out_dir=more --max_iters=1
    [ -e more/ckpt-00000001/model.safetensors ]
    run_match 76 "vocabular" trainer train "${tiny[@]}" --init_from=./model --dataset="$small" --out_dir=no --max_iters=1
    # with document_mask, which looks for the end of a text
    trainer train --quiet "${tiny[@]}" --document_mask=True --dataset="$data" --out_dir=masked --max_iters=2
}
