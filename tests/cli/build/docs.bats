# The commands of README, the pages of docs/ and the manual pages, as they are written there, on small inputs of the same names.
load ../helpers

teardown() { [ -z "${LOADER:-}" ] || kill "$LOADER" 2>/dev/null || true; }

# commands PAGE: the lines of its ```sh blocks, continued lines joined. A block after a line `<!-- run by FILE -->` is run by that
# test, one after `<!-- never run: REASON -->` by none.
commands() {
    awk '/^```sh/ { inside = !noted; next } /^```/ { inside = 0 } { noted = /^<!-- (run by [^ ]+|never run: .+) -->$/ }
        inside { line = line $0; if (sub(/\\$/, "", line)) next; print line; line = "" }' "$1"
}

# A machine of the manual: texts, datasets, a run, a data folder of nanoGPT, and a millrace that trains a model of 1 layer for 4 steps, of
# the build or of the installation under PREFIX.
enter_manual() { # [PREFIX]
    local bin=$BIN config=$ROOT/config folder=$BATS_TEST_TMPDIR/manual
    [ -z "${1:-}" ] || bin=$1/bin config=$1/share/millrace/config folder=$folder-installed
    mkdir "$folder" && cd "$folder"
    mkdir -p build/bin fineweb web books data runs
    cat >build/bin/millrace <<END
#!/usr/bin/env bash
small="--n_layer=1 --n_head=2 --n_embd=16 --block_size=16 --batch_size=2 --gradient_accumulation_steps=2 --max_iters=4 --lr_decay_iters=4
    --warmup_iters=1 --eval_tokens=64 --eval_interval=2 --threads=1 --device=cpu --sample_tokens=4 --log_interval=1"
[ "\$1" = train ] || small=
exec "$bin/millrace" "\$@" \$small
END
    chmod +x build/bin/millrace
    PATH=$PWD/build/bin:${PATH#"$BIN:"}
    ln -s "$config" config
    cp "$DATA/small.parquet" fineweb/a.parquet
    printf '{"text": "one"}\n{"text": "two"}\n' | zstd -q >web/a.jsonl.zst
    seq 60000 | split -l 60 -a 3 --additional-suffix=.txt - books/ && seq 500 >books/long.txt
    seq 3000 | tee corpus.txt | xz >corpus.xz
    tar cJf corpus.tar.xz corpus.txt
    seq 400 | sed 's/$/\n/' >play.txt
}
add_datasets() {
    local name
    for name in fineweb books web; do millrace tokenize -q --val 0.2 -o data/$name books; done
}
add_run() { millrace train --dataset=data/fineweb --out_dir=runs/gpt2 --quiet; }

# each_way FUNCTION: in a manual with the programs of the build, and in one with those that make install has copied.
each_way() {
    enter_manual
    "$1"
    end_background && LOADER=
    "$ROOT/scripts/install.sh" install "$BIN" "$BATS_TEST_TMPDIR/usr"
    enter_manual "$BATS_TEST_TMPDIR/usr"
    "$1"
}

# run_page PAGE COUNT: each of its commands, of which there are COUNT or more, ends as it should.
run_page() {
    local command status log=0 count=0 port
    port=$(free_port)
    commands "$ROOT/$1" | sed -e "s|/tmp/mill|$PWD/mill|; s|:5555|:$port|; s|tcp://mill:|tcp://127.0.0.1:|" >commands
    less() { cat; }
    set -o pipefail
    while IFS= read -r -u 5 command; do
        status=0
        case $command in
        *"&") # a loader: the one before it ends
            [ -z "${LOADER:-}" ] || { kill "$LOADER" && wait "$LOADER"; } || true
            log=$((log + 1))
            eval "exec ${command%&}" >"log$log" 2>&1 3>&- 5>&- &
            LOADER=$!
            wait_until grep -q ready "log$log"
            ;;
        *) eval "$command" >got 2>err </dev/null || status=$? ;;
        esac
        # head and less end before their input does; diff gives 1 for other data
        case $command in
        *" diff "*) [ $status = 1 ] ;;
        *"| head"* | *"| less"*) [ $status = 0 ] || [ $status = 141 ] ;;
        *) [ $status = 0 ] ;;
        esac || { echo "exit $status: $command" && cat got err && return 1; }
        case $command in *" encode "*) [ "$(cat got)" = "${command##*# }" ] ;; esac
        count=$((count + 1))
    done 5<commands
    [ "$count" -ge "$2" ]
}

