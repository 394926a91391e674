#!/usr/bin/env bash
# Every test, one closing line: run.sh [--no-python] BUILD [WORD]. C tests (cmocka), command-line tests (bats), then
# the Python ones, which compare with tiktoken and friends.
set -u
cd "$(dirname "$0")/.." || exit 2
python=1
[ "${1:-}" = --no-python ] && python=0 && shift
build=$1 word=${2:-}
export BIN="$PWD/$build/bin" DATA="$PWD/tests/data"
mkdir -p "$BIN"
log=$(mktemp -d) && trap 'rm -rf "$log"' EXIT
passed=0 failed=0 skipped=0

count() { # PASSED FAILED SKIPPED
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}
number() { grep -oE "$1" "$2" | tail -1 | grep -oE '[0-9]+' | head -1; }

# The differential fuzzer of the tokenizer takes its minute whatever else goes on: it runs beside the rest.
beside=tests/oracle/test_tokenizer.py
if [ $python = 1 ] && [[ $beside == tests/oracle/test_*"$word"*.py ]]; then
    build/venv/bin/python "$beside" >"$log/beside" 2>&1 &
    pid=$!
fi

echo "== C"
# A test may leave memory behind, a program may not: leaks are looked for in programs only.
ASAN_OPTIONS=detect_leaks=0 "$build/test" --data "$DATA" --bin "$BIN" $word >"$log/c" 2>&1
status=$?
if [ $status -eq 0 ]; then tail -2 "$log/c"; else grep -vE '^\[ (RUN     |      OK) \]' "$log/c" | tail -60; fi
ran=$(grep -c '^\[       OK \]' "$log/c")
bad=$(number '[0-9]+ FAILED TEST' "$log/c")
[ $status -ne 0 ] && [ -z "$bad" ] && bad=1 && echo "the C tests ended early (exit $status)"
count "$ran" "${bad:-0}" 0

echo "== command line"
for file in tests/cli/*"$word"*.bats; do
    [ -e "$file" ] || continue
    bats --tap "$file" </dev/null >"$log/bats" 2>&1
    status=$?
    grep -v '^ok' "$log/bats" | grep -v '^1\.\.[0-9]*$'
    skip=$(grep -c '^ok .*# skip' "$log/bats") ok=$(grep -c '^ok' "$log/bats")
    bad=$(grep -c '^not ok' "$log/bats")
    [ $status -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    count $((ok - skip)) "$bad" "$skip"
done

if [ $python = 1 ]; then
    echo "== Python"
    for file in tests/oracle/test_*"$word"*.py; do
        [ -e "$file" ] || continue
        if [ "$file" = "$beside" ]; then
            wait "$pid"
        else build/venv/bin/python "$file" >"$log/py" 2>&1; fi
        status=$?
        [ "$file" = "$beside" ] && mv "$log/beside" "$log/py" && grep '^seeds' "$log/py"
        if [ $status -eq 0 ]; then
            ok=$(number 'Ran [0-9]+ test' "$log/py") && count "${ok:-1}" 0 0
        else count 0 1 0 && echo "$file failed:" && tail -30 "$log/py"; fi
    done
    for file in tests/cuda/emulator/run_emulator.sh; do
        [ -x "$file" ] || continue
        if "$file" "$build" $word >"$log/emu" 2>&1; then
            ok=$(number '[0-9]+ passed' "$log/emu") && count "${ok:-1}" 0 0
        else count 0 1 0 && echo "$file failed:" && tail -40 "$log/emu"; fi
    done
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
