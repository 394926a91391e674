# What must not end a training run: full disks, hangups, a stdout that is gone.
load ../helpers

setup_file() { cd "$BATS_FILE_TMPDIR" && make_data 2000 0.1 --vocabulary ascii; }

large=(--n_layer=4 --n_embd=128) # checkpoints of 9 MB, steps of seconds in sequences of 1024
size() { is_sanitized && echo "$2" || echo "$1"; }
# bats test_tags=ci
# fault 74
@test "a run continues while no file can grow, and writes the missing lines later" {
    # a write past the limit fails with EFBIG, as one on a full disk fails with ENOSPC
    begin --dataset="$data" --out_dir=run --sample_tokens=0 "${endless[@]}"
    wait_for_steps run 3
    prlimit --pid "$TRAINER" --fsize=4000:unlimited # enough for the warnings in the file `stderr`
    wait_until stderr_has "training continues, and the lines will be written later"
    wait_until stderr_has "no checkpoint: .*training continues"
    wait_until stderr_has "no report: .*training continues"
    written=$(steps run)
    prlimit --pid "$TRAINER" --fsize=unlimited
    wait_for_steps run $((written + 3))
    stop_run TERM 75
    finish run --dataset="$data" --sample_tokens=0
}

# fault 74
@test "a run that is stopped while no file can grow exits with 74, not 75, because nothing is saved" {
    begin --dataset="$data" --out_dir=run "${endless[@]}"
    wait_for_steps run 3
    prlimit --pid "$TRAINER" --fsize=4000:unlimited
    stop_run TERM 74
    grep -q "stopped at step [0-9]*, which is not saved: .*: File too large" stderr
}

# fault 74
@test "a disk too full for metrics.jsonl ends the run with 74 and names the file" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    unshare -m bash -c '
        mkdir small && mount -t tmpfs -o size=30m,nr_inodes=3 tmpfs small &&
        "$BIN/trainer" train tiny.conf --quiet --dataset="$0" --out_dir=small/run --max_iters=8 --eval_interval=0; echo "exit $?"' \
        "$data" >output 2>&1
    grep -q "^trainer train: .*small/run.*: No space left on device" output
    grep -q "exit 74" output
}

# fault 76
@test "a checkpoint that may not be read ends the run with 77, and keeps its name" {
    [ "$(id -u)" = 0 ] || skip "needs root for a file of another user"
    as_user true
    cp -r "$data" own && chmod -R a+rX own tiny.conf && mkdir -m 777 out
    as_user "$BIN/trainer" train tiny.conf --quiet --dataset=own --out_dir=out/run --max_iters=2
    chown 0 out/run/ckpt-00000002 && chmod 700 out/run/ckpt-00000002
    run_code 77 as_user "$BIN/trainer" train tiny.conf --dataset=own --out_dir=out/run --max_iters=3
    [[ "$output" == *"Permission denied"* && "$output" != *DAMAGED* ]]
    [ -d out/run/ckpt-00000002 ]
    [ ! -e out/run/ckpt-00000003 ]
}

# fault 74
@test "a run whose checkpoints do not fit the disk is refused before its first step, and one with little room warns" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    unshare -m bash -c '
        mkdir small && mount -t tmpfs -o size=8m tmpfs small &&
        "$BIN/trainer" train tiny.conf --dataset="$@" --out_dir=small/run --max_iters=8 --sample_tokens=0; echo "exit $?"
        ls -A small/run' - "$data" "${large[@]}" >output 2>&1
    grep -q "a checkpoint needs .* in 'small/run', and .* are free" output
    grep -q "exit 74" output
    not grep -qE 'ckpt-|^step ' output
    unshare -m bash -c '
        mkdir little && mount -t tmpfs -o size=30m tmpfs little &&
        "$BIN/trainer" train tiny.conf --dataset="$@" --out_dir=little/run --max_iters=1 --sample_tokens=0; echo "exit $?"' - "$data" "${large[@]}" >output 2>&1
    grep -q "are free in 'little/run': a run needs room for 4 checkpoints of " output
    grep -q "exit 0" output
}

