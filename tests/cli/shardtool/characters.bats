# A vocabulary of characters, as nanoGPT's shakespeare_char: from the text to a sample.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    export LC_ALL=C.UTF-8
    seq 1 400 | sed 's/.*/Die M\xc3\xbchle am Bach, line & of the wheel;/' >text.txt
    "$BIN/shardtool" train-vocabulary --characters text.txt >abc
    "$BIN/shardtool" tokenize -q --docs lines --val 0.2 --vocabulary abc -o data text.txt
}

setup() {
    enter_test && data=$BATS_FILE_TMPDIR/data abc=$BATS_FILE_TMPDIR/abc text=$BATS_FILE_TMPDIR/text.txt
    tiny=(--dataset="$data" --n_layer=1 --n_head=2 --n_embd=16 --block_size=32 --batch_size=4 --gradient_accumulation_steps=1
        --eval_iters=2 --eval_interval=5 --dtype=float32 --threads=1 --warmup_iters=2 --lr_decay_iters=10 --device=cpu)
}

@test "characters prints each character of the text once, in order of code points" {
    [ "$(shardtool train-vocabulary --characters "$text" | tr -d '\n')" = "$(grep -o . "$text" | LC_ALL=C sort -u | tr -d '\n')" ]
    gzip -c "$text" | shardtool train-vocabulary --characters - | cmp - <(shardtool train-vocabulary --characters "$text")
    mkdir texts
    printf 'good\n' >texts/a.txt
    printf 'good\nnot \xff\n' >texts/b.txt
    run_match 65 "'texts/b.txt' document 1: it is not UTF-8" shardtool train-vocabulary --characters --docs lines texts
}

@test "tokens are places in the vocabulary, and decode gives the text back" {
    cmp "$abc" "$data/characters.txt"
    n=$(wc -m <"$abc")
    shardtool info --json "$data" | jq -e ".vocab_size == $n + 1"
    shardtool cat --ids "$data"/val/000/000000.zst 0:5 >ids
    first=$(shardtool decode --doc 0 "$data" --split val | head -c 5)
    [ "$first" = "Die M" ]
    for i in 1 2 3; do [ "$(sed -n "$i"p <(tr ' ' '\n' <ids))" = "$(grep -obaF "${first:i-1:1}" <<<"$(tr '\n' '_' <"$abc")" | head -1 | cut -d: -f1)" ]; done
    sort <(shardtool decode "$data" | sed 's/<|endoftext|>/\n/g'; shardtool decode --split val "$data" | sed 's/<|endoftext|>/\n/g') | grep . | cmp - <(sort "$text")
    shardtool info --ids --json "$data" | jq -r 'select(.id == 3).token' | cmp - <(head -c 4 "$abc" | tail -c 1; echo)
    [ "$(shardtool info --ids --json "$data/val/000/000000.zst" | jq -r .token | sort -u)" = "" ] # not the text of GPT-2's ids
    run_match 76 "has another vocabulary, of $((n + 1)) ids" shardtool decode "$data/val/000/000000.zst"
    shardtool decode --vocabulary "$abc" "$data/val/000/000000.zst" | head -c 5 | grep -q 'Die M'
}

@test "a character that is not in the vocabulary, and a file that is none, are named" {
    echo 'a Zebra' >z.txt
    run_match 65 "the character U+005A at byte 2 is not in the vocabulary" shardtool tokenize -q --vocabulary "$abc" -o z z.txt
    printf abca >twice
    run_match 65 "no file of characters, each once: the vocabulary 'twice': the character U+0061 occurs twice" shardtool tokenize -q --vocabulary twice -o z z.txt
    : >none
    run_code 65 shardtool tokenize -q --vocabulary none -o z z.txt
    run_match 2 "another vocabulary" shardtool tokenize -q -o "$data" --docs lines --val 0.2 "$text"
}

