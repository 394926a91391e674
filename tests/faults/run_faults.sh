#!/usr/bin/env bash
# Every fault that the programs must survive, with the tests that inject it: run_faults.sh BUILD [FIRST-LAST]. A row of faults.tsv is a
# number, the fault and what must happen. Its tests carry the number in the line above them: "# fault 39" in bats and Python, "// fault
# 39, 49" in C. A row passes when all of its tests pass; one that says "no test" is skipped, as is what this machine cannot inject.
# Rows run one after the other: many inject faults into time, memory or disk.
# run_faults.sh --check: prints rows without a test or with the number of another, marks without a row and marks above no test.
set -u
cd "$(dirname "$0")/../.." || exit 2
table=tests/faults/faults.tsv

marks() { # a line for each mark: number, file, test
    awk -v OFS='\t' '
        /^(#|\/\/) fault [0-9]+(, [0-9]+)*$/ { count = split($0, word, /[ ,]+/); next }
        /^(# bats test_tags=ci|@runner.ci)$/ { next } # its tier
        count {
            test = $0
            if (!sub(/^@test "/, "", test) && !sub(/^def /, "", test) && !sub(/^TEST(_CI|_ON_EACH_ISA)?\(/, "", test)) test = "-"
            sub(FILENAME ~ /bats$/ ? "\" [{]$" : "[()].*$", "", test)
            for (i = 3; i <= count; i++) print word[i], FILENAME, test
            count = 0
        }' $(find tests -name '*.bats' -o -name 'test_*.py' -o -name 'test_*.c') | sort -n
}
if [ "$1" = --check ]; then
    marks | awk -F'\t' 'NR == FNR { if ($1 in row) print "faults.tsv: row " $1 " stands twice"; row[$1] = $3; next }
        !($1 in row) { print $2 ": fault " $1 " has no row in faults.tsv" }
        $3 == "-" { print $2 ": fault " $1 " stands above no test" }
        { marked[$1] }
        END { for (n in row) if (!(n in marked) && row[n] !~ /^no test: /) print "faults.tsv: row " n " has no test" }' $table -
    exit
fi

build=$1 first=${2:-1-} last=${2:--$(tail -n 1 $table | cut -f 1)}
first=${first%%-*} last=${last##*-}
export BIN="$PWD/$build/bin" DATA="$PWD/tests/data"
export MILLRACE_SWEEP=1 # every case of the tests that take a sample in make test
log=$(mktemp) && trap 'rm -f "$log"' EXIT

run() { # FILE TEST
    case $1 in
    *.bats) bats --tap "$1" -f "^$(sed 's/[][(){}.^$+?*|\\/]/\\&/g' <<<"$2")\$" </dev/null >"$log" 2>&1 && grep -qE '^ok [0-9]' "$log" ;;
    *.py) build/venv/bin/python "$1" "$2" >"$log" 2>&1 && grep -qE '^ok ' "$log" ;;
    *.c) "$build/test" --data "$DATA" --bin "$BIN" "$2" >"$log" 2>&1 && grep -qE '^\[  PASSED  \] [1-9]' "$log" ;;
    esac
}

printf '%4s  %-7s  %-28s  %s\n' row result suite test
rows=0 passed=0 skipped=0
while IFS=$'\t' read -r -u 3 number fault expected; do
    [ "$number" -ge "$first" ] && [ "$number" -le "$last" ] || continue
    result=passed
    [[ $expected != "no test: "* ]] || { result=skipped && printf '%4s  %-7s  %-28s  %s\n' "$number" skipped - "$fault: $expected"; }
    while IFS=$'\t' read -r -u 4 mark file test; do
        [ "$mark" = "$number" ] || continue
        one=failed
        if run "$file" "$test"; then
            one=passed
            ! grep -qE '^ok .*# skip|^skipped ' "$log" || one=skipped
        fi
        [ $one = passed ] || [ $result = failed ] || result=$one
        printf '%4s  %-7s  %-28s  %s\n' "$number" $one "$(basename "$file")" "$test"
        [ $one = skipped ] && sed -nE 's/^ok .*# skip ?/        /p; s/^skipped [^ ]*:? ?/        /p' "$log" | sort -u
        [ $one = failed ] && sed 's/^/        /' "$log" | tail -30
    done 4< <(marks)
    rows=$((rows + 1))
    [ $result = passed ] && passed=$((passed + 1))
    [ $result = skipped ] && skipped=$((skipped + 1))
done 3<$table
echo "$passed of $rows rows pass, $skipped skipped"
[ $((passed + skipped)) -eq $rows ]
