# Training with several processes: lost processes, signals, and loaders that end or are shared.
load ../helpers
load ../ranks

is_saved() { # the last step has a checkpoint, and none is half written
    [ -d "$(checkpoint run "$(tail -1 run/metrics.jsonl | sed -E 's/.*"step": ([0-9]+).*/\1/')")" ] && [ -z "$(compgen -G 'run/.ckpt*')" ]
}

@test "when a process is killed the others end at once with 75, and each with all state saves the last step" {
    large="--n_embd=256 --block_size=8 --batch_size=1" # the update, in which a process may be killed, takes a third of a step
    for victim in 2 0; do
        # shellcheck disable=SC2086
        launch 4 --zero_stage=0 --reduce_order=fixed $large
        wait_for_more_steps run
        kill -9 "$(cat pid.$victim)"
        wait_until is_gone "$TRAINER"
        for rank in 0 1 2 3; do
            [ "$(cat status.$rank)" = $([ $rank = $victim ] && echo 137 || echo 75) ]
        done
        grep -qE "rank [0-3] \(process [0-9]+\) has ended" stderr
        step=$(sed -nE 's/.*saved at step ([0-9]+): .*/\1/p' stderr | sort -n | tail -1)
        [ -d "$(checkpoint run "$step")" ]
        [ -z "$(compgen -G 'run/.ckpt*')" ]
        [ "$(steps run)" = "$step" ] # where rank 0 has ended, another one completes its record
        [ "$(grep -c '"loss"' run/metrics.jsonl)" = "$step" ]
        jq -e 'select(.loss) | .product_share > 0' run/metrics.jsonl >shares
        [ "$(wc -l <shares)" = "$step" ]
    done
    grep -q 'rank 0 has ended: saving in its place' stderr
    # shellcheck disable=SC2086
    ranks 2 --out_dir=run --reduce_order=fixed $large --max_iters=$(($(steps run) + 2)) 2>stderr # two more steps
    grep -q 'resuming at step' stderr
    is_saved
    run_match 0 "are equal" "$BIN/trainer" replay run
}