# bats test_tags=ci
# fault 74
@test "the last save waits a minute for space: it is written when there is some, else the run ends with 74" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    command -v strace >/dev/null || skip "needs strace"
    mkdir small
    unshare -m bash -euc '
        . "$1/helpers.bash" && data=$2
        mount -t tmpfs -o size=60m tmpfs small
        fill() { wait_for_steps small/run "$1" && { head -c 100M /dev/zero >small/filler || true; } 2>/dev/null; }
        begin --dataset="$data" --out_dir=small/run --eval_interval=0 --sample_tokens=0 "${endless[@]}"
        fill 3
        kill "$TRAINER"
        wait_until stderr_has "the last save: a checkpoint needs .* are free; waiting 60 s for space"
        rm small/filler
        ends 75
        has_checkpoint small/run
        # strace lets the minute pass at once
        LAUNCH="strace -f -qq -o trace -e trace=clock_nanosleep -e inject=clock_nanosleep:retval=0" \
            begin --dataset="$data" --out_dir=small/run --eval_interval=0 --sample_tokens=0 "${endless[@]}"
        fill $(($(steps small/run) + 3))
        kill "$(cat small/run/.lock)"
        ends 74
        grep -q "waiting 60 s for space" stderr
        # What fails first: the last lines of metrics.jsonl, unless its last page has room for them, or the checkpoint.
        grep -qE "which is not saved: (checkpoint of step [0-9]+: a checkpoint needs|.*/metrics.jsonl.*No space left)" stderr
        [ "$(grep -c "clock_nanosleep.*tv_sec=1" trace)" = 60 ]
        # a second signal ends the wait
        rm small/filler
        LAUNCH="strace -f -qq -o trace -e trace=clock_nanosleep" \
            begin --dataset="$data" --out_dir=small/run --eval_interval=0 --sample_tokens=0 "${endless[@]}"
        fill $(($(steps small/run) + 3))
        kill "$(cat small/run/.lock)"
        wait_until stderr_has "waiting 60 s for space, or until a signal"
        kill "$(cat small/run/.lock)"
        ends 74
        [ "$(grep -c "clock_nanosleep.*tv_sec=1" trace)" -lt 60 ]' - "$ROOT/tests/cli" "$data"
}

