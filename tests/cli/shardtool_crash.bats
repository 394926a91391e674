# shardtool: nothing is lost or left over when a run is killed or fails. Programs come from $BIN, data from $DATA.

load helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    PATH="$BIN:$PATH"
    printf 'The first document.\n' >a.txt
    printf 'The second document.\n' >b.txt
}

leftovers() { find out -name '*.tmp.*' -o -name .journal -o -name .new; }

# kill_at CALL N COMMAND...: runs COMMAND and kills it at its N-th system call CALL; fails when there are fewer calls.
kill_at() {
    local call=$1 number=$2
    shift 2
    strace -f -qq -o /dev/null -e trace="$call" -e inject="$call:signal=KILL:when=$number" "$@" >/dev/null 2>&1 && return 1
    return 0
}

@test "after kill -9 at any moment no torn shard has a final name, and the same command completes the dataset" {
    seq 60000 >lines.txt
    options="-q --docs lines --val 0.1 --frame-tokens 1024 --shard-tokens 16k lines.txt"
    shardtool tokenize -o whole $options
    has_shards() { [ -d out ] && [ "$(find out -name '*.zst*' | wc -l)" -ge "$1" ]; }
    for round in 0 1 3 5; do
        rm -rf out
        shardtool tokenize -o out $options 3>&- &
        wait_until has_shards $round
        kill -9 $! && wait $! 2>/dev/null || true
        if ls out/*/*/*.zst >/dev/null 2>&1; then shardtool verify -q out/*/*/*.zst; fi
        shardtool tokenize -o out $options
        shardtool diff out whole
        [ -z "$(leftovers)" ]
    done
}

@test "a kill at any unlink, rename or rmdir while a dataset is replaced leaves the old or the new one" {
    seq 3000 >lines.txt
    many="-q --docs lines --val 0.1 --frame-tokens 64 --shard-tokens 1024 lines.txt"
    few="-q a.txt"
    shardtool tokenize -o many $many && shardtool tokenize -o few $few
    for call in unlink rename rmdir; do
        for number in $(seq 1 40); do
            rm -rf out && cp -r many out
            kill_at $call $number shardtool tokenize --force -o out $few || break
            if [ -e out/dataset.jsonl ]; then # readers see the old or the new dataset, both whole
                shardtool verify -q out
                shardtool diff out many >/dev/null || shardtool diff out few
            fi
            shardtool tokenize --force -o out $few
            shardtool verify -q out
            shardtool diff out few
            [ -z "$(leftovers)" ] || { leftovers && return 1; }
            [ "$(find out -name '*.zst' | wc -l)" = "$(find few -name '*.zst' | wc -l)" ]
        done
        [ "$number" -gt 1 ]
    done
}

@test "a kill at any unlink, rename or mkdir of a run leaves nothing that the same command does not clear" {
    seq 3000 >lines.txt
    options="-q --docs lines --val 0.1 --frame-tokens 64 --shard-tokens 4096 lines.txt"
    shardtool tokenize -o whole $options
    for call in unlink rename mkdir; do
        for number in $(seq 1 40); do
            rm -rf out
            kill_at $call $number shardtool tokenize -o out $options || break
            shardtool tokenize -o out $options
            shardtool diff out whole
            [ -z "$(leftovers)" ] || { leftovers && return 1; }
        done
    done
}

@test "--force keeps the old dataset until the new one is complete" {
    shardtool tokenize -q -o out a.txt
    cp -r out old
    seq 100 | gzip | head -c 100 >cut.gz
    run_code 65 shardtool tokenize --force -o out cut.gz
    shardtool diff out old && shardtool verify -q out
    run_code 66 shardtool tokenize --force -o out absent
    run_code 65 shardtool merge --force -o out cut.gz a.txt || run_code 66 shardtool merge --force -o out cut.gz
    shardtool diff out old && shardtool verify -q out
    shardtool tokenize -q --force -o out b.txt
    [ "$(shardtool cat out/train/000/000000.zst | shardtool decode --raw)" = "The second document.
<|endoftext|>" ]
    [ -z "$(leftovers)" ]
}

@test "shards without a manifest are not removed unless --force" {
    shardtool tokenize -q -o out a.txt
    rm out/dataset.jsonl
    run_code 73 shardtool tokenize -o out b.txt
    [[ "$output" == *"holds shards but no manifest; --force"* ]]
    shardtool tokenize -q -o other b.txt
    run_code 73 shardtool merge -o out other
    [ -e out/train/000/000000.zst ]
    run_code 0 shardtool tokenize --force -o out b.txt
    shardtool diff out other
}

@test "verify finds shards that the manifest does not list" {
    shardtool tokenize -q -o out a.txt && shardtool tokenize -q -o other b.txt
    cp other/train/000/000000.zst out/train/000/000001.zst
    run_code 1 shardtool verify out
    [[ "$output" == *"'out/train/000/000001.zst' is not listed in the manifest"* ]]
    rm out/train/000/000001.zst && mkdir -p out/val/000 && cp other/train/000/000000.zst out/val/000/000000.zst
    run_code 1 shardtool verify out
    [[ "$output" == *"'out/val/000/000000.zst' is not listed"* ]]
}
