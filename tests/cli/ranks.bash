# Shared by the tests of training with several processes: mpirun, as Debian has it, with as many ranks as a test needs,
# whatever the cores.

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 3000 0.1 --vocabulary ascii
    make_other_data 2000 --vocabulary ascii
}

setup() { setup_ranks; }
setup_ranks() {
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    [ -e "$BIN/../lib/millrace/mpi.so" ] || skip "built without MPI"
    # as root, more ranks than cores, no ptrace in containers
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
    setup_training
    sed -i -E 's/^(gradient_accumulation_steps =).*/\1 4/; s/^(eval_interval|sample_tokens) =.*/\1 = 0/; s/^max_iters =.*/max_iters = 6/' tiny.conf
    echo 'dropout = 0.1' >>tiny.conf
}

ranks() { # COUNT OPTION...
    mpirun -n "$1" "${PROGRAM:-$BIN/trainer}" train tiny.conf --dataset="$data" "${@:2}"
}

# launch COUNT OPTION...: an endless run in the background; pid.N and status.N are those of rank N.
launch() {
    cat >rank.sh <<'END'
"${PROGRAM:-$BIN/trainer}" train tiny.conf "$@" &
echo $! >pid.$OMPI_COMM_WORLD_RANK
status=0
wait $! || status=$?
echo $status >status.$OMPI_COMM_WORLD_RANK
# mpirun would kill the others a second after the first end: here they have as long as they need
until [ "$(ls status.* | wc -l)" = "$OMPI_COMM_WORLD_SIZE" ]; do sleep 0.05; done
END
    rm -f status.*
    mpirun -n "$1" bash rank.sh --dataset="$data" --out_dir=run "${endless[@]}" "${@:2}" \
        >stdout 2>stderr 3>&- &
    TRAINER=$!
}

samples() { sed -nE 's/.*: (step [0-9]+: samples .*)/\1/p' "$@" | sort -V | uniq; }
numbers() { # RUN: of each step its loss and its norm
    sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.]+), "norm": ([0-9.]+).*/\1 \2 \3/p' "$1/metrics.jsonl" | sort -u
}
close_losses() { # RUN RUN: the same steps, with losses and norms within 1e-6
    join <(numbers "$1") <(numbers "$2") |
        awk -v steps="$(steps "$1")" 'function far(a, b) { return a - b > 1e-6 || b - a > 1e-6 }
            far($2, $4) || far($3, $5) { print; bad = 1 } END { exit bad || NR != steps }'
}

# half_sent FLOAT BF16 COUNT: in each step rank 0 sends COUNT gradients, in bfloat16 in half of the bytes.
half_sent() {
    paste <(sed -nE 's/.*"sent": ([0-9]+).*/\1/p' "$1/metrics.jsonl") <(sed -nE 's/.*"sent": ([0-9]+).*/\1/p' "$2/metrics.jsonl") |
        awk -v count="$3" '$1 - $2 != 2 * count { print; bad = 1 } END { exit bad || !NR }'
}

# For the emulated CUDA backend, which is slow: the dataset `data` of few characters, and a model whose shares of two ranks are equal.
make_character_data() {
    cd "$BATS_FILE_TMPDIR" || exit
    seq 1 300 | sed 's/.*/line & of mills/' >text.txt
    "$BIN/shardtool" train-vocabulary --characters text.txt >characters
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.2 --vocabulary characters -o data text.txt
}
make_emulated_conf() {
    sed -i -E "s/^n_layer =.*/n_layer = 2/; s/^n_embd =.*/n_embd = 64/; s/^block_size =.*/block_size = 8/; s/^batch_size =.*/batch_size = 1/; s/^max_iters =.*/max_iters = 2/; s/^dtype =.*/dtype = 'auto'/" tiny.conf
}

# For one process on the emulated backend: a folder of the test's own, with tiny.conf and the programs.
enter_emulated() {
    [ -x "$BIN/../emulated/trainer" ] || skip "built without nvcc"
    enter_test
    mkdir programs && cp "$BIN/../emulated/trainer" "$BIN/loader" programs/
    BIN=programs
    write_tiny_conf tiny.conf
    make_emulated_conf
}

# rank_1_stops: two processes on emulated GPUs, and rank 1 stops between the exchanges of a step. status.0 is that of the other one.
rank_1_stops() {
    printf '#!/bin/sh\nEMU_NCCL_STOP=stop.$OMPI_COMM_WORLD_RANK exec %s "$@"\n' "$PROGRAM" >program && chmod +x program
    PROGRAM=$PWD/program launch 2 --device=cuda "${often[@]}" --data_timeout=2 --reduce_order=fast # which reduces by NCCL
    wait_for_checkpoint run
    touch stop.1
    wait_until test -e status.0
    kill -9 "$(cat pid.1)"
    wait_until is_gone "$TRAINER"
}
