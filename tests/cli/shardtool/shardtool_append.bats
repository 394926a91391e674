# shardtool tokenize: --append and --max-tokens. Programs come from $BIN, data from $DATA.

load ../helpers

setup() {
    enter_test
    seq 400 | jq -c '{text: ("document \(.) of the first part " * (. % 37 + 1))}' >a.jsonl
    sed 's/first/second/' a.jsonl >b.jsonl
    seq 20000 >c.txt # one document over several shards
    common="-q --frame-tokens 256 --shard-tokens 4096 --val 0.2"
}

same_files() { # DIR DIR: the same files with the same bytes, caches and locks apart
    diff -r -x .lock "$1" "$2"
}

@test "--append gives the bytes of one run over all inputs" {
    shardtool tokenize -j 1 -o whole $common a.jsonl b.jsonl c.txt
    for j in 1 4; do
        rm -rf out
        shardtool tokenize -j $j -o out $common a.jsonl
        shardtool tokenize -j $j --append -o out $common b.jsonl
        shardtool tokenize -j $j --append -o out $common c.txt
        same_files out whole
        shardtool verify -q out
    done
    run_code 0 shardtool tokenize --append -o out $common c.txt # again
    same_files out whole
    run_code 0 shardtool tokenize -o out $common a.jsonl b.jsonl c.txt # it is that dataset
    [ -z "$(leftovers)" ]
}

