# Datasets on file systems that lack something: maps, hard links, locks.

load ../helpers

setup() { enter_test && make_documents; }

make_documents() { # 300 documents of 30 words, and 30 of them again with one other word; `whole` is their dataset
    seq 9000 | tr 0-9 a-j | xargs -n 30 >lines
    { cat lines && sed -n '1,30s/ [^ ]*/ other/p' lines; } | split -l 1 -a 3 - part-
    shardtool train-vocabulary --characters part-* >all
    tokenize -o whole
}
tokenize() { shardtool tokenize -q --val 0.1 --vocabulary all --shard-tokens 32k "$@" part-*; }

# bindfs's kernel refuses MAP_SHARED with ENODEV, and has MAP_PRIVATE.
@test "datasets are written and read through FUSE with direct I/O, where no map is shared" {
    shardtool decode whole >text
    shardtool dedup -q --similar 0.8 -o unique whole
    shardtool shuffle -q --seed 3 --split train -o shuffled whole
    uses_mount() {
        export TMPDIR=$PWD/mnt
        tokenize -o mnt/d && diff -r real/d whole && shardtool info mnt/d >info && shardtool verify -q mnt/d &&
            shardtool decode mnt/d | cmp - text &&
            shardtool dedup -q --similar 0.8 -o mnt/unique mnt/d && diff -r real/unique/train unique/train &&
            shardtool shuffle -q --seed 3 --split train -o mnt/shuffled mnt/d && diff -r real/shuffled/train shuffled/train
    }
    on_direct_io uses_mount
}

@test "files that cannot be mapped at all are read into memory" {
    shardtool decode whole >text
    for errno in 19 38 1; do # ENODEV, ENOSYS, EPERM
        refused "mmap:$errno:whole/" shardtool decode whole | cmp - text
        refused "mmap:$errno:whole/" shardtool verify -q whole
    done
}

# EPERM: exFAT, BeeGFS between folders. ENOSYS, EOPNOTSUPP: FUSE, SMB. EMLINK. EXDEV: another file system. EIO: rclone.
@test "merge and --append copy shards where hard links are refused, with a line that names the bytes" {
    shardtool tokenize -q --val 0.1 --vocabulary all -o two lines
    shardtool merge -q -o linked whole two
    bytes=$(find whole/train whole/val -name '*.zst' -printf '%s\n' | awk '{ n += $1 } END { printf "%.1f KiB", n / 1024 }')
    for errno in 1 38 95 31 18 5; do
        rm -rf copied
        run_match 0 "'whole' is copied, $bytes: no hard link to it is possible here (" refused "link:$errno:copied" shardtool merge -o copied whole two
        diff -r -x .lock linked copied
        [ "$(stat -c %h copied/train/000/000000.zst)" = 1 ]
    done
    find copied -name '*.tmp.*' | not grep .
    head -50 lines >more
    cp -r whole appended && cp -r whole refused
    append=(shardtool tokenize --val 0.1 --vocabulary all --shard-tokens 32k --append)
    "${append[@]}" -q -o appended more
    run_match 0 "'refused' is copied, " refused "link:38:refused" "${append[@]}" -o refused more
    diff -r -x .lock appended refused
}

@test "a merge that copies to a full disk ends with 74, leaves nothing, and is repeated" {
    shardtool merge -q -o linked whole
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    unshare -m bash -e -c '
        mkdir small && mount -t tmpfs -o size=20k tmpfs small
        status=0
        shardtool merge -o small/m whole >log 2>&1 || status=$?
        [ $status = 74 ] && grep -q "No space left" log || { cat log; exit 1; }
        find small -type f ! -name .lock | { ! grep .; }
        mount -o remount,size=10m small
        shardtool merge -q -o small/m whole
        diff -r -x .lock linked small/m'
}

# EIO, ESTALE, ETIMEDOUT
@test "tokenize that cannot read its finished shards or its journal stops with 74, and makes nothing again" {
    kill_at fdatasync 4 shardtool tokenize -q -j 1 --val 0.1 --vocabulary all --shard-tokens 32k -o out part-* || true
    [ "$(find out/train out/val -type f -name '0*.zst' | wc -l)" -ge 2 ]
    cp -r out before
    for rule in open:5:out/train stat:116:out/train read:5:.journal access:5:out/.journal access:110:out/dataset.jsonl read:5:.pending; do
        run_match 74 "cannot *out/" refused $rule shardtool tokenize -q --val 0.1 --vocabulary all --shard-tokens 32k -o out part-*
        [[ "$output" != *"made again"* && "$output" != *--force* ]] || { echo "$rule: $output" && false; }
        diff -r -x .lock before out
    done
    tokenize -o out
    diff -r -x .lock whole out
}

@test "verify, info and decode of a dataset that cannot be read now do not call it bad" {
    for rule in open:5:whole/train/ stat:116:whole/train/ fstat:110:whole/train/; do
        run_match 74 "shard*annot be read now" refused $rule shardtool verify whole
        [[ "$output" != *damaged* && "$output" != *"missing"* && "$output" == *"0 of "*" shards are bad; "* ]] || { echo "$rule: $output" && false; }
        run_code 74 refused $rule shardtool decode whole
    done
    run_match 74 "Input/output error" refused open:5:dataset.jsonl shardtool info whole
    [[ "$output" != *"is not a dataset"* ]]
}

# The error of a read is told as such by the readers of every format, and is no bad input that --max-bad 100% passes over.
@test "an input that cannot be read ends tokenize with 74, also with --max-bad 100%" {
    head -40 lines >a.txt && gzip -k a.txt && xz -k a.txt && bzip2 -k a.txt && zstd -q a.txt
    tar cf a.tar a.txt && zip -q a.zip a.txt
    jq -R '{text: .}' -c a.txt >a.jsonl
    for file in a.txt a.txt.gz a.txt.xz a.txt.bz2 a.txt.zst a.tar a.zip a.jsonl; do
        for rule in open:5:$file read:116:$file; do
            run_match 74 "$file*" refused $rule shardtool tokenize --max-bad 100% --vocabulary all -o none $file
            [[ "$output" != *damaged* && "$output" != *truncated* ]] || { echo "$rule: $output" && false; }
        done
    done
}

run_fails() { # PATTERN COMMAND...: with 74 or 77
    run "${@:2}"
    [[ ($status = 74 || $status = 77) && "$output" == *$1* ]] || { echo "$status: $output" && return 1; }
}
@test "what the output folder lacks is told at the start, before inputs are read" {
    mkfifo pipe # nobody writes to it
    for rule in rename:1:.probe rename:18:-2 fsync:5:.probe; do
        run_fails "'none' cannot hold a run: cannot " refused $rule shardtool tokenize --vocabulary all -o none pipe
    done
    run_match 0 "'out': no maps of files (No such device): whole files are read into memory" refused mmap:19:.probe \
        shardtool tokenize --val 0.1 --vocabulary all --shard-tokens 32k -o out part-*
    diff -r -x .lock whole out
    [ -z "$(find . -name '*.probe*')" ]
}
