# shardtool: kill -9 at every system call that changes files, and at random moments, for every kind of input. Each test takes a
# sample of the moments; with MILLRACE_SWEEP=1 (make faults) it takes all. Programs come from $BIN, data from $DATA.

load ../helpers

setup() {
    enter_test
    common="-q --frame-tokens 512 --shard-tokens 8k --val 0.1"
    seq 1 250 | jq -c '{text: ("document \(.) of many " * (. % 40 + 1)), n: .}' >docs.jsonl
    seq 12000 >long.txt # one document over several shards
}

# make_input KIND: the options and names of one kind of input, in $input
make_input() {
    case $1 in
    text) mkdir text && seq 9000 >text/a.txt && split -n l/20 --additional-suffix .txt long.txt text/b && input=text ;;
    lines) input="--docs lines long.txt" ;;
    jsonl) input="--keep n docs.jsonl long.txt" ;;
    gz) gzip docs.jsonl && input="--keep n docs.jsonl.gz" ;;
    nest)
        mkdir nest && split -n l/12 --additional-suffix .txt long.txt nest/
        tar cf 1.tar nest/a[a-f].txt && tar cf 2.tar nest/a[g-l].txt && xz -0 1.tar 2.tar
        tar cf nest.tar 1.tar.xz 2.tar.xz docs.jsonl && input=nest.tar
        ;;
    parquet) # each file has a row to be skipped, which is listed in skipped.jsonl
        mkdir parquet && for i in $(seq 10 30); do cp "$DATA/small.parquet" parquet/$i.parquet; done
        input="--max-bad 100% docs.jsonl parquet"
        ;;
    esac
}