@test "each page that has commands is run here, and what another test runs names it" {
    cd "$ROOT"
    for page in $(grep -l '^```sh' README.md docs/*.md); do
        [ -z "$(commands "$page")" ] || grep -qE "run_page \"?${page%%.*}[.$]" "$BATS_TEST_FILENAME" || { echo "$page" && false; }
    done
    [ "$(grep -hoE '^<!-- run by [^ ]+' README.md docs/*.md | wc -l)" -ge 3 ]
    for file in $(grep -hoE '^<!-- run by [^ ]+' README.md docs/*.md | cut -d ' ' -f 4); do [ -f "$file" ]; done
    # a block is commands, output, settings or another program's text, and says which
    not awk '/^```/ { inside = !inside; if (inside && $0 == "```" && FILENAME != "docs/gpu-results.md") bad = 1 } END { exit !bad }' README.md docs/*.md
}

@test "the site of make docs has each page of docs/ in its contents" {
    cd "$ROOT/docs"
    for page in *.md; do grep -q " $page\$" ../scripts/mkdocs.yml || { echo "$page" && false; }; done
}

@test "each option, key and word of a key that a page names is one of a program's tables" {
    cd "$ROOT"
    for program in shardtool loader trainer; do
        for page in $("$BIN/$program" --man | sed -nE 's/^\.BR .*\\-([a-z-]+) \([15]\)$/\1/p'); do
            "$BIN/$program" --man "$page" | sed -n 's/^\.B //p' | sed 's/\\-/-/g' |
                grep -oE -- '--[a-z0-9_-]+|^[a-z0-9_]+ =' | sed 's/^--//; s/ =//; y/-/_/' >>"$BATS_TEST_TMPDIR/names"
        done
    done
    # lines with an option of another program are left out
    grep -hoE -- '.*[` (]--[a-z].*' README.md docs/*.md | grep -vE 'pip install|aws s3|\| zstd 1|mpirun|srun|sbatch|tensorboard|systemctl|podman|apptainer|dpkg-buildpackage|autopkgtest' |
        grep -oE -- '[` (]--[a-z][a-z0-9_-]+' | sed 's/^.--//; y/-/_/' | sort -u >"$BATS_TEST_TMPDIR/named"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/named")" -ge 80 ]
    printf '%s\n' help man completion version >>"$BATS_TEST_TMPDIR/names"
    sort -u "$BATS_TEST_TMPDIR/names" | comm -13 - "$BATS_TEST_TMPDIR/named" >"$BATS_TEST_TMPDIR/unknown"
    run_code 0 diff /dev/null "$BATS_TEST_TMPDIR/unknown"
    # a list of words, as --offload=none|optimizer
    "$BIN/trainer" --man config | sed -n '/^\.B .* = WORD/,/^\.TP/p' | sed 's/^\.B /--/; s/ = WORD//' >"$BATS_TEST_TMPDIR/rows"
    words_of() { awk -v key="$1" '$0 == key { getline; print }' "$BATS_TEST_TMPDIR/rows" | sed -E 's/.*\(([^()]* \| [^()]*)\).*/ \1 /'; }
    grep -ohE -- '--[a-z_]+=[a-z0-9_+]+(\|[a-z0-9_+]+)+' README.md docs/*.md | sort -u >"$BATS_TEST_TMPDIR/lists"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/lists")" -ge 3 ]
    while IFS='=' read -r key words; do
        for word in ${words//|/ }; do [[ "$(words_of "$key")" == *" $word "* ]] || { echo "$key=$word" && false; }; done
    done <"$BATS_TEST_TMPDIR/lists"
    # the pages of model options and of the order of samples have all
    for key in $(grep -v 'PART(' trainer/config/keys.def | sed -nE 's/^(KEY|WORD)\([A-Za-z]+, ([a-z_]+), .* OPTION, .*/\2/p'); do
        grep -q -- "\`--$key" docs/model-options.md || { echo "$key" && false; }
    done
    [ "$(words_of --sampling | wc -w)" -ge 11 ] # six words
    for word in $(words_of --sampling | tr '|' ' '); do grep -q "\`$word\`" docs/train.md; done
}

@test "the site is built without a link that leads nowhere or a request to another server, and searches without a server" {
    cd "$ROOT"
    build/venv/bin/python -c 'import material' 2>/dev/null || skip "no mkdocs-material: make docs installs it"
    run_code 0 scripts/docs.sh build/venv/bin/python "$BIN"
    grep -q '"title":"Checkpoints"' build/site/search/search_index.js
    grep -q '<script src="iframe-worker.js">' build/site/formats.html
}

@test "each member of metrics.jsonl is explained on the page of formats" {
    cd "$ROOT"
    sed -n '/^## The record of a run/,/^## The hash/p' docs/formats.md >"$BATS_TEST_TMPDIR/page"
    members=$(grep -ohE '\\"[a-z_0-9]+\\":|evaluation_add_value\(&members, "[a-z_]+"' trainer/run/*.c trainer/engine/*.c |
        tr -d '\\":' | sed 's/.*, *//' | sort -u)
    [ "$(wc -w <<<"$members")" -gt 40 ]
    for member in $members; do grep -qw -- "$member" "$BATS_TEST_TMPDIR/page" || { echo "$member" && false; }; done
}

# check_links FOLDER: those of its pages.
check_links() {
    cd "$1"
    for page in README.md CHANGELOG.md CONTRIBUTING.md loader/python/README.md docs/*.md; do
        grep -oE '\]\([^)#]*(#[^)]*)?\)' "$page" | sed 's/^](//; s/)$//' | while IFS='#' read -r file anchor; do
            case $file in http*) continue ;; esac
            [ -n "$file" ] && file=$(dirname "$page")/$file || file=$page
            [ -e "$file" ] || { echo "$page: no file $file" && exit 1; }
            [ -z "$anchor" ] || grep '^#' "$file" | sed -E 's/^#+ //; s/[^A-Za-z0-9 -]//g; s/ /-/g' | tr A-Z a-z | grep -qx -- "$anchor" ||
                { echo "$page: no heading $anchor in $file" && exit 1; }
        done
    done
}

@test "the links of the pages lead to files and headings that exist, in the source and where make install copies them" {
    check_links "$ROOT"
    "$ROOT/scripts/install.sh" install "$BIN" "$BATS_TEST_TMPDIR/usr"
    check_links "$BATS_TEST_TMPDIR/usr/share/doc/millrace"
}

@test "git ignores what the commands of README and the manual's keys make in a checkout" {
    cd "$ROOT"
    git rev-parse HEAD >/dev/null 2>&1 || skip "this tree is not a checkout of git"
    made=$({ commands README.md; grep -oE '(keygen|>) +[a-z]+(\.[a-z]+)?' docs/loader.md; } | grep -oE -- '(-o|--out_dir=?|keygen|>) ?[a-z/0-9.]+' | sed -E 's/^(-o|--out_dir=?|keygen|>) *//' | sort -u)
    [ "$(wc -l <<<"$made")" -ge 6 ]
    for name in out $made; do git check-ignore -q "$name/file" || { echo "$name" && false; }; done
    [ -z "$(git ls-files --cached --ignored --exclude-standard)" ]
}

# bats test_tags=ci
@test "README: its first steps run as written, and it has at most 130 lines" {
    first_steps() { run_page README.md 5; }
    each_way first_steps
    [ "$(wc -l <"$ROOT/README.md")" -le 130 ]
}

# bats test_tags=ci
@test "docs/vocabularies.md runs as written" {
    vocabularies() {
        run_page docs/vocabularies.md 7
        [ "$(jq -c .special chat/vocabulary.json)" = '["<|user|>","<|assistant|>","<|endoftext|>"]' ]
    }
    each_way vocabularies
}

# bats test_tags=ci
@test "docs/datasets.md runs as written" {
    datasets() {
        run_page docs/datasets.md 15
        [ -s out/train.bin ] # of the export, the last command
    }
    each_way datasets
}

# bats test_tags=ci
@test "docs/train.md, docs/audit.md, docs/receipt.md, docs/use-a-model.md and docs/fit.md run as written" {
    training() {
        add_datasets
        run_page docs/train.md 4
        run_page docs/audit.md 3
        run_page docs/receipt.md 2
        run_page docs/use-a-model.md 3
        run_page docs/fit.md 1
    }
    each_way training
}

# bats test_tags=ci
@test "docs/out-of-memory.md runs as written, in each language" {
    out_of_memory() {
        add_datasets
        millrace export-tokens -q --format nanogpt -o nanoGPT/data/openwebtext data/books
        for language in "" .es .fr .de; do
            run_page "docs/out-of-memory$language.md" 3
            rm -rf runs data/openwebtext
        done
    }
    each_way out_of_memory
}

# bats test_tags=ci
@test "docs/loader.md runs as written" {
    serving() {
        add_datasets
        run_page docs/loader.md 9
    }
    each_way serving
}

@test "docs/grade.md runs as written" {
    enter_manual
    add_datasets
    add_run
    run_page docs/grade.md 5
}

@test "docs/answers.md runs as written" {
    enter_manual
    run_page docs/answers.md 3
}

@test "docs/characters.md runs as written" {
    enter_manual
    run_page docs/characters.md 3
}

# bats test_tags=ci
@test "docs/answers.md and docs/characters.md run as written from an installation" {
    "$ROOT/scripts/install.sh" install "$BIN" "$BATS_TEST_TMPDIR/usr"
    enter_manual "$BATS_TEST_TMPDIR/usr"
    run_page docs/answers.md 3
    run_page docs/characters.md 3
}

# bats test_tags=ci
@test "docs/gpt2-124m-12gb.md runs as written" {
    card() {
        "$ROOT/build/venv/bin/python" -c "import pyarrow, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.table({'text': [f'document {i} of the mill and its river' for i in range(20000)]}), 'fineweb/a.parquet')" ||
            skip "no pyarrow"
        run_page docs/gpt2-124m-12gb.md 5
    }
    each_way card
}

@test "the plan in docs/gpt2-124m-12gb.md is what millrace plan prints, and the page's other commands take their keys" {
    cd "$ROOT"
    page=docs/gpt2-124m-12gb.md
    eval "$(grep '^millrace plan ' $page | sed 's|millrace|"$BIN/millrace"|')" 2>/dev/null | sed '/in four days/q' >"$BATS_TEST_TMPDIR/printed"
    awk '/^```/ { inside = !inside; next } inside && /^card /, /in four days/' $page >"$BATS_TEST_TMPDIR/written"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/written")" -ge 22 ]
    diff "$BATS_TEST_TMPDIR/written" "$BATS_TEST_TMPDIR/printed"
    eval "$(grep '^millrace train ' $page | sed 's|millrace train|"$BIN/millrace" plan --print_config|')" >"$BATS_TEST_TMPDIR/keys"
    grep -qE '^warmup_iters += 700 ' "$BATS_TEST_TMPDIR/keys"
    run "$BIN/trainer" plan config/train_gpt2_124m_12gb.conf --device=cuda --optimizer=muon
    [[ "$output" =~ "  optimizer "\ +([0-9]+) ]]
    muon=${BASH_REMATCH[1]}
    [[ "$(cat "$BATS_TEST_TMPDIR/written")" =~ "  optimizer "\ +([0-9]+) ]]
    [ $((BASH_REMATCH[1] - muon)) -ge $((324 << 20)) ]
    [ $((BASH_REMATCH[1] - muon)) -lt $((325 << 20)) ] # 324 MiB, as the page has it
}

# section "PROGRAM --man [PAGE]" TITLE: a section of a manual page, as text
section() { "$BIN"/$1 | sed -n "/^\.SH $2\$/,/^\.SH /p" | sed '/^\.SH/d; s/\\-/-/g; s/\\(aq/'"'"'/g; s/\\(dq/"/g; s/\\(ti/~/g'; }

# bats test_tags=ci
@test "the examples in the manual pages run as written" {
    cd "$BATS_TEST_TMPDIR"
    export XDG_RUNTIME_DIR=$PWD PATH=$BIN:$PATH
    mkdir books && seq 3000 | split -l 60 - books/
    seq 9 >book.txt
    cp "$DATA/small.parquet" web.parquet
    cp "$DATA/fuzz/import/float32.pt" ckpt.pt
    python3 -c 'import pickle; pickle.dump({"itos": dict(enumerate("\n abcdefg\u00fcz"))}, open("meta.pkl", "wb"))'
    write_tiny_conf small.conf
    for program in shardtool trainer loader; do
        [ $program != loader ] || { shardtool tokenize --quiet -o other books && touch weights.txt; }
        section "$program --man" EXAMPLES | sed -n 's/^\.B //p' >commands
        [ "$(wc -l <commands)" -ge 3 ]
        while IFS= read -r -u 5 command; do
            case $command in
            *"&") eval "$command" 2>log 3>&- && LOADER=$! && wait_until grep -q ready log ;;
            *) (eval "$command") >got 2>err || { [[ "$?$command" == "1millrace diff "* ]]; } || { echo "$command" && cat err && return 1; } ;;
            esac
        done 5<commands
    done
    section "trainer --man config" EXAMPLES | sed -n 's/^\.B //p' >example.conf
    trainer plan --print_config example.conf >got
    for value in "batch_size *= 8 " "learning_rate *= 0.0006 " "out_dir *= 'runs/gpt2' "; do grep -qE "^$value" got; done
    grep -q 'other' <(loader serve-status)
    kill "$LOADER"
}

