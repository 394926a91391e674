# The loader and its trainers with small limits, slow disks and bad connections.

load ../helpers

setup() {
    enter_test
    seq 60000 >text.txt
    "$BIN/shardtool" tokenize --quiet --val 0 --frame-tokens 1024 --shard-tokens 64k -o set text.txt
    write_tiny_conf tiny.conf
    sed -i 's/eval_interval = 8/eval_interval = 0/' tiny.conf
}

# fault 34
@test "a loader with a git-lfs pointer in place of a shard exits with 65 and names it" {
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n' >set/train/000/000001.zst
    run_match 65 "000001.zst" "$BIN/loader" serve set --endpoint ipc://place
}

# fault 36
@test "the ring needs no space in /dev/shm" {
    unshare -Urm true 2>/dev/null || skip "no user namespaces"
    serve_until_ready set
    unshare -Urm sh -c 'mount -t tmpfs -o size=64k none /dev/shm &&
        exec "$BIN/trainer" train tiny.conf --quiet --max_iters=3 --loader=ipc://place --out_dir=run' 3>&- >out 2>&1 || cat out
    [ "$(steps run)" -ge 3 ]
    not grep -q "no shared ring" out
}

# fault 37
@test "training runs where no memory can be locked" {
    (ulimit -l 0 && exec "$BIN/trainer" train tiny.conf --quiet --max_iters=3 --dataset=set --out_dir=run)
    [ "$(steps run)" -ge 3 ]
}

# fault 42
@test "the wait for a loader that is stopped shows in the metrics" {
    serve_until_ready set
    begin --loader=ipc://place --out_dir=run --max_iters=1000000
    wait_for_steps run 3
    kill -STOP "$LOADER"
    ticks() { awk '{ print $14 + $15 }' "/proc/$TRAINER/stat"; }
    # two seconds with neither steps nor work, not for lack of a processor: the batches that were there are used up
    before= work=0 since=0
    stands() {
        [ "$(steps run)" = "$before" ] && [ $(($(ticks) - work)) -lt 10 ] || before=$(steps run) work=$(ticks) since=$SECONDS
        [ $((SECONDS - since)) -gt 2 ]
    }
    wait_until stands
    kill -CONT "$LOADER"
    wait_for_more_steps run
    # "wait": percent of the step's time. Batches that arrive late for other reasons do not take a second.
    python3 -c '
import json
rows = [row for row in map(json.loads, open("run/metrics.jsonl")) if "wait" in row]
assert max(row["wait"] / 100 * row["ms"] for row in rows) > 1000, rows'
}

# fault 35
@test "the loader serves while a reload waits for its disk" {
    preload slow_open
    : >log
    : >weights
    ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=$PWD/slow_open.so \
        "$BIN/loader" serve set set --schedule weights --endpoint ipc://place 2>>log 3>&- &
    LOADER=$!
    wait_until grep -q ready log
    begin --loader=ipc://place --out_dir=run "${endless[@]}"
    wait_for_steps run 2
    touch slow
    kill -HUP "$LOADER"
    wait_until [ -e waits ]
    wait_for_more_steps run 100
    not grep -q "opened again" log
    rm slow
    wait_until grep -q "opened again" log
    wait_for_more_steps run
}

# fault 46
@test "a killed trainer leaves nothing in the loader" {
    serve_until_ready set
    descriptors() { ls "/proc/$LOADER/fd" | wc -l; }
    begin --loader=ipc://place --out_dir=run --max_iters=1000000
    wait_for_steps run 2
    kill -9 "$TRAINER" && wait "$TRAINER" 2>/dev/null || true
    TRAINER=
    is_free() { [ "$(grep -c millrace-ring "/proc/$LOADER/maps")" -eq 0 ]; }
    wait_until is_free
    before=$(descriptors)
    for round in 1 2 3; do
        begin --loader=ipc://place --out_dir=run-$round --max_iters=1000000
        wait_for_steps run-$round 2
        kill -9 "$TRAINER" && wait "$TRAINER" 2>/dev/null || true
        TRAINER=
        wait_until is_free
    done
    as_before() { [ "$(descriptors)" -le "$before" ]; }
    wait_until as_before
}