whole_run() { # KIND: makes the input and the dataset to compare with
    rm -rf text nest parquet ./*.tar ./*.xz ./*.gz whole
    [ -e docs.jsonl ] || seq 1 250 | jq -c '{text: ("document \(.) of many " * (. % 40 + 1)), n: .}' >docs.jsonl
    make_input "$1"
    shardtool tokenize -j 2 -o whole $common $input 2>/dev/null
}

# after_kill JOBS: shards with a final name are whole; the same command completes the dataset and leaves nothing behind. Each line returns
# its status itself, as bats does not look at the lines of a function that stands before ||.
after_kill() {
    if ls out/*/*/*.zst >/dev/null 2>&1; then shardtool verify -q out/*/*/*.zst || return 1; fi
    shardtool tokenize -j "$1" -o out $common $input 2>/dev/null || return 1
    diff -r -x .lock whole out || return 1
    [ -z "$(leftovers)" ] || { leftovers && return 1; }
}

# bats test_tags=ci
# fault 20
@test "kill -9 at each call that changes files loses nothing, also a second time while the run continues" {
    local step=1 runs=0
    [ -n "${MILLRACE_SWEEP:-}" ] || step=29
    for kind in jsonl text lines gz nest parquet; do
        [ $step = 1 ] || [ $kind = jsonl ] || [ $kind = nest ] || continue
        whole_run $kind
        for call in write fsync fdatasync rename unlink mkdir openat; do
            for number in $(seq 1 $step 400); do
                rm -rf out
                kill_at $call $number shardtool tokenize -j 1 -o out $common $input || break
                if [ $((number % 3)) = 1 ]; then # the run that continues is killed as well
                    kill_at $call $number shardtool tokenize -j 2 -o out $common $input || true
                fi
                runs=$((runs + 1))
                after_kill $((runs % 8 + 1)) || { echo "$kind: $call number $number" && return 1; }
            done
        done
    done
    echo "# $runs kills" >&3
    [ $runs -ge 10 ]
}

# bats test_tags=ci
# fault 20
@test "kill -9 at random moments loses nothing, with -j 1 to 8 and every kind of input" {
    local moments=12 kinds=(text lines jsonl gz nest parquet) milliseconds
    [ -z "${MILLRACE_SWEEP:-}" ] || moments=200
    RANDOM=1
    for k in "${!kinds[@]}"; do
        whole_run ${kinds[k]}
        rm -rf out && milliseconds=$(date +%s%3N)
        shardtool tokenize -j 1 -o out $common $input 2>/dev/null
        milliseconds=$(($(date +%s%3N) - milliseconds))
        for round in $(seq "$k" ${#kinds[@]} $((moments - 1))); do
            rm -rf out
            shardtool tokenize -j $((round % 8 + 1)) -o out $common $input >/dev/null 2>&1 3>&- &
            sleep "$(printf '0.%03d' $((RANDOM % (milliseconds < 999 ? milliseconds : 999))))"
            kill -9 $! 2>/dev/null || true
            wait $! 2>/dev/null || true # until it is gone: a later run removes the files of dead processes only
            after_kill $((round / 8 % 8 + 1)) || { echo "${kinds[k]}, round $round" && return 1; }
        done
    done
}

# The first kill comes when the last line of the journal is a val shard that ends inside a document, the next ones after the lines
# that follow it.
# fault 87
@test "a document that a val shard cuts keeps all its ids when the run is killed twice after lines of the journal" {
    jq -nc 'range(400) | {text: ("document \(.) of many " * (. % 40 * 3 + 1))}' >docs.jsonl
    input=docs.jsonl common="-q --frame-tokens 512 --shard-tokens 4k --val 0.3" cut=0
    shardtool tokenize -j 2 -o whole $common $input
    for number in $(seq 4 40); do
        rm -rf first
        kill_at fdatasync $number shardtool tokenize -j 1 -o first $common $input || break
        tail -n 1 first/.journal | cut -c 10- | jq -e '.token > 0 and .shard.split == "val"' >/dev/null || continue
        for next in 1 2 3; do
            rm -rf out && cp -r first out
            kill_at fdatasync $next shardtool tokenize -j 1 -o out $common $input || true
            after_kill 1
        done
        cut=$((cut + 1))
        [ $cut -lt 4 ] || break
    done
    [ $cut = 4 ]
}

# lines_input KIND: one input of a random run, in $input and $options; all have documents over several frames
lines_input() {
    options= input=docs.jsonl
    case $1 in
    gz) gzip -k docs.jsonl && input=docs.jsonl.gz ;;
    zst) zstd -q docs.jsonl && input=docs.jsonl.zst ;;
    nest) head -n 200 docs.jsonl | xz -0 >a.xz && tail -n 200 docs.jsonl >b.jsonl && tar cf nest.tar a.xz b.jsonl && input=nest.tar ;;
    long) seq 60000 >long.txt && input=long.txt ;;
    lines | paragraphs) options="--docs $1" && jq -r '.text, "", .text' docs.jsonl | fold -w 3000 >text.txt && input=text.txt ;;
    parquet) input=docs.parquet ;;
    where) input=docs.parquet options="--where number>=40" ;;
    where-lines) options="--where number>=40" ;;
    max-tokens) options="--max-tokens 50000" ;;
    append) options="--append" ;;
    esac
}

# bats test_tags=ci
# fault 87
@test "kill -9 after lines of the journal, 2 to 6 times in a row, loses no id of any kind of input" {
    local rounds=12 kinds=(jsonl gz zst nest long lines paragraphs parquet where where-lines max-tokens append) shares=(0.01 0.1 0.3 0.5 0.7)
    local round kind kills next
    [ -z "${MILLRACE_SWEEP:-}" ] || rounds=${MILLRACE_KILLS:-500}
    RANDOM=2
    rm docs.jsonl
    jq -nc 'range(400) | {text: ("document \(.) of many " * (. % 40 * 3 + 1)), number: .}' >docs.jsonl
    "$ROOT/build/venv/bin/python" -c "
import json, pyarrow, pyarrow.parquet
rows = [json.loads(line) for line in open('docs.jsonl')]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), 'docs.parquet', row_group_size=50)" || skip "no pyarrow"
    head -n 100 docs.jsonl >base.jsonl
    for round in $(seq 0 $((rounds - 1))); do
        kind=${kinds[round % ${#kinds[@]}]}
        rm -rf whole out long.txt text.txt ./*.gz ./*.zst ./*.xz ./*.tar
        lines_input $kind
        common="-q --frame-tokens 512 --shard-tokens $((RANDOM % 3 * 2 + 2))k --val ${shares[RANDOM % 5]} --seed $RANDOM"
        if [ $kind = append ]; then
            shardtool tokenize -o whole $common base.jsonl && cp -r whole out
        fi
        common+=" $options"
        shardtool tokenize -o whole $common $input
        kills=$((RANDOM % 5 + 2)) next=$((RANDOM % 20 + 1))
        for _ in $(seq $kills); do # later kills follow each other closely: between two lines of one split
            kill_at fdatasync $next shardtool tokenize -j $((RANDOM % 4 + 1)) -o out $common $input || true
            next=$((RANDOM % 5 + 1))
        done
        after_kill $((RANDOM % 4 + 1)) || { echo "$kind, round $round, $common, $kills kills" && return 1; }
    done
    echo "# $rounds runs killed" >&3
}
