# The memory plan, and how long a run takes.
load ../helpers

setup_file() { cd "$BATS_FILE_TMPDIR" && make_data 6000 0.1; }

# bats test_tags=ci
@test "plan ends as train does with a dataset that cannot be trained on" {
    "$BIN/shardtool" tokenize --quiet --val 0 -o noval "$BATS_FILE_TMPDIR/docs/part-aa"
    "$BIN/shardtool" tokenize --quiet --val 0.5 -o damaged "$BATS_FILE_TMPDIR/docs/part-aa" "$BATS_FILE_TMPDIR/docs/part-ab"
    sed -i 's/"tokens":1/"tokens":2/' damaged/dataset.jsonl
    seq 400 | sed 's/.*/& lines/' >text.txt
    "$BIN/shardtool" train-vocabulary --characters text.txt >abc
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.5 -o chars --vocabulary abc text.txt
    tr 'lines' 'LINES' <text.txt >upper.txt
    "$BIN/shardtool" train-vocabulary --characters upper.txt >upper
    (cat text.txt && echo X) | "$BIN/shardtool" train-vocabulary --characters >more
    ends() { # CODE WORDS OPTION...: of both, the same sentence
        run_match "$1" "$2" "$BIN/trainer" train tiny.conf --out_dir=run "${@:3}"
        local last=${lines[-1]#trainer train: }
        run_match "$1" "$2" "$BIN/trainer" plan tiny.conf --out_dir=run "${@:3}"
        grep -qxF "trainer plan: $last" <<<"$output"
    }
    ends 2 "the validation data of 'noval' has 0 tokens" --dataset=noval
    ends 2 "the training data of 'noval' has" --dataset=noval --block_size=60000 --eval_interval=0
    ends 76 "the dataset 'chars' has a vocabulary of 18 ids, and the model one of 19" --dataset=chars --vocabulary=more
    ends 76 "the dataset 'chars' has another vocabulary than 'upper', of as many ids" --dataset=chars --vocabulary=upper
    ends 65 "damaged" --dataset=damaged
    mkdir texts
    for name in nowhere texts; do ends 66 "'$name' is not a dataset directory: create one with" --dataset=$name; done
    [ ! -e run/metrics.jsonl ]
    run_match 0 "arena" "$BIN/trainer" plan tiny.conf --dataset=noval --eval_interval=0
    run_match 0 "arena" "$BIN/trainer" plan tiny.conf
}

# fault 58
@test "a plan that does not fit is an error before anything is allocated, 82, and a plan that fits is suggested" {
    run_code 82 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --batch_size=64 --block_size=256 --gradient_accumulation_steps=1 --mem_limit=200MiB
    [ ! -e run ]
    [[ "$output" != *"for 200.0 MiB: batch_size"* ]] # no choice is printed where none fits
    [[ "$output" =~ (--batch_size=[0-9]+)\ (--gradient_accumulation_steps=[0-9]+) ]]
    run_match 0 "arena*spare" "$BIN/trainer" plan tiny.conf "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" --block_size=256 --mem_limit=200MiB
}

@test "plan names the level of recompute that the memory has room for" {
    run_match 0 "has room for --recompute=none, whose steps are predicted to take " "$BIN/trainer" plan tiny.conf --device=cpu --mem_limit=1GiB --grad_checkpoint=True
    run_code 0 "$BIN/trainer" plan tiny.conf --device=cpu --mem_limit=1GiB
    [[ "$output" != *"has room for"* ]]
    run_code 0 "$BIN/trainer" plan tiny.conf --device=cpu --grad_checkpoint=True
    [[ "$output" != *"has room for"* ]]
}

@test "plan has one form of units: bytes and multiples of 1024; --json has the same bytes" {
    "$BIN/trainer" plan tiny.conf --device=cpu --mem_limit=1GiB --offload=optimizer >output
    grep -q '^  buffer  *bytes  *size$' output
    grep -q 'arena  largest batch_size in mem_limit, in sequences, by optimizer_state$' output
    not grep -E '[0-9] ?[KMGT]B' output
    "$BIN/trainer" plan tiny.conf --device=cpu --mem_limit=1GiB --offload=optimizer --json >json
    [ "$(jq '.arena_bytes' json)" = "$(awk '$1 == "arena" { print $2; exit }' output)" ] && [ "$(jq .fits json)" = true ]
}

# bats test_tags=ci
@test "plan prints the hours of a run: by a probe of the CPU, by the run in out_dir, or for given rates" {
    run "$BIN/trainer" plan tiny.conf --device=cpu --max_iters=100000000
    # steps of 2 * 2 * 16 tokens; 6 * (all parameters but the positions) + 12 L C T operations a token
    flops=$(python3 -c "V, C, T = 50257, 16, 16; print(f'{1e8 * 64 * (6 * (V * C + 12 * C * C + 5 * C) + 12 * C * T):.3g}')")
    [[ "$output" == *"run        100000000 steps, 6.40 G tokens, ${flops} FLOP: at least "*" TFLOP/s of matrix products alone in a short probe"* ]]
    declare -A unit=([h]=3600 [days]=86400) # by the speed of this machine
    [[ "$output" =~ "at least "([0-9.]+)" "(h|days)", at the "([0-9.]+)" TFLOP/s" ]]
    python3 -c "assert abs($flops / ${BASH_REMATCH[3]}e12 / ${unit[${BASH_REMATCH[2]}]} / ${BASH_REMATCH[1]} - 1) < 0.02"
    run "$BIN/trainer" plan tiny.conf --device=cpu --max_iters=100000000 --gradient_accumulation_steps=4 --world=4 # twice the tokens
    [[ "$output" =~ "at least "([0-9.]+)" "(h|days)", with 4 processes, at the "([0-9.]+)" TFLOP/s of matrix products alone in a short probe of one" ]]
    python3 -c "assert abs(2 * $flops / 4 / ${BASH_REMATCH[3]}e12 / ${unit[${BASH_REMATCH[2]}]} / ${BASH_REMATCH[1]} - 1) < 0.02"
    mkdir out
    echo '{"step": 7, "loss": 10.5, "norm": 1, "lr": 0.001, "ms": 100, "tok_s": 1000, "wait": 0}' >out/metrics.jsonl
    run "$BIN/trainer" plan tiny.conf --device=cpu --max_iters=100000000
    [[ "$output" == *"74 days at 1000 tok/s, the median of the last steps, up to 7, of the run in 'out'"* ]]
    { for i in 1 2 3 4 5 6 7 8 9; do echo "{\"step\": $i, \"loss\": 1, \"tok_s\": ${i}00}"; done; } >out/metrics.jsonl
    run "$BIN/trainer" plan tiny.conf --device=cpu --max_iters=100
    [[ "$output" == *" at least "*" s, at the "*"13 s at 500 tok/s, the median of the last steps, up to 9,"* ]]
    train --out_dir=small --quiet --max_iters=4 --eval_interval=4
    run "$BIN/trainer" plan tiny.conf --device=cpu --out_dir=small
    [[ "$output" == *" tok/s, the median of the last steps, up to 4, of the run in 'small'"* ]]
    run "$BIN/trainer" plan tiny.conf --device=cpu --out_dir=small --n_embd=32
    [[ "$output" == *"(the run in 'small' is of another model: its speed is not shown)"* && "$output" != *" tok/s"* ]]
    run "$BIN/trainer" plan tiny.conf --device=cuda --dtype=bfloat16 --n_embd=64 --mem_limit=10GiB
    [[ "$output" == *" at 10 TFLOP/s, "*" at 100 TFLOP/s (the device was not measured)"* ]]
}

# bats test_tags=ci
@test "before its first step a run prints the times of an evaluation, until a checkpoint and to its end; a short one does not" {
    train --out_dir=short >output 2>&1
    not grep -q "this takes about" output
    begins() { # OPTION...: the line with the times, of a run that is then ended
        rm -f output
        "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run "${endless[@]}" "$@" >output 2>&1 3>&- &
        TRAINER=$!
        wait_until grep -qs "^step .*[0-9]/" output
        kill "$TRAINER"
        ends 75
        awk '/this takes about/ { print; exit } /^step / { exit 1 }' output # before the first line of a step
    }
    time='[0-9.]+ (s|min|h|days|years)'
    begins | grep -qE "this takes about: an evaluation $time \(eval_tokens\), until the end of the next $time \(eval_interval\), the run $time \(max_iters\); by a forward pass, without data and optimizer$"
    begins --max_iters=1000000000000 | grep -qE "the run [0-9.e+]+ years"
}

# bats test_tags=ci
@test "tokens_per_step sets the micro-batches, and batch_size=auto without a number is an error" {
    run "$BIN/trainer" plan --device=cpu --n_layer=1 --tokens_per_step=524288 --batch_size=16
    [[ "$output" == *"16 x 32 sequences of 1024 tokens = 524288 tokens"* ]]
    run "$BIN/trainer" plan --device=cpu --n_layer=1 --tokens_per_step=524288 --batch_size=auto
    [[ "$output" == *" = 524288 tokens"* ]]
    run_code 2 "$BIN/trainer" plan --device=cpu --n_layer=1 --tokens_per_step=500000 --batch_size=16
    [[ "$output" == *"'tokens_per_step' 500000 is not a multiple of batch_size * block_size = 16384: the nearest is 507904"* ]]
    run_code 2 "$BIN/trainer" plan --device=cpu --n_layer=1 --batch_size=auto --gradient_accumulation_steps=64
    [[ "$output" == *"'batch_size' is auto, and the size of a step is not known"* ]]
    run_code 0 "$BIN/trainer" plan --device=cpu --n_layer=1 --batch_size=16 --batch_size=auto --gradient_accumulation_steps=2
}

@test "plan has the memory of a run that goes on in out_dir, with its types, order and levels" {
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=1 --eval_interval=0 --sample_tokens=0 --dtype=float32 \
        --reduce_order=fixed --recompute=block --loss_chunk_rows=16
    options=(tiny.conf --dataset="$data" --out_dir=run --max_iters=2 --eval_interval=0 --sample_tokens=0 --dtype=auto)
    "$BIN/trainer" plan "${options[@]}" >plan 2>log
    grep -q "the run in 'run' goes on at step 1: keys that are auto have its values" log
    "$BIN/trainer" plan "${options[@]}" --out_dir=new >other
    "$BIN/trainer" train "${options[@]}" 2>stderr
    arena() { sed -nE 's/^  arena +[0-9]+ +//p' "$1"; }
    [ "$(arena plan)" = "$(sed -nE 's/.* ([0-9.]+ [KMG]?i?B) arena.*/\1/p' stderr)" ]
    [ "$(grep "^  arena" plan)" != "$(grep "^  arena" other)" ]
}

# bats test_tags=ci
@test "batch_size=auto leaves each process a micro-batch, and a step of less sequences than processes is refused" {
    step() { "$BIN/trainer" plan --device=cpu --n_layer=1 --block_size=32 --batch_size="$1" --batch_size=auto --gradient_accumulation_steps="$2" "${@:3}"; }
    run_code 0 step 2 1 --world=2
    [[ "$output" == *"1 x 2 sequences of 32 tokens = 64 tokens"* ]]
    run_code 0 step 12 1 --world=4
    [[ "$output" == *"3 x 4 sequences of 32 tokens = 384 tokens"* ]]
    run_code 0 "$BIN/trainer" plan --device=cpu --n_layer=1 --block_size=32 --tokens_per_step=256 --batch_size=auto --world=2
    [[ "$output" == *" = 256 tokens"* ]]
    for limit in "" --mem_limit=1GiB; do
        # shellcheck disable=SC2086
        run_code 2 step 3 1 --world=4 $limit
        [[ "$output" == *"gradient_accumulation_steps 3 is less than the 4 processes: each needs a micro-batch"* ]]
    done
}

# fault 58
@test "plan for a GPU that is not present: the table, and 83 with settings that fit and keep the step" {
    card=(plan --device=cuda --mem_limit=11.3GiB --batch_size=64 --gradient_accumulation_steps=8)
    run_match 83 "  block: whole blocks computed again" "$BIN/trainer" "${card[@]}" --recompute=none
    [[ "$output" == *"these fit: --batch_size=32 --gradient_accumulation_steps=16 ("* ]]
    [[ "$output" == *"; --recompute=mlp ("* ]]
    run_match 0 "64 x 8 sequences*recompute  mlp in 11 layers, norm in 1: saves * time +8.6 % (rates of an H200)" "$BIN/trainer" "${card[@]}"
    [[ "$output" == *"* mlp: and the input of GELU"* ]]
    run_code 83 "$BIN/trainer" "${card[@]}" --n_layer=48 --n_head=25 --n_embd=1600 --offload=none
    [[ "$output" == *"these fit: "*"--batch_size=8 --gradient_accumulation_steps=64 --offload=optimizer ("* ]]
    run_match 83 "no batch size fits" "$BIN/trainer" "${card[@]/11.3GiB/8GiB}" --n_layer=48 --n_head=25 --n_embd=1600
}

@test "plan for a card by its name: what it has for the arena, the hours of the run and the steps of four days" {
    model=(plan --n_layer=4 --n_head=4 --n_embd=256 --max_iters=20000)
    run_match 0 'GiB (estimated), another size: --card "RTX 4060 Ti 16GB"' "$BIN/trainer" "${model[@]}" --card "RTX 4060 Ti"
    run_code 0 "$BIN/trainer" "${model[@]}" --card "rtx 3060 12GB"
    [[ "$output" =~ "memory     "([0-9]+)" bytes".*"context    "([0-9]+)" bytes".*"reserve    "([0-9]+)" bytes".*"arena      at most "([0-9]+)" bytes" ]]
    [ $((BASH_REMATCH[1] - BASH_REMATCH[2] - BASH_REMATCH[3])) = "${BASH_REMATCH[4]}" ]
    [[ "$output" =~ ", "([0-9.e+]+)" FLOP: "([0-9.]+)" h to "([0-9.]+)" h, at 0.47 to 0.75 of the card's 26 TFLOP/s (an estimate,".*"in four days "([0-9.]+)" k to "([0-9.]+)" k steps" ]]
    python3 - "${BASH_REMATCH[@]:1}" <<'END'
import sys
flop, least, most, fewest, more = map(float, sys.argv[1:])
for share, hours, steps in (0.75, least, more), (0.47, most, fewest):
    expected = flop / (share * 26e12) / 3600
    assert abs(hours / expected - 1) < 0.01 and abs(steps * 1000 / (20000 * 96 / expected) - 1) < 0.01, sys.argv
END
    run_match 0 "cuda: planned for GTX 1660, not opened; float16*" "$BIN/trainer" "${model[@]}" --card "GTX 1660"
    run_match 0 " at 0.46 to 0.60 of the card's 989 TFLOP/s (measured on such a card)" "$BIN/trainer" "${model[@]}" --card H200
    run_match 0 " with 2 processes, at 0.47" "$BIN/trainer" "${model[@]}" --card "RTX 3060" --world=2
    run_match 0 " at 10 TFLOP/s" "$BIN/trainer" "${model[@]}" --card "RTX 3060" --dtype=float32 # the peak is of 16 bits
    # a mem_limit above the card's memory is not there, and the plan is that of the card
    run_code 0 "$BIN/trainer" "${model[@]}" --card "RTX 3060" --mem_limit=40GiB
    [[ "$output" =~ "at most "([0-9]+)" bytes".*"  arena "\ +([0-9]+)" ".*"  spare "\ +([0-9]+)" ".*"(of the card, which has less than mem_limit)" ]]
    [ "${BASH_REMATCH[3]}" = $((BASH_REMATCH[1] - BASH_REMATCH[2])) ]
    most=${BASH_REMATCH[1]} && table=$(sed -n '/largest batch_size in/,$p' <<<"$output")
    run_code 0 "$BIN/trainer" "${model[@]}" --card "RTX 3060" --mem_limit="$most"
    diff <(sed -n '/largest batch_size in/,$p' <<<"$output" | sed "s/mem_limit/the card's memory/") <(echo "$table")
    run_match 83 "the card's memory for it is 11.0 GiB; these fit: --batch_size=" "$BIN/trainer" "${model[@]}" --card "RTX 3060" --recompute=none --batch_size=400
    run_match 2 "bfloat16 needs 8.0: use dtype=float16" "$BIN/trainer" "${model[@]}" --card "GTX 1660" --dtype=bfloat16
    run_match 80 "'V100-SXM2' has compute capability 7.0, 7.5 is needed" "$BIN/trainer" "${model[@]}" --card "Tesla V100-SXM2-16GB"
    run_match 2 "'RTX 3060 Super' names no card that is known; near it: RTX 3060 Ti, RTX 3060 8GB, RTX 3060" "$BIN/trainer" "${model[@]}" --card "RTX 3060 Super"
    CUDA_VISIBLE_DEVICES= run_match 0 "no GPU is open, and --card names none, so the plan has rates of an H200"*"arena " "$BIN/trainer" "${model[@]}" --device=cuda
    run_match 2 "--card plans for a GPU, and device is cpu" "$BIN/trainer" "${model[@]}" --card "RTX 3060" --device=cpu
}

@test "the largest batch_size that a plan prints fits, and one more does not" {
    card=(plan --device=cuda --mem_limit=10.8GiB --gradient_accumulation_steps=1 --eval_batch_size=1 --offload=none --recompute=none)
    run "$BIN/trainer" "${card[@]}" --batch_size=12
    largest=$(grep -E '^. none: ' <<<"$output" | sed 's/.*iB *//' | awk '{print $1}')
    [ "$largest" -gt 12 ]
    "$BIN/trainer" "${card[@]}" --batch_size="$largest"
    run_code 83 "$BIN/trainer" "${card[@]}" --batch_size=$((largest + 1))
}

@test "the configurations for GPUs of 6 to 24 GB fit them, with half a million tokens in a step" {
    declare -A most=([6]=46 [8]=65 [12]=108 [16]=145 [24]=220) found=() # tenths of a GiB, beside context, libraries and a desktop
    for file in "$ROOT"/config/train_gpt2_*gb.conf; do
        size=${file##*_gpt2_} size=${size%%_*} card=${file##*_} card=${card%gb.conf} found[$card]=1
        run "$BIN/trainer" plan "$file" --device=cuda
        [ "$status" -eq 0 ] || { echo "$file: $output"; false; }
        [[ "$output" =~ "= "(491520|524288)" tokens".*"  arena ".*"  spare " ]]
        [[ "$output" =~ "  arena "\ +([0-9]+) && $((BASH_REMATCH[1] * 10)) -le $((most[$card] << 30)) ]]
        [[ $card == 24 || $size == 77m || $size == [13]??m || "$output" == *"optimizer state in host memory"* ]]
    done
    [ ${#found[@]} = 5 ]
}

# bats test_tags=ci
# fault 85
@test "a resumed run keeps the values chosen for batch_size and recompute" {
    sed -i 's/batch_size = 2/batch_size = 16/' tiny.conf
    card=(--batch_size=auto --eval_batch_size=1 --gradient_accumulation_steps=2 --block_size=64 --n_layer=4 --eval_iters=1)
    run_code 0 train --out_dir=run "${card[@]}" --mem_limit=80MiB --max_iters=2
    [[ "$output" =~ "for 80.0 MiB: batch_size "[0-9]+", gradient_accumulation_steps "[0-9]+", recompute "(none|gelu|norm|mlp|qkv|block) ]]
    chosen=$(grep -E '"(batch_size|recompute|recompute_layers|gradient_acc.*|eval_tokens)"' run/ckpt-00000002/state.json)
    [[ "$chosen" == *'"eval_tokens": "1024"'* ]]
    [[ "$chosen" != *auto* && "$chosen" != *'"batch_size": "16"'* ]]
    run_code 0 train --out_dir=run "${card[@]}" --mem_limit=2GiB --max_iters=4
    [[ "$output" != *"batch_size is now"* && "$output" != *"recompute is now"* ]]
    [ "$chosen" = "$(grep -E '"(batch_size|recompute|recompute_layers|gradient_acc.*|eval_tokens)"' run/ckpt-00000004/state.json)" ]
    run train --out_dir=run --batch_size=auto --gradient_accumulation_steps=1 --block_size=64 --n_layer=4 --eval_iters=1 --max_iters=5
    [[ "$output" == *"gradient_accumulation_steps is now 1"* ]] # a step of another size: chosen again
}

@test "a start with the settings that a refusal suggests has the size that it names" {
    suggested() { # OPTION...: of a plan that is refused
        run_code 82 "$BIN/trainer" plan tiny.conf "$@"
        sed -nE 's/.*these fit://p' <<<"$output" | tr ';' '\n' | sed -E 's/ \((.*)\)$/,\1/' >suggestions
        [ -s suggestions ]
        while IFS=, read -r settings size; do
            echo "suggested: $settings, $size"
            run_code 0 "$BIN/trainer" plan tiny.conf "$@" $settings
            [[ "$output" =~ "  arena "\ +[0-9]+\ +([0-9.]+ [KMG]iB) ]]
            [ "${BASH_REMATCH[1]}" = "$size" ]
        done <suggestions
    }
    # a step of one micro-batch has no other order of sums; of several, it is chosen again
    step=(--n_embd=64 --block_size=64 --batch_size=4 --gradient_accumulation_steps=1 --dtype=bfloat16)
    arena=$("$BIN/trainer" plan tiny.conf "${step[@]}" --batch_size=1 --gradient_accumulation_steps=4 --reduce_order=fast | sed -nE 's/^  arena +([0-9]+) .*/\1/p')
    suggested "${step[@]}" --mem_limit=$((arena + 1000000))
    grep -q -- "--batch_size=1 --gradient_accumulation_steps=4" suggestions
    suggested "${step[@]}" --mem_limit=$((arena - 1000000)) # by smaller chunks of logits
    grep -q -- "--loss_chunk_rows=16" suggestions
    suggested "${step[@]}" --mem_limit=$((arena + 1000000)) --recompute=none
    suggested "${step[@]}" --mem_limit=$((arena + 1000000)) --batch_size=2 --gradient_accumulation_steps=2 --reduce_order=fixed
    run_match 82 "and no batch size fits, even with recompute=block, half the block_size and loss_chunk_rows=16: take a smaller model" \
        "$BIN/trainer" plan tiny.conf "${step[@]}" --mem_limit=4MiB
}

@test "an evaluation that does not fit names the settings with which it does, and they do not change its loss" {
    train --quiet --out_dir=run --max_iters=2
    evaluate() { "$BIN/trainer" eval --dataset="$data" --device=cpu --out_dir=run --eval_tokens=2048 --threads=1 "$@"; }
    evaluate --eval_batch_size=64 >whole
    run_match 82 "and no batch size fits, even with loss_chunk_rows=16: take a smaller model" evaluate --eval_batch_size=1 --mem_limit=1MiB
    [[ "$output" =~ "the plan needs "([0-9.]+)" MiB" ]]
    limit=$(awk -v one="${BASH_REMATCH[1]}" 'BEGIN { print one + 1 }')MiB
    run_code 82 evaluate --eval_batch_size=64 --mem_limit="$limit"
    [[ "$output" =~ "these fit: "(--eval_batch_size=[0-9]+)" (" ]]
    evaluate --eval_batch_size=64 --mem_limit="$limit" "${BASH_REMATCH[1]}" >part
    cmp whole part
}

# A model for a control group, `large`, and its arena.
plan_for_group() {
    needs_address_limit
    in_group 200 true || skip "cannot make a control group"
    large=(--n_embd=64 --block_size=64 --batch_size=4 --max_iters=3 --checkpoint_interval=1 --sample_tokens=0)
    arena=$("$BIN/trainer" plan tiny.conf "${large[@]}" | sed -nE 's/^  arena +([0-9]+) .*/\1/p')
}

# bats test_tags=ci
# fault 125
@test "a plan that is accepted in a control group trains and saves there, and another ends with 82" {
    plan_for_group
    for more in 2 20 50 70 120 250; do
        rm -rf run
        status=0
        in_group $(((arena >> 20) + more)) "$BIN/trainer" train tiny.conf "${large[@]}" --dataset="$data" --out_dir=run >output 2>&1 || status=$?
        echo "$status with $more MiB more" && cat output
        [ $status = $([ $more -lt 60 ] && echo 82 || echo 0) ]
        [ $more -ge 60 ] || grep -q "is free in the control group is" output
    done
}

# bats test_tags=ci
# fault 128
@test "of two runs that start at once in a control group with room for one, none is killed: 82" {
    plan_for_group
    cat >two.sh <<'END'
for i in 1 2; do "$BIN/trainer" train tiny.conf --out_dir=run$i "$@" 2>output$i & pids[i]=$!; done
for i in 1 2; do wait ${pids[i]}; echo $? >status$i; done
END
    for try in 1 2 3; do
        rm -rf run1 run2
        in_group $(((arena >> 20) + 90)) bash two.sh "${large[@]}" --dataset="$data"
        cat status1 output1 status2 output2
        for i in 1 2; do
            grep -qxE "0|82" status$i
            [ "$(cat status$i)" = 0 ] || grep -qE "is free in the control group is (now )?[0-9.]+ MiB|is nothing" output$i
        done
    done
}

@test "plan and doctor say what train does in the memory that is free here" {
    needs_address_limit
    local large=(tiny.conf --dataset="$data" --out_dir=run --n_embd=512 --n_layer=4 --n_head=8 --block_size=128 --batch_size=64 --gradient_accumulation_steps=1 --device=cpu)
    within() { (ulimit -v "$room" && exec "$BIN/trainer" "$1" "${large[@]}" "${@:2}"); }
    "$BIN/trainer" plan "${large[@]}" --recompute=none >whole
    need=$(sed -nE 's/^  arena +[0-9]+ +//p' whole)
    room=$(($(sed -nE 's/^  arena +([0-9]+) .*/\1/p' whole) * 21 / 25 / 1024))
    choice() { (ulimit -v "$1" && "$BIN/trainer" plan "${large[@]}" 2>/dev/null) | sed -nE 's/^recompute  (.*): saves.*/\1/p'; }
    until [ "$(choice $room)" = "$(choice $((room - 24000)))" ]; do room=$((room + 8000)); done # not where a choice ends: doctor loads more
    for command in train plan; do
        run_match 82 "the plan needs $need, what the programs leave of the address space that \`ulimit -v\` allows is" within $command --recompute=none
    done
    run_match 1 "error    memory  the plan needs $need, what the programs leave of the address space" within doctor --recompute=none
    run_match 0 "recompute  *: saves" within plan # a program with CUDA has less room
    words=$(choice $room) && [ "$words" != none ]
    run_match 0 "for a run, which takes * with batch_size 64 and recompute $words" within doctor
    run_match 0 "recompute  none: saves" "$BIN/trainer" plan "${large[@]}"
    run_match 0 "recompute  none: saves" within plan --gradient_accumulation_steps=2 --world=2 # of machines that are not here
}

@test "free memory that becomes less while a plan is made does not end it with a suggestion of the same settings" {
    preload less_memory
    local model=(plan --n_layer=8 --n_embd=128 --n_head=4 --block_size=512 --batch_size=16 --gradient_accumulation_steps=2 --device=cpu --dtype=float32 --threads=1)
    arena=$("$BIN/trainer" "${model[@]}" --recompute=none | sed -nE 's/^  arena +([0-9]+) .*/\1/p')
    # 64 MiB are kept free: at the first look there is room for the plan, then there is not
    export FREE_MB=$(((arena >> 20) + 100)) ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
    LD_PRELOAD=$PWD/less_memory.so run_match 0 "recompute  none: saves" "$BIN/trainer" "${model[@]}"
}

# bats test_tags=ci
# fault 125
@test "a run has the address space of ulimit -v that it needs, or ends with 82 before its first step" {
    needs_address_limit
    for kilobytes in 290000 295000 300000 305000 310000 315000 320000 325000 700000; do
        rm -rf run
        status=0
        (ulimit -v $kilobytes && exec "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --max_iters=2 --n_embd=32 --block_size=32 --batch_size=4) >output 2>&1 || status=$?
        echo "$status with $kilobytes kB" && cat output
        [ $status = 0 ] || [ $status = 82 ]
        [ $status = 0 ] || not grep -q ^step output
    done
    [ $status = 0 ]
}
