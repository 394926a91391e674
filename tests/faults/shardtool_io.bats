# shardtool: every system call of a small run fails once; disks that are full in bytes or inodes; the order of writes that a
# power cut requires; sizes that only a bound on memory survives.
# bats file_tags=ci

load ../cli/helpers

setup() {
    enter_test
    seq 30000 >a.txt && seq 1000 >b.txt
}

teardown() {
    umount -q "$BATS_TEST_TMPDIR/cut" "$BATS_TEST_TMPDIR/disk" || true
}

tokenize=(tokenize -q -j 1 --val 0.5 --docs lines --shard-tokens 16k -o out a.txt b.txt)
contents() { find "$1" -type f -not -name .lock -print0 | sort -z | xargs -0 cat | sha256sum; }

# inject CALL ERROR: at each of the calls; the run ends with 74 (73 for what cannot be created), leaves no temporary file
# and no manifest that is not whole, and the next run gives the same dataset.
inject() {
    local call=$1 error=$2 count number status
    rm -rf out
    strace -f -qq -o trace -e trace="$call" shardtool "${tokenize[@]}"
    count=$(grep -c "$call" trace) && [ "$count" -gt 0 ]
    for number in $(seq "$count"); do
        rm -rf out
        status=0
        strace -f -qq -o /dev/null -e trace="$call" -e inject="$call:error=$error:when=$number" shardtool "${tokenize[@]}" 2>err || status=$?
        case $status in
        0) [ "$call" = fsync ] || [ "$(contents out)" = "$want" ] ;;
        73 | 74 | 77) [ -s err ] ;;
        *) echo "$call $number $error: exit $status" && cat err && return 1 ;;
        esac
        [ -z "$(find . -name '*.tmp.*')" ] || { echo "$call $number $error: left $(find . -name '*.tmp.*')" && return 1; }
        shardtool "${tokenize[@]}"
        [ "$(contents out)" = "$want" ] || { echo "$call $number $error: other bytes after the next run" && return 1; }
    done
}

# fault 17, 18
@test "no space, quota and I/O errors at each write, fsync, rename and mkdir" {
    shardtool "${tokenize[@]}"
    want=$(contents out)
    for call in write fsync rename mkdir; do
        for error in ENOSPC EDQUOT EIO; do inject $call $error; done
    done
}

# fault 18
@test "a failed fsync is not repeated, and the old dataset stays" {
    shardtool "${tokenize[@]}"
    before=$(contents out)
    strace -f -qq -y -o trace -e trace=fsync -e inject=fsync:error=EIO:when=1 shardtool "${tokenize[@]}" --force 2>err && return 1
    grep -q "to disk" err
    file=$(grep -m 1 EIO trace | grep -o '<[^>]*>')
    [ "$(grep -cF "$file" trace)" = 1 ]
    shardtool verify -q out
    [ "$(contents out)" = "$before" ]
}

# fault 19
@test "each read and write that is interrupted is repeated" {
    shardtool "${tokenize[@]}"
    want=$(contents out)
    for call in read write fsync flock ftruncate; do
        only=()
        [ $call = read ] && only=(-P a.txt -P b.txt) # others are those of the dynamic linker
        rm -rf out
        strace -f -qq -o trace "${only[@]}" -e trace=$call shardtool "${tokenize[@]}"
        count=$(grep -c "$call" trace)
        for number in $(seq "$count"); do
            rm -rf out
            run_code 0 strace -f -qq -o /dev/null "${only[@]}" -e trace=$call -e inject=$call:error=EINTR:when="$number" shardtool "${tokenize[@]}"
            [ "$(contents out)" = "$want" ]
        done
    done
}

# fault 23
@test "a disk without inodes or bytes is 73 or 74, and the next run completes" {
    unshare -Urm true 2>/dev/null || skip "this system does not permit user namespaces"
    shardtool "${tokenize[@]}"
    want=$(contents out)
    for options in nr_inodes=6 nr_inodes=9 size=64k; do
        mkdir -p disk
        unshare -Urm bash -c '
            mount -t tmpfs -o '$options' none disk || exit 99
            shardtool '"${tokenize[*]/out/disk/out}"' 2>err
            echo $? >status; find disk -name "*.tmp.*" >left
            mount -o remount,size=64m,nr_inodes=1000 disk && shardtool '"${tokenize[*]/out/disk/out}"' && cp -r disk/out copy'
        [ "$(cat status)" = 99 ] && skip "no tmpfs in a user namespace"
        [[ "$(cat status)" == 7[34] ]] || { echo "$options: exit $(cat status)" && cat err && return 1; }
        [ ! -s left ] && [ "$(contents copy)" = "$want" ]
        rm -rf copy
    done
}

