# trainer doctor: what a machine has, and what would stop a run.
load ../helpers

setup() { cd "$BATS_TEST_TMPDIR" && cp "$BIN/trainer" . && cp "$BIN/loader" .; }

@test "doctor prints a line for each check, and 0 where a run can start" {
    run ./trainer doctor
    [ "$status" = 0 ]
    for name in device cores memory disk limits loader; do grep -qE "^(ok|warning) +$name " <<<"$output"; done
    [ "${#lines[@]}" = 6 ]
}

@test "doctor names limits of the shell, a missing loader and a directory that does not exist" {
    run bash -c 'ulimit -f 1000; ./trainer doctor'
    [ "$status" = 0 ]
    grep -qE '^warning +limits +file size 1024000 \(ulimit -f\)' <<<"$output"
    rm loader
    ./trainer doctor | grep -qE "^warning +loader +no program 'loader'"
    run ./trainer doctor nowhere
    [ "$status" = 1 ]
    grep -qE "^error +disk +'nowhere': No such file" <<<"$output"
}
