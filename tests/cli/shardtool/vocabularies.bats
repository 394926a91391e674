# Vocabularies of train-vocabulary and of other tools: tokenize, decode and datasets made of datasets.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    seq 1 3000 | sed "s/.*/The mill's wheel, line & of 12345 \xc3\xa4pfel; it's DONE./" >text.txt
    "$BIN/shardtool" train-vocabulary -q -V 400 --pattern o200k --special '<|pad|>' -o vocab text.txt
    "$BIN/shardtool" tokenize -q --docs lines --val 0.2 --vocabulary vocab -o data text.txt
}

setup() {
    enter_test && data=$BATS_FILE_TMPDIR/data vocab=$BATS_FILE_TMPDIR/vocab text=$BATS_FILE_TMPDIR/text.txt
}

@test "a trained vocabulary tokenizes, and decode gives the text back from the file in the dataset" {
    shardtool info --json "$data" | jq -e '.vocab_size == 400'
    jq -e '.added_tokens | map(.content) == ["<|pad|>", "<|endoftext|>"] and map(.id) == [398, 399]' "$data/tokenizer.json"
    sort <(shardtool decode "$data" | sed 's/<|endoftext|>/\n/g'; shardtool decode --split val "$data" | sed 's/<|endoftext|>/\n/g') | grep . | cmp - <(sort "$text")
    # as in the published files; those of earlier versions have true
    jq -e '.post_processor.trim_offsets == false' "$data/tokenizer.json"
    cp -r "$data" older
    sed -i 's/"trim_offsets": false/"trim_offsets": true/' older/tokenizer.json
    run_code 0 shardtool verify older
    [ ! -e "$data/characters.txt" ]
    run_match 76 "has another vocabulary, of 400 ids" shardtool decode "$data/val/000/000000.zst"
    shardtool decode --vocabulary "$vocab" "$data/val/000/000000.zst" | head -c 8 | grep -q 'The mill'
    shardtool decode --vocabulary "$data/tokenizer.json" "$data/val/000/000000.zst" | head -c 8 | grep -q 'The mill'
    run_code 0 shardtool verify "$data"
}

@test "the same vocabulary by each of its files gives the same dataset" {
    mkdir pair
    jq -c .model.vocab "$data/tokenizer.json" >pair/vocab.json
    jq -r '"#version: 0.2", .model.merges[]' "$data/tokenizer.json" >pair/merges.txt
    sed 's/^/x/;s/^x//' "$vocab/vocabulary.tiktoken" >two.tiktoken
    shardtool tokenize --ids --format text --vocabulary "$vocab" "$text" >ids
    shardtool tokenize --ids --format text --vocabulary "$data" "$text" | cmp - ids
    shardtool tokenize --ids --format text --vocabulary "$data/tokenizer.json" --pattern o200k "$text" | cmp - ids
    shardtool tokenize --ids --format text --vocabulary pair --pattern o200k "$text" | cmp - ids
    shardtool tokenize --ids --format text --vocabulary two.tiktoken --pattern o200k "$text" | cmp - ids
    cp two.tiktoken tokenizer.model # the name that Llama 3 has for it
    shardtool tokenize --ids --format text --vocabulary tokenizer.model --pattern o200k "$text" | cmp - ids
    # the ends of lines of Windows, and empty lines, as tiktoken and tokenizers read them
    sed 's/$/\r/' two.tiktoken >lines.tiktoken
    sed -i 's/$/\r/' pair/merges.txt
    shardtool tokenize --ids --format text --vocabulary lines.tiktoken --pattern o200k "$text" | cmp - ids
    sed '5s/$/\n\n/;7s/ /\t /' two.tiktoken >lines.tiktoken
    shardtool tokenize --ids --format text --vocabulary lines.tiktoken --pattern o200k "$text" | cmp - ids
    shardtool tokenize --ids --format text --vocabulary pair --pattern o200k "$text" | cmp - ids
    shardtool tokenize -q --docs lines --val 0.2 --vocabulary "$data/tokenizer.json" -o again "$text"
    shardtool diff "$data" again
    cmp "$data/tokenizer.json" again/tokenizer.json
}

