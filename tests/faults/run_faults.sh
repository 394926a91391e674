#!/usr/bin/env bash
# Every fault that the programs must survive, with the tests that inject it: run_faults.sh BUILD [FIRST-LAST].
# tests/faults/*.tsv hold a line for each test: row number, fault, suite (a bats file below tests/cli or in tests/faults, a Python file
# or C), test. A row passes when all of its tests pass; a row without a test is missing. A test ending in a star stands for all
# that begin so. In suite - the test is the reason why there is none, and the row is skipped, as is what this machine cannot inject.
# Rows run one after the other: many inject faults into time, memory or disk.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1 first=${2:-1-} last=${2:--86}
first=${first%%-*} last=${last##*-}
export BIN="$PWD/$build/bin" DATA="$PWD/tests/data"
export MILLRACE_SWEEP=1 # every case of the tests that take a sample in make test
log=$(mktemp) && trap 'rm -f "$log"' EXIT

run() { # SUITE TEST
    local pattern
    pattern=$(sed -e 's/[][(){}.^$+?|\\/]/\\&/g' -e 's/\*$/.*/' <<<"$2")
    case $1 in
    *.bats) bats --tap "$(ls tests/cli/*/"$1" tests/faults/"$1" 2>/dev/null)" -f "^$pattern\$" </dev/null >"$log" 2>&1 && grep -qE '^ok [0-9]' "$log" ;;
    *.py) build/venv/bin/python "tests/oracle/$1" "${2%\*}" >"$log" 2>&1 && grep -qE '^ok ' "$log" ;;
    C) "$build/test" --data "$DATA" --bin "$BIN" "${2%\*}" >"$log" 2>&1 && grep -qE '^\[  PASSED  \] [1-9]' "$log" ;;
    -) echo "skipped $2" >"$log" ;;
    *) echo "unknown suite '$1'" >"$log" && false ;;
    esac
}

printf '%4s  %-7s  %-28s  %s\n' row result suite test
rows=0 passed=0 skipped=0
for row in $(seq "$first" "$last"); do
    result=missing
    while IFS=$'\t' read -r -u 3 number _ suite test; do
        [ "$number" = "$row" ] || continue
        [ $result = missing ] && result=passed
        if run "$suite" "$test"; then
            one=passed
            grep -qE '^ok .*# skip|^skipped ' "$log" && one=skipped
        else
            one=failed
        fi
        [ $one = passed ] || [ $result = failed ] || result=$one
        printf '%4s  %-7s  %-28s  %s\n' "$row" $one "$suite" "$test"
        [ $one = skipped ] && [ "$suite" != - ] && sed -nE 's/^ok .*# skip ?/        /p; s/^skipped [^ ]*:? ?/        /p' "$log" | sort -u
        [ $one = failed ] && sed 's/^/        /' "$log" | tail -30
    done 3< <(cat tests/faults/*.tsv)
    [ $result = missing ] && printf '%4s  %-7s\n' "$row" missing
    rows=$((rows + 1))
    [ $result = passed ] && passed=$((passed + 1))
    [ $result = skipped ] && skipped=$((skipped + 1))
done
echo "$passed of $rows rows pass, $skipped skipped"
[ $((passed + skipped)) -eq $rows ]
