# Training with several processes: the samples, bits, memory and checkpoints for any number of them.
load ../helpers
load ../ranks

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
    run_code 0 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=localhost MASTER_PORT=29500 "$BIN/trainer" status --out_dir=run
    [ -z "$output" ]
    RANK=1 WORLD_SIZE=2 "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=2 # not torchrun
}

# As torchrun starts a program: COUNT processes with its variables, on the first of its machines or from rank FIRST of WORLD on.
like_torchrun() {
    local rank pids=() status=0
    for rank in $(seq 0 $(($1 - 1))); do
        env RANK="$((${FIRST:-0} + rank))" LOCAL_RANK="$rank" WORLD_SIZE="${WORLD:-$1}" LOCAL_WORLD_SIZE="$1" MASTER_ADDR=localhost MASTER_PORT=29500 \
            OMP_NUM_THREADS=1 "${@:2}" &
        pids+=($!)
    done
    echo "${pids[0]}" >first.pid
    for rank in "${!pids[@]}"; do wait "${pids[$rank]}" || status=$?; done
    return "$status"
}

@test "torchrun starts ranks of mpirun: the losses, a stop and its errors" {
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe # torchrun's users do not know them
    like_torchrun 2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=two
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 ranks 2 --out_dir=same
    diff <(losses two) <(losses same)
    run_code 2 like_torchrun 3 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=three
    [ "$(grep -c 'gradient_accumulation_steps 4 does not divide by the 3 processes' <<<"$output")" = 1 ]
    for first in 0 2; do
        FIRST=$first WORLD=4 run_code 2 like_torchrun 2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=three
        [ "$(grep -c 'torchrun started 4 processes on several machines: start them by mpirun -H, or by srun --mpi=pmix' <<<"$output")" = 1 ]
    done
    mkdir empty
    PATH=$BIN:$PWD/empty run_code 2 "$(command -v env)" RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost "$BIN/trainer" train
    [[ "$output" == *"torchrun started 2 processes, and mpirun, which would train in them, does not start: No such file or directory (install Open MPI"* ]]

    like_torchrun 2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run "${endless[@]}" --log_interval=1000000 2>words >lines 3>&- & TRAINER=$!
    wait_for_steps run 3
    kill -TERM "$(cat first.pid)"
    ends 75
    grep -q 'saved at step' words
}

@test "processes that may use the same processors share them" {
    threads_of() { # PROCESSES
        mpirun --bind-to none -n "$1" env -u OMP_NUM_THREADS "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --threads=0 \
            --max_iters=1 --print_ranks 2>&1 | sed -nE 's/^trainer.*: cpu: .*[ ;]([0-9]+) threads?, .*/\1/p' | xargs
    }
    all=$(threads_of 1)
    part=$((all / 2 > 0 ? all / 2 : 1))
    [ "$(threads_of 2)" = "$part $part" ]
    [ "$(threads_of 4)" = "$(yes $((all / 4 > 0 ? all / 4 : 1)) | head -4 | xargs)" ]
}

@test "PyTorch's torchrun starts a run" {
    torchrun=$ROOT/build/venv/bin/torchrun
    [ -x "$torchrun" ] || skip "torch is not installed in build/venv"
    "$torchrun" --standalone --no-python --nproc_per_node=2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=two
    ranks 2 --out_dir=same
    diff <(losses two) <(losses same)
    launched=0
    "$torchrun" --standalone --no-python --nproc_per_node=2 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run "${endless[@]}" \
        >lines 2>words 3>&- & TRAINER=$!
    wait_for_steps run 3
    kill -TERM $TRAINER
    wait $TRAINER || launched=$?
    [ "$launched" != 0 ]
    grep -q 'saved at step' words
}

@test "what differs between ranks, or does not fit their number, is refused with both values" {
    for i in $(seq 10); do # mpirun kills the others when the first has ended
        run_code 2 ranks 3 --out_dir=run
        [ "$(grep -c 'gradient_accumulation_steps 4 does not divide by the 3 processes' <<<"$output")" = 1 ]
    done
    run_code 2 ranks 2 --offload=all --out_dir=run
    run_code 2 "$BIN/trainer" plan tiny.conf --world=2 --offload=all
    [[ "$output" == *"several processes keep their gradients in the arena: set offload to none, optimizer or residuals"* ]]
    [ "$(wc -l <<<"$output")" = 2 ] # and no plan
    two() { # OPTION OPTION [PROGRAM]: of rank 0 and of rank 1
        local common=(train tiny.conf --dataset="$data" --out_dir=run)
        mpirun -n 1 "$BIN/trainer" "${common[@]}" "$1" : -n 1 "${3:-$BIN/trainer}" "${common[@]}" "$2"
    }
    run_code 2 two --n_layer=1 --n_layer=2
    [[ "$output" == *"rank 1: this process has n_layer=2, rank 0 has n_layer=1"* ]]
    run_code 2 two --zero_stage=0 --zero_stage=1
    [[ "$output" == *"rank 1: this process has zero_stage=1, rank 0 has zero_stage=0"* ]]
    run_code 2 two --max_iters=6 --dataset="${data}2"
    [[ "$output" == *"rank 1: this process has dataset='${data}2', rank 0, whose loader it would use, has dataset='$data'"* ]]
    run_code 2 two --max_iters=6 --loader=ipc://one
    [[ "$output" == *"rank 1: this process has loader='ipc://one', rank 0"* ]]
    "$BIN/loader" serve "$data" --endpoint ipc://one 2>>log 3>&- & LOADER=$!
    "$BIN/loader" serve "${data}2" --endpoint ipc://two 2>>log 3>&- & TRAINER=$!
    run_code 2 mpirun -n 1 "$BIN/trainer" train tiny.conf --loader=ipc://one --out_dir=run : \
        -n 1 "$BIN/trainer" train tiny.conf --loader=ipc://two --out_dir=run
    [[ "$output" == *"rank 1: this process has dataset 'data2' ("*"), rank 0 has dataset 'data' ("* ]]
    mkdir bin lib && cp "$BIN/loader" bin && cp -r "$BIN/../lib/millrace" lib
    version=$("$BIN/trainer" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+[^ ]*' | head -1)
    sed "s/$version/9${version:1}/g" "$BIN/trainer" >bin/trainer && chmod +x bin/trainer
    run_code 2 two --n_layer=1 --n_layer=1 "$PWD/bin/trainer"
    [[ "$output" == *"rank 1 runs millrace 9${version:1}, rank 0 runs millrace $version"* ]]
    rm lib/millrace/mpi.so
    run_code 2 mpirun -n 2 bin/trainer train tiny.conf --dataset="$data" --out_dir=run
    [[ "$output" == *"mpirun started 2 processes, and "*"lib/millrace/mpi.so' is missing"* ]]
}
