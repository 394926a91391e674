# Training with several processes: mpirun, as Debian has it, with as many ranks as a test needs, whatever the cores.
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 3000 0.1
    make_other_data 2000
}

setup() {
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    [ -e "$BIN/../lib/millrace/mpi.so" ] || skip "built without MPI"
    # as root, more ranks than cores, no ptrace in containers
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
    cd "$BATS_TEST_TMPDIR" || exit
    data=$BATS_FILE_TMPDIR/data
    write_tiny_conf tiny.conf
    sed -i -E 's/^(gradient_accumulation_steps =).*/\1 4/; s/^(eval_interval|sample_tokens) =.*/\1 = 0/; s/^max_iters =.*/max_iters = 6/' tiny.conf
    echo 'dropout = 0.1' >>tiny.conf
}

ranks() { # COUNT OPTION...
    mpirun -n "$1" "$BIN/trainer" train tiny.conf --dataset="$data" "${@:2}"
}
samples() { sed -nE 's/.*: (step [0-9]+: samples .*)/\1/p' "$@" | sort -V | uniq; }
close_losses() { # RUN RUN: the same steps, with losses and norms within 1e-6
    join <(sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.]+), "norm": ([0-9.]+).*/\1 \2 \3/p' "$1/metrics.jsonl" | sort -u) \
        <(sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.]+), "norm": ([0-9.]+).*/\1 \2 \3/p' "$2/metrics.jsonl" | sort -u) |
        awk -v steps="$(steps "$1")" 'function far(a, b) { return a - b > 1e-6 || b - a > 1e-6 }
            far($2, $4) || far($3, $5) { print; bad = 1 } END { exit bad || NR != steps }'
}

teardown() { end_background; }

@test "1, 2 and 4 processes train on the same samples with the same losses, and only the first prints" {
    for n in 1 2 4; do
        ranks $n --out_dir=run$n >lines$n 2>words$n
        ranks $n --out_dir=again$n --print_ranks >printed$n 2>all$n
        [ "$(steps run$n)" = 6 ]
        [ "$(wc -l <lines$n)" = "$(wc -l <lines1)" ]
        [ "$(grep -c 'arena' words$n)" = 1 ]
        [ "$(grep -c 'arena' all$n)" = $n ]
        diff <(samples all1) <(samples all$n)
        close_losses run1 run$n
        same_run run$n again$n 6 # a given number of processes gives the same bits every time
    done
    grep -q '4 processes' words4
    [ "$(samples all4 | wc -l)" = 24 ]
    [ "$(grep -c '^trainer\[3\]: step .*: samples' all4)" = 6 ]
}

