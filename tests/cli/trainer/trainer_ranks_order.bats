# reduce_order = fixed: the number of processes changes no bit of losses, norms, weights and optimizer state.
load ../helpers
load ../ranks

setup() {
    setup_ranks
    # 10 micro-batches divide by 1 and 2 alone: of 3, 4 and 8 processes some have one more than others
    sed -i -E 's/^(gradient_accumulation_steps =).*/\1 10/; s/^n_layer =.*/n_layer = 2/; s/^max_iters =.*/max_iters = 3/' tiny.conf
    echo "reduce_order = 'fixed'" >>tiny.conf
}

same_bits() { # COUNT...: as one process
    ranks 1 --out_dir=one --print_ranks 2>all1
    [ "$(grep -c '"norm"' one/metrics.jsonl)" = 3 ]
    for n in "$@"; do
        ranks $n --out_dir=run$n --print_ranks 2>all$n
        same_run one run$n 3
        diff <(samples all1) <(samples all$n)
    done
}

@test "1 and 3 processes give the same bits, divided or not" {
    same_bits 3
    ranks 2 --out_dir=whole --zero_stage=0
    same_run one whole 3
    # with reduce_order=fast their sums differ, or the test would show nothing
    for n in 1 3; do ranks $n --out_dir=fast$n --reduce_order=fast; done
    close_losses fast1 fast3
    for other in fast3 one; do
        run_code 1 cmp fast1/ckpt-00000003/model.safetensors $other/ckpt-00000003/model.safetensors
    done
}

@test "averaged weights, and their losses, have the same bits in 1 and 3 processes" {
    sed -i 's/^eval_interval =.*/eval_interval = 1/' tiny.conf
    echo "ema = 0.9" >>tiny.conf
    same_bits 3
    diff <(grep ema_val_loss one/metrics.jsonl) <(grep ema_val_loss run3/metrics.jsonl)
    [ "$(grep -c ema_val_loss one/metrics.jsonl)" = 3 ]
}

@test "1, 2, 3 and 4 processes, and any threads, write the same grades" {
    make_items 40 items
    sed -i 's/\["a", " stone"\]/["a mill 1", " a"], ["a mill 1", " be"]/' items # texts that are computed together
    for n in 1 2 3 4; do
        ranks $n --out_dir=run --items=items --items_interval=2 --threads=$((n % 2 + 1)) 2>stderr
        mv run run$n
        for step in 2 3; do cmp run{1,$n}/items-0000000$step.jsonl; done
        diff <(grep '"items_acc' run1/metrics.jsonl) <(grep '"items_acc' run$n/metrics.jsonl)
    done
    [ "$(cat run4/items* | wc -l)" = 82 ]
}

# bats test_tags=ci
@test "1, 2, 4, 8 and 10 processes give the same bits, divided or not, with any number of threads" {
    same_bits 2 4 8 10
    ranks 8 --out_dir=whole --zero_stage=0
    same_run one whole 3
    ranks 2 --out_dir=threads --threads=3
    same_run one threads 3
}

# bats test_tags=ci
@test "processes give the same bits with every offload, type, optimizer and check" {
    for options in "--offload=optimizer --n_layer=5 --recheck_interval=1" "--optimizer=muon --dtype=bfloat16" \
        "--optimizer_state=bf16_sr --spike_action=skip --dtype=float16" "--gradient_accumulation_steps=4 --recheck_interval=2"; do
        rm -rf one four
        # shellcheck disable=SC2086
        { ranks 1 --out_dir=one $options && ranks 4 --out_dir=four $options; } 2>stderr
        same_run one four 3
    done
    ranks 4 --out_dir=four5 --n_layer=5 --zero_stage=0
    for mode in none optimizer all; do
        ranks 1 --out_dir=run --fresh --n_layer=5 --offload=$mode
        same_run four5 run 3
    done
}

# bats test_tags=ci
@test "with operands in bfloat16 a process sends half of the bytes, and the bits are those of one process" {
    for n in 1 3; do ranks $n --out_dir=run$n --reduce_dtype=bfloat16; done
    same_run run1 run3 3
    ranks 3 --out_dir=float
    half_sent float run3 $((4 * (8768 - 8192))) # in each of 4 rounds all but its own piece of the norm
    # Rounding moves an operand by at most 2^-9 of its length. Ten operands of independent directions have sqrt(10) times the length of their
    # sum, which thus moves by less than 2^-7; so does, to first order, what the updates change the loss by.
    join <(numbers float) <(numbers run1) | awk 'function far(a, b, most) { return a - b > most || b - a > most }
        NR == 1 { first = $2 }
        far($2, $4, (first > $2 ? first - $2 : $2 - first) / 128) || far($3, $5, $3 / 128) || $3 == $5 { print; bad = 1 } END { exit bad || NR != 3 }'
    # one micro-batch of each process: both orders are one. In float32 `fixed` has other products, too.
    for order in fixed fast; do ranks 3 --out_dir=$order --dtype=bfloat16 --reduce_dtype=bfloat16 --gradient_accumulation_steps=3 --reduce_order=$order; done
    cmp {fixed,fast}/ckpt-00000003/model.safetensors
}

