# A training run on a mixture of datasets, whose weights change while it runs.

load helpers

setup() {
    cd "$BATS_TEST_TMPDIR" || exit
    seq 30000 >a.txt
    for i in $(seq 3000); do echo "the quick brown fox number $i"; done >b.txt
    for name in a b; do "$BIN/shardtool" tokenize --quiet --val 0 -o $name $name.txt; done
    write_tiny_conf tiny.conf
    sed -i 's/eval_interval = 8/eval_interval = 0/' tiny.conf
}

teardown() { end_background; }

@test "a change of weights that lies ahead changes no step of a run, and its samples are counted on" {
    : >schedule
    : >log
    "$BIN/loader" serve a:3 b --schedule schedule --endpoint ipc://place 2>>log 3>&- &
    LOADER=$!
    begin --loader=ipc://place --out_dir=run --on_dataset_change=stop "${endless[@]}"
    wait_for_steps run 4
    echo "1000000 1 1" >schedule
    kill -HUP "$LOADER"
    wait_until grep -q '"old": ' run/metrics.jsonl
    wait_for_more_steps run
    kill -INT "$TRAINER"
    ends 75
    "$BIN/loader" status --endpoint ipc://place --json | python3 -c '
import json, sys
sources = [s for s in json.load(sys.stdin)["sources"] if not s["replaced"]]
assert [s["name"] for s in sources] == ["a", "b"] and [s["weight"] for s in sources] == [49152, 16384], sources
assert 2.5 < sources[0]["tokens"] / sources[1]["tokens"] < 3.5, sources'
    # The same steps in one go, with the changed schedule from the start, and with the loader killed between.
    kill_loader
    "$BIN/loader" serve a:3 b:1 --schedule schedule --endpoint ipc://place 2>>log 3>&- &
    LOADER=$!
    "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --max_iters="$(steps run)" --out_dir=whole 3>&-
    diff <(losses whole) <(losses run)
    python3 -c '
import json, sys
state = json.load(open(sys.argv[1]))
assert max(use["consumed"] for use in state["datasets"]) == int(sys.argv[2]) * 4, state["datasets"]' \
        "$(checkpoint run "$(steps run)")/state.json" "$(steps run)"
}

@test "weights, sources and schedules that are not valid are refused" {
    run_code 2 "$BIN/loader" serve a:0 b:0 --endpoint ipc://place
    [[ "$output" == *"all 0"* ]]
    run_code 2 "$BIN/loader" serve a --schedule schedule --endpoint ipc://place
    echo "5000 1" >schedule
    run_code 2 "$BIN/loader" serve a b --schedule schedule --endpoint ipc://place
    [[ "$output" == *"'schedule' line 1 is not a sample number and 2 weights"* ]]
    printf '5000 1 1\n\n# later\n4000 1 2\n' >schedule
    run_code 2 "$BIN/loader" serve a b --schedule schedule --endpoint ipc://place
    [[ "$output" == *"'schedule' line 4"* ]]
    run_code 66 "$BIN/loader" serve a c:2 --endpoint ipc://place
}
