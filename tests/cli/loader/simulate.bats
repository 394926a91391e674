# Histories of loader and trainers under a virtual clock (tests/simulate).
load ../helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    simulate=$(dirname "$BIN")/simulate
    [ -x "$simulate" ] || skip "the simulator is built without sanitizers only: make simulate"
}

histories() { # FIRST COUNT
    run_code 0 "$simulate" --first="$1" --count="$2"
    [[ "$output" == "$2 histories from seed $1 in "* ]]
}

# fault 39, 90, 91, 104, 106
@test "every batch of 30 simulated histories is what the law says, and nothing is left behind" { histories 1 30; }

# bats test_tags=ci
@test "every batch of 90 other simulated histories is what the law says, and nothing is left behind" { histories 31 90; }

@test "a seed repeats its history bit for bit" {
    "$simulate" --first=1000 --count=5 | sed 's/ in .* an hour of a core)//' >first
    "$simulate" --first=1000 --count=5 | sed 's/ in .* an hour of a core)//' >second
    grep -q 'hash [0-9a-f]\{16\}: [1-9][0-9]* batches' first
    diff first second
    "$simulate" --first=1001 --count=5 | not grep -qF "$(grep -o 'hash [0-9a-f]*' first)"
}

@test "each bug that the simulator must find is planted in a line that is there" {
    cd "$ROOT"
    run_code 0 tests/simulate/mutants.sh --check
}