@test "threads and the loader use the processors that the process was given, whatever OpenMP is told" {
    [ "$(nproc)" -gt 1 ] || skip "one processor"
    masks() { grep -h Cpus_allowed_list "/proc/$1"/task/*/status | sort -u; }
    given=$(masks self)
    for variable in OMP_PROC_BIND=close OMP_PLACES=cores GOMP_CPU_AFFINITY=0-1 'OMP_PLACES={0}'; do
        env "$variable" MILLRACE_LOANS=0 "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir="$variable" "${endless[@]}" \
            --threads=2 3>&- &
        TRAINER=$!
        wait_for_steps "$variable" 2 # the mask is restored after the program has started
        [ "$(masks $TRAINER)" = "$given" ]
        for child in $(pgrep -P $TRAINER); do [ "$(masks "$child")" = "$given" ]; done
        kill $TRAINER
        wait $TRAINER || true
    done
    [ "$(OMP_PROC_BIND=true "$BIN/trainer" plan tiny.conf --threads=0 --device=cpu 2>&1 | sed -nE 's/.* ([0-9]+) threads?, .*/\1/p')" = \
        "$("$BIN/trainer" plan tiny.conf --threads=0 --device=cpu 2>&1 | sed -nE 's/.* ([0-9]+) threads?, .*/\1/p')" ]
}

@test "loans of processors are decided at the start, in one line" {
    printed() { # OPTION...
        "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --fresh --max_iters=1 --eval_iters=1 --sample_tokens=0 "$@" 2>&1 |
            grep "threads lend each other"
    }
    [ "$(MILLRACE_LOANS=0 printed --threads=2)" = "trainer: threads lend each other no processors: MILLRACE_LOANS is 0" ]
    [ "$(printed --threads=3)" = "trainer: threads lend each other no processors: they were measured with 2 threads, not with more" ]
    not printed --threads=1
    [ "$(taskset -c 0 "$BIN/trainer" plan tiny.conf --threads=2 2>&1 | grep "lend each other")" = \
        "trainer: threads lend each other no processors: there is not one thread for each processor" ]
}

@test "more threads than cores are one warning, by threads or OMP_NUM_THREADS" {
    warned() { [ "$(grep -c "$1 asks for 5 threads, and the cores here are 1: a step may take many times as long" <<<"$output")" = 1 ]; }
    small=(--dataset="$data" --max_iters=1 --eval_iters=1 --sample_tokens=0)
    run_code 0 taskset -c 0 "$BIN/trainer" train tiny.conf "${small[@]}" --out_dir=one --threads=5
    warned "'threads'"
    export OMP_NUM_THREADS=5
    run_code 0 taskset -c 0 "$BIN/trainer" train tiny.conf "${small[@]}" --out_dir=two --threads=0
    warned OMP_NUM_THREADS
    run_code 0 taskset -c 0 "$BIN/trainer" train tiny.conf "${small[@]}" --out_dir=three
    [[ "$output" != *"asks for"* ]]
    run taskset -c 0 "$BIN/trainer" doctor --device=cpu
    grep -q "^warning  cores .*OMP_NUM_THREADS asks for 5 threads" <<<"$output"
}

# fault 67
@test "SIGHUP saves and exits with 75; under nohup it is ignored" {
    LAUNCH="env --default-signal=HUP" begin --dataset="$data" --out_dir=run "${endless[@]}"
    wait_for_steps run 3
    stop_run HUP 75
    finish run --dataset="$data"
    trap '' HUP
    begin --dataset="$data" --out_dir=nohup "${endless[@]}"
    wait_for_steps nohup 3
    kill -HUP "$TRAINER"
    wait_for_more_steps nohup 10
    stop_run TERM 75
}

# bats test_tags=ci
# fault 67
@test "a stdout that is closed, full or gone does not end the run" {
    train --out_dir=whole --quiet --max_iters=4
    run_code 0 bash -c '"$BIN/trainer" train tiny.conf --dataset="$0" --out_dir=piped --max_iters=4 | head -1; exit ${PIPESTATUS[0]}' "$data"
    same_run whole piped 4
    train --out_dir=full --max_iters=4 >/dev/full 2>stderr
    grep -q "cannot write to stdout: No space left on device; training continues without its lines" stderr
    same_run whole full 4
    train --out_dir=closed --max_iters=4 2>stderr >&-
    grep -q "cannot write to stdout: Bad file descriptor; training continues without its lines" stderr
    same_run whole closed 4
    run_code 74 bash -c '"$BIN/trainer" plan tiny.conf >&-'
}

@test "a command that cannot write its result because stdout is closed exits with 74" {
    train --out_dir=run --quiet --max_iters=4
    for command in "plan tiny.conf" "eval --dataset=$data --out_dir=run --eval_iters=1" "sample --out_dir=run --max_new_tokens=4" "status run"; do
        # shellcheck disable=SC2086
        run bash -c 'exec "$BIN/trainer" "$@" >&-' - $command
        [ "$status" -eq 74 ] || { echo "$command: exit $status" && return 1; }
        [[ "$output" == *"cannot write to stdout"* ]]
    done
}

# A signal while the trainer waits for a loader, evaluates, or saves; trainer_resume.bats has the one between steps.
# fault 66
@test "a signal in any phase ends the run with 75, and what is saved is whole" {
    train --out_dir=run --quiet --max_iters=8
    for signal in INT TERM USR1; do
        begin --loader="ipc://$PWD/nowhere" --out_dir=waiting-$signal "${endless[@]}"
        wait_until test -d waiting-$signal # then it waits for the loader
        stop_run $signal 75
        begin --dataset="$data" --out_dir=evaluating-$signal --eval_tokens=10000000000 "${endless[@]}"
        wait_until grep -qs dataset evaluating-$signal/metrics.jsonl
        stop_run $signal 75
        begin --dataset="$data" --out_dir=run --eval_interval=1 "${endless[@]}"
        a_save_runs() { compgen -G 'run/.ckpt-*.tmp.*' >/dev/null; }
        wait_until a_save_runs
        stop_run $signal 75
        "$BIN/trainer" status run >/dev/null 2>damaged
        [ ! -s damaged ]
        not a_save_runs
    done
}

# fault 66
@test "a signal in the middle of a grade ends the run with 75, and the resumed run grades again: the same bits and grades" {
    make_items "$(size 3000 500)" items
    graded=("${large[@]}" --max_iters=2 --warmup_iters=1 --eval_interval=0 --sample_tokens=0 --items=items --items_interval=1)
    train --out_dir=run --quiet "${graded[@]}"
    mv run whole
    for signal in INT TERM USR1; do
        begin --dataset="$data" --out_dir=run "${graded[@]}"
        a_grade_runs() { compgen -G 'run/.items-*' >/dev/null; }
        after_the_last_step() { [ -e run/items-00000001.jsonl ] && a_grade_runs; }
        wait_until $([ $signal = USR1 ] && echo after_the_last_step || echo a_grade_runs)
        stop_run $signal 75
        stderr_has "stopped while items were graded"
        [ $signal = USR1 ] || [ "$(ls -d run/ckpt-*) $(steps run)" = "run/ckpt-00000001 1" ]
        not a_grade_runs
    done
    [ ! -e run/items-00000002.jsonl ]
    train --out_dir=run --quiet "${graded[@]}"
    same_run whole run 2
    for step in 1 2; do cmp {whole,run}/items-0000000$step.jsonl; done
    diff <(grep '"items_accuracy"' whole/metrics.jsonl) <(grep '"items_accuracy"' run/metrics.jsonl)
}

@test "a process of a Slurm job of several tasks that trains alone is told how to start all" {
    run_match 0 "this Slurm job has 2 tasks, and this process trains alone: type \`srun --mpi=pmix\` before its command" \
        env SLURM_JOB_ID=1 SLURM_NTASKS=2 SLURM_PROCID=0 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --max_iters=1
}

@test "a SIGUSR1 before main is held until train waits for signals, and ends other commands" {
    preload early_signal
    early() { ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=$PWD/early_signal.so "$BIN/trainer" "$@"; }
    run_code 75 early train tiny.conf --dataset="$data" --out_dir=run "${endless[@]}"
    run_code 138 early plan tiny.conf
}

# bats test_tags=ci
@test "thousands of signals do not damage a step" {
    # a signal handled inside of a float32 product on AVX2 damages the heap: the stack pointer is elsewhere there
    if grep -qw avx2 /proc/cpuinfo; then export MILLRACE_ISA=avx2; fi
    begin --dataset="$data" --out_dir=run "${large[@]}" --block_size=1024 --batch_size="$(size 8 1)" --eval_interval=1000000 --eval_iters=1 --sample_tokens=0 "${endless[@]}"
    wait_for_steps run 1 # now in the next one, which takes seconds
    for ((sent = 0; sent < 3000; sent++)); do kill -TERM "$TRAINER" 2>/dev/null || break; done
    ends 75
    "$BIN/trainer" status run | grep -q "^step "
}

# fault 66
# bats test_tags=ci
@test "a second Ctrl-C ends the run at once with 130, and its checkpoint stays" {
    slow=("${large[@]}" --block_size=1024 --batch_size="$(size 4 1)" --gradient_accumulation_steps=1 --eval_interval=0 --sample_tokens=0)
    train --out_dir=run --quiet "${slow[@]}" --max_iters=1
    begin --dataset="$data" --out_dir=run "${slow[@]}" "${endless[@]}"
    wait_for_steps run 2 # now in the next one, which takes seconds
    until is_gone "$TRAINER"; do kill -INT "$TRAINER" 2>/dev/null || true && sleep 0.05; done
    ends 130
    "$BIN/trainer" status run | grep -q "^step  *1$"
}

# bats test_tags=ci
# fault 64
@test "steps that stay slower warn once, and those of a moment do not" {
    # the time between two looks at the clock is 0.1 ms, and 5 ms while the file "slow" exists
    clock_preload 'ns = sum += access("slow", F_OK) ? 100000 : 5000000;'
    LAUNCH="env LD_PRELOAD=$PWD/other_clock.so" begin --dataset="$data" --out_dir=run "${large[@]}" --eval_interval=0 --data_timeout=100000 "${endless[@]}"
    wait_for_steps run 40
    touch slow
    wait_for_more_steps run 50
    rm slow
    wait_for_more_steps run 150
    [ "$(grep -c "times as long" stderr)" = 0 ]
    touch slow
    wait_until stderr_has "times as long as before (.* ms): .* processor.* time that .* could use: "
    wait_for_more_steps run 100
    stop_run TERM 75
    [ "$(grep -c "times as long" stderr)" = 1 ]
    [ "$(grep -c step_time_ratio run/metrics.jsonl)" = 1 ]
}

# bats test_tags=ci
# fault 64
@test "steps that become slower again and again warn once a minute" {
    # 0.1 ms pass from one look at the clock to the next, or 1 ms, in turn: seconds in all
    clock_preload 'ns = sum += call / 2000 % 2 ? 1000000 : 100000;'
    LD_PRELOAD=$PWD/other_clock.so train --out_dir=run --eval_interval=0 --sample_tokens=0 --max_iters=2000 >/dev/null 2>stderr
    [ "$(grep -c "times as long as before" stderr)" = 1 ] || { cat stderr && return 1; }
}

@test "a moment without the processor does not make the forecast of a run of a second minutes" {
    # after the line before it, the main thread's next three looks at the clock are two seconds apart
    clock_preload 'static atomic_llong late;
        char text[4096] = "";
        int fd = open("output", 0), length = late ? 0 : (int)read(fd, text, sizeof text - 1);
        close(fd), text[length] = 0;
        if ((late || __builtin_strstr(text, "tokens a step")) && getpid() == syscall(SYS_gettid)) late++;
        ns += 2000000000 * (late < 3 ? late : 3);'
    LD_PRELOAD=$PWD/other_clock.so train --out_dir=run --sample_tokens=0 >output 2>&1
    not grep "this takes about" output
}

@test "no step has more than 100 % of the measured rate" {
    # the time between two looks at the clock is 1 s until metrics.jsonl is there, when the rate has been measured, then 0.1 ms
    clock_preload 'ns = sum += access("run/metrics.jsonl", F_OK) ? 1000000000 : 100000;'
    LD_PRELOAD=$PWD/other_clock.so train --out_dir=run --max_iters=2 --eval_interval=0 --data_timeout=100000 >output 2>&1
    grep -qE "^step .* TFLOP/s \| (waiting for data .* \| )?0:" output
    not grep -q "% of" output
    jq -es 'map(.product_share // empty) | length == 2 and all(. > 10)' run/metrics.jsonl # 1000 % and more
}

# fault 68
@test "clock jumps of a day do not change a run" {
    preload clock_jumps
    train --out_dir=still --quiet
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
    LD_PRELOAD=$PWD/clock_jumps.so train --out_dir=jumps >stdout
    same_run still jumps
    [ "$(grep -cE '\| 0:[0-9]+:[0-9]+ left' stdout)" -eq 24 ]
    python3 -c 'import json; assert all(0 < row.get("ms", 1) < 600e3 for row in map(json.loads, open("jumps/metrics.jsonl")))'
}

# fault 69
@test "a run continues when its shell is killed, and the loader ends when its run is killed" {
    cat >shell.sh <<'END'
"$BIN/trainer" train tiny.conf --quiet --dataset="$1" --out_dir=run --max_iters=1000000 >stdout 2>stderr &
echo $! >pid
exec sleep 1000
END
    bash shell.sh "$data" 3>&- &
    LOADER=$!
    wait_for_steps run 3
    kill_loader # the shell
    wait_for_more_steps run 10
    trainer=$(cat pid) child=$(pgrep -P "$(cat pid)")
    [ -n "$child" ]
    kill -9 "$trainer"
    wait_until is_gone "$child"
}

# fault 65
@test "a run killed between two evaluations resumes at its last checkpoint, and counts the steps it lost" {
    options=(--dataset="$data" --checkpoint_interval=5 --eval_interval=0)
    begin --out_dir=run "${options[@]}" "${endless[@]}"
    wait_for_checkpoint run
    wait_for_more_steps run 12
    stop_run 9 137
    newest=$(cd run && printf "%s\n" ckpt-*[0-9] | tail -1)
    saved=$((10#${newest#ckpt-})) last=$(steps run)
    [ $((saved % 5)) -eq 0 ]
    [ "$saved" -ge 5 ]
    "$BIN/trainer" train tiny.conf --out_dir=run "${options[@]}" --max_iters=$((last + 2)) >stdout 2>stderr
    if [ "$last" -gt "$saved" ]; then
        grep -qx "{\"step\": $saved, \"lost_steps\": $((last - saved))}" run/metrics.jsonl
        grep -q "$((last - saved)) steps* after step $saved w.* not saved" stderr
    fi
    "$BIN/trainer" train tiny.conf --quiet --out_dir=whole --dataset="$data" --eval_interval=0 --max_iters=$((last + 2))
    same_weights whole run $((last + 2))
}

# bats test_tags=ci
# fault 65
@test "supervise.sh runs a killed run again until it is finished, and not one that fails for good" {
    "$ROOT/scripts/supervise.sh" "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=400 \
        --checkpoint_interval=20 --eval_interval=0 2>stderr 3>&- &
    supervisor=$!
    wait_for_checkpoint run
    kill -9 "$(pgrep -P $supervisor trainer)"
    wait "$supervisor"
    grep -q "exit 137: once more in 1 s" stderr
    [ -d "$(checkpoint run 400)" ]
    run_match 2 "unknown key" "$ROOT/scripts/supervise.sh" "$BIN/trainer" train tiny.conf --n_layers=2
}

# fault 65
@test "supervise.sh that is stopped stops its run, which saves" {
    "$ROOT/scripts/supervise.sh" "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run "${endless[@]}" 2>stderr 3>&- &
    supervisor=$!
    wait_for_steps run 3
    kill "$supervisor"
    status=0 && wait "$supervisor" || status=$?
    [ "$status" -eq 75 ]
    has_checkpoint run
}

@test "a loader of its own that hangs at its start ends the run at data_timeout, or at Ctrl-C" {
    mkdir programs && cp "$BIN/trainer" programs/
    printf '#!/bin/sh\nexec sleep 1000\n' >programs/loader && chmod +x programs/loader
    run_match 69 "no loader at " programs/trainer train tiny.conf --dataset="$data" --out_dir=run --data_timeout=1
    BIN=programs begin --dataset="$data" --out_dir=waits --data_timeout=1000
    hangs() { [ "$(cat "/proc/$(pgrep -P "$TRAINER")/comm")" = sleep ]; } 2>/dev/null
    wait_until hangs
    stop_run INT 75
}

# bats test_tags=ci
# fault 39
@test "Ctrl-C ends a run that waits for a loader which is not there, silent, stopped or killed" {
    begin_loud() { "$BIN/trainer" train tiny.conf "${endless[@]}" "$@" 2>stderr >stdout 3>&- & TRAINER=$!; }
    silent=$(free_port)
    python3 -c 'import signal, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connection = listener.accept()
print("accepted", flush=True)
signal.pause()' "$silent" >log 3>&- &
    LOADER=$!
    begin_loud --loader=tcp://127.0.0.1:"$silent" --out_dir=silent
    wait_until grep -q accepted log
    stop_run INT 75
    kill_loader
    begin_loud --loader=ipc://nobody --out_dir=waits
    wait_until stderr_has "waiting for the loader at"
    stop_run INT 75
    for signal in STOP KILL; do
        serve "$data"
        begin_loud --loader=ipc://nobody,ipc://place --out_dir=run-$signal
        wait_for_steps run-$signal 3
        kill -$signal "$LOADER"
        wait_until stderr_has "no data from the loader at"
        stop_run INT 75
        kill -9 "$LOADER" || true
        wait "$LOADER" || true
    done
}

@test "eval warns that no loader answers, with --quiet too" {
    "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --quiet --max_iters=1 --eval_interval=0 --sample_tokens=0
    clock_preload 'ns = sum += 1000000000;'
    run_match 69 "waiting for the loader at ipc://nobody" env LD_PRELOAD="$PWD/other_clock.so" "$BIN/trainer" eval tiny.conf -q --out_dir=run --loader=ipc://nobody
    [ "$(grep -c "waiting for the loader" <<<"$output")" = 1 ]
}

# fault 39
@test "a signal ends a run whose loader's name no name server resolves" {
    preload silent_names
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
    "$BIN/loader" keygen loader.key >loader.public
    "$BIN/loader" keygen trainer.key >/dev/null
    for signal in INT TERM; do
        rm -f resolving
        LAUNCH="env LD_PRELOAD=$PWD/silent_names.so" begin --loader=tcp://loader.example:7000 --loader_key="$(cat loader.public)" --key_file=trainer.key --out_dir=run
        wait_until test -e resolving
        stop_run $signal 75
    done
}

# fault 70
@test "where no thread can be started the run ends with 71 and names the limit" {
    [ "$(id -u)" = 0 ] || skip "needs root to become a user without processes"
    export ASAN_OPTIONS=detect_leaks=0 # the leak sanitizer starts a thread
    as_user true
    cp -r "$data" own && chmod -R a+rX own tiny.conf && mkdir -m 777 out
    run_code 71 as_user prlimit --nproc=1 "$BIN/trainer" train tiny.conf --dataset=own --out_dir=out/run
    [[ "$output" == *"cannot start "*": Resource temporarily unavailable (see ulimit -u)"* ]]
}

# bats test_tags=ci
# fault 126
@test "a run whose directory was moved away leaves the run alone that began in its place, and ends with 73" {
    begin --dataset="$data" --out_dir=run "${often[@]}"
    wait_for_checkpoint run
    rm run/.lock # alone it changes nothing
    latest() { [ "$(compgen -G 'run/ckpt-*' | tail -n 1)" != "$before" ]; }
    before=$(compgen -G 'run/ckpt-*' | tail -n 1)
    wait_until latest
    mv run moved
    train --quiet --out_dir=run --seed=2
    cp -r run as-it-was
    wait_for_more_steps moved 20 # with saves between them
    stop_run TERM 73
    grep -q "'run' is no longer the directory in which this run began: it was moved, removed or replaced; training continues" stderr
    diff -r as-it-was run
    train --quiet --out_dir=moved --max_iters=$(($(steps moved) + 1)) # its checkpoints are whole
}

# fault 127
@test "without memory for JSON a run ends with 82, and takes no checkpoint for a damaged one" {
    command -v cc >/dev/null || skip "needs a C compiler"
    needs_address_limit
    preload no_json_memory
    train --quiet --out_dir=run
    run_match 82 "out of memory" env LD_PRELOAD="$PWD/no_json_memory.so" "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --max_iters=25
    not grep -q DAMAGED <<<"$output"
    [ -z "$(find run -name '*damaged*')" ]
    train --quiet --out_dir=run --max_iters=25
}

# fault 75
@test "fsync that fails makes that save fail, and leaves none of it" {
    "$BIN/shardtool" tokenize --quiet --val 0.1 -o gpt2 "$BATS_FILE_TMPDIR/docs" # of which a run keeps no vocabulary
    sed -i '/^vocabulary/d' tiny.conf
    # those of the saves beside training
    run refused "fsync:5:ckpt-00000008 fsync:5:ckpt-00000016" "$BIN/trainer" train tiny.conf --dataset=gpt2 --out_dir=run
    [ "$status" -eq 0 ]
    [[ "$output" == *"no checkpoint: "*"Input/output error; training continues"* ]]
    [ "$(ls -A run)" = "$(printf '.lock\nckpt-00000024\nmetrics.jsonl\nreport.html')" ]
    "$BIN/trainer" status run
    # all of them: no save succeeds, and the last one is the error
    run refused fsync:5:ckpt "$BIN/trainer" train tiny.conf --dataset=gpt2 --out_dir=none
    [ "$status" -eq 74 ]
    [ -z "$(find none -name '*ckpt*')" ]
}

# bats test_tags=ci
# fault 73
@test "a copy of the disk at any moment, as after a power cut, holds whole checkpoints only" {
    [ "$(id -u)" = 0 ] && command -v mkfs.ext4 >/dev/null && unshare -m true 2>/dev/null || skip "needs root and ext4"
    truncate -s 256M disk && mkfs.ext4 -q disk && mkdir mounted copy
    unshare -m mount -o loop disk mounted 2>/dev/null || skip "needs loop devices"
    export -f train
    unshare -m bash -euc '
        . "$1/helpers.bash" && data=$2
        mount -o loop disk mounted
        begin --dataset="$data" --out_dir=mounted/run --eval_interval=2 --eval_iters=1 "${endless[@]}"
        for i in 1 2 3 4; do
            wait_for_more_steps mounted/run 3
            kill -STOP $TRAINER
            cp --sparse=always disk image
            kill -CONT $TRAINER
            mount -o loop image copy
            status=0
            "$BIN/trainer" status copy/run >out 2>err || status=$?
            [ $status -eq 0 ] || { [ $status -eq 66 ] && ! compgen -G "copy/run/ckpt-*"; } || { cat err && exit 1; }
            not grep -q DAMAGED err
            umount copy
        done
        kill -9 $TRAINER
        wait $TRAINER || true
        until umount mounted; do sleep 0.05; done' - "$ROOT/tests/cli" "$data"
}

# fault 84
@test "flags of every kind are accepted or refused with 2" {
    long=$(head -c 100000 /dev/zero | tr '\0' x)
    for flag in --n_layer --n_layer= --n_layer=1k --n_layer=nan --learning_rate=1e400 "--n_layer=1 2" --=1 -x=1 \
        "--out_dir_=$long" "--n_layer=$long" $'--n_l\xffayer=1'; do
        run train --out_dir=run "$flag" --max_iters=1
        [ "$status" -eq 2 ] || { echo "exit $status: ${flag:0:100}: $output" && return 1; }
    done
    run_match 66 "cannot open '--max_iters=1'" train --out_dir=run -- --max_iters=1 # a file
    [ ! -e run ]
    run_code 0 train --out_dir=run --max_iters=9 --quiet --n_layer=1 --n_layer=1 --max_iters=1
    [ -d run/ckpt-00000001 ]
    run_code 0 env -u HOME "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=$'run-\xff' --max_iters=1 --quiet
    [ -d $'run-\xff/ckpt-00000001' ]
    run train --out_dir="${long:0:5000}" --max_iters=1
    [ "$status" -ne 0 ]
    [ "$status" -lt 126 ]
}

# fault 85
@test "a resumed run logs a setting that may change, and refuses one that may not with both values, 2" {
    train --out_dir=run --quiet --max_iters=2
    run_match 2 "seed is 7, was 1337" train --out_dir=run --max_iters=3 --learning_rate=5e-4 --seed=7
    run_match 0 "learning_rate is now 0.0005, was 0.001 until step 2" train --out_dir=run --max_iters=3 --learning_rate=5e-4
}

@test "a signal at any moment of the start ends the run with 75, or as without a handler, and leaves nothing" {
    loaders() { pgrep -f "serve $PWD/data " || true; }
    no_loader() { [ -z "$(loaders)" ]; }
    cp -r "$data" data
    for wait in 0 0.005 0.01 0.02 0.03 0.05 0.1 0.2; do
        "$BIN/trainer" train tiny.conf --quiet --dataset="$PWD/data" --out_dir=run "${endless[@]}" >stdout 2>stderr 3>&- &
        sleep $wait
        kill "$!"
        status=0
        wait "$!" || status=$?
        [ $status = 75 ] || [ $status = 143 ] || { echo "after $wait s: $status" && cat stderr && return 1; }
    done
    wait_until no_loader || { loaders | xargs -r kill -9 && return 1; }
    [ -z "$(compgen -G 'run/.*.tmp.*')" ]
    "$BIN/trainer" train tiny.conf --quiet --dataset="$PWD/data" --out_dir=run --max_iters=$(($(steps run) + 1))
}

@test "a run that goes on with other instructions says that its bits are others" {
    needs_cpu avx2
    fast() { run_code 0 train --dataset="$data" --reduce_order=fast --out_dir=run "$@"; }
    MILLRACE_ISA=avx2 fast --max_iters=2
    [[ "$output" != *"was computed with"* ]]
    [[ "$output" == *"bits: this processor, this number of processes"* ]]
    MILLRACE_ISA=avx2 fast --max_iters=3
    [[ "$output" != *"was computed with"* ]]
    MILLRACE_ISA=portable run_match 2 "the run was computed on 'cpu: avx2, oneDNN *', and this is 'cpu: portable, oneDNN *': replay it on such a machine. Its bits differ here: step " \
        "$BIN/trainer" replay run
    MILLRACE_ISA=portable fast --max_iters=4
    [[ "$output" == *"the run was computed with avx2, oneDNN "*", and goes on with portable, oneDNN "* ]]
}

@test "a run in a fixed order resumes and is replayed with other instructions, with the bits of the whole" {
    needs_cpu avx2
    fixed() { run_code 0 train --dataset="$data" --reduce_order=fixed --eval_interval=3 "$@"; }
    MILLRACE_ISA=portable fixed --out_dir=whole --max_iters=6
    [[ "$output" == *"bits: any processor, any number of processes. Without AVX2 a step takes "*" times that of reduce_order=fast"* ]]
    MILLRACE_ISA=avx2 fixed --out_dir=run --max_iters=3
    [[ "$output" != *"Without AVX2"* ]]
    fixed --out_dir=run --max_iters=6
    [[ "$output" != *"was computed with"* ]]
    same_run whole run 6
    grep -q '"choices": "cpu: bits of any processor"' run/ckpt-00000006/state.json
    run_match 0 "steps 1 to 6 are equal" "$BIN/trainer" replay whole
    [[ "$output" != *"was computed with"* ]]
    for isa in portable avx2; do
        MILLRACE_ISA=$isa "$BIN/trainer" sample --out_dir=run --sample_tokens=30 >$isa
        MILLRACE_ISA=$isa "$BIN/trainer" eval --out_dir=run --dataset="$data" --json >>$isa
    done
    cmp portable avx2
    accept_receipt whole && grep -q '"machine": "cpu: bits of any processor"' receipt.json
    for isa in portable avx2; do MILLRACE_ISA=$isa run_match 0 "steps 4 to 6: accepted" "$BIN/trainer" replay whole --check receipt.json; done
}