@test "the summary of --append has what this call has added, and what the dataset has now" {
    counts() { shardtool info --json "$1" | jq -r '[.train_documents + .val_documents, .train_tokens, .val_tokens] | @tsv'; }
    options=${common#-q}
    shardtool tokenize -q -o alone $options b.jsonl
    shardtool tokenize -q -o out $options a.jsonl
    run_code 0 shardtool tokenize --json --append -o out $options b.jsonl
    read -r documents train val < <(counts alone)
    read -r all all_train all_val < <(counts out)
    [[ $documents = 400 && $all = 800 && $all_val -gt $val ]]
    [[ "$output" == *"shardtool: 400 documents, $train train and $val val tokens from $(jq -j .text b.jsonl | wc -c | awk '{printf "%.1f", $1 / 1024}') KiB of text (1 jsonl) in "* ]]
    [[ "$output" == *"the dataset now has 800 documents, $all_train train and $all_val val tokens"* ]]
    grep '^{' <<<"$output" | jq -e ".added_documents == 400 and .added_train_tokens == $train and .added_val_tokens == $val and
        .documents == 800 and .train_tokens == $all_train and .val_tokens == $all_val and .inputs.jsonl == 1 and (.continued | not)"
}

@test "--append after a last shard that is full, or without validation documents" {
    for options in "--val 0 --frame-tokens 4 --shard-tokens 8" "--val 0 --frame-tokens 4 --shard-tokens 4" "--val 1 --frame-tokens 4 --shard-tokens 8"; do
        for n in 3 5 7 15 20; do
            rm -rf out whole
            printf '%s' "$(yes x | head -n $n | tr '\n' ' ')" >1.txt
            echo 'more of it' >2.txt
            shardtool tokenize -q -o out $options 1.txt
            shardtool tokenize -q --append -o out $options 2.txt
            shardtool tokenize -q -o whole $options 1.txt 2.txt
            same_files out whole
        done
    done
}

@test "--append refuses other options, known inputs, and a directory without a dataset" {
    run_match 66 "no finished dataset to append to" shardtool tokenize --append -o out $common a.jsonl
    shardtool tokenize -o out $common a.jsonl
    run_code 2 shardtool tokenize --append -o out $common --val 0.3 b.jsonl
    run_match 2 "'out' holds 'a.jsonl' already: name only new inputs" shardtool tokenize --append -o out $common a.jsonl b.jsonl
    run_match 0 "'out' holds 'a.jsonl' already: there is nothing to append" shardtool tokenize --append -o out ${common#-q} a.jsonl
    run_code 2 shardtool tokenize --append --force -o out $common b.jsonl
    run_code 2 shardtool tokenize --append -o - b.jsonl
    shardtool tokenize -o old $common a.jsonl
    printf '{"text": 1}\n' >d.jsonl
    run_code 65 shardtool tokenize --append -o out $common d.jsonl
    shardtool verify -q out
    shardtool diff out old
    mv b.jsonl 0.jsonl # sorts before a.jsonl
    run_match 0 "'0.jsonl' sorts before 'a.jsonl'" shardtool tokenize --append -o out --frame-tokens 256 --shard-tokens 4096 --val 0.2 0.jsonl
}

# fault 93
@test "--append refuses inputs that hold documents of the dataset, and takes new files of a folder that it holds" {
    refuses() { # TEXT INPUT
        cp -r out before
        run_match 2 "$1*name only those" shardtool tokenize --append -o out "$2"
        diff -r -x .lock before out && rm -rf before
    }
    mkdir d && echo 0 >d/0.txt && echo 1 >d/1.txt
    shardtool tokenize -q -o out d
    refuses "'./d/1.txt' lies in 'd', which 'out' holds already" ./d/1.txt
    refuses "'./d' is 'd', which 'out' holds already" ./d
    echo 2 >d/2.txt
    refuses "'d' was read before and has changed since" d
    refuses "'d/1.txt' lies in 'd'" d/1.txt
    refuses "lies in 'd'" "$PWD/d/1.txt"
    shardtool tokenize -q --append -o out d/2.txt
    [ "$(shardtool decode out)" = "$(printf '0\n<|endoftext|>1\n<|endoftext|>2\n<|endoftext|>')" ]

    echo '{"text": "1"}' >x.jsonl && rm -rf out
    shardtool tokenize -q -o out x.jsonl
    echo '{"text": "2"}' >>x.jsonl
    refuses "'x.jsonl' was read before and has changed since" x.jsonl

    rm -rf out && shardtool tokenize -q -o out d/1.txt
    refuses "'d' contains 'd/1.txt'" d
    shardtool tokenize -q --append -o out d/2.txt
}

# fault 15
@test "an input that was edited after the dataset was made is named, also where its size and ends are the same" {
    seq 60000 >long.txt
    shardtool tokenize -q -o out long.txt
    for option in "" --append; do
        run_code 0 shardtool tokenize $option -o out long.txt
        [[ "$output" != *modified* ]]
    done
    printf ZZZZ | dd of=long.txt bs=1 seek=200010 conv=notrunc status=none
    for option in "" --append; do
        run_code 0 shardtool tokenize $option -o out long.txt
        [[ "$output" == *"'long.txt' was modified after 'out' was made from it"*"--force makes the dataset again"* ]]
        [[ "$output" == *"'out' is already complete"* || "$output" == *"'out' holds 'long.txt' already: there is nothing to append"* ]]
    done
}

@test "--append keeps the list of skipped inputs" {
    echo broken >>a.jsonl && echo broken >>b.jsonl
    shardtool tokenize --max-bad 100% -o out $common a.jsonl 2>/dev/null
    shardtool tokenize --max-bad 100% --append -o out $common b.jsonl 2>/dev/null
    shardtool tokenize --max-bad 100% --append -o out $common c.txt
    shardtool tokenize --max-bad 100% -o whole $common a.jsonl b.jsonl c.txt 2>/dev/null
    same_files out whole
    [ "$(wc -l <out/skipped.jsonl)" -eq 2 ]
}

# bats test_tags=ci
# fault 20
@test "a killed --append keeps the old dataset and continues after its finished shards" {
    shardtool tokenize -o whole $common a.jsonl b.jsonl c.txt
    shardtool tokenize -o old $common a.jsonl
    for call in rename unlink mkdir link fdatasync; do
        for number in 1 2 3 5 8 13 21; do
            rm -rf out && cp -r old out
            kill_at $call $number shardtool tokenize --append -o out $common b.jsonl c.txt || break
            if [ -e out/dataset.jsonl ]; then shardtool verify -q out; fi
            shardtool tokenize -o out --append ${common#-q} b.jsonl c.txt 2>log
            [ $call != rename ] || [ $number -lt 5 ] || grep -q 'continuing after\|already complete' log
            same_files out whole
            [ -z "$(leftovers)" ]
        done
    done
}

@test "a command that is refused keeps the shards of an interrupted --append" {
    shardtool tokenize -o out $common a.jsonl
    kill_at rename 6 shardtool tokenize --append -o out $common b.jsonl c.txt
    before=$(find out/.new -name '*.zst' | wc -l)
    [ "$before" -gt 0 ]
    run_code 2 shardtool tokenize --append -o out b.jsonl c.txt # without its options
    [[ "$output" == *"this run has "*"--append needs the options with which the dataset was made"* ]]
    run_code 2 shardtool tokenize --append -o out $common a.jsonl b.jsonl
    run_code 0 shardtool tokenize -o out $common a.jsonl # complete already
    [ "$(find out/.new -name '*.zst' | wc -l)" = "$before" ]
    run_match 0 "continuing after" shardtool tokenize --append -o out ${common#-q} b.jsonl c.txt
    shardtool tokenize -o whole $common a.jsonl b.jsonl c.txt
    same_files out whole
    [ -z "$(leftovers)" ]
}

# fault 20
@test "--max-tokens ends with the document that reaches it, whatever -j, and after a kill too" {
    for n in 1 100 1000 5000 30000; do
        rm -rf out1 out4 text
        shardtool tokenize -j 1 -o out1 $common --max-tokens $n a.jsonl b.jsonl
        shardtool tokenize -j 4 -o out4 $common --max-tokens $n a.jsonl b.jsonl
        same_files out1 out4
        # the first documents of the inputs, in order: the last of them reaches n
        shardtool info --json out1 >info
        documents=$(jq '.train_documents + .val_documents' info) tokens=$(jq '.train_tokens + .val_tokens' info)
        [ "$tokens" -ge $n ]
        cat a.jsonl b.jsonl | head -n $((documents - 1)) >fewer.jsonl
        if [ -s fewer.jsonl ]; then
            shardtool tokenize -o - $common fewer.jsonl | shardtool cat - | wc -c >bytes
            [ $(($(cat bytes) / 2)) -lt $n ]
        fi
    done
    for number in 2 4 6; do
        rm -rf out
        kill_at rename $number shardtool tokenize -o out $common --max-tokens 30000 a.jsonl b.jsonl || break
        shardtool tokenize -o out $common --max-tokens 30000 a.jsonl b.jsonl
        same_files out out1
    done
    run_match 0 "ended at --max-tokens 1000" shardtool tokenize -o again --frame-tokens 256 --max-tokens 1000 a.jsonl
    run_code 0 shardtool tokenize -o more --json --max-tokens 1000000 a.jsonl
    [[ "$output" == *'"full":false'* && "$output" != *"ended at"* ]]
    # what follows the last document is never looked at
    { head -n 100 a.jsonl && echo broken; } >d.jsonl
    shardtool tokenize -j 8 -o part $common --max-tokens 1000 d.jsonl
}

@test "an append that was killed after its dataset was moved up does not stop the next one" {
    echo '{"text": "third"}' >d.jsonl
    shardtool tokenize $common -o old a.jsonl
    shardtool tokenize $common -o whole a.jsonl b.jsonl d.jsonl
    for number in $(seq 40); do
        rm -rf out && cp -r old out
        kill_at unlink $number shardtool tokenize --append -o out $common b.jsonl
        if [ -e out/.new/.journal ] && [ -e out/dataset.jsonl ] && not cmp -s out/dataset.jsonl old/dataset.jsonl; then break; fi
    done
    shardtool tokenize --append -o out $common d.jsonl
    same_files out whole
    [ -z "$(leftovers)" ]
}