@test "docs/reference.md is what scripts/reference.py makes of the programs, with every key, command and option" {
    cd "$ROOT"
    python3 scripts/reference.py "$BIN" | diff docs/reference.md -
    for key in $("$BIN/trainer" plan --print_config | sed -nE 's/^([a-z_0-9]+) +=.*/\1/p'); do grep -qE "^\| \`$key\` \|" docs/reference.md; done
    for program in shardtool loader trainer; do
        for command in $("$BIN/$program" --help | sed -nE 's/^  ([a-z-]+) .*/\1/p'); do
            grep -qx "### millrace $command" docs/reference.md
            for option in $("$BIN/$program" "$command" --help | sed -nE '/^(keys|examples)/q; s/^  (-., )?--([a-z0-9_-]+).*/\2/p'); do
                [[ $option =~ ^(quiet|help)$ ]] || sed -n "/^### millrace $command\$/,/^##/p" docs/reference.md | grep -qE "^\| \`(-., )?--$option[ \`]"
            done
        done
    done
}

@test "the manual pages name each environment variable that their program reads, and each configuration key once" {
    cd "$ROOT"
    for program in shardtool loader trainer; do
        rooms=$program
        [ $program != trainer ] || rooms="trainer kernels"
        [ $program != shardtool ] || rooms="shardtool common/file"
        # shellcheck disable=SC2086
        git grep -hoE 'getenv\("[A-Z_]+"' -- $rooms | cut -d '"' -f 2 | sort -u |
            grep -vx HOME >"$BATS_TEST_TMPDIR/read"
        section "$program --man" ENVIRONMENT | sed -n 's/^\.B //p' | sort >"$BATS_TEST_TMPDIR/named"
        run comm -23 "$BATS_TEST_TMPDIR/read" "$BATS_TEST_TMPDIR/named"
        [ -z "$output" ]
    done
    section "trainer --man config" KEYS | sed -nE 's/^\.B ([a-z_0-9]+) = .*/\1/p' | sort >"$BATS_TEST_TMPDIR/keys"
    "$BIN/trainer" plan --print_config | sed -nE 's/^([a-z_0-9]+) +=.*/\1/p' | sort >"$BATS_TEST_TMPDIR/printed"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/keys")" -ge 70 ]
    diff "$BATS_TEST_TMPDIR/printed" "$BATS_TEST_TMPDIR/keys"
}

@test "the manual pages name each signal that their program handles" {
    cd "$ROOT"
    for program in loader trainer; do
        git grep -hoE 'sigaddset\(&[a-z]+, SIG[A-Z0-9]+' -- $program $([ $program = loader ] || echo common/machine/stop.c) | sed 's/.* //' | sort -u >"$BATS_TEST_TMPDIR/handled"
        [ "$(wc -l <"$BATS_TEST_TMPDIR/handled")" -ge 3 ]
        section "$program --man" SIGNALS | sed -n 's/^\.B //p' | grep -oE 'SIG[A-Z0-9]+' | sort -u | diff "$BATS_TEST_TMPDIR/handled" -
    done
}
