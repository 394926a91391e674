# shardtool: archives of compressed members, which workers decompress ahead. Programs come from $BIN, data from $DATA.

# bats file_tags=ci
load ../helpers

# nest.tar: small and large members of every codec, text between them, and empty ones; `want` has the text in order
make_nest() {
    mkdir m
    : >want
    for i in $(seq 10 29); do
        seq $((i * 1000)) $((i * 1000 + 3000)) >m/$i.txt
        cat m/$i.txt >>want
        case $((i % 5)) in
        0) gzip m/$i.txt ;;
        1) xz -0 m/$i.txt ;;
        2) zstd -q --rm m/$i.txt ;;
        3) bzip2 m/$i.txt ;;
        esac
    done
    seq 1500000 >m/40.txt && cat m/40.txt >>want && xz -0 m/40.txt # decompresses to more than is decoded ahead
    openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c 5000000 | base64 >m/41.txt
    cat m/41.txt >>want && gzip -1 m/41.txt # too large to be loaded
    : >m/42.txt && gzip m/42.txt && : >m/43.txt
    mkdir t && printf 'in a tar\n' >t/a.txt && printf 'also there\n' >t/b.txt
    tar cJf m/44.xz --sort=name t && cat t/a.txt t/b.txt >>want
    printf 'the last\n' | tee m/50.txt >>want
    tar cf nest.tar --sort=name m
}

@test "the documents of a nest are in order, and its bytes do not depend on -j" {
    make_nest
    for j in 1 2 8; do
        shardtool decode -0 -j $j nest.tar | tr -d '\0' | cmp - want
        shardtool tokenize -q --frame-tokens 1024 --val 0.2 -j $j -o out$j nest.tar
        cmp out1/dataset.jsonl out$j/dataset.jsonl
    done
    (cd m && zip -q -r ../nest.zip .)
    shardtool decode -0 -j 2 nest.zip | tr -d '\0' | LC_ALL=C wc -c | grep -qx "$(wc -c <want)"
    tar cf - m | shardtool decode -0 -j 2 - | tr -d '\0' | wc -c | grep -qx "$(wc -c <want)" # from a pipe
}

@test "a damaged member of a nest is reported in its place, or skipped alone" {
    make_nest
    for file in 15.txt.gz 21.txt.xz; do
        (cd m && chmod +w $file && size=$(stat -c %s $file) && printf xxxx | dd of=$file bs=1 seek=$((size / 2)) conv=notrunc status=none)
    done
    tar cf bad.tar --sort=name m
    for j in 1 4; do
        run_match 65 "bad.tar:m/15.txt.gz': truncated or damaged" shardtool decode -0 -j $j bad.tar
        shardtool tokenize -q --max-bad 100% -j $j --val 0 -o out$j bad.tar
        jq -r .input out$j/skipped.jsonl >skipped
        printf 'bad.tar:m/15.txt.gz\nbad.tar:m/21.txt.xz\n' | diff - skipped
        cmp out1/dataset.jsonl out$j/dataset.jsonl
        shardtool cat out$j/train/*/*.zst | shardtool decode --raw >text
        grep -q 'the last$' text
    done
}

@test "--max-bad 100% reads the documents before the cut of a truncated nest" {
    make_nest
    head -c 60000 nest.tar >cut.tar
    for j in 1 4; do
        run_match 65 "cut.tar*truncated or damaged" shardtool tokenize -j $j -o never cut.tar
        shardtool decode -q --max-bad 100% -0 -j $j cut.tar | tr -d '\0' >got$j
        cmp got1 got$j
        cmp -n "$(wc -c <got$j)" got$j want
        [ "$(wc -c <got$j)" -gt 10000 ]
    done
}
