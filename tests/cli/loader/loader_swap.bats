# Mixtures of datasets whose weights change while a training run reads, loader swap, and who may request it.

load ../helpers

setup() {
    enter_test
    seq 30000 >a.txt
    for i in $(seq 3000); do echo "the quick brown fox number $i"; done >b.txt
    for name in a b; do "$BIN/shardtool" tokenize --quiet --val 0 -o $name $name.txt; done
    write_tiny_conf tiny.conf
    sed -i 's/eval_interval = 8/eval_interval = 0/' tiny.conf
}

swaps() { grep -c '"old": ' run/metrics.jsonl; }
has_swapped() { [ "$(swaps)" -ge "$1" ]; }

@test "swap changes the dataset of a training run, which continues each where it was" {
    serve_until_ready a
    begin --loader=ipc://place --out_dir=run "${endless[@]}"
    wait_for_steps run 3
    mkdir elsewhere # a relative path is that of the command, not of the loader
    (cd elsewhere && "$BIN/loader" swap ../b:2 --endpoint "ipc://$(realpath ../place)" >../out)
    grep -q "^now serving 'b', [0-9]* train tokens, fingerprint [0-9a-f]\{16\}$" out
    wait_until has_swapped 1
    wait_for_more_steps run
    "$BIN/loader" swap b a:2 b --endpoint ipc://place # b is in the old dataset, and twice in the new one
    "$BIN/loader" serve-status --endpoint ipc://place --prometheus | grep -v '^#' | cut -d' ' -f1 >series
    grep -c 'source_tokens_total{.*name="b"' series | grep -qx 3
    [ -z "$(sort series | uniq -d)" ]
    "$BIN/loader" swap a --endpoint ipc://place
    wait_until has_swapped 2
    wait_for_more_steps run
    run_match 66 "'$PWD/nowhere'" "$BIN/loader" swap nowhere --endpoint ipc://place
    wait_for_more_steps run
    stop_run INT 75
    python3 -c '
import json, sys
state = json.load(open(sys.argv[1]))
used = {use["name"]: use["consumed"] for use in state["datasets"]}
assert used["a"] and used["b"] and sum(used.values()) == int(sys.argv[2]) * 4, used' \
        "$(checkpoint run "$(steps run)")/state.json" "$(steps run)"
}

# bats test_tags=ci
@test "swap needs the loader's own key, and ipc where the loader has none" {
    "$BIN/loader" keygen loader.key
    "$BIN/loader" keygen client.key >allow
    port=$(free_port)
    serve_until_ready a --endpoint "tcp://127.0.0.1:$port" --key loader.key --allow allow
    "$BIN/loader" swap b --endpoint "tcp://127.0.0.1:$port" --key loader.key | grep -q "now serving 'b'"
    end_background
    port=$(free_port)
    serve_until_ready a --endpoint "tcp://127.0.0.1:$port" --insecure
    run_match 77 "without keys" "$BIN/loader" swap b --endpoint "tcp://127.0.0.1:$port"
    end_background
    run_code 69 timeout 30 "$BIN/loader" swap b --endpoint ipc://nobody # not after the minute that a swap may take
    run_code 69 timeout 30 "$BIN/loader" swap :1 :1 --endpoint ipc://nobody
}

@test "a change of weights at a later sample changes no earlier step of a run, and its samples are counted" {
    : >schedule
    : >log
    serve a:3 b --schedule schedule
    begin --loader=ipc://place --out_dir=run --on_dataset_change=stop "${endless[@]}"
    wait_for_steps run 4
    echo "1000000 1 1" >schedule
    kill -HUP "$LOADER"
    wait_until grep -q '"old": ' run/metrics.jsonl
    wait_for_more_steps run
    stop_run INT 75
    "$BIN/loader" serve-status --endpoint ipc://place --json | python3 -c '
import json, sys
sources = [s for s in json.load(sys.stdin)["sources"] if not s["replaced"]]
assert [s["name"] for s in sources] == ["a", "b"] and [s["weight"] for s in sources] == [3, 1], sources
assert 2.5 < sources[0]["tokens"] / sources[1]["tokens"] < 3.5, sources'
    # The same steps in one go, with the changed schedule from the start, and with the loader killed between.
    kill_loader
    serve a:3 b:1 --schedule schedule
    "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --max_iters="$(steps run)" --out_dir=whole 3>&-
    diff <(losses whole) <(losses run)
    python3 -c '
import json, sys
state = json.load(open(sys.argv[1]))
assert max(use["consumed"] for use in state["datasets"]) == int(sys.argv[2]) * 4, state["datasets"]' \
        "$(checkpoint run "$(steps run)")/state.json" "$(steps run)"
}