@test "GPT-2's vocabulary in the form of another tool is GPT-2's, and the dataset keeps no file" {
    shardtool tokenize --ids --format text "$text" >ids
    mkdir gpt2
    cp "$ROOT/tokenizer/gpt2_merges.bpe" gpt2/merges.txt
    shardtool tokenize -q --docs lines -o plain "$text"
    python3 - "$ROOT/tokenizer/gpt2_merges.bpe" >gpt2/vocab.json <<'END'
import json, sys
printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
names = [chr(b) for b in printable] + [chr(256 + i) for i in range(68)]
names += ["".join(line.split()) for line in open(sys.argv[1], encoding="utf-8").read().splitlines()[1:]]
print(json.dumps({name: i for i, name in enumerate(names + ["<|endoftext|>"])}))
END
    shardtool tokenize --ids --format text --vocabulary gpt2 "$text" | cmp - ids
    shardtool tokenize -q --docs lines --vocabulary gpt2 -o same "$text"
    shardtool diff plain same
    [ ! -e same/tokenizer.json ]
}

@test "datasets that are made of one keep its vocabulary, and another one is refused" {
    shardtool shuffle -q -o mixed "$data"
    shardtool merge -q -o joined mixed
    shardtool split -q --parts 2 -o parts "$data"
    for set in mixed joined parts/part-000000; do
        cmp "$data/tokenizer.json" $set/tokenizer.json
        shardtool verify -q $set
    done
    shardtool tokenize -q --docs lines -o gpt2 "$text"
    run_match 65 "have different vocabularies" shardtool cat -o both.zst "$data/train/000/000000.zst" gpt2/train/000/000000.zst
    for command in "cat" "cat --raw -o both.bin" "info --ids"; do
        run_match 65 "'$data' and 'gpt2' have different vocabularies" shardtool $command "$data" gpt2
        run_match 65 "have different vocabularies" shardtool $command gpt2/train/000/000000.zst "$data/train/000/000000.zst"
    done
    [ "$(shardtool cat "$data" gpt2 2>/dev/null | wc -c)" = 0 ]
    [ ! -e both.bin ]
    shardtool cat "$data" "$data/train/000/000000.zst" >same.bin
    run_match 65 "vocabular" shardtool shuffle -q -o no "$data" gpt2
    run_match 2 "another vocabulary" shardtool tokenize -q -o "$data" --docs lines --val 0.2 "$text"
    rm mixed/tokenizer.json
    run_match 1 "'mixed' has no characters.txt and no tokenizer.json" shardtool verify mixed
    jq '.model.ignore_merges = false' "$data/tokenizer.json" >mixed/tokenizer.json
    run_match 1 "'mixed/tokenizer.json' is damaged or of another dataset" shardtool verify --quick mixed
}

@test "no command takes a vocabulary that was changed or exchanged under a dataset" {
    cp -r "$data" set
    shardtool export-tokens --format nanogpt -o files set
    cmp "$data/tokenizer.json" files/tokenizer.json
    shardtool import-tokens --format nanogpt -o back files
    [ "$(shardtool info --json back | jq -c '[.vocab_fp, .train_tokens]')" = "$(shardtool info --json set | jq -c '[.vocab_fp, .train_tokens]')" ]
    shardtool filter --min-tokens 1 -o filtered set
    shardtool train-vocabulary -q -V 400 --pattern o200k --special '<|other|>' -o other "$text" # as many ids, other ones
    cp other/tokenizer.json set/tokenizer.json
    commands=("export-tokens --format nanogpt" "export-tokens --format llmc" "filter --min-tokens 1" shuffle dedup merge "split --parts 2")
    for command in "${commands[@]}"; do
        run_match 65 "'set/tokenizer.json' is damaged or of another dataset" shardtool $command -o new set
        [ ! -e new/dataset.jsonl ] && [ ! -e new/train.bin ]
    done
    run_match 65 "'set/tokenizer.json' is damaged or of another dataset" shardtool filter --min-tokens 1 -o filtered set # it is complete
    cmp "$data/tokenizer.json" filtered/tokenizer.json
    run_match 65 "another vocabulary, of 400 ids, than its tokenizer.json" shardtool decode set
    rm set/tokenizer.json
    for command in merge "export-tokens --format nanogpt"; do
        run_match 65 "'set' has no characters.txt and no tokenizer.json" shardtool $command -o new set
        [ ! -e new/dataset.jsonl ] && [ ! -e new/train.bin ]
    done
    # a file beside ids of GPT-2's vocabulary is of something else
    shardtool tokenize -q --docs lines -o gpt2 "$text"
    cp other/tokenizer.json gpt2
    shardtool export-tokens --format nanogpt -o gpt2files gpt2
    shardtool merge -o joined gpt2
    [ ! -e gpt2files/tokenizer.json ] && [ ! -e joined/tokenizer.json ]
}

