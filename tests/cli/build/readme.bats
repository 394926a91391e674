# The commands of the README's section on datasets, as they are written there, on small inputs of the same names; and the plan
# of docs/gpt2-124m-12gb.md.

load ../helpers

@test "the README's commands on datasets run as written" {
    readme=$ROOT/README.md
    cd "$BATS_TEST_TMPDIR"
    mkdir -p build fineweb web books data && ln -s "$BIN" build/bin
    cp "$DATA/small.parquet" fineweb/a.parquet
    printf '{"text": "one"}\n{"text": "two"}\n' | zstd -q >web/a.jsonl.zst
    seq 2000 | split -l 2 -a 3 --additional-suffix=.txt - books/ && seq 500 >books/long.txt
    seq 3000 | tee corpus.txt | xz >corpus.xz
    tar cJf corpus.tar.xz corpus.txt
    less() { cat; }
    sed -n '/^## Prepare a dataset/,/^## Train/p' "$readme" | awk '/^```/ { inside = !inside; next } inside' >commands
    [ "$(wc -l <commands)" -ge 10 ]
    set -o pipefail
    count=0
    while IFS= read -r -u 3 command; do
        status=0
        eval "$command" >got 2>err </dev/null || status=$?
        # head and less end before their input does; diff gives 1 for other data
        case $command in
        *" diff "*) [ $status = 1 ] ;;
        *"| head"* | *"| less"*) [ $status = 0 ] || [ $status = 141 ] ;;
        *) [ $status = 0 ] ;;
        esac || { echo "exit $status: $command" && cat got err && return 1; }
        case $command in *" encode "*) [ "$(cat got)" = "${command##*# }" ] ;; esac
        count=$((count + 1))
    done 3<commands
    [ "$count" = "$(wc -l <commands)" ]
    [ -s out/train.bin ] # of the export, the last command
}

@test "the plan in docs/gpt2-124m-12gb.md is what trainer plan prints, and the page's other commands take their keys" {
    run "$BIN/trainer" plan --device=cuda --n_layer=1
    [[ "$output" != *"built without CUDA"* ]] || skip "built without CUDA"
    cd "$ROOT"
    page=docs/gpt2-124m-12gb.md
    eval "$(grep '^build/bin/trainer plan ' $page | sed 's|build/bin|"$BIN"|')" 2>/dev/null | sed '/^run /q' >"$BATS_TEST_TMPDIR/printed"
    awk '/^```/ { inside = !inside; next } inside && /^model /, /^run /' $page >"$BATS_TEST_TMPDIR/written"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/written")" -ge 15 ]
    diff "$BATS_TEST_TMPDIR/written" "$BATS_TEST_TMPDIR/printed"
    eval "$(grep '^build/bin/trainer train ' $page | sed 's|build/bin/trainer train|"$BIN/trainer" plan --print_config|')" >"$BATS_TEST_TMPDIR/keys"
    grep -qE '^warmup_iters += 700 ' "$BATS_TEST_TMPDIR/keys"
    run "$BIN/trainer" plan config/train_gpt2_124m_12gb.conf --device=cuda --optimizer=muon
    [[ "$output" =~ "  optimizer "\ +([0-9]+) ]]
    muon=${BASH_REMATCH[1]}
    [[ "$(cat "$BATS_TEST_TMPDIR/written")" =~ "  optimizer "\ +([0-9]+) ]]
    [ $((BASH_REMATCH[1] - muon)) -ge $((324 << 20)) ]
    [ $((BASH_REMATCH[1] - muon)) -lt $((325 << 20)) ] # 324 MiB, as the page has it
}
