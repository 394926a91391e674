# shardtool: every allocation of a run fails once. The run ends with 82 (or 71, where a thread cannot start), or does without
# and gives the same bytes; it never ends with another code, never calls a good input bad, and the next run completes.
# bats file_tags=ci

load ../cli/helpers

setup() {
    enter_test
    ! is_sanitized || skip "the address sanitizer replaces malloc"
    ${CC:-cc} -D_GNU_SOURCE -shared -fPIC -O1 -o fail_malloc.so "$BATS_TEST_DIRNAME/fail_malloc.c" -ldl || skip "no C compiler"
    # libcrypto crashes where it initializes itself without memory, libarchive where it opens an archive.
    export FAIL_MALLOC_EXCEPT="libcrypto libarchive"
    printf '{"text":"one two"}\n{"text":"three"}\n' | gzip >a.jsonl.gz
    echo hey >b.txt && tar cf c.tar b.txt
}

result() { cat got; } # of a run that ended with 0
again() { :; }        # after a run that failed

# sweep STEP COMMAND...: until the numbers are larger than the number of allocations. `want` is the result without faults.
sweep() {
    local step=$1 number status failed=0
    shift
    for ((number = 1; number < 20000; number += step)); do
        rm -rf out
        status=0
        { FAIL_MALLOC=$number LD_PRELOAD=./fail_malloc.so "$@"; } >got 2>err || status=$?
        case $status in
        0) result | cmp - want || { echo "allocation $number: other bytes" && cat err && return 1; } ;;
        71 | 82) failed=$number && again ;;
        *) echo "allocation $number: exit $status" && cat got err && return 1 ;;
        esac
        [ $((number - failed)) -lt 400 ] || break
    done
    [ $failed -gt 10 ]
    echo "the last failure was at allocation $failed"
}

# fault 25
@test "each allocation fails: text of gzip, tar and Parquet" {
    shardtool decode --json --max-bad 1 a.jsonl.gz c.tar "$DATA/small.parquet" >want
    sweep 1 shardtool decode --json --max-bad 1 a.jsonl.gz c.tar "$DATA/small.parquet"
}

# fault 25
@test "each allocation fails: verify, which calls no good shard bad" {
    shardtool tokenize -q -o set c.tar
    : >want
    sweep 3 shardtool verify -q set
}

# fault 25
@test "each allocation fails: tokenize, and the next run completes" {
    result() { cat out/dataset.jsonl out/*/*/*; }
    again() { shardtool tokenize -q -j 1 -o out a.jsonl.gz c.tar && result | cmp - want; }
    shardtool tokenize -q -j 1 -o out a.jsonl.gz c.tar
    result >want
    sweep 3 shardtool tokenize -q -j 1 -o out a.jsonl.gz c.tar
}

# fault 25
@test "memory ends for good: text, verify and tokenize" {
    export FAIL_MALLOC_ALL=1
    shardtool tokenize -q -o set c.tar
    : >want
    sweep 7 shardtool verify -q set
    shardtool decode --json a.jsonl.gz c.tar >want
    sweep 7 shardtool decode --json a.jsonl.gz c.tar
}

# fault 25
@test "no allocation of libarchive that fails loses a document" {
    export FAIL_MALLOC_EXCEPT=libcrypto
    shardtool decode --json a.jsonl.gz c.tar >want
    for number in $(seq 60); do
        status=0
        { FAIL_MALLOC=$number LD_PRELOAD=./fail_malloc.so shardtool decode --json a.jsonl.gz c.tar; } >got 2>err || status=$?
        # 1 and 139 are the ends of libarchive itself: "Fatal Internal Error in libarchive: No memory", or a crash
        [ $status != 0 ] || cmp got want
        [[ " 0 82 1 139 " == *" $status "* ]] || { echo "allocation $number: exit $status" && cat err && return 1; }
    done
}