# bats test_tags=ci
@test "with --state a swap survives a restart, and swap --check changes nothing" {
    serve_until_ready a --state state
    "$BIN/loader" swap b --check --endpoint ipc://place | grep -q "^'b' can be served, [0-9]* train tokens$"
    run_code 66 "$BIN/loader" swap nowhere --check --endpoint ipc://place
    "$BIN/loader" serve-status --endpoint ipc://place | grep -q "^a "
    [ ! -e state ]
    echo "1000000 1 1" >schedule
    "$BIN/loader" swap b:2 a --schedule schedule --endpoint ipc://place
    kill_loader
    serve_until_ready a --state state
    grep -q "serving 'b+a'" log
    "$BIN/loader" swap :5 :1 --from 2000000 --endpoint ipc://place
    grep -qx "2000000 5 1" schedule
    "$BIN/loader" swap a b:2 --endpoint ipc://place | grep -q ", without a schedule: '$PWD/schedule' was that of the datasets before$"
    run_match 2 "this mixture has no schedule: serve or swap it with --schedule FILE" "$BIN/loader" swap :1 :1 --endpoint ipc://place
    kill_loader
    echo "$PWD/nowhere:1" >state
    run_code 66 "$BIN/loader" serve a --state state --endpoint ipc://place
}

# bats test_tags=ci
@test "a loader that is killed while it appends weights on a full disk starts again" {
    preload full_schedule
    : >schedule
    : >log
    ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=$PWD/full_schedule.so \
        "$BIN/loader" serve a:3 b --schedule schedule --endpoint ipc://place 2>>log 3>&- &
    LOADER=$!
    wait_until grep -q ready log
    run_code 69 "$BIN/loader" swap :1 :1 --from 1000000 --endpoint ipc://place
    wait "$LOADER" || LOADER=
    [ ! -s schedule ]
    serve_until_ready a:3 b --schedule schedule
    "$BIN/loader" swap :1 :1 --from 1000000 --endpoint ipc://place
    [ "$(cat schedule)" = "1000000 1 1" ]
}

# bats test_tags=ci
@test "status shows the weights of the next change after a reweight" {
    : >schedule
    serve_until_ready a:3 b --schedule schedule
    status() { "$BIN/loader" serve-status --endpoint ipc://place "$@"; }
    next() { status --json | jq -c '[.sources[] | select(.replaced == 0) | [.weight, .next_weight, .next_from]]'; }
    [ "$(next)" = "[[3,0,0],[1,0,0]]" ]
    "$BIN/loader" swap :1 :5 --from 500000 --endpoint ipc://place
    "$BIN/loader" swap :2 :0 --from 600000 --endpoint ipc://place
    [ "$(next)" = "[[3,1,500000],[1,5,500000]]" ]
    status | grep -qE '^b .* 1 +0 +\(weight 5 from sample 500000 on\)$'
}

# bats test_tags=ci
@test "a schedule has more than 63 changes, weights are shown as given, and a directory may be named like one with a weight" {
    for i in $(seq 200); do echo "${i}00000 $((i % 2 + 1)) 1"; done >schedule
    mv b b:2
    serve_until_ready b:2 a:3 --schedule schedule
    grep -q "serving 'b:2+a'" log
    "$BIN/loader" serve-status --endpoint ipc://place --json | python3 -c '
import json, sys
assert [s["weight"] for s in json.load(sys.stdin)["sources"]] == [1, 3]'
    "$BIN/loader" swap :5 :1 --from 30000000 --endpoint ipc://place
    grep -qx "30000000 5 1" schedule
    [[ "$(tr '\0' ' ' </proc/$LOADER/cmdline)" == *" a:3 "* ]] # as ps shows it
}

@test "weights, sources and schedules that are not valid are refused" {
    run_match 2 "all 0" "$BIN/loader" serve a:0 b:0 --endpoint ipc://place
    run_match 2 "'a' has weight 0 and is alone" "$BIN/loader" serve a:0 --endpoint ipc://place
    run_code 2 "$BIN/loader" serve a --schedule schedule --endpoint ipc://place
    run_match 66 "'schedule' does not exist: create it empty first: touch schedule" "$BIN/loader" serve a b --schedule schedule --endpoint ipc://place
    echo "5000 1" >schedule
    run_match 2 "'schedule' line 1 is not a sample number and 2 weights" "$BIN/loader" serve a b --schedule schedule --endpoint ipc://place
    echo "18446744073709551616 1 1" >schedule # 2^64
    run_match 2 "'schedule' line 1 is not a sample number and 2 weights" timeout 60 "$BIN/loader" serve a b --schedule schedule --endpoint ipc://place
    printf '5000 1 1\n\n# later\n4000 1 2\n' >schedule
    run_match 2 "'schedule' line 4" "$BIN/loader" serve a b --schedule schedule --endpoint ipc://place
    run_code 66 "$BIN/loader" serve a c:2 --endpoint ipc://place
    mkfifo pipe
    run_match 66 "'pipe' is not a regular file" timeout 60 "$BIN/loader" serve a b --schedule pipe --endpoint ipc://place
}