@test "verify compares the characters of a dataset with its manifest" {
    cp -r "$data" set
    run_code 0 shardtool verify set
    tr 'D' 'E' <"$text" >other.txt
    shardtool train-vocabulary --characters other.txt >set/characters.txt # as many
    run_match 1 "'set/characters.txt' is damaged or of another dataset" shardtool verify --quick set
    [[ "$output" == *"0 of 2 shards are bad; 1 other error"* ]]
    run_match 65 "another vocabulary, of $(($(wc -m <"$abc") + 1)) ids, than its characters.txt" shardtool decode set
    head -c 5 "$abc" >set/characters.txt
    run_code 1 shardtool verify set
    rm set/characters.txt
    run_match 1 "'set' has no characters.txt" shardtool verify --json set
}

@test "datasets that are made of one of characters keep its characters" {
    shardtool shuffle -q -o mixed "$data"
    shardtool merge -q -o joined mixed
    shardtool split -q --parts 2 -o parts "$data"
    rm mixed/characters.txt && shardtool shuffle -q -o mixed "$data" # of a run that was killed at its end
    for set in mixed joined parts/part-000000; do
        cmp "$abc" $set/characters.txt
        shardtool verify -q $set
    done
    shardtool tokenize -q -o gpt2 "$text"
    cp "$abc" gpt2/
    shardtool shuffle -q --force -o mixed gpt2
    [ ! -e mixed/characters.txt ]
}

@test "--max-bad passes over documents with other characters, and lists them" {
    mkdir in
    printf 'Die M\xc3\xbchle\n' | tee in/a.txt in/d.txt >in/f.txt
    echo 'a Zebra' >in/b.txt
    printf 'Die \xff' >in/c.txt
    { cat "$text" "$text" "$text" "$text"; } >in/e.txt                 # more than one batch of 1 MiB
    while [ "$(stat -c %s in/e.txt)" -lt 2500000 ]; do cat in/e.txt in/e.txt >e && mv e in/e.txt; done
    printf 'Zebra %s' "$(cat "$text")" >>in/e.txt
    run_match 65 "'in/b.txt' document 0: the character U+005A at byte 2 is not in the vocabulary" shardtool tokenize -q --vocabulary "$abc" -o out in
    run_code 65 shardtool tokenize -q --vocabulary "$abc" --max-bad 2 -o out in
    for j in 1 3; do
        run_match 0 "skipped 3 bad inputs, the first: 'in/b.txt' document 0" shardtool tokenize --vocabulary "$abc" --max-bad 100% --val 0 -j $j -o out$j in
    done
    shardtool diff out1 out3
    cmp out1/skipped.jsonl out3/skipped.jsonl
    [ "$(jq -r .input out1/skipped.jsonl | tr '\n' ' ')" = "in/b.txt in/c.txt in/e.txt " ]
    [ "$(jq -c .document out1/skipped.jsonl | sort -u)" = 0 ]
    eot='<|endoftext|>' # the long document ends before its first other character
    cmp <(cat in/a.txt; printf $eot; cat in/d.txt; printf $eot; sed '/Zebra/Q' in/e.txt; printf $eot; cat in/f.txt; printf $eot) <(shardtool decode out1)
}