@test "import takes the vocabulary that an option names, and prints which one it takes without" {
    shardtool export-tokens --format nanogpt -o files "$data"
    rm files/tokenizer.json
    run_match 0 "the ids are taken as GPT-2's" shardtool import-tokens --format nanogpt -o wrong files
    for name in "$vocab" "$data/tokenizer.json"; do
        shardtool import-tokens -q --force --format nanogpt --vocabulary "$name" -o back files
        cmp "$data/tokenizer.json" back/tokenizer.json
        cmp <(shardtool decode "$data") <(shardtool decode back)
    done
    printf ab >few.txt
    run_match 65 "at index 0 is not in the vocabulary of 3" shardtool import-tokens --format nanogpt --vocabulary few.txt -o few files
}

@test "a model takes the vocabulary of its dataset, and runs, checkpoints and exported models keep it" {
    tiny=(--n_layer=1 --n_head=2 --n_embd=16 --block_size=32 --batch_size=4 --gradient_accumulation_steps=1 --eval_iters=2
        --eval_interval=5 --dtype=float32 --threads=1 --warmup_iters=2 --lr_decay_iters=10 --device=cpu --sample_tokens=0)
    trainer() { "$BIN/trainer" "$@"; }
    trainer plan "${tiny[@]}" --dataset="$data" | grep -q '10.0 k parameters'
    trainer train --quiet "${tiny[@]}" --dataset="$data" --out_dir=run --max_iters=5
    cmp "$data/tokenizer.json" run/tokenizer.json
    cmp "$data/tokenizer.json" run/ckpt-00000005/tokenizer.json
    jq -e '.vocab_size == 400 and .eos_token_id == 399' run/ckpt-00000005/config.json
    trainer train --quiet "${tiny[@]}" --dataset="$data" --out_dir=run --max_iters=6
    trainer sample --out_dir=run --start='The mill' --max_new_tokens=9 --num_samples=1 --device=cpu | grep -q '^The mill'
    trainer export -q -o model --out_dir=run
    for file in tokenizer.json tokenizer_config.json; do cmp run/ckpt-00000006/$file model/$file; done
    jq -e '.unk_token == "<|endoftext|>" and .add_bos_token == false' model/tokenizer_config.json # for CTranslate2 and llama.cpp
    run_match 0 "exported" trainer export -o plain --out_dir=run
    not grep relu2 <<<"$output"
    trainer train --quiet "${tiny[@]}" --mlp=relu2 --dataset="$data" --out_dir=squares --max_iters=1
    run_match 0 "mlp=relu2 is for transformers alone: llama.cpp computes GELU in its place" trainer export -o other_mlp --out_dir=squares
    shardtool tokenize --ids --format text --vocabulary model "$text" | cmp - <(shardtool tokenize --ids --format text --vocabulary "$vocab" "$text")
    trainer sample --init_from=./model --start='The' --max_new_tokens=5 --num_samples=1 --device=cpu | grep -q '^The'
    # another vocabulary of the same size, and GPT-2's
    shardtool train-vocabulary -q -V 400 --pattern gpt2 -o other "$text"
    shardtool tokenize -q --docs lines --val 0.2 --vocabulary other -o others "$text"
    # vocab.json and merges.txt name no pattern: their readers take that of GPT-2
    [ -z "$(find run model -name vocab.json -o -name merges.txt)" ]
    trainer train --quiet "${tiny[@]}" --dataset=others --out_dir=pair --max_iters=1
    trainer export -q -o two --out_dir=pair
    for file in tokenizer.json vocab.json merges.txt; do cmp pair/ckpt-00000001/$file two/$file; done
    rm two/tokenizer.json
    shardtool tokenize --ids --format text --vocabulary two --pattern gpt2 "$text" | cmp - <(shardtool tokenize --ids --format text --vocabulary other "$text")
    run_match 76 "is another vocabulary than that with which the run in 'run' was trained" trainer train "${tiny[@]}" --dataset=others --out_dir=run --max_iters=7
    shardtool train-vocabulary -q -V 380 --pattern gpt2 -o smaller "$text"
    shardtool tokenize -q --docs lines --val 0.2 --vocabulary smaller -o fewer "$text"
    run_match 76 "vocab_size is 380, was 400" trainer train "${tiny[@]}" --dataset=fewer --out_dir=run --max_iters=7
    run_match 76 "is another vocabulary" trainer sample --out_dir=run --vocabulary=others/tokenizer.json --start=a --device=cpu
    run_match 65 "have different vocabularies" "$BIN/loader" serve "$data:1" others:1 --endpoint "ipc://$PWD/mill"
}

