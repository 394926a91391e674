# What make lint refuses about the tree as a whole: each fault is planted in a small tree of two folders, `low` and `high`.
# bats file_tags=ci

load ../helpers

setup() {
    command -v git >/dev/null && command -v ctags >/dev/null || skip "needs git and universal-ctags"
    enter_test
    git init -q . && mkdir low high tests
    echo 'typedef struct Low Low;' >low/low.h
    printf '#include "low/low.h"\nstruct Low {\n    int value;\n};\n' >low/low.c
    printf '#include "low/low.h"\ntypedef struct {\n    Low *low;\n} High;\n' >high/high.h
    printf '#include "high/high.h"\nint main(void) { return 0; }\n' >high/high.c
    floors=$'low\nhigh low'
}

lint() { "$ROOT/scripts/structure.py" <<<"$floors"; }
refused() { # MESSAGE: the only one
    run lint
    [ "$status" -eq 1 ] && [ "$output" = "$1" ] || { echo "status $status: $output" && return 1; }
}
lines() { for i in $(seq "$1"); do echo "    value += $i;"; done; }

@test "lint passes a tree whose includes point down" {
    run_code 0 lint
    floors=$'low\nhigh low/low.h' run_code 0 lint # a row may also name a header of a lower floor
}

@test "lint refuses an include that points up, also by way of a third folder" {
    echo '#include "high/high.h"' >low/up.c
    refused "low/up.c includes high/high.h, which its floor does not allow"
    floors=$'low high/high.h\nhigh low' refused "low: its floor is not above that of high/high.h"
    rm low/up.c && mkdir middle && echo '#include "low/low.h"' >middle/middle.h && echo '#include "middle/middle.h"' >low/up.c
    floors=$'low middle\nmiddle low\nhigh low' refused "low: its floor is not above that of middle"
    floors=$'low\nmiddle low\nhigh low' refused "low/up.c includes middle/middle.h, which its floor does not allow"
}

@test "lint refuses an include whose floor it cannot see: relative, by a macro, or of a file that is not a header" {
    echo '#include <high/high.h>' >low/up.c
    refused "low/up.c includes high/high.h, which its floor does not allow"
    for path in '"../high/high.h"' '"low.inc"' '<low/../high/high.h>'; do
        echo "#include $path" >low/up.c
        refused "low/up.c includes ${path:1:-1}, which is not a path of a header from the root of the tree"
    done
    printf '#define HEADER "high/high.h"\n#include HEADER\n' >low/up.c
    refused "low/up.c includes HEADER, which is not a path of a header from the root of the tree"
}

@test "the floors of the tree refuse a dataset or a URL in kernels and in the tokenizer" {
    floors=$(sed -n "/<<'END'/,/^END/p" "$ROOT/scripts/lint.sh" | sed '1d;$d')
    rm -r low high && mkdir -p remote dataset kernels tokenizer/merge && touch remote/transfer.h dataset/dataset.h
    run_code 0 lint
    for header in dataset/dataset.h remote/transfer.h; do
        for file in kernels/dtype.c tokenizer/merge/bpe.c; do
            echo "#include \"$header\"" >$file
            refused "$file includes $header, which its floor does not allow"
            rm $file
        done
    done
}

@test "the check of the structure fails where ctags does" {
    mkdir bin && printf '#!/bin/sh\nexit 127\n' >bin/ctags && chmod +x bin/ctags
    PATH=$PWD/bin:$PATH run_code 1 lint
}

@test "lint refuses a folder without a floor" {
    mkdir other && touch other/file.c
    refused "other/file.c: the folder has no floor in scripts/lint.sh"
}

@test "lint refuses a circle of includes of three modules, and allows one of two" {
    echo '#include "low/b.h"' >low/a.h && echo '#include "low/a.h"' >low/b.h
    run_code 0 lint
    echo '#include "low/c.h"' >low/b.c && echo '#include "low/a.h"' >low/c.h
    refused "a circle of includes: low/a, low/b, low/c"
}

@test "lint refuses a folder of more than 30 files" {
    for i in $(seq 28); do touch low/file$i.def; done
    run_code 0 lint
    touch low/file29.def
    refused "low: 31 files, 30 are the limit"
}