# fault 21
@test "a file is written, flushed and renamed before its directory is flushed; the manifest comes last" {
    strace -f -qq -y -o trace -e trace=write,fsync,rename,mkdir shardtool tokenize -q -j 1 -o deep/er/out a.txt
    python3 - trace <<'END'
import re, sys
dirty, pending, published = set(), {}, []
for line in open(sys.argv[1]):
    call = re.search(r"(write|fsync|rename|mkdir)\((.*)\) += (-?\d+)", line)
    if not call or call[3].startswith("-"):
        continue
    kind, rest = call[1], call[2]
    if kind == "write" and (name := re.match(r"\d+<(/[^>]*)>", rest)):
        dirty.add(name[1])
    elif kind == "fsync":
        name = re.match(r"\d+<([^>]*)>", rest)[1]
        dirty.discard(name)
        pending.pop(name, None)
    elif kind == "rename":
        old, new = re.findall(r'"([^"]*)"', rest)
        assert not any(name.endswith(old.removeprefix("./")) for name in dirty), f"{new} was renamed before it was on disk"
        published.append(new)
        pending[new] = 1
names = [name for name in published if name.endswith((".zst", "dataset.jsonl"))]
assert names[-1].endswith("dataset.jsonl") and len(names) > 1, names
END
    # each new directory, and each directory that took a name, was flushed after it
    for directory in deep deep/er deep/er/out deep/er/out/train deep/er/out/train/000; do
        grep -q "fsync([0-9]*<$PWD/$directory>)" trace
    done
    grep -q "fsync([0-9]*<$PWD>)" trace
}

# fault 21
@test "after a power cut at any moment a copy of the disk holds whole shards only" {
    [ "$(id -u)" = 0 ] || skip "only root can mount an image"
    truncate -s 32M disk.img && mkfs.ext4 -q disk.img 2>/dev/null && mkdir disk cut || skip "no mkfs.ext4"
    mount -o loop disk.img disk 2>/dev/null || skip "this system does not permit loop mounts"
    seq 300000 >big.txt
    shardtool tokenize -q -j 1 --shard-tokens 32k -o want big.txt
    shardtool tokenize -q -j 1 --shard-tokens 32k -o disk/out big.txt 3>&- &
    moment=0 whole=0
    while kill -0 $! 2>/dev/null; do
        cp disk.img cut.img # what the device holds now, without what the kernel has not written
        mount -o loop cut.img cut
        for shard in cut/out/*/*/*.zst; do [ ! -e "$shard" ] || { shardtool verify -q "$shard" && whole=$((whole + 1)); }; done
        [ ! -e cut/out/dataset.jsonl ] || shardtool verify -q cut/out
        umount cut
        moment=$((moment + 1))
    done
    wait $!
    [ $moment -gt 0 ]
    diff -r want disk/out -x .lock
}

# fault 2, 8
@test "a JSON line of 2 GB and 2 GB from a bomb take the memory of small ones" {
    line() { printf '{"text": "' && yes 'some words of a very long line, ' | tr -d '\n' | head -c "$1" && printf '"}\n'; }
    peak() { jq .peak_memory; }
    small=$(line 30M | shardtool tokenize -q -j 2 --json --val 0 -o small - | peak)
    large=$(line 2G | shardtool tokenize -q -j 2 --json --val 0 -o large - | peak)
    echo "30 MB: $small bytes of memory, 2 GB: $large"
    [ "$large" -lt $((small + (16 << 20))) ]
    yes 'some words of a bomb' | head -c 2G | zstd -q >bomb.zst
    bomb=$(shardtool tokenize -q -j 2 --json --max-ratio 0 --val 0 -o bomb bomb.zst | peak)
    echo "bomb: $bomb"
    [ "$bomb" -lt $((small + (16 << 20))) ]
}