# bats test_tags=ci
@test "a vocabulary with as many ids as GPT-2's is known by its tokens, in datasets, runs and exported models" {
    tiny=(--n_layer=1 --n_head=2 --n_embd=16 --block_size=32 --batch_size=2 --gradient_accumulation_steps=1 --eval_iters=2
        --eval_interval=0 --dtype=float32 --threads=1 --warmup_iters=1 --lr_decay_iters=9 --device=cpu --sample_tokens=0)
    trainer() { "$BIN/trainer" "$@"; }
    shardtool tokenize -q --docs lines --val 0.2 -o gpt2 "$text"
    trainer train --quiet "${tiny[@]}" --dataset=gpt2 --out_dir=old --max_iters=1
    # GPT-2's tokens with another pattern
    mkdir own
    jq -c --slurpfile other "$data/tokenizer.json" '.pre_tokenizer = $other[0].pre_tokenizer' old/ckpt-00000001/tokenizer.json >own/tokenizer.json
    shardtool tokenize -q --docs lines --val 0.2 --vocabulary own -o mine "$text"
    shardtool info --json mine | jq -e '.vocab_size == 50257'
    not shardtool diff gpt2 mine
    shardtool verify -q mine
    trainer train --quiet "${tiny[@]}" --dataset=mine --out_dir=run --max_iters=1
    trainer train --quiet "${tiny[@]}" --dataset=mine --out_dir=run --max_iters=2
    cmp mine/tokenizer.json run/ckpt-00000002/tokenizer.json
    trainer sample --out_dir=run --start='The mill' --max_new_tokens=3 --num_samples=1 --device=cpu | grep -q '^The mill'
    trainer export -q -o model --out_dir=run
    cmp mine/tokenizer.json model/tokenizer.json
    trainer eval --quiet --init_from=./model --dataset=mine --eval_iters=1 --device=cpu
    # one is not taken for the other
    run_match 76 "vocab_size is GPT-2's 50257, was 50257 of another vocabulary" trainer train "${tiny[@]}" --dataset=gpt2 --out_dir=run --max_iters=3
    run_match 76 "vocab_size is 50257 of another vocabulary, was GPT-2's" trainer train "${tiny[@]}" --dataset=mine --out_dir=old --max_iters=2
    run_match 76 "vocabular" trainer eval --init_from=./model --dataset=gpt2 --eval_iters=1 --device=cpu
    run_match 65 "have different vocabularies" "$BIN/loader" serve gpt2:1 mine:1 --endpoint "ipc://$PWD/mill"
    "$BIN/loader" serve mine --quiet --endpoint "ipc://$PWD/mill" 3>&- &
    run_match 76 "has another vocabulary than GPT-2's, of as many ids as the model: name its characters.txt or tokenizer.json by --vocabulary" \
        trainer train "${tiny[@]}" --loader="ipc://$PWD/mill" --out_dir=new --max_iters=1
    trainer train --quiet "${tiny[@]}" --loader="ipc://$PWD/mill" --vocabulary=own/tokenizer.json --out_dir=new --max_iters=1
    kill $!
    cmp run/ckpt-00000001/model.safetensors new/ckpt-00000001/model.safetensors
    # a model of another tool whose tokenizer.json cannot be read is GPT-2's by its 50,257 ids, as before
    trainer export -q -o plain --out_dir=old
    echo '{"model": {"type": "Unigram"}}' >plain/tokenizer.json
    trainer eval --quiet --init_from=./plain --dataset=gpt2 --eval_iters=1 --device=cpu
    # a file of GPT-2's tokens changes nothing
    trainer train --quiet "${tiny[@]}" --dataset=gpt2 --vocabulary=old/ckpt-00000001/tokenizer.json --out_dir=old --max_iters=2
    rm mine/tokenizer.json
    run_match 76 "has another vocabulary, of 50257 ids" shardtool decode mine
}