@test "lint refuses a type's name in two folders, and allows an opaque type" {
    echo 'void use(struct Low *low); typedef struct Low Low;' >high/use.h
    run_code 0 lint
    for type in 'struct High { int value; };' 'enum High { HIGH };' 'union High { int value; };' 'typedef int High;' \
        'WORD(High, high, HIGH, RUN, ALWAYS, "a key", ROWS)'; do
        echo "$type" >low/low.def
        refused "type High in two folders: high/high.h, low/low.def"
    done
}

@test "lint refuses a function of more than 60 lines and a kernel of more than 110" {
    { echo 'int sum(int value) {' && lines 57 && printf '    return value;\n}\n'; } >low/sum.c
    run_code 0 lint
    sed -i 's/^    return/\n&/' low/sum.c
    refused "low/sum.c:1: 61 lines in sum, 60 are the limit"
    { echo '__global__ void __launch_bounds__(256) sum(int value) {' && lines 108 && echo '}'; } >low/sum.cu
    rm low/sum.c
    run_code 0 lint
    sed -i '3s/^/\n/' low/sum.cu
    run_code 1 lint
    [[ "$output" == "low/sum.cu:1: 111 lines in "*", 110 are the limit" ]]
    { echo 'static int sum(int value) {' && lines 58 && printf '    return value;\n}\n'; } >low/sum.cu
    refused "low/sum.cu:1: 61 lines in sum, 60 are the limit"
}

@test "lint refuses a comment that names a function which does not exist" {
    comments() { "$ROOT/scripts/comments.py"; }
    echo 'int high_open(void); int mark(void); // high_open, low.c, low_max.txt, low_NAME, other_word, mark()' >high/open.h
    run_code 0 comments
    for name in high_attach low_open 'missing()'; do
        echo "int high_shut(void); // $name is called first" >high/shut.h
        run_code 1 comments
        [ "$output" = "high/shut.h:1: no function ${name%()}" ]
    done
}

@test "lint refuses 'a' before a vowel, '*&' and a cut declaration" {
    comments() { "$ROOT/scripts/comments.py"; }
    printf '%s\n' '// a unit, a user, a one-way door, a European; b and a are equal. an engine' 'int sum(int a,' '        int b);' \
        'int many = 1,' '    more;' 'const char *text = "// a eye";' >low/good.h
    run_code 0 comments
    while IFS='|' read -r line what; do
        printf '%b\n' "$line" >low/bad.h
        run_code 1 comments
        [ "$output" = "low/bad.h:1: $what" ] || { echo "$output" && false; }
    done <<'END'
int x; // a engine|'a engine'
// A unusual name|'A unusual'
int x = *&y;|`*&` is the value itself
    double seconds,\n        cost; // of a save|a declaration cut by the formatter
    Served *current,\n        *previous;|a declaration cut by the formatter
END
}

@test "lint refuses a subject of more than 72 characters, from a commit on and where it is known" {
    subjects() { "$ROOT/scripts/subjects.sh" "$@"; }
    commit() { git -c user.name=x -c user.email=x@localhost commit -q --allow-empty -m "$1"; }
    commit "$(printf 'old: %068d' 0)"
    first=$(git rev-parse HEAD)
    commit "$(printf 'new: %067d' 0)"
    [ -z "$(subjects "$first")" ]
    commit "$(printf 'new: %068d' 0)"
    [[ "$(subjects "$first")" == *" new: 0"* ]] && [ "$(subjects "$first" | wc -l)" = 1 ]
    [ -z "$(subjects 0123456789)" ] # a shallow clone
    rm -rf .git && [ -z "$(subjects "$first")" ]
}

@test "lint refuses a figure without its commit, date and machine, and a commit that is not in the history" {
    page=$BATS_TEST_TMPDIR/page.md
    git -C "$ROOT" rev-parse -q --verify HEAD >/dev/null || skip "no history"
    head=$(git -C "$ROOT" rev-parse --short=7 HEAD)
    figures() { # ROW [LINE]: a page with this row, after a line
        printf '# Page\n\n%s\n\n| what | figure | measured |\n| --- | --- | --- |\n%s\n' "${2:-}" "$1" >"$page"
        run "$ROOT/scripts/figures.sh" "$page"
    }
    figures "| a step | 12 ms | $head, 2026-11-23, H200 |" && [ -z "$output" ]
    figures "| a step | 12 ms | x |" "Measured: $head, 2026-11-23, NVIDIA H200, 1 GiB" && [ -z "$output" ]
    figures "| a color | blue | |" && [ -z "$output" ]
    for cell in "$head, H200" "2026-11-23, H200" "$head, 2026-11-23" "$head, 2026-11-23, a laptop" ""; do
        for figure in "9 MB/s" "3 times tiktoken" "2,000 tokens/s"; do
            figures "| a step of an H200 | $figure | $cell |"
            [ "$output" = "$page:7: a figure without \`COMMIT, DATE, MACHINE\`: | a step of an H200 | $figure | $cell |" ]
        done
    done
    figures "| a step | 12 ms | 0badc0d, 2026-11-23, H200 |"
    [ "$output" = "0badc0d: no commit of the history, in $page" ]
}

