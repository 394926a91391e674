# Datasets on file systems that lack something: maps, hard links, locks.

load ../helpers

setup() { enter_test && make_documents; }

make_documents() { # 300 documents of 30 words, and 30 of them again with one other word; `whole` is their dataset
    seq 9000 | tr 0-9 a-j | xargs -n 30 >lines
    { cat lines && sed -n '1,30s/ [^ ]*/ other/p' lines; } | split -l 1 -a 3 - part-
    shardtool characters part-* >all
    tokenize -o whole
}
tokenize() { shardtool tokenize -q --val 0.1 --characters all --shard-tokens 32k "$@" part-*; }

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
