# trainer doctor: what a machine has, and what would stop a run.
load ../helpers

setup() { cd "$BATS_TEST_TMPDIR" && cp "$BIN/trainer" . && cp "$BIN/loader" .; }

@test "doctor prints a line for each check, and 0 where a run can start" {
    run_code 0 ./trainer doctor
    for name in device cores memory disk limits loader; do grep -qE "^(ok|warning) +$name " <<<"$output"; done
    [ "${#lines[@]}" = 6 ]
}

@test "doctor names limits of the shell, a missing loader and a directory that does not exist" {
    run_code 0 bash -c 'ulimit -f 1000; ./trainer doctor'
    grep -qE '^warning +limits +file size 1024000 \(ulimit -f\)' <<<"$output"
    rm loader
    ./trainer doctor | grep -qE "^warning +loader +no program 'loader'"
    touch file
    run_code 2 ./trainer doctor nowhere file/below
    run_code 1 ./trainer doctor file/below
    grep -qE "^error +disk +'file/below': Not a directory" <<<"$output"
}

@test "doctor looks at the parent of a new directory, and at the size of the model of a configuration" {
    run_code 0 ./trainer doctor not/yet
    grep -qE "^(ok|warning) +disk +.* free in '.'" <<<"$output"
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    write_tiny_conf tiny.conf
    unshare -m bash -c 'mkdir small && mount -t tmpfs -o size=30m tmpfs small
        ./trainer doctor small; ./trainer doctor tiny.conf small/run; ./trainer doctor tiny.conf --out_dir=small/run --n_embd=256; echo "exit $?"' >output
    grep -qE "^warning +disk +30.0 MiB free in 'small'; two checkpoints of GPT-2 124M take 2.8 GiB" output
    grep -qE "^ok +disk +30.0 MiB free in 'small'" output
    grep -qE "^error +disk +30.0 MiB free in 'small'; two checkpoints of this model take " output
    grep -q "exit 1" output
}
