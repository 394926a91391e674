# loader swap while a training run reads, and who may request it.

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
    "$BIN/loader" status --endpoint ipc://place --prometheus | grep -v '^#' | cut -d' ' -f1 >series
    grep -c 'source_tokens{name="b"' series | grep -qx 3
    [ -z "$(sort series | uniq -d)" ]
    "$BIN/loader" swap a --endpoint ipc://place
    wait_until has_swapped 2
    wait_for_more_steps run
    run_code 66 "$BIN/loader" swap nowhere --endpoint ipc://place
    [[ "$output" == *"'$PWD/nowhere'"* ]]
    wait_for_more_steps run
    kill -INT "$TRAINER"
    ends 75
    python3 -c '
import json, sys
state = json.load(open(sys.argv[1]))
used = {use["name"]: use["consumed"] for use in state["datasets"]}
assert used["a"] and used["b"] and sum(used.values()) == int(sys.argv[2]) * 4, used' \
        "$(checkpoint run "$(steps run)")/state.json" "$(steps run)"
}

@test "swap needs the loader's own key, and ipc where the loader has none" {
    "$BIN/loader" keygen loader.key
    "$BIN/loader" keygen client.key >allow
    port=$(free_port)
    serve_until_ready a --endpoint "tcp://127.0.0.1:$port" --key loader.key --allow allow
    "$BIN/loader" swap b --endpoint "tcp://127.0.0.1:$port" --key loader.key | grep -q "now serving 'b'"
    end_background
    port=$(free_port)
    serve_until_ready a --endpoint "tcp://127.0.0.1:$port" --insecure
    run_code 77 "$BIN/loader" swap b --endpoint "tcp://127.0.0.1:$port"
    [[ "$output" == *"without keys"* ]]
    end_background
    run_code 69 timeout 30 "$BIN/loader" swap b --endpoint ipc://nobody # not after the minute that a swap may take
    run_code 69 timeout 30 "$BIN/loader" reweight 1 1 --endpoint ipc://nobody
}