@test "a model takes the vocabulary of its dataset, samples with it and is resumed only with it" {
    trainer train "${tiny[@]}" --out_dir=run --max_iters=5 --sample_tokens=10
    cmp "$abc" run/characters.txt
    n=$(($(wc -m <"$abc") + 1))
    jq -e ".vocab_size == $n and .eos_token_id == $n - 1" run/ckpt-*/config.json
    trainer sample --out_dir=run --start='Die M' --max_new_tokens=20 --num_samples=1 --device=cpu | head -1 | grep -q '^Die M'
    trainer eval "${tiny[@]}" --out_dir=run --json | jq -se 'length == 2'
    trainer train --quiet "${tiny[@]}" --out_dir=run --max_iters=6 --sample_tokens=0
    run_match 65 "is not in the vocabulary" trainer sample --out_dir=run --start='Zebra 9' --device=cpu
    # another vocabulary, of another size and of the same
    shardtool tokenize -q --docs lines --val 0.2 -o gpt2 "$text"
    run_match 76 "vocab_size is GPT-2's 50257, was $n" trainer train "${tiny[@]}" --dataset=gpt2 --out_dir=run --max_iters=7
    tr 'D' 'E' <"$text" >other.txt
    shardtool train-vocabulary --characters other.txt >abc2
    shardtool tokenize -q --docs lines --val 0.2 --vocabulary abc2 -o other other.txt
    run_match 2 "n_layer is 12, was 1"*"vocab_size is GPT-2's 50257, was $n" trainer train --dataset=gpt2 --out_dir=run # no configuration
    run_code 76 trainer train "${tiny[@]}" --dataset=other --out_dir=run --max_iters=7
    run_match 76 "has another vocabulary than 'abc2', of as many ids" trainer train "${tiny[@]}" --vocabulary=abc2 --out_dir=run --max_iters=7
    run_code 76 trainer train "${tiny[@]}" --dataset=other --vocabulary=abc2 --out_dir=run --max_iters=7
    [[ "$output" == *"'abc2' is another vocabulary than that with which the run in 'run' was trained"* ]]
    cmp "$abc" run/characters.txt
    [ "$(wc -m <abc2)" = "$(wc -m <"$abc")" ]
    run_code 76 trainer train "${tiny[@]}" --dataset=gpt2 --out_dir=fresh --max_iters=7 --vocabulary=abc2
    run_code 76 trainer sample --out_dir=run --vocabulary=abc2 --start=a --device=cpu
    [[ "$output" == *"'abc2' is another vocabulary than that with which the model in 'run/ckpt-"* ]]
    run_code 76 trainer eval "${tiny[@]}" --dataset=other --out_dir=run
    last=$(checkpoint run 6)
    cp -r "$last" copy # a checkpoint has its characters, wherever it is
    trainer sample --init_from=./copy --start=Die --num_samples=1 --max_new_tokens=5 --device=cpu | grep -q '^Die'
    cp abc2 run/characters.txt && cp abc2 "$last/characters.txt" # damaged
    run_code 76 trainer sample --out_dir=run --start=a --device=cpu
}

@test "an exported model has its vocabulary, and starts another run" {
    trainer train --quiet "${tiny[@]}" --out_dir=run --max_iters=5 --sample_tokens=0
    trainer export -o model --out_dir=run
    cmp "$abc" model/characters.txt
    for file in characters.txt tokenizer.json tokenizer_config.json generation_config.json; do
        cmp "$(checkpoint run 5)/$file" model/$file
    done
    cmp "$abc" <(jq -j '.model.vocab | to_entries | sort_by(.value) | map(.key) | join("")' model/tokenizer.json)
    [ "$(jq .eos_token_id model/generation_config.json)" = "$(wc -m <"$abc")" ]
    [ ! -e model/vocab.json ]
    trainer sample --init_from=./model --start='Die' --max_new_tokens=5 --num_samples=1 --device=cpu | grep -q '^Die'
    trainer train --quiet "${tiny[@]}" --init_from=./model --out_dir=again --max_iters=2 --sample_tokens=0
    tr 'D' 'E' <"$text" >other.txt
    shardtool train-vocabulary --characters other.txt >abc2
    shardtool tokenize -q --docs lines --val 0.2 --vocabulary abc2 -o other other.txt
    run_code 76 trainer train --quiet "${tiny[@]}" --init_from=./model --dataset=other --out_dir=third --max_iters=2
    rm model/characters.txt
    run_match 65 "'./model/tokenizer.json': its model WordLevel is not supported: only BPE is" trainer sample --init_from=./model --start='Die' --device=cpu
}