@test "lint refuses a row of peers.md that has neither a test that exists nor a commit and date" {
    page=$BATS_TEST_TMPDIR/page.md
    peers() { printf '| peer, version | what | source |\n| --- | --- | --- |\n| a 1 | b | %s |\n' "$1" >"$page" && run "$ROOT/scripts/peers.py" "$page"; }
    for source in '`lint.bats row of peers.md`' '`test_remote.py without ranges`' '`test_wire.c every flipped bit`' 'by hand, 2026-11-28, c81446a' \
        'read; `lint.bats row of peers.md`' 'by hand, 2026-11-28, c81446a; `lint.bats row of peers.md`'; do
        peers "$source" && [ "$status" = 0 ] && [ -z "$output" ]
    done
    for source in test read 'by hand, 2026-11-28' '`lint.bats no such test`' '`none.bats row`' 'by hand, 2026-11-28; `lint.bats row of peers.md`' \
        'by hand, 2026-11-28, c81446a; `lint.bats no such test`'; do
        peers "$source" && [ "$status" = 1 ] && [ "$output" = "$page: neither a test that exists nor \`by hand, DATE, COMMIT\`: | a 1 | b | $source |" ]
    done
}

@test "lint refuses a sentence of more than 40 words, and pages whose sentences have more than 20 on average" {
    page=$BATS_TEST_TMPDIR/page.md
    words() { seq -f 'word%.0f' "$1" | paste -sd ' '; }
    prose() { run python3 "$ROOT/scripts/prose.py" "$page"; }
    printf '# A heading\n\n%s.\n\n- one two\n- three\n' "$(words 40)" >"$page"
    prose && [ "$status" = 0 ]
    printf '%s.\n\nOne.\n\nTwo.\n' "$(words 41)" >"$page"
    prose && [ "$status" = 1 ] && [[ "$output" == "$page: 41 words: word1 word2 "* ]]
    printf '%s. %s.\n' "$(words 20)" "$(words 21)" >"$page"
    prose && [ "$status" = 1 ] && [ "$output" = "$page: 20.5 words a sentence, of which 20 are the limit" ]
    # code, tables and links do not count
    printf 'A `%s` [link](%s).\n\n```sh\n%s\n```\n\n| %s |\n' "$(words 50)" "$(words 50)" "$(words 50)" "$(words 50)" >"$page"
    prose && [ "$status" = 0 ]
}

@test "lint refuses a test that waits for a time, names the size of a plan or is in no tier, and not a poll or a program that hangs" {
    printf '%s\n' 'run_match 82 "the plan needs $need"' 'until is_gone 1; do sleep 0.05; done' 'time.sleep(0.01)' 'exec sleep 600' '# bats test_tags=ci' >tests/good.bats
    git add tests
    [ -z "$("$ROOT/scripts/waits.sh")" ]
    for line in 'timeout -s KILL 3 trainer' 'timeout --signal=SIGKILL 3 trainer' '    sleep 6' 'true && sleep 0.5' '(sleep 1; kill 1) &' \
        'time.sleep(1)' 'run_match 82 "the plan needs 1.8 GiB"' '# bats test_tags=slow'; do
        echo "$line" >tests/bad.bats && git add tests
        [[ "$("$ROOT/scripts/waits.sh")" == "tests/bad.bats:1:$line"* ]] || { echo "$line" && false; }
    done
}

@test "each row of the fault table names a test, and one whose test is gone is named" {
    cp -r "$ROOT/tests" . && mkdir scripts
    [ -z "$(tests/faults/run_faults.sh --check)" ]
    sed -i '/^# fault 127$/d' tests/cli/trainer/trainer_faults.bats
    [ "$(tests/faults/run_faults.sh --check)" = "faults.tsv: row 127 has no test" ]
}
