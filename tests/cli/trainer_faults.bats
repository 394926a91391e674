# What must not end a training run: full disks, hangups, a stdout that is gone.
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    seq 1 2000 | sed 's/.*/line & of a text about mills, rivers and the stream that drives the wheel/' >text.txt
    mkdir docs
    split -l 60 text.txt docs/part-
    "$BIN/shardtool" tokenize --quiet --val 0.1 -o data docs
}

setup() {
    cd "$BATS_TEST_TMPDIR" || exit
    data=$BATS_FILE_TMPDIR/data
    write_tiny_conf tiny.conf
}

teardown() { end_background; }

train() { "$BIN/trainer" train tiny.conf --dataset="$data" "$@"; }
says() { grep -q "$1" words; }

@test "a run continues while no file can grow, and writes the missing lines later" {
    trap '' XFSZ # a write past the limit fails with EFBIG, as one on a full disk fails with ENOSPC
    begin --dataset="$data" --out_dir=run --sample_tokens=0 "${endless[@]}"
    wait_for_steps run 3
    prlimit --pid "$TRAINER" --fsize=4000:unlimited # enough for the warnings in the file `words`
    wait_until says "training continues, and the lines will be written later"
    wait_until says "no checkpoint: .*training continues"
    wait_until says "no report: .*training continues"
    written=$(steps run)
    prlimit --pid "$TRAINER" --fsize=unlimited
    wait_for_steps run $((written + 20))
    kill -TERM "$TRAINER"
    ends 75
    finish run --dataset="$data" --sample_tokens=0
}

@test "a checkpoint that does not fit the free space is refused before it is written" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    unshare -m bash -c '
        mkdir small && mount -t tmpfs -o size=16m tmpfs small &&
        "$BIN/trainer" train tiny.conf --dataset="$0" --out_dir=small/run --max_iters=8 --sample_tokens=0; echo "exit $?"
        ls -A small/run' "$data" >output 2>&1
    grep -q "a checkpoint needs .* in 'small/run', and .* are free" output
    grep -q "exit 74" output
    ! grep -q ckpt- output
}

@test "SIGHUP saves and exits with 75; under nohup it is ignored" {
    LAUNCH="env --default-signal=HUP" begin --dataset="$data" --out_dir=run "${endless[@]}"
    wait_for_steps run 3
    kill -HUP "$TRAINER"
    ends 75
    finish run --dataset="$data"
    trap '' HUP
    begin --dataset="$data" --out_dir=nohup "${endless[@]}"
    wait_for_steps nohup 3
    kill -HUP "$TRAINER"
    wait_for_more_steps nohup 10
    kill -TERM "$TRAINER"
    ends 75
}

@test "a stdout that is closed, full or gone does not end the run" {
    train --out_dir=whole --quiet
    run bash -c '"$BIN/trainer" train tiny.conf --dataset="$0" --out_dir=piped | head -1; exit ${PIPESTATUS[0]}' "$data"
    [ "$status" -eq 0 ]
    same_run whole piped
    train --out_dir=full >/dev/full 2>words
    grep -q "cannot write to stdout: No space left on device; training continues without its lines" words
    same_run whole full
    train --out_dir=closed >&-
    same_run whole closed
}
