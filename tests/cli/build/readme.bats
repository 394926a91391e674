# The commands of the README's section on datasets and of the manual pages, as they are written there, on small inputs of the
# same names; and the plan of docs/gpt2-124m-12gb.md.

load ../helpers

teardown() { [ -z "${LOADER:-}" ] || kill "$LOADER" 2>/dev/null || true; }

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

# section PROGRAM TITLE: a section of a manual page, as text
section() { "$BIN/$1" --man | sed -n "/^\.SH $2\$/,/^\.SH /p" | sed '/^\.SH/d; s/\\-/-/g; s/\\(aq/'"'"'/g; s/\\(dq/"/g; s/\\(ti/~/g'; }

@test "the examples in the manual pages run as written" {
    cd "$BATS_TEST_TMPDIR"
    export XDG_RUNTIME_DIR=$PWD PATH=$BIN:$PATH
    mkdir books && seq 3000 | split -l 60 - books/
    cp "$DATA/small.parquet" web.parquet
    write_tiny_conf small.conf
    for program in shardtool trainer loader; do
        [ $program != loader ] || shardtool tokenize --quiet -o other books
        section $program EXAMPLES | sed -n 's/^\.B //p' >commands
        [ "$(wc -l <commands)" -ge 3 ]
        while IFS= read -r -u 5 command; do
            case $command in
            *"&") eval "$command" 2>log 3>&- && LOADER=$! && wait_until grep -q ready log ;;
            *) eval "$command" >got 2>err || { echo "exit $?: $command" && cat err && return 1; } ;;
            esac
        done 5<commands
    done
    grep -q 'other' <(loader status)
    kill "$LOADER"
}

@test "the manual pages name each environment variable that their program reads, and each configuration key once" {
    cd "$ROOT"
    for program in shardtool loader trainer; do
        rooms=$program
        [ $program != trainer ] || rooms="trainer kernels"
        # shellcheck disable=SC2086
        git grep -hoE 'getenv\("[A-Z_]+"' -- $rooms | cut -d '"' -f 2 | sort -u |
            grep -vxE 'HOME|GOMP_SPINCOUNT|OMP_WAIT_POLICY' >"$BATS_TEST_TMPDIR/read"
        section $program ENVIRONMENT | sed -n 's/^\.B //p' | sort >"$BATS_TEST_TMPDIR/named"
        run comm -23 "$BATS_TEST_TMPDIR/read" "$BATS_TEST_TMPDIR/named"
        [ -z "$output" ]
    done
    section trainer "CONFIGURATION KEYS" | sed -nE 's/^\.B (--[a-z_A-Z0-9]+).*/\1/p' >"$BATS_TEST_TMPDIR/keys"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/keys")" -ge 70 ]
    [ "$(sort "$BATS_TEST_TMPDIR/keys" | uniq -d)" = "" ]
    [ "$("$BIN/trainer" --man | grep -c '^\.B .*n_layer')" = 1 ]
}

@test "the manual pages name each signal that their program handles" {
    cd "$ROOT"
    for program in loader trainer; do
        git grep -hoE 'sigaddset\(&[a-z]+, SIG[A-Z0-9]+' -- $program | sed 's/.* //' | sort -u >"$BATS_TEST_TMPDIR/handled"
        [ "$(wc -l <"$BATS_TEST_TMPDIR/handled")" -ge 3 ]
        section $program SIGNALS | sed -n 's/^\.B //p' | grep -oE 'SIG[A-Z0-9]+' | sort -u | diff "$BATS_TEST_TMPDIR/handled" -
    done
}
