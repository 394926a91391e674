# shardtool: kill -9 at every system call that changes files, and at random moments, for every kind of input. Each test takes a
# sample of the moments; with MILLRACE_SWEEP=1 (make faults) it takes all. Programs come from $BIN, data from $DATA.

load ../helpers

setup() {
    enter_test
    common="-q --frame-tokens 512 --shard-tokens 8k --val 0.1"
    seq 1 250 | jq -c '{text: ("document \(.) of many " * (. % 40 + 1))}' >docs.jsonl
    seq 12000 >long.txt # one document over several shards
}

# make_input KIND: the options and names of one kind of input, in $input
make_input() {
    case $1 in
    text) mkdir text && seq 9000 >text/a.txt && split -n l/20 --additional-suffix .txt long.txt text/b && input=text ;;
    lines) input="--docs lines long.txt" ;;
    jsonl) input="docs.jsonl long.txt" ;;
    gz) gzip docs.jsonl && input=docs.jsonl.gz ;;
    nest)
        mkdir nest && split -n l/12 --additional-suffix .txt long.txt nest/
        tar cf 1.tar nest/a[a-f].txt && tar cf 2.tar nest/a[g-l].txt && xz -0 1.tar 2.tar
        tar cf nest.tar 1.tar.xz 2.tar.xz docs.jsonl && input=nest.tar
        ;;
    parquet) # each file has a row to be skipped, which is listed in skipped.jsonl
        mkdir parquet && for i in $(seq 10 30); do cp "$DATA/small.parquet" parquet/$i.parquet; done
        input="--keep-going docs.jsonl parquet"
        ;;
    esac
}

whole_run() { # KIND: makes the input and the dataset to compare with
    rm -rf text nest parquet ./*.tar ./*.xz ./*.gz whole
    [ -e docs.jsonl ] || seq 1 250 | jq -c '{text: ("document \(.) of many " * (. % 40 + 1))}' >docs.jsonl
    make_input "$1"
    shardtool tokenize -j 2 -o whole $common $input 2>/dev/null
}

# after_kill JOBS: shards with a final name are whole; the same command completes the dataset and leaves nothing behind
after_kill() {
    if ls out/*/*/*.zst >/dev/null 2>&1; then shardtool verify -q out/*/*/*.zst; fi
    shardtool tokenize -j "$1" -o out $common $input 2>/dev/null
    diff -r -x .lock whole out
    local left
    left=$(find out -name '*.tmp.*' -o -name .journal -o -name .pending -o -name .window -o -name .new)
    [ -z "$left" ] || { echo "left over: $left" && return 1; }
}

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
                kill=(strace -f -qq -o /dev/null -e trace=$call -e "inject=$call:signal=KILL:when=$number")
                "${kill[@]}" shardtool tokenize -j 1 -o out $common $input >/dev/null 2>&1 && break
                if [ $((number % 3)) = 1 ]; then # the run that continues is killed as well
                    "${kill[@]}" shardtool tokenize -j 2 -o out $common $input >/dev/null 2>&1 || true
                fi
                runs=$((runs + 1))
                after_kill $((runs % 8 + 1)) || { echo "$kind: $call number $number" && return 1; }
            done
        done
    done
    echo "# $runs kills" >&3
    [ $runs -ge 10 ]
}

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
