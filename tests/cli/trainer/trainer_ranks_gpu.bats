# Training with several processes on GPUs: the trainer on the emulated CUDA backend, with a stand-in for NCCL that ends a
# run which uses it wrongly (tests/cuda/emulator/nccl.cc, device.cc).
# bats file_tags=ci
load ../helpers
load ../ranks

setup_file() { make_character_data; }

setup() {
    setup_ranks
    PROGRAM=$BIN/../emulated/trainer
    [ -x "$PROGRAM" ] || skip "built without nvcc"
    ln -sf ../bin/loader "$(dirname "$PROGRAM")/loader"
    make_emulated_conf
    export PROGRAM
}

gpus() { ranks "$1" --device=cuda "${@:2}"; }

@test "2 processes on emulated GPUs have the same bits in four orders of streams, and with gradients of half the bytes" {
    for order in 0 1 2 3; do
        EMU_ORDER=$order gpus 2 --out_dir=two$order --eval_interval=2 --eval_iters=1 2>stderr
        same_run two0 two$order 2
    done
    grep -q "NCCL 2.27.3 joins 2 GPUs" stderr
    gpus 2 --out_dir=half --reduce_dtype=bfloat16
    half_sent two0 half $((6 * 8192)) # of 103232, rank 1 has as many whole pieces of the norm as rank 0
    for n in 1 3; do gpus $n --out_dir=uneven$n --data_timeout=20 --reduce_order=fast --gradient_accumulation_steps=5; done # the last process has one
    close_losses uneven1 uneven3
    ranks 2 --out_dir=cpu --device=cpu --dtype=float32
    join <(sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.]+).*/\1 \2/p' cpu/metrics.jsonl) \
        <(sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.]+).*/\1 \2/p' two0/metrics.jsonl) |
        awk '{ off = $2 / $3 - 1 } off > 0.004 || off < -0.004 { print; bad = 1 } END { exit bad || NR != 2 }'
}

@test "1, 2 and 4 emulated GPUs give the same bits in a fixed order, in four orders of streams" {
    fixed() { gpus "$1" --reduce_order=fixed --gradient_accumulation_steps=5 "${@:2}"; }
    fixed 1 --out_dir=one
    for order in 0 3; do
        EMU_ORDER=$order fixed 2 --out_dir=two$order
        same_run one two$order 2
    done
    EMU_ORDER=1 fixed 4 --out_dir=four
    same_run one four 2
    EMU_ORDER=2 fixed 2 --out_dir=whole --zero_stage=0
    same_run one whole 2
    for options in "--n_embd=32 --offload=optimizer" "--optimizer_state=bf16_sr --spike_action=skip --dtype=float16 --recheck_interval=1"; do
        rm -rf one two
        # shellcheck disable=SC2086
        { fixed 1 --out_dir=one $options && fixed 2 --out_dir=two $options; }
        same_run one two 2
    done
    rm -r one
    fixed 1 --out_dir=one --n_layer=4 --offload=all --reduce_dtype=bfloat16
    fixed 2 --out_dir=layers4 --n_layer=4 --reduce_dtype=bfloat16
    same_run one layers4 2
}

@test "shares of GPUs that are cut short, and a state that is not divided, change no bit" {
    for options in "--n_embd=32 --offload=optimizer" "--optimizer_state=bf16_sr --spike_action=skip --dtype=float16 --reduce_dtype=bfloat16"; do
        rm -rf divided whole
        # shellcheck disable=SC2086
        gpus 2 --out_dir=divided $options 2>stderr
        # shellcheck disable=SC2086
        EMU_ORDER=3 gpus 2 --out_dir=whole --zero_stage=0 $options
        same_run divided whole 2
    done
}

@test "plan prints the memory of each process on a GPU, which the run then has" {
    for n in 1 2; do
        "$PROGRAM" plan tiny.conf --device=cuda --dataset="$data" --world=$n >plan$n
        gpus $n --out_dir=run$n --max_iters=1 2>stderr
        [ "$(sed -nE 's/^  arena +[0-9]+ +([0-9.]+ [A-Za-z]+).*/\1/p' plan$n)" = "$(sed -nE 's/.* ([0-9.]+ [KMG]?i?B) arena.*/\1/p' stderr)" ]
    done
    [ "$(sed -nE 's/^  arena +([0-9]+) .*/\1/p' plan2)" -lt "$(sed -nE 's/^  arena +([0-9]+) .*/\1/p' plan1)" ]
}