@test "bits per byte count the bytes of the vocabulary's tokens, and none of special ones" {
    small=(--n_layer=1 --n_head=2 --n_embd=16 --block_size=32 --batch_size=4 --gradient_accumulation_steps=1 --eval_iters=2
        --eval_interval=5 --dtype=float32 --threads=1 --warmup_iters=2 --lr_decay_iters=10 --device=cpu --sample_tokens=0)
    "$BIN/trainer" train --quiet "${small[@]}" --dataset="$data" --out_dir=run --max_iters=1
    tokenize_two two "$text" --vocabulary "$vocab"
    "$BIN/trainer" eval --json --out_dir=run --dataset=two --eval_tokens=320 --eval_order=sequential --threads=1 --device=cpu >eval.json
    n=$(jq 'select(.split == "train").tokens' eval.json)
    bytes=$(shardtool decode two "1:$((n + 1))" | wc -c)
    head -n 1 eval.json | jq -e "(.bpb - .loss * $n / $bytes / (2 | log)) | fabs < 0.000001"
}

@test "what a file requires and the encoder does not do is refused by name" {
    refused() { # jq's change of tokenizer.json, message
        jq "$1" "$data/tokenizer.json" >bad.json
        run_match 65 "$2" shardtool tokenize --ids --format text --vocabulary bad.json "$text"
    }
    refused '.version = "2.0"' 'its version is not "1.0"'
    refused '.normalizer = {"type": "NFC"}' "its normalizer NFC is not supported"
    refused '.model.type = "Unigram"' "its model Unigram is not supported: only BPE is"
    refused '.model.type = "WordPiece"' "its model WordPiece is not supported"
    refused '.model.dropout = 0.1' "its dropout is not supported"
    for same in 'del(.version)' '.model.dropout = 0.0' '.normalizer = {"type": "Sequence", "normalizers": []}' \
        '.pre_tokenizer = {"type": "Sequence", "pretokenizers": [.pre_tokenizer]}' '.truncation = {"max_length": 8}'; do
        jq "$same" "$data/tokenizer.json" >same.json
        shardtool tokenize --ids --format text --vocabulary same.json "$text" | cmp - <(shardtool tokenize --ids --format text --vocabulary "$data" "$text")
    done
    refused '.model.byte_fallback = true' "its byte_fallback is not supported"
    refused '.pre_tokenizer = {"type": "Metaspace"}' "the pre-tokenizer Metaspace is not supported"
    refused '.pre_tokenizer.pretokenizers[0].pattern.Regex = "x+"' "its pattern is none of gpt2, gpt4, llama3, qwen2 or o200k: x+"
    refused '.added_tokens[0].special = false' "the added token '<|pad|>' cuts text"
    refused '.added_tokens[0].id = 300 | .model.vocab["<|pad|>"] = 300' "no token has the id 398"
    refused '.model.vocab["b"] = .model.vocab["a"]' "two tokens have the id"
    refused '.added_tokens[1].id = 1048576' "vocabularies of more than 1048576 ids are not supported"
    refused '.model.merges[5] = "zz yy"' "a merge is not of two tokens that give a third"
    refused '.model.merges |= (.[0:9] + [.[20]] + .[9:])' "merges are not in the order of their ids"
    refused 'del(.model.vocab["a"])' "no token has the id"
    refused '.added_tokens += [{"id": 400, "content": "<|pad|>", "special": true}]' "the special token '<|pad|>' of id 400 is also the token of id 398"
    (cat "$vocab/vocabulary.tiktoken" && printf '%s 398\n' "$(printf '<|endoftext|>' | base64)") >bad.tiktoken
    run_match 65 "the special token '<|endoftext|>' of id 399 is also the token of id 398" shardtool tokenize --ids --format text --vocabulary bad.tiktoken --pattern gpt4 "$text"
    echo '{"model": ' >bad.json
    run_match 65 "'bad.json': it is not JSON" shardtool tokenize --ids --format text --vocabulary bad.json "$text"
    run_match 2 "a .tiktoken file does not name its pattern: add --pattern" shardtool tokenize --ids --format text --vocabulary "$vocab/vocabulary.tiktoken" "$text"
    run_match 2 "unknown pattern 'gpt9'" shardtool tokenize --ids --format text --vocabulary "$vocab/vocabulary.tiktoken" --pattern gpt9 "$text"
    run_match 2 "its pattern is o200k: leave --pattern gpt2 out" shardtool tokenize --ids --format text --vocabulary "$data/tokenizer.json" --pattern gpt2 "$text"
    refused '.added_tokens[].content |= sub("endoftext"; "fin")' "none of its 2 special tokens is <|endoftext|>, <|end_of_text|>, </s> or <|eos|>: name the one that ends a document by --end-of-text"
    run_match 65 "'<|eos|>' is none of its special tokens" shardtool tokenize --ids --format text --vocabulary "$data" --end-of-text '<|eos|>' "$text"
    run_match 2 "--end-of-text names a token of --vocabulary" shardtool tokenize --ids --format text --end-of-text '<|pad|>' "$text"
    run_match 2 "--pattern and --end-of-text are for merges" shardtool tokenize --ids --format text --vocabulary "$text" --end-of-text '<|pad|>' "$text"
    awk '$2 >= 300 {$2++} 1' "$vocab/vocabulary.tiktoken" >gap.tiktoken # as p50k_base, whose 50256 is <|endoftext|>
    run_match 65 "line 301 does not have the rank 300: ranks count from 0, in order, and only that of the token of --end-of-text can be missing" \
        shardtool tokenize --ids --format text --vocabulary gap.tiktoken --pattern o200k "$text"
    shardtool tokenize --ids --format text --vocabulary gap.tiktoken --pattern o200k --end-of-text '<|endoftext|>' "$text" >gap
    cmp gap <(shardtool tokenize --ids --format text --vocabulary "$vocab" "$text" | awk '{for (i = 1; i <= NF; i++) if ($i >= 300) $i++} 1')
    shardtool tokenize -q --vocabulary gap.tiktoken --pattern o200k --end-of-text '<|endoftext|>' -o gaps "$text"
    shardtool info --json gaps | jq -e '[.vocab_size, .eot_id] == [399, 300]'
    sed '5s/ 4/ 7/' "$vocab/vocabulary.tiktoken" >bad.tiktoken
    run_match 65 "line 5 does not have the rank 4" shardtool tokenize --ids --format text --vocabulary bad.tiktoken --pattern gpt4 "$text"
    (cat "$vocab/vocabulary.tiktoken" && printf '%s 398\n' "$(head -c 256 /dev/zero | base64 -w0)") >bad.tiktoken
    run_match 65 "the token of id 398 has 256 bytes, and at most 255 are supported" shardtool tokenize --ids --format text --vocabulary bad.tiktoken --pattern gpt4 "$text"
    (cat "$vocab/vocabulary.tiktoken" && printf '%s 398\n' "$(head -c 300 /dev/zero | base64 -w0)") >bad.tiktoken
    run_match 65 "line 399 has a token of more than 255 bytes" shardtool tokenize --ids --format text --vocabulary bad.tiktoken --pattern gpt4 "$text"
    run_match 66 "no vocab.json with merges.txt" shardtool tokenize --ids --format text --vocabulary . "$text"
}