# bats test_tags=ci
@test "a killed export leaves nothing under its name, and the same command completes it" {
    trainer train --quiet "${tiny[@]}" --out_dir=run --max_iters=1 --sample_tokens=0
    export=("$BIN/trainer" export -q -o made/model --out_dir=run)
    trainer export -q -o whole --out_dir=run
    complete_after_kills whole made/model "${export[@]}"
    run_code 73 "${export[@]}"
    [[ "$output" == *"'made/model' is not empty: choose another directory" ]]
    run_code 73 trainer export -o "$text/model" --out_dir=run
}

@test "a loader that serves another vocabulary is refused" {
    "$BIN/loader" serve "$data" --endpoint "ipc://$PWD/mill" --quiet 3>&- &
    loader=$!
    run trainer train "${tiny[@]}" --dataset= --loader="ipc://$PWD/mill" --out_dir=run --max_iters=2
    [ "$status" -eq 76 ] || { kill $loader; echo "$output"; return 1; }
    [[ "$output" == *"name the characters.txt or tokenizer.json of the dataset by --vocabulary"* ]]
    trainer train --quiet "${tiny[@]}" --dataset= --loader="ipc://$PWD/mill" --vocabulary="$abc" --out_dir=run2 --max_iters=2 --sample_tokens=0
    kill $loader
}

# bats test_tags=ci
@test "nanoGPT's train_shakespeare_char.py and its README's flags for a CPU run unchanged, as config/shakespeare_char.conf does" {
    mkdir data && ln -s "$data" data/shakespeare_char
    cat >train_shakespeare_char.py <<'END'
out_dir = 'out-shakespeare-char'
eval_interval = 250 # keep frequent because we'll overfit
eval_iters = 200
log_interval = 10
always_save_checkpoint = False

wandb_log = False # override via command line if you like
wandb_project = 'shakespeare-char'
wandb_run_name = 'mini-gpt'

dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 64
block_size = 256

n_layer = 6
n_head = 6
n_embd = 384
dropout = 0.2

learning_rate = 1e-3
max_iters = 5000
lr_decay_iters = 5000
min_lr = 1e-4
beta2 = 0.99

warmup_iters = 100
# device = 'cpu'
# compile = False
END
    run trainer train train_shakespeare_char.py --device=cpu --compile=False --eval_iters=20 --log_interval=1 --block_size=64 \
        --batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 --max_iters=2 --lr_decay_iters=2000 --dropout=0.0 --threads=1
    [ "$status" -eq 0 ]
    [[ "$output" == *"ignored: wandb_log, wandb_project, wandb_run_name, compile"* ]]
    jq -e '.n_layer == 4 and .n_embd == 128 and .n_positions == 64' out-shakespeare-char/ckpt-00000002/config.json
    cmp "$abc" out-shakespeare-char/characters.txt
    trainer sample --out_dir=out-shakespeare-char --start='Die M' --max_new_tokens=9 --num_samples=1 --device=cpu | grep -q '^Die M'
    run_code 0 trainer train "$ROOT/config/shakespeare_char.conf" --dataset=shakespeare_char --out_dir=out-conf --max_iters=2 --device=cpu --threads=1
    cmp out-shakespeare-char/ckpt-00000002/config.json out-conf/ckpt-00000002/config.json
}

@test "a shard of characters without their file makes a dataset with a warning, which the file mends" {
    printf 'abc\n\ndab\n\ncc' >q.txt
    shardtool train-vocabulary --characters q.txt >a.txt
    shardtool tokenize -q -o made --docs lines --vocabulary a.txt --val 0 q.txt
    shardtool cat -o made.zst made
    run_match 0 "no input has the file of the vocabulary of its ids: before 'filtered' can be decoded, merged or trained on, put its characters.txt" \
        shardtool filter --min-tokens 1 -o filtered made.zst
    cp made/characters.txt filtered
    shardtool decode --json filtered | jq -r .text | cmp - <(shardtool decode --json made | jq -r .text)
}