@test "a checkpoint of GPUs does not depend on the number of processes: 2, 1 and 2 in turn" {
    gpus 1 --out_dir=whole --print_ranks --max_iters=3 2>all
    for part in 2:1 1:2 2:3; do
        gpus ${part%:*} --out_dir=run --print_ranks --max_iters=${part#*:} 2>>parts
    done
    diff <(samples all) <(samples parts)
    close_losses whole run
}

@test "several processes on GPUs are refused without NCCL, with an old one, and with one GPU for two" {
    EMU_NCCL=none run_code 80 gpus 2 --out_dir=run
    [[ "$output" == *"several processes on GPUs need NCCL: cannot load it (libnccl.so.missing"* ]]
    [[ "$output" == *"set LD_LIBRARY_PATH to the folder of libnccl.so.2"* ]]
    EMU_NCCL=21304 run_code 80 gpus 2 --out_dir=run
    [[ "$output" == *"libnccl.so.2 is version 2.13.4 of NCCL, 2.14 or later is needed"* ]]
    EMU_CARD=7 run_code 2 gpus 2 --out_dir=run
    [[ "$output" == *"ranks 0 and 1 have the same GPU: start one process for each GPU of a machine"* ]]
    EMU_NCCL_FAILS=1 run_code 80 gpus 2 --out_dir=run
    [[ "$output" == *"joining the GPUs of all processes: NCCL reports: an emulated error"* ]]
    run_code 2 mpirun -n 1 "$PROGRAM" train tiny.conf --dataset="$data" --out_dir=run --device=cuda : \
        -n 1 "$PROGRAM" train tiny.conf --dataset="$data" --out_dir=run --device=cpu
    [[ "$output" == *"rank 1 trains on the CPU, rank 0 on a GPU: set device=cuda or device=cpu"* ]]
    [ ! -e run/metrics.jsonl ]
}

kill_and_resume() { # OPTION...
    launch 2 --device=cuda "${often[@]}" "$@"
    wait_for_checkpoint run
    wait_for_more_steps run
    kill -9 "$(cat pid.1)"
    wait_until is_gone "$TRAINER"
    [ "$(cat status.0 status.1)" = $'75\n137' ]
    grep -qE "rank 1 \(process [0-9]+\) has ended" stderr
    step=$(sed -nE 's/.*lost with its process: run the same command again to resume at step ([0-9]+), .*/\1/p' stderr)
    [ -d "$(checkpoint run "$step")" ]
    gpus 2 "${often[@]}" --out_dir=run --max_iters=$((step + 1)) 2>stderr
    grep -q "resuming at step $step" stderr
}

@test "when a process of a GPU is killed the other ends with 75 and resumes at the last checkpoint" {
    kill_and_resume
}

@test "when a process of a GPU is killed that has all state the other ends with 75 and resumes at the last checkpoint" {
    kill_and_resume --zero_stage=0
}

hang_rank_1() { # OPTION...
    printf '#!/bin/sh\nEMU_HANG=hang.$OMPI_COMM_WORLD_RANK exec %s "$@"\n' "$PROGRAM" >program && chmod +x program
    PROGRAM=$PWD/program launch 2 --device=cuda "${often[@]}" "$@"
    wait_for_checkpoint run
    wait_for_more_steps run
    touch hang.1
    wait_until is_gone "$TRAINER"
}

# fault 63
@test "when the GPU of a process hangs it ends with 80, the other one with 75" {
    hang_rank_1 --device_timeout=2
    [ "$(cat status.0 status.1)" = $'75\n80' ]
    grep -q 'the GPU has not finished for [23] s' stderr
    grep -qE "rank 1 \(process [0-9]+\) has ended" stderr
}

@test "a process that gives up the others while its own GPU hangs ends with 80, whatever device_timeout is" {
    hang_rank_1 --device_timeout=0 --data_timeout=2
    [ "$(cat status.1)" = 80 ]
    grep -q 'computing before an exchange with other GPUs: the GPU has not finished for' stderr
}

@test "a process whose GPU waits for another process, which stopped between two exchanges, ends with 75" {
    rank_1_stops
    [ "$(cat status.0)" = 75 ]
    not grep -q 'the GPU has not finished' stderr
    grep -q 'rank 1' stderr
}