@test "a file that is not a vocabulary is named for what it is" {
    is_no() { # MESSAGE [NAME], of the file `other`
        run_match 65 "$1" shardtool tokenize --ids --format text --vocabulary "${2:-other}" "$text"
    }
    printf '\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02' >other # as sentencepiece 0.2.3 begins
    cp other tokenizer.model
    is_no "'other' is not a vocabulary: it is a model of SentencePiece"
    is_no "'tokenizer.model' is not a vocabulary: it is a model of SentencePiece" tokenizer.model
    printf 'GGUF\3\0\0\0' >other && is_no "it is a GGUF"
    printf '\x20\0\0\0\0\0\0\0{"a":{"dtype":"F32"}}' >other && is_no "a file of safetensors"
    printf '#version: 0.2\ne r\n' >other && is_no "merges.txt alone, without the ids"
    printf '\x80\4\x95' >other && is_no "a pickle, as nanochat's tokenizer.pkl"
    echo text | gzip >other && is_no "it is compressed"
    python3 -c 'import zipfile; zipfile.ZipFile("other", "w").writestr("a", "b")' && is_no "a zip archive, as torch.save"
    printf 'e r\nt h\n' >other
    is_no "neither tokenizer.json nor NAME.tiktoken, and no file of characters, each once: the vocabulary 'other': the character U+0020 occurs twice"
    jq -c .model.vocab "$data/tokenizer.json" >vocab.json && is_no "it is not tokenizer.json: it has no 'model'" vocab.json
}

