# A GPU that hangs: the trainer on the emulated CUDA backend, whose kernels stand still while the file `hang` exists
# (EMU_HANG, tests/cuda/emulator/device.cc).
# bats file_tags=ci
load ../helpers
load ../ranks

setup_file() { make_character_data; }

setup() {
    enter_emulated
    options=(--dataset="$BATS_FILE_TMPDIR/data" --device=cuda --sample_tokens=0)
    export EMU_HANG=hang
}

# fault 63
@test "a kernel that hangs ends the run with 80 after device_timeout, and the same command resumes it" {
    # while the kernels hang, half a second passes between two looks at the clock
    clock_preload 'if (!access("hang", F_OK)) sum += 500000000; ns += sum;'
    LAUNCH="env LD_PRELOAD=$PWD/other_clock.so" begin "${options[@]}" "${often[@]}" --out_dir=run --device_timeout=20 --data_timeout=100000
    wait_for_checkpoint run
    wait_for_more_steps run
    child=$(pgrep -P "$TRAINER")
    touch hang
    ends 80
    [ "$(grep -c 'the GPU has not finished for 2[01] s' stderr)" -eq 1 ] # 21: a poll that was late
    stderr_has 'waiting for the GPU for [0-9.]* s; after 20 s (device_timeout)'
    wait_until is_gone "$child"
    rm hang
    finish run "${options[@]}" --eval_interval=3 --eval_iters=1
}

# fault 63
@test "a slow GPU, and a SIGSTOP for longer than device_timeout, do not end a run" {
    # while the trainer is stopped 60 seconds pass; it has looked at the clock again when "polled" is there
    clock_preload 'if (!access("later", F_OK)) {
        ns += 60000000000;
        if (getpid() == syscall(SYS_gettid) && ++sum == 3 && !strcmp(program_invocation_short_name, "trainer"))
            close(open("polled", O_CREAT | O_WRONLY, 0600));
    }'
    LAUNCH="env LD_PRELOAD=$PWD/other_clock.so" begin "${options[@]}" "${endless[@]}" --out_dir=run --device_timeout=20
    wait_for_steps run 2
    touch hang
    wait_until stderr_has 'waiting for the GPU for'
    kill -STOP "$TRAINER"
    touch later
    kill -CONT "$TRAINER"
    wait_until test -e polled # the gap counts as one second
    rm hang
    wait_for_more_steps run
    stop_run TERM 75
    not stderr_has 'has not finished'
}