# bats test_tags=ci
@test "a run of 4, 2, 8 and 1 processes in turn, each of which is killed, equals an undisturbed run of one" {
    for n in 4 2 8 1; do
        launch $n "${often[@]}"
        wait_for_checkpoint run
        wait_for_more_steps run 7
        kill -9 "$(cat pid.$((n - 1)))"
        wait_until is_gone "$TRAINER"
    done
    end=$(($(steps run) + 3))
    ranks 1 "${often[@]}" --out_dir=run --max_iters=$end
    ranks 1 "${often[@]}" --out_dir=whole --max_iters=$end
    [ "$end" -gt 28 ]
    same_run whole run $end
}

@test "plan prints the order and its cost, and auto is what costs at most 2 %" {
    "$BIN/trainer" plan tiny.conf >plan1
    grep -q '^order      fixed: 10 micro-batches, one after another, 1 at a time: the same bits for 1 to 10 processes, and on any processor; predicted time +' plan1
    grep -q '^  gradients of a micro-batch  ' plan1
    "$BIN/trainer" plan tiny.conf --world=4 >plan4
    grep -q '^processes  4, each with at most 3 of the 10 micro-batches and its part' plan4
    grep -q '^order      fixed: 10 micro-batches, one after another, 4 at a time' plan4
    grep -q '^  sums of gradients  ' plan4
    "$BIN/trainer" plan tiny.conf --reduce_order=auto >plan
    grep -qE '^order      fast: the bits depend on the processor and the number of processes \(fixed: predicted time \+[0-9.]+ %\)' plan
    "$BIN/trainer" plan tiny.conf --reduce_order=auto --dtype=bfloat16 >plan
    grep -qE '^order      fast: the bits depend on the number of processes \(fixed: predicted time \+[0-9.]+ %\)' plan
    "$BIN/trainer" plan tiny.conf --reduce_order=auto --dtype=bfloat16 --batch_size=64 >plan
    grep -q '^order      fixed: ' plan
    run_match 2 "gradient_accumulation_steps 10 is less than the 11 processes" "$BIN/trainer" plan tiny.conf --world=11
}

@test "the checkpoint keeps the order, and a run of an earlier version keeps its own with a sentence" {
    ranks 2 --out_dir=run --max_iters=2
    ranks 1 --out_dir=run --reduce_order=auto 2>stderr
    [ "$(grep -c 'reduce_order is now' stderr)" = 0 ]
    ranks 4 --out_dir=run --reduce_order=fast --reduce_dtype=bfloat16 --max_iters=4 2>stderr
    grep -q 'reduce_order is now fast, was fixed until step 3' stderr
    grep -q 'reduce_dtype is now bfloat16, was float32 until step 3' stderr
    for i in $(seq 300); do echo "abc dad cab bad $((i % 7)) "; done >t.txt
    printf 'abcd 0123456\n' >chars.txt
    "$BIN/shardtool" tokenize -q --vocabulary chars.txt --docs lines --val 0.2 -o lines t.txt
    rm -r run && tar xf "$DATA/run_0.1.0.tar.gz"
    old=(train --out_dir=run --dataset=lines --n_layer=1 --n_head=1 --n_embd=16 --block_size=8 --batch_size=2
        --gradient_accumulation_steps=2 --warmup_iters=1 --eval_interval=0 --device=cpu --dtype=float32 --sample_tokens=0)
    run_match 0 "*reduce_order = fast: the run in 'run' began with a version that had no other order*" "$BIN/trainer" "${old[@]}" --max_iters=5
    grep -q '"reduce_order": "fast"' run/ckpt-00000005/state.json
    run_code 0 "$BIN/trainer" "${old[@]}" --max_iters=6
    [[ "$output" != *reduce_order* ]]
    run_match 0 "*reduce_order is now fixed, was fast until step 6*" "$BIN/trainer" "${old[@]}" --max_iters=7 --reduce_order=fixed
}

@test "a replay refuses the steps of several processes with reduce_order=fast, 2, and computes those of one" {
    ranks 1 --quiet --out_dir=run --reduce_order=fast --max_iters=3
    ranks 2 --quiet --out_dir=run --reduce_order=fast --max_iters=6
    message="a run with reduce_order=fast and 2 processes cannot be recomputed bit for bit by one process: use reduce_order=fixed where a replay is wanted"
    run_match 2 "$message" "$BIN/trainer" replay run
    run_match 2 "$message" "$BIN/trainer" replay run --steps=4..6
    run_match 0 "steps 1 to 3 are equal" "$BIN/trainer" replay run --steps=1..3
    ranks 2 --quiet --out_dir=fixed --reduce_order=fixed --max_iters=6 --reduce_dtype=bfloat16
    run_match 0 "steps 1 to 6 are equal" "$BIN/trainer" replay fixed
}