# tiktoken_of WORDS: a .tiktoken of the 256 bytes and the words that a Python expression gives.
tiktoken_of() {
    python3 -c "
import base64, itertools
words = [bytes([byte]) for byte in range(256)] + list($1)
print('\n'.join(f'{base64.b64encode(word).decode()} {id}' for id, word in enumerate(words)))"
}

# bats test_tags=ci
@test "a .tiktoken whose merges would make a tokenizer.json that no reader takes, or are too many, is refused" {
    # each way to cut a word in two words is a merge, and JSON spells these bytes out
    tiktoken_of "(b'\\1' * i + b'\\2' * (size - i) for size in range(2, 161) for i in range(size + 1))" >large.tiktoken
    run_match 65 "13295 tokens and 1378000 merges are a tokenizer.json of [0-9]* MiB, and files of at most 256 are supported" \
        shardtool tokenize --ids --format text --vocabulary large.tiktoken --pattern gpt4 "$text"
    tiktoken_of "map(bytes, (word for size in range(2, 19) for word in itertools.product(b'\\1\\2', repeat=size)))" >many.tiktoken
    run_match 65 "more than 6291456 merges are not supported" shardtool tokenize --ids --format text --vocabulary many.tiktoken --pattern gpt4 "$text"
}

@test "files of Hugging Face beside a vocabulary that change its ids are refused by name, and the class names the pattern" {
    mkdir fast pair
    cp "$data/tokenizer.json" fast
    jq -c .model.vocab "$data/tokenizer.json" >pair/vocab.json
    jq -r '"#version: 0.2", .model.merges[]' "$data/tokenizer.json" >pair/merges.txt
    config=tokenizer_config.json
    for folder in fast pair; do
        echo '{"add_prefix_space": false, "added_tokens_decoder": {"399": {"content": "<|endoftext|>", "special": true}}}' >$folder/$config
        echo '{"<|pad|>": 398}' >$folder/added_tokens.json
        shardtool tokenize --ids --format text --vocabulary $folder --pattern o200k "$text" >ids
        shardtool tokenize --ids --format text --vocabulary "$vocab" "$text" | cmp - ids
        rm $folder/added_tokens.json
        change() { # JSON, message
            echo "$1" >$folder/$config
            run_match 65 "$folder/$config': $2" shardtool tokenize --ids --format text --vocabulary $folder --pattern o200k "$text"
        }
        change '{"add_prefix_space": true}' "add_prefix_space is not supported"
        change '{"added_tokens_decoder": {"399": {"content": "<|endoftext|>", "special": false}}}' "the added token '<|endoftext|>' cuts text"
        change '{"added_tokens_decoder": {"400": {"content": "<|mill|>", "special": true}}}' "the added token '<|mill|>' is not the token 400"
        change '{"added_tokens_decoder": {"399": {"content": "<|pad|>", "special": true}}}' "the added token '<|pad|>' is not the token 399"
        change '{"added_tokens_decoder": {"x": {}}}' "an added token has no content"
        change '{"pad_token": "mill"}' "its pad_token 'mill' is not a special token of the vocabulary"
        change '{"image_token": {"content": "<s>"}}' "its image_token '<s>' is not"
        change '{"extra_special_tokens": {"a": "<|pad|>", "b": "m"}}' "its extra_special_tokens 'm' is not"
        # special_tokens_map.json counts only without added_tokens_decoder
        echo '{"additional_special_tokens": ["<|pad|>", {"content": "\\n"}], "unk_token": null}' >$folder/special_tokens_map.json
        echo '{"eos_token": "<|endoftext|>", "add_bos_token": true, "pad_token": {"content": "<|pad|>"}}' >$folder/$config
        run_match 65 "$folder/special_tokens_map.json': its additional_special_tokens" shardtool tokenize --ids --format text --vocabulary $folder --pattern o200k "$text"
        echo '{"added_tokens_decoder": {"398": {"content": "<|pad|>", "special": true}}}' >$folder/$config
        shardtool tokenize --ids --format text --vocabulary $folder --pattern o200k "$text" | cmp - ids
        rm $folder/special_tokens_map.json
        echo '{' >$folder/$config
        run_match 65 "$folder/$config' is not JSON" shardtool tokenize --ids --format text --vocabulary $folder --pattern o200k "$text"
        rm $folder/$config
        echo '{"the mill": 400}' >$folder/added_tokens.json
        run_match 65 "$folder/added_tokens.json': the added token 'the mill' is not the token 400" shardtool tokenize --ids --format text --vocabulary $folder --pattern o200k "$text"
        rm $folder/added_tokens.json
    done
    echo '{"add_prefix_space": true}' >fast/$config
    run_match 65 "add_prefix_space" shardtool tokenize --ids --format text --vocabulary fast/tokenizer.json "$text"
    echo '{"tokenizer_class": "GPT2TokenizerFast"}' >fast/$config
    run_match 65 "the GPT2TokenizerFast has the pattern gpt2 and no tokens but those of merges" shardtool tokenize --ids --format text --vocabulary fast "$text"
    # as transformers writes a tokenizer without a length
    echo '{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1000000000000000019884624838656}' >fast/$config
    shardtool tokenize --ids --format text --vocabulary fast "$text" | cmp - ids
    # the pattern of vocab.json with merges.txt
    echo '{"tokenizer_class": "Qwen2Tokenizer"}' >pair/$config
    run_match 2 "'pair': its tokenizer_config.json names the Qwen2Tokenizer, which does not tell the pattern of vocab.json" shardtool tokenize --ids --format text --vocabulary pair "$text"
    shardtool tokenize --ids --format text --vocabulary pair --pattern o200k "$text" | cmp - ids
    echo '{"model_max_length": 1024}' >pair/$config
    run_match 2 "names no tokenizer_class" shardtool tokenize --ids --format text --vocabulary pair "$text"
    for class in GPT2Tokenizer GPT2TokenizerFast; do
        echo "{\"tokenizer_class\": \"$class\"}" >pair/$config
        run_match 2 "names the $class, whose pattern is gpt2: leave --pattern o200k out" shardtool tokenize --ids --format text --vocabulary pair --pattern o200k "$text"
        shardtool tokenize --ids --format text --vocabulary pair "$text" >gpt2.ids
    done
    rm pair/$config
    shardtool tokenize --ids --format text --vocabulary pair --pattern gpt2 "$text" | cmp - gpt2.ids
}
