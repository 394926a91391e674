# Training with several processes: the samples, bits, memory and checkpoints for any number of them.
load ../helpers
load ../ranks

# bats test_tags=ci
@test "the share of the measured peak is that of all processes" {
    local c=128
    ranks 2 --out_dir=run --max_iters=3 --eval_interval=0 --n_embd=$c >stdout 2>&1
    products=$(sed -nE 's/.*measured peak: (\S+) TFLOP.s, of matrix products of this model, in each process$/\1/p' stdout)
    flops=$((6 * (97 * c + 12 * c * c + 5 * c) + 12 * c * 16))
    jq -e 'select(.loss)' run/metrics.jsonl | jq -se "length == 3 and all(.tok_s * $flops / (2e12 * $products) / .product_share - 1 | fabs < 0.02)"
}

@test "1 and 4 processes train on the same samples with the same losses, and only the first prints" {
    for n in 1 4; do
        ranks $n --out_dir=run$n >stdout$n 2>stderr$n
        ranks $n --out_dir=again$n --print_ranks >printed$n 2>all$n
        [ "$(steps run$n)" = 6 ]
        [ "$(wc -l <stdout$n)" = "$(wc -l <stdout1)" ]
        [ "$(grep -c 'arena' stderr$n)" = 1 ]
        [ "$(grep -c 'arena' all$n)" = $n ]
        diff <(samples all1) <(samples all$n)
        close_losses run1 run$n
        same_run run$n again$n 6 # a given number of processes gives the same bits every time
    done
    grep -q '4 processes' stderr4
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

# bats test_tags=ci
@test "the command of docs/several-processes.md runs as written, on a small model" {
    mkdir data
    ln -s "$ROOT/config" config
    ln -s "$data" data/books
    command=$(grep '^mpirun -n 4 millrace train ' "$ROOT/docs/several-processes.md" | head -1)
    eval "$command --n_layer=1 --n_embd=32 --block_size=16 --max_iters=1 --eval_interval=0 --sample_tokens=0"
    [ -d out/ckpt-00000001 ]
}

# bats test_tags=ci
@test "dividing the optimizer's state changes no bit, with offload, dropout, rechecked and skipped steps" {
    for options in "" "--offload=optimizer --recheck_interval=1" "--optimizer_state=bf16_sr --spike_action=skip" \
        "--ema=0.9 --eval_interval=1 --eval_iters=1"; do
        rm -rf divided whole
        # shellcheck disable=SC2086
        ranks 2 --out_dir=divided --n_embd=32 --max_iters=3 $options 2>stderr
        # shellcheck disable=SC2086
        ranks 2 --out_dir=whole --n_embd=32 --max_iters=3 --zero_stage=0 $options
        same_run divided whole 3
    done
    ranks 1 --out_dir=muon1 --optimizer=muon
    run_code 0 ranks 2 --out_dir=muon2 --optimizer=muon
    [ "$(grep -c "zero_stage = 0: optimizer=muon updates whole matrices" <<<"$output")" = 1 ]
    close_losses muon1 muon2
    # one micro-batch a step and process, computed twice
    ranks 4 --out_dir=divided4 --n_embd=32 --max_iters=3 --recheck_interval=1
    ranks 4 --out_dir=whole4 --n_embd=32 --max_iters=3 --recheck_interval=3 --zero_stage=0
    cmp divided4/ckpt-00000003/model.safetensors whole4/ckpt-00000003/model.safetensors
    cmp divided4/ckpt-00000003/optimizer.safetensors whole4/ckpt-00000003/optimizer.safetensors
}

# bats test_tags=ci
@test "plan --world prints the memory of each process, which the run then has" {
    arena() { sed -nE 's/.* ([0-9.]+ [KMG]?i?B) arena.*/\1/p' "$1"; }
    for n in 1 4; do
        "$BIN/trainer" plan tiny.conf --n_embd=128 --world=$n >plan$n
        ranks $n --n_embd=128 --out_dir=run$n --max_iters=1 2>stderr
        [ "$(sed -nE 's/^  arena +[0-9]+ +//p' plan$n)" = "$(arena stderr)" ]
    done
    diff <(grep -v ^run plan1) <("$BIN/trainer" plan tiny.conf --n_embd=128 | grep -v ^run)
    grep -q '^processes  4, each with 1 of the 4 micro-batches and its part of the optimizer' plan4
    bytes() { sed -nE "s/^  $2 +([0-9]+) .*/\1/p" "$1"; }
    [ $(($(bytes plan4 optimizer) * 3)) -lt "$(bytes plan1 optimizer)" ]
    [ "$(bytes plan4 gradients)" = "$(bytes plan1 gradients)" ]
    diff <(grep -v ^run plan4) <(mpirun -n 4 "$BIN/trainer" plan tiny.conf --n_embd=128 | grep -v ^run)
    run_match 2 "--world is a number of processes, 1 to 1024" "$BIN/trainer" plan tiny.conf --world=-1
    run_match 2 "gradient_accumulation_steps 4 is less than the 5 processes" "$BIN/trainer" plan tiny.conf --world=5
}

# bats test_tags=ci
@test "plan under mpirun has the arena of the run that mpirun starts, and its refusals" {
    preload less_memory
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
    within() { # FREE_MB COMMAND OPTION...: two processes that share the processors and what is free
        FREE_MB=$1 mpirun --bind-to none -n 2 env -u OMP_NUM_THREADS LD_PRELOAD="$PWD/less_memory.so" "$BIN/trainer" "$2" tiny.conf \
            --dataset="$data" --out_dir=run --max_iters=1 --n_embd=512 --n_layer=2 "${@:3}"
    }
    within 4000 train --threads=0 2>stderr
    within 4000 plan --threads=0 --world=0 >plan
    grep -q " $(sed -nE 's/^  arena +[0-9]+ +//p' plan) arena" stderr
    for free in 200 400; do # not enough for a process, nor for the copy of rank 0 beside them
        for command in train plan; do
            run_code 82 within $free $command --out_dir=none --batch_size=32 --block_size=32
            grep -o 'the plan needs .*' <<<"$output" >$command$free
        done
        cmp train$free plan$free
    done
    [ ! -e none ]
}

# bats test_tags=ci
@test "rank 0 alone runs a command other than train, and the other ranks print a line" {
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=1
    mpirun -n 3 "$BIN/trainer" eval --out_dir=run --dataset="$data" --dtype=float32 --threads=1 >losses 2>stderr
    [ "$(grep -c ' loss ' losses)" = 2 ]
    for rank in 1 2; do
        grep -qx "trainer: 'eval' runs once, in rank 0: rank $rank of the 3 processes of mpirun ends here" stderr
    done
    diff <("$BIN/trainer" replay run) <(timeout 60 mpirun -n 2 "$BIN/trainer" replay run)
    mpirun -n 3 "$BIN/trainer" export --out_dir=run -o exported
    [ -e exported/model.safetensors ]
    diff <(mpirun -n 3 "$BIN/trainer" sample --out_dir=run --max_new_tokens=5 --threads=1) \
        <("$BIN/trainer" sample --out_dir=run --max_new_tokens=5 --threads=1)
}

@test "a launcher that does not say how many processes it has started is refused with what to type" {
    # prterun, or mpirun in a container with a clean environment; Flux, PALS and MVAPICH: else each process would train alone
    for variable in PMIX_RANK FLUX_TASK_RANK PALS_RANKID MV2_COMM_WORLD_RANK; do
        for rank in 0 1; do
            run_match 2 "$variable is set, *: type 'm* -n N ...'*unset $variable" env $variable=$rank \
                "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=lost$rank --max_iters=1
            [ ! -e lost$rank ]
        done
    done
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0 "$BIN/trainer" plan tiny.conf --dataset="$data" >plan
    run_match 2 "type srun --mpi=pmix" env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "$BIN/trainer" train tiny.conf --quiet \
        --dataset="$data" --out_dir=lost --max_iters=1
}

@test "processes of torchrun are refused with the mpirun command to type" {
    for rank in 0 1; do
        run_code 2 env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=localhost MASTER_PORT=29500 \
            "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir="a run" --sample_start="it's" --max_iters=1
        echo "$output" >refused$rank
    done
    [ "$(wc -w <refused1)" = 0 ] # once for all processes
    sed -E 's/.*: type `(.*)` \(on several machines, add -H HOST:COUNT,\.\.\.\)$/\1/' refused0 >command
    [ "$(cat command)" = "mpirun -n 2 $BIN/trainer train tiny.conf --quiet --dataset=$data '--out_dir=a run' '--sample_start=it'\\''s' --max_iters=1" ]
    bash command
    [ "$(steps "a run")" = 1 ]
    RANK=1 WORLD_SIZE=2 "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=1 # not torchrun
}

@test "a process that mpirun binds to less than its part of the processors prints what to add" {
    [ "$(nproc)" -gt 1 ] || skip "one processor"
    unset OMPI_MCA_rmaps_base_oversubscribe # with which mpirun binds nothing
    line="mpirun binds this process to [0-9]+ of $(nproc) processors: add --bind-to none"
    sed -i '/^threads/d' tiny.conf
    for command in plan train; do
        one=("$BIN/trainer" $command tiny.conf --dataset="$data" --out_dir=run --max_iters=1)
        mpirun --bind-to core -n 1 "${one[@]}" >stdout 2>stderr
        [ "$(grep -cE "$line" stderr)" = 1 ]
        mpirun --bind-to none -n 1 "${one[@]}" >stdout 2>stderr
        not grep -q "add --bind-to" stderr
    done
    mpirun --bind-to core -n 1 "$BIN/trainer" doctor --device=cpu >report || true
    grep -qE "^warning +cores .*$line" report
    mpirun --bind-to core -n 1 "$BIN/trainer" plan tiny.conf --threads=1 >stdout 2>stderr # as many as it may use
    not grep -q "add --bind-to" stderr
}

# bats test_tags=ci
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

# bats test_tags=ci
# fault 100
@test "a rank that computes with other instructions than rank 0 is a warning" {
    needs_cpu avx2
    with() { # ISA ORDER: as rank 1, beside avx2
        local common=(trainer train tiny.conf --dataset="$data" --fresh --out_dir=run --max_iters=1 --reduce_order="$2")
        run_code 0 mpirun -n 1 env MILLRACE_ISA=avx2 "${common[@]}" : -n 1 env MILLRACE_ISA="$1" "${common[@]}"
    }
    PATH=$BIN:$PATH
    with avx2 fast
    [[ "$output" != *"computes with"* ]]
    with portable fixed
    [[ "$output" != *"computes with"* ]]
    with portable fast
    [ "$(grep -c "rank 1 computes with portable, rank 0 with avx2: the bits of this run depend on which rank is where" <<<"$output")" = 1 ]
}

@test "until: the time of rank 0 is that of the run, whatever the other ones have" {
    local common=("$BIN/trainer" train tiny.conf --dataset="$data" --fresh --out_dir=run --until=job --max_iters=2)
    run_code 0 mpirun -n 1 env SLURM_JOB_END_TIME=9999999999 "${common[@]}" : -n 1 env SLURM_JOB_END_TIME=1 "${common[@]}"
}

# bats test_tags=ci
@test "what differs between ranks, or does not fit their number, is refused with both values" {
    for i in $(seq 10); do # mpirun kills the others when the first has ended
        run_code 2 ranks 3 --out_dir=run --gradient_accumulation_steps=2
        [ "$(grep -c 'gradient_accumulation_steps 2 is less than the 3 processes' <<<"$output")" = 1 ]
    done
    run_code 2 ranks 2 --offload=all --out_dir=run
    run_code 2 "$BIN/trainer" plan tiny.conf --world=2 --offload=all
    [[ "$output" == *"several processes keep their gradients in the arena: set offload to none or optimizer"* ]]
    [ "$(wc -l <<<"$output")" = 2 ] # and no plan
    two() { # OPTION OPTION [PROGRAM]: of rank 0 and of rank 1
        local common=(train tiny.conf --dataset="$data" --out_dir=run)
        mpirun -n 1 "$BIN/trainer" "${common[@]}" "$1" : -n 1 "${3:-$BIN/trainer}" "${common[@]}" "$2"
    }
    run_match 2 "rank 1: this process has n_layer=2, rank 0 has n_layer=1" two --n_layer=1 --n_layer=2
    run_match 2 "rank 1: this process has zero_stage=1, rank 0 has zero_stage=0" two --zero_stage=0 --zero_stage=1
    run_match 2 "rank 1: this process has dataset='${data}2', rank 0, whose loader it would use, has dataset='$data'" two --max_iters=6 --dataset="${data}2"
    run_match 2 "rank 1: this process has loader='ipc://one', rank 0" two --max_iters=6 --loader=ipc://one
    "$BIN/loader" serve "$data" --endpoint ipc://one 2>>log 3>&- & LOADER=$!
    "$BIN/loader" serve "${data}2" --endpoint ipc://two 2>>log 3>&- & TRAINER=$!
    run_code 2 mpirun -n 1 "$BIN/trainer" train tiny.conf --loader=ipc://one --out_dir=run : \
        -n 1 "$BIN/trainer" train tiny.conf --loader=ipc://two --out_dir=run
    [[ "$output" == *"rank 1: this process has dataset 'data2' ("*"), rank 0 has dataset 'data' ("* ]]
    mkdir bin lib && cp "$BIN/loader" bin && cp -r "$BIN/../lib/millrace" lib
    version=$("$BIN/trainer" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+[^ ]*' | head -1)
    sed "s/$version/9${version:1}/g" "$BIN/trainer" >bin/trainer && chmod +x bin/trainer
    run_match 2 "rank 1 runs millrace 9${version:1}, rank 0 runs millrace $version" two --n_layer=1 --n_layer=1 "$PWD/bin/trainer"
    cp "$BIN/trainer" bin && mkdir libexec && mv lib/millrace libexec # as in a wheel
    mpirun -n 2 bin/trainer train tiny.conf --dataset="$data" --out_dir=run --max_iters=1 --quiet
    rm libexec/millrace/mpi.so
    run_match 2 "mpirun started 2 processes, and *lib/millrace/mpi.so' is missing" mpirun -n 2 bin/trainer train tiny.conf --dataset="$data" --out_dir=run
}