@test "a checkpoint does not depend on the number of processes: 4, 2, 1 and 4 in turn" {
    ranks 1 --out_dir=whole --print_ranks --max_iters=8 2>all
    for part in 4:2 2:4 1:6 4:8; do
        ranks ${part%:*} --out_dir=run --print_ranks --max_iters=${part#*:} 2>>parts
    done
    diff <(samples all) <(samples parts)
    close_losses whole run
    [ "$(grep -c 'trainer\[0\]: resuming at step' parts)" = 2 ] # of three: one process alone has no rank
}

@test "dividing the optimizer's state changes no bit, with offload, dropout, rechecked and skipped steps" {
    for options in "" "--offload=optimizer --recheck_interval=1" "--optimizer_state=bf16_sr --spike_action=skip"; do
        rm -rf divided whole
        # shellcheck disable=SC2086
        ranks 2 --out_dir=divided --n_embd=32 --max_iters=3 $options 2>words
        # shellcheck disable=SC2086
        ranks 2 --out_dir=whole --n_embd=32 --max_iters=3 --zero_stage=0 $options
        same_run divided whole 3
    done
    run_code 2 ranks 2 --out_dir=muon --optimizer=muon
    [[ "$output" == *"optimizer=muon updates whole matrices, which several processes cannot divide: set zero_stage=0"* ]]
    for n in 1 2; do ranks $n --out_dir=muon$n --optimizer=muon --zero_stage=0; done
    close_losses muon1 muon2
    # one micro-batch a step and process, computed twice
    ranks 4 --out_dir=divided4 --n_embd=32 --max_iters=3 --recheck_interval=1
    ranks 4 --out_dir=whole4 --n_embd=32 --max_iters=3 --recheck_interval=3 --zero_stage=0
    cmp divided4/ckpt-00000003/model.safetensors whole4/ckpt-00000003/model.safetensors
    cmp divided4/ckpt-00000003/optimizer.safetensors whole4/ckpt-00000003/optimizer.safetensors
}

@test "plan --world prints the memory of each process, which the run then has" {
    arena() { sed -nE 's/.* ([0-9.]+ [KMG]?i?B) arena.*/\1/p' "$1"; }
    for n in 1 2 4; do
        "$BIN/trainer" plan tiny.conf --n_embd=32 --world=$n >plan$n
        ranks $n --n_embd=32 --out_dir=run$n --max_iters=1 2>words
        [ "$(sed -nE 's/^  arena +[0-9]+ +//p' plan$n)" = "$(arena words)" ]
    done
    diff <(grep -v ^run plan1) <("$BIN/trainer" plan tiny.conf --n_embd=32 | grep -v ^run)
    grep -q '^processes  4, each with 1 of the 4 micro-batches and its part of the optimizer' plan4
    bytes() { sed -nE "s/^  $2 +([0-9]+) .*/\1/p" "$1"; }
    [ $(($(bytes plan4 optimizer) * 3)) -lt "$(bytes plan1 optimizer)" ]
    [ "$(bytes plan4 gradients)" = "$(bytes plan1 gradients)" ]
    diff <(grep -v ^run plan4) <(mpirun -n 4 "$BIN/trainer" plan tiny.conf --n_embd=32 | grep -v ^run)
    run_code 2 "$BIN/trainer" plan tiny.conf --world=-1
    [[ "$output" == *"--world is a number of processes, 1 to 1024"* ]]
    run_code 2 "$BIN/trainer" plan tiny.conf --world=3
    [[ "$output" == *"gradient_accumulation_steps 4 does not divide by the 3 processes"* ]]
}

@test "of the processes that mpirun starts, one does what is for one process" {
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=1
    mpirun -n 3 "$BIN/trainer" eval --out_dir=run --dataset="$data" --dtype=float32 --threads=1 >losses
    [ "$(grep -c ' loss ' losses)" = 2 ]
    mpirun -n 3 "$BIN/trainer" export --out_dir=run -o exported
    [ -e exported/model.safetensors ]
    diff <(mpirun -n 3 "$BIN/trainer" sample --out_dir=run --max_new_tokens=5 --threads=1) \
        <("$BIN/trainer" sample --out_dir=run --max_new_tokens=5 --threads=1)
    torchrun() { # as it sets the environment
        RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 MASTER_ADDR=localhost MASTER_PORT=29500 "${@:2}"
    }
    run_code 0 torchrun 1 "$BIN/trainer" status --out_dir=run
    [ -z "$output" ]
    run_code 2 torchrun 1 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run
    [[ "$output" == *"torchrun started 2 processes, which have no MPI to exchange gradients: start them by mpirun"* ]]
    RANK=1 WORLD_SIZE=2 "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=2 # not torchrun
}

@test "what differs between ranks, or does not fit their number, is refused with both values" {
    run_code 2 ranks 3 --out_dir=run
    [[ "$output" == *"gradient_accumulation_steps 4 does not divide by the 3 processes"* ]]
    [ "$(grep -c 'does not divide' <<<"$output")" = 1 ]
    two() { # OPTION OPTION [PROGRAM]: of rank 0 and of rank 1
        local common=(train tiny.conf --dataset="$data" --out_dir=run)
        mpirun -n 1 "$BIN/trainer" "${common[@]}" "$1" : -n 1 "${3:-$BIN/trainer}" "${common[@]}" "$2"
    }
    run_code 2 two --n_layer=1 --n_layer=2
    [[ "$output" == *"rank 1: this process has n_layer=2, rank 0 has n_layer=1"* ]]
    run_code 2 two --zero_stage=0 --zero_stage=1
    [[ "$output" == *"rank 1: this process has zero_stage=1, rank 0 has zero_stage=0"* ]]
    mkdir bin lib && cp "$BIN/loader" bin && cp -r "$BIN/../lib/millrace" lib
    version=$("$BIN/trainer" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+[^ ]*' | head -1)
    sed "s/$version/9${version:1}/g" "$BIN/trainer" >bin/trainer && chmod +x bin/trainer
    run_code 2 two --n_layer=1 --n_layer=1 "$PWD/bin/trainer"
    [[ "$output" == *"rank 1 runs millrace 9${version:1}, rank 0 runs millrace $version"* ]]
    rm lib/millrace/mpi.so
    run_code 2 mpirun -n 2 bin/trainer train tiny.conf --dataset="$data" --out_dir=run
    [[ "$output" == *"mpirun started 2 processes, and "*"lib/millrace/mpi.so' is missing"* ]]
}

# launch COUNT OPTION...: an endless run in the background; pid.N and status.N are those of rank N.
launch() {
    cat >rank.sh <<'END'
"$BIN/trainer" train tiny.conf "$@" &
echo $! >pid.$OMPI_COMM_WORLD_RANK
status=0
wait $! || status=$?
echo $status >status.$OMPI_COMM_WORLD_RANK
# mpirun would kill the others a second after the first end: here they have as long as they need
until [ "$(ls status.* | wc -l)" = "$OMPI_COMM_WORLD_SIZE" ]; do sleep 0.1; done
END
    rm -f status.*
    mpirun -n "$1" bash rank.sh --dataset="$data" --out_dir=run "${endless[@]}" "${@:2}" \
        >lines 2>words 3>&- &
    TRAINER=$!
}
is_saved() { # the last step has a checkpoint, and none is half written
    [ -d "$(checkpoint run "$(tail -1 run/metrics.jsonl | sed -E 's/.*"step": ([0-9]+).*/\1/')")" ] && [ -z "$(compgen -G 'run/.ckpt*')" ]
}

@test "when a process is killed the others end at once with 75, and each with all state saves the last step" {
    for victim in 2 0; do
        launch 4 --zero_stage=0
        wait_for_more_steps run
        kill -9 "$(cat pid.$victim)"
        wait_until is_gone "$TRAINER"
        for rank in 0 1 2 3; do
            [ "$(cat status.$rank)" = $([ $rank = $victim ] && echo 137 || echo 75) ]
        done
        grep -qE "rank [0-3] \(process [0-9]+\) has ended" words
        is_saved
    done
    grep -q 'rank 0 has ended: saving in its place' words
    ranks 2 --out_dir=run --max_iters=$(($(steps run) + 2)) 2>words # two more steps
    grep -q 'resuming at step' words
    is_saved
}

@test "when a process is killed with its part of the state, the run goes on from the last checkpoint" {
    for victim in 3 0; do
        launch 4 "${often[@]}"
        wait_for_checkpoint run
        wait_for_more_steps run 7
        kill -9 "$(cat pid.$victim)"
        wait_until is_gone "$TRAINER"
        for rank in 0 1 2 3; do
            [ "$(cat status.$rank)" = $([ $rank = $victim ] && echo 137 || echo 75) ]
        done
        step=$(sed -nE 's/.*lost with its process: run the same command again to resume at step ([0-9]+), .*/\1/p' words | tail -1)
        [ -d "$(checkpoint run "$step")" ]
    done
    ranks 2 "${often[@]}" --out_dir=run --max_iters=$((step + 3)) 2>words
    grep -q "resuming at step $step" words
    [ -d "$(checkpoint run $((step + 3)))" ]
}

@test "a signal to mpirun saves and ends with 75, and the job of train.sbatch is queued again" {
    mkdir -p build fake && ln -s "$BIN" build/bin
    cat >fake/srun <<'END'
#!/bin/bash
while [[ $1 = --* ]]; do shift; done
exec mpirun -n 2 "$@"
END
    printf '#!/bin/bash\necho "$@" >>requeued\n' >fake/scontrol
    chmod +x fake/*
    job() { PATH="$PWD/fake:$PATH" SLURM_JOB_ID=17 bash "$BATS_TEST_DIRNAME/../../scripts/slurm/train.sbatch" tiny.conf --dataset="$data" --out_dir=run "$@"; }
    job "${endless[@]}" >lines 2>words 3>&- &
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
    # SIGTERM, after which mpirun leaves the processes one second, or what this says
    OMPI_MCA_odls_base_sigkill_timeout=5 mpirun -n 2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run \
        "${endless[@]}" >lines 2>words 3>&- &
    TRAINER=$!
    wait_for_more_steps run
    kill "$TRAINER"
    wait_until is_gone "$TRAINER"
    grep -q 'saved at step' words
    is_saved
}

@test "one loader serves all processes of a machine, and killing it changes no bit" {
    ranks 4 --out_dir=whole --max_iters=8
    serve_until_ready "$data"
    ranks 4 --out_dir=served --max_iters=8 --loader=ipc://place --dataset=
    same_run whole served 8
    kill_loader
    LOADER=
    launch 4
    for kill in 1 2 3; do
        wait_for_more_steps run
        pgrep -P "$(cat pid.0)" -x loader >loader.pid
        [ "$(wc -l <loader.pid)" = 1 ]
        for rank in 1 2 3; do ! pgrep -P "$(cat pid.$rank)" -x loader; done
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