@test "a signal to one of two processes ends both with 75 while their loader is away" {
    for rank in 0 1; do
        serve_until_ready "$data"
        launch 2 --loader=ipc://place --data_timeout=60 --print_ranks # either rank may be the one that waits
        wait_for_more_steps run
        kill_loader
        wait_until stderr_has "no data from the loader at .* (5 s)"
        kill -USR1 "$(cat pid.$rank)"
        wait_until is_gone "$TRAINER"
        TRAINER=
        [ "$(cat status.0 status.1)" = "75
75" ]
        is_saved
    done
}

@test "until: SIGUSR1 cools down all processes at a step that is evaluated, and the record is one that a replay gives" {
    launch 2 --until=300d --reduce_order=fixed --eval_interval=1 --eval_tokens=4096
    wait_for_more_steps run 8
    kill -USR1 $(cat pid.*)
    wait_until is_gone "$TRAINER"
    TRAINER=
    [ "$(cat status.0 status.1)" = "0
0" ]
    run_match 0 "are equal" "$BIN/trainer" replay run
}

@test "until: no process takes another step after a sleep past the time" {
    preload other_day
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 PROGRAM=$PWD/program
    printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$PWD/other_day.so" "$BIN/trainer" >program && chmod +x program
    launch 2 --until=300d --reduce_order=fixed
    wait_for_more_steps run
    touch slept
    wait_until is_gone "$TRAINER"
    TRAINER=
    [ "$(cat status.0 status.1)" = "0
0" ]
    [ "$(grep -c "no time is left: the run ends after step $(steps run), 0 % into" stderr)" = 1 ]
    run_match 0 "are equal" "$BIN/trainer" replay run
}

# bats test_tags=ci
@test "a run whose killed process had a part of the state resumes from the last checkpoint" {
    for victim in 3 0; do
        launch 4 "${often[@]}" --data_timeout=3600 # the end is noticed, also by ranks whose loader ended with rank 0
        wait_for_checkpoint run
        wait_for_more_steps run 7
        kill -9 "$(cat pid.$victim)"
        wait_until is_gone "$TRAINER"
        for rank in 0 1 2 3; do
            [ "$(cat status.$rank)" = $([ $rank = $victim ] && echo 137 || echo 75) ]
        done
        step=$(sed -nE 's/.*lost with its process: run the same command again to resume at step ([0-9]+), .*/\1/p' stderr | tail -1)
        [ -d "$(checkpoint run "$step")" ]
    done
    ranks 2 "${often[@]}" --out_dir=run --max_iters=$((step + 3)) 2>stderr
    grep -q "resuming at step $step" stderr
    [ -d "$(checkpoint run $((step + 3)))" ]
}

# bats test_tags=ci
@test "a signal to mpirun saves and ends with 75, and the job of train.sbatch is queued again" {
    mkdir -p build fake && ln -s "$BIN" build/bin
    cat >fake/srun <<'END'
#!/bin/bash
while [[ $1 = --* ]]; do shift; done
exec mpirun -n 2 "$@"
END
    printf '#!/bin/bash\necho "$@" >>requeued\n' >fake/scontrol
    chmod +x fake/*
    job() { PATH="$PWD/fake:$PATH" SLURM_JOB_ID=17 bash "$ROOT/scripts/slurm/train.sbatch" tiny.conf --dataset="$data" --out_dir=run "$@"; }
    job "${endless[@]}" >stdout 2>stderr 3>&- &
    TRAINER=$!
    wait_for_more_steps run
    kill -USR1 "$(pgrep -P "$(pgrep -P $TRAINER -f train.sbatch || echo $TRAINER)" -x mpirun)"
    ends 75
    [ "$(cat requeued)" = "requeue 17" ]
    is_saved
    end=$(($(steps run) + 2))
    job --max_iters=$end
    [ "$(steps run)" = $end ]
    [ "$(wc -l <requeued)" = 1 ]
    # the last task of an array, whose job has the id of the array
    printf '#!/bin/bash\nexit 75\n' >fake/srun
    run_code 75 env SLURM_ARRAY_JOB_ID=17 SLURM_ARRAY_TASK_ID=3 PATH="$PWD/fake:$PATH" SLURM_JOB_ID=17 bash "$ROOT/scripts/slurm/train.sbatch"
    [ "$(tail -n 1 requeued)" = "requeue 17_3" ]
    # SIGTERM, after which mpirun leaves the processes one second, or what this says. It no longer reads their output then: a
    # process that prints more than a terminal holds would wait until it is killed.
    OMPI_MCA_odls_base_sigkill_timeout=5 mpirun -n 2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run \
        --log_interval=1000000 "${endless[@]}" >stdout 2>stderr 3>&- &
    TRAINER=$!
    wait_for_more_steps run
    kill "$TRAINER"
    wait_until is_gone "$TRAINER"
    grep -q 'saved at step' stderr
    is_saved
}

# bats test_tags=ci
@test "a rank that does not answer is named in the error" {
    launch 4 --data_timeout=1
    wait_for_more_steps run
    kill -STOP "$(cat pid.2)"
    wait_until test -e status.0
    kill -9 "$(cat pid.2)"
    wait_until is_gone "$TRAINER"
    TRAINER=
    grep -q "stopped: rank 2 (process $(cat pid.2)) did not answer for 11 s" stderr
}

# bats test_tags=ci
@test "one loader serves the processes of all machines over tcp, with a key" {
    endpoint=tcp://127.0.0.1:$(free_port)
    "$BIN/loader" keygen loader.key >loader.public
    "$BIN/loader" keygen trainer.key >allowed
    ENDPOINT=$endpoint serve "$data" --key loader.key --allow allowed
    far=(--dataset= --loader="$endpoint" --loader_key="$(cat loader.public)")
    ranks 4 --out_dir=whole
    ranks 4 --out_dir=far "${far[@]}" --key_file=trainer.key
    same_run whole far 6
    "$BIN/loader" keygen stranger.key >/dev/null
    run_code 77 ranks 4 --out_dir=none "${far[@]}" --key_file=stranger.key
}

# bats test_tags=ci
@test "one loader serves all processes of a machine, and killing it changes no bit" {
    ranks 4 --out_dir=whole --max_iters=8
    serve_until_ready "$data"
    ranks 4 --out_dir=served --max_iters=8 --loader=ipc://place --dataset=
    same_run whole served 8
    for n in 2 4; do # each with a ring, and none ahead of the others by more than what is requested before its turn
        rm -rf run
        launch $n --loader=ipc://place --dataset=
        wait_for_more_steps run 8
        "$BIN/loader" serve-status --endpoint ipc://place --json >status
        kill -USR1 $(cat pid.*)
        wait_until is_gone "$TRAINER"
        python3 - $n <<'END'
import json, sys
clients = json.load(open("status"))["clients"]
assert len(clients) == int(sys.argv[1]), clients
assert all(client["ring"] for client in clients), clients
batches = [client["batches"] for client in clients]
assert min(batches) >= 8 and max(batches) - min(batches) <= 6 * 4 // len(clients), batches
END
    done
    rm -rf run
    kill_loader
    LOADER=
    launch 4
    for kill in 1 2 3; do
        wait_for_more_steps run
        wait_until pgrep -P "$(cat pid.0)" -x loader >loader.pid # it may be just starting again
        [ "$(wc -l <loader.pid)" = 1 ]
        for rank in 1 2 3; do not pgrep -P "$(cat pid.$rank)" -x loader; done
        kill -9 "$(cat loader.pid)"
    done
    wait_for_more_steps run
    kill -USR1 $(cat pid.*)
    wait_until is_gone "$TRAINER"
    [ "$(sort -u status.*)" = 75 ]
    end=$(($(steps run) + 1))
    ranks 4 --out_dir=run --max_iters=$end
    ranks 4 --out_dir=unharmed --max_iters=$end
    same_run unharmed run $end
}

# bats test_tags=ci
# fault 74
@test "the other ranks wait with rank 0 for space for the last save, and all end with its code, 74" {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    command -v strace >/dev/null && command -v cc >/dev/null || skip "needs strace and a C compiler"
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
    serve_until_ready "$data"
    preload seconds_of_sleep
    mkdir run
    unshare -m bash -euc '
        . "$1/helpers.bash" && . "$1/ranks.bash" && data=
        mount -t tmpfs -o size=60m tmpfs run
        fill() { wait_for_more_steps run && { head -c 100M /dev/zero >run/filler || true; } 2>/dev/null; }
        codes() { [ "$(cat status.0 status.1)" = "$1
$1" ]; }
        seconds_passed() { [ "$(stat -c %s seconds 2>/dev/null)" = 18 ]; } # after 15 without a word a rank would be given up
        printf "#!/bin/sh\nLD_PRELOAD=%s/seconds_of_sleep.so exec %s/trainer \"\$@\"\n" "$PWD" "$BIN" >program.sh && chmod +x program.sh
        PROGRAM=$PWD/program.sh launch 2 --loader=ipc://place --data_timeout=5
        fill
        kill -USR1 $(cat pid.*)
        wait_until stderr_has "the last save: a checkpoint needs .* are free; waiting 60 s for space"
        wait_until seconds_passed
        for pid in $(cat pid.*); do kill -0 "$pid"; done
        rm run/filler
        touch space
        wait_until is_gone "$TRAINER"
        codes 75
        has_checkpoint run
        # strace lets the minute pass at once
        cat >traced.sh <<END
#!/bin/bash
[ "\$OMPI_COMM_WORLD_RANK" = 0 ] || exec "$BIN/trainer" "\$@"
exec strace -f -qq -o trace -e trace=clock_nanosleep -e inject=clock_nanosleep:retval=0 "$BIN/trainer" "\$@"
END
        chmod +x traced.sh
        PROGRAM=$PWD/traced.sh launch 2 --loader=ipc://place
        fill
        kill -USR1 "$(cat run/.lock)" "$(cat pid.1)"
        wait_until is_gone "$TRAINER"
        codes 74
        grep "^trainer" stderr | tail -n 1 | grep -qE "which is not saved: (checkpoint of step [0-9]+: a checkpoint needs|.*/metrics.jsonl.*No space left)"' \
        - "$ROOT/tests/cli" || { cat stderr && false; }
}

# bats test_tags=ci
# fault 125
@test "two processes train and save in a control group that has room for both and one copy, and are refused before they begin where it has not" {
    needs_address_limit
    in_group 200 true || skip "cannot make a control group"
    local large=(--n_embd=512 --n_head=4 --recompute=none --max_iters=2 --checkpoint_interval=1) size all free
    "$BIN/trainer" plan tiny.conf --dataset="$data" "${large[@]}" --world=2 >plan
    grep -q "checkpoint copy of rank 0 .*(required" plan
    size=$(sed -nE 's/^  arena +([0-9]+) .*/\1/p' plan)
    size=$((2 * ((size >> 20) + 64) + 40)) # MiB, of which mpirun and the programs use some 20
    run_code 82 in_group $size mpirun -n 2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run "${large[@]}"
    [[ "$output" =~ "in rank 0 for checkpoints of what they divide: "([0-9]+).*" in all, and what the programs leave of the memory that is free in the control group is "([0-9]+) ]]
    all=${BASH_REMATCH[1]} free=${BASH_REMATCH[2]}
    [ ! -e run ]
    run_code 0 in_group $((size + all - free + 3)) mpirun -n 2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run "${large[@]}"
    [ -e run/ckpt-00000002 ]
}
