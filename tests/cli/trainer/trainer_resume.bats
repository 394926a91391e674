# Interrupted runs, and runs that differ in what may not change a bit.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 6000 0.1 --vocabulary ascii
    make_other_data 4000 --vocabulary ascii
}

# fault 66
@test "a run stopped by a signal and resumed is bit-identical to an uninterrupted one" {
    for signal in INT TERM USR1; do
        begin --dataset="$data" --out_dir=cut "${endless[@]}"
        wait_for_more_steps cut
        stop_run $signal 75
        [ -n "$(ls -d cut/ckpt-*)" ]
    done
    end=$(($(steps cut) + 1))
    run_match 0 "resuming at step" train --out_dir=cut --max_iters=$end
    # the evaluation at its end, which the uninterrupted run has not
    [ $((end % 8)) -eq 0 ] || sed -i "/\"step\": $end, \"val_loss\"/d" cut/metrics.jsonl
    finish cut --dataset="$data"
}

# fault 65, 72, 82
@test "a run killed with SIGKILL and resumed is bit-identical to an uninterrupted one" {
    for more in 3 6 9; do # before the first checkpoint, and after one
        begin --dataset="$data" --out_dir=killed "${endless[@]}"
        wait_for_more_steps killed $more
        stop_run 9 137
    done
    finish killed --dataset="$data"
}

# bats test_tags=ci
@test "sampling=shifted and documents: a run with killed loaders and trainers is bit-identical to an uninterrupted one" {
    for mode in shifted documents; do
        serve "$data"
        begin --loader=ipc://place --out_dir=$mode --sampling=$mode "${often[@]}"
        wait_for_checkpoint $mode
        kill_loader
        serve "$data"
        wait_for_more_steps $mode 20
        stop_run 9 137
        kill_loader
        finish $mode --dataset="$data" --sampling=$mode --eval_interval=3 --eval_iters=1
    done
    train --out_dir=epoch --quiet --max_iters=20
    [ "$(for mode in epoch shifted documents; do losses $mode | grep '"step": 20, "loss"'; done | sort -u | wc -l)" -eq 3 ]
    run_match 2 "sampling is epoch, was documents" train --out_dir=documents "${endless[@]}"
}

# bats test_tags=ci
@test "a loader may be started after the trainer" {
    "$BIN/trainer" train tiny.conf --loader=ipc://place --out_dir=run --max_iters=2 2>stderr >stdout 3>&- &
    TRAINER=$!
    wait_until grep -q "waiting for the loader at ipc://place (5 s)" stderr
    serve "$data"
    ends 0
}

@test "a new dataset is used from the next step on, and both fingerprints are logged" {
    serve "$data"
    begin --loader=ipc://place --out_dir=run "${endless[@]}"
    wait_for_steps run 4
    kill_loader
    serve "$BATS_FILE_TMPDIR/data2"
    wait_until grep -q '"dataset": "data2"' run/metrics.jsonl
    wait_for_more_steps run
    stop_run INT 75
    first=$(grep '"dataset": "data2"' run/metrics.jsonl | jq '.step + 1') # the step that used it first
    grep -q "the dataset is now 'data2' ([0-9a-f]*), was 'data' ([0-9a-f]*), from step $first on" stderr
    old=$(sed -n 's/.*"dataset": "data", "fingerprint": "\([0-9a-f]*\)".*/\1/p' run/metrics.jsonl)
    grep '"dataset": "data2"' run/metrics.jsonl | grep -q "\"old\": \"$old\""
    grep -q "\"old\": \"$old\"" "$(checkpoint run "$(steps run)")/state.json"
    train --quiet --out_dir=run --dataset="$BATS_FILE_TMPDIR/data2" --max_iters=$(($(steps run) + 4))
    grep -q "\"old\": \"$old\"" "$(checkpoint run "$(steps run)")/state.json"
}

# fault 40
@test "on_dataset_change=stop saves and exits with 75" {
    serve "$data"
    begin --loader=ipc://place --out_dir=run --on_dataset_change=stop "${endless[@]}"
    wait_for_steps run 4
    kill_loader
    serve "$BATS_FILE_TMPDIR/data2"
    ends 75
    [ -n "$(ls -d run/ckpt-*)" ]
}

# fault 54
@test "the trainer saves and exits with 69 when the loader does not come back" {
    serve "$data"
    begin_with_later --loader=ipc://place --out_dir=run "${endless[@]}"
    wait_for_steps run 3
    kill_loader
    touch later
    ends 69
    [ -n "$(ls -d run/ckpt-*)" ]
    finish run --dataset="$data"
    # without --quiet it also prints where
    serve_until_ready "$data"
    rm later
    LD_PRELOAD=$PWD/other_clock.so "$BIN/trainer" train tiny.conf --loader=ipc://place --out_dir=run --data_timeout=1000 "${endless[@]}" >stdout 2>stderr 3>&- &
    TRAINER=$!
    wait_for_more_steps run
    kill_loader
    touch later
    ends 69
    grep -qE "saved at step [0-9]+: run the same command again to resume" stderr
}

# bats test_tags=ci
@test "the step line names the wait for data of a loader that stood still" {
    serve_until_ready "$data"
    "$BIN/trainer" train tiny.conf --loader=ipc://place --out_dir=run "${endless[@]}" --eval_interval=0 >stdout 2>stderr 3>&- &
    TRAINER=$!
    wait_for_more_steps run
    kill -STOP "$LOADER"
    wait_until stderr_has "no data from the loader"
    kill -CONT "$LOADER"
    wait_until grep -qE "^step .* left \| waiting for data [0-9]+ %$" stdout
    stop_run TERM 75
}

# data/run_0.1.0.tar.gz: 4 steps by the tree before the order of an epoch had 64 strata.
@test "a run whose samples had another order resumes with a sentence" {
    for i in $(seq 300); do echo "abc dad cab bad $((i % 7)) "; done >t.txt
    printf 'abcd 0123456\n' >chars.txt
    shardtool tokenize -q --vocabulary chars.txt --docs lines --val 0.2 -o lines t.txt
    tar xf "$DATA/run_0.1.0.tar.gz"
    old=(train --out_dir=run --dataset=lines --n_layer=1 --n_head=1 --n_embd=16 --block_size=8 --batch_size=2
        --gradient_accumulation_steps=1 --warmup_iters=1 --eval_interval=4 --eval_iters=1 --device=cpu --dtype=float32 --sample_tokens=0)
    run_match 0 "resuming at step 4*this run began with another order of samples*the best loss starts again" "$BIN/trainer" "${old[@]}" --max_iters=6
    [[ "$output" == *"computed by version 1 of the arithmetic, and goes on with version "* ]]
    run "$BIN/trainer" "${old[@]}" --max_iters=8
    [[ "$output" == *"resuming at step 6"* && "$output" != *"another order of samples"* && "$output" != *arithmetic* && "$output" != *"starts again"* ]]
}

# bats test_tags=ci
# fault 77
@test "optimizer_state=bf16 and bf16_sr: a killed run resumes with the same bits, and another state is an error, 2" {
    for state in bf16 bf16_sr; do
        begin_and_kill killed-$state --dataset="$data" --optimizer_state=$state "${often[@]}"
        train --out_dir=killed-$state --quiet --optimizer_state=$state "${often[@]}" --max_iters=$end
        train --out_dir=whole-$state --quiet --optimizer_state=$state "${often[@]}" --max_iters=$end --threads=2
        same_run killed-$state whole-$state $end
    done
    [ "$(losses whole-bf16 | head -7)" != "$(losses whole-bf16_sr | head -7)" ]
    run_match 2 "optimizer_state is fp32, was bf16_sr" train --out_dir=killed-bf16_sr --max_iters=$((end + 1))
}

# bats test_tags=ci
@test "optimizer=muon: a killed run resumes with the same bits, also with other threads and offload; its plan is smaller" {
    muon=(--optimizer=muon --muon_learning_rate=2e-3)
    begin_and_kill killed --dataset="$data" "${muon[@]}" "${often[@]}"
    train --out_dir=killed --quiet "${muon[@]}" "${often[@]}" --max_iters=$end --threads=2 --offload=optimizer
    train --out_dir=whole --quiet "${muon[@]}" "${often[@]}" --max_iters=$end
    same_weights whole killed $end
    train --out_dir=adamw --quiet "${often[@]}" --max_iters=$end
    [ "$(losses adamw | head -1)" = "$(losses whole | head -1)" ]
    [ "$(losses adamw | tail -1)" != "$(losses whole | tail -1)" ]
    run_match 2 "optimizer is adamw, was muon" train --out_dir=whole --max_iters=$((end + 1))
    bytes() { "$BIN/trainer" plan tiny.conf "$@" | awk '$1 == "optimizer" { print $2 }'; }
    [ $(($(bytes) - $(bytes "${muon[@]}"))) = $((4 * 12 * 16 * 16)) ] # 4 bytes for each number of a matrix
    "$BIN/trainer" plan tiny.conf "${muon[@]}" | grep -q '^  workspace of the update .* (inside the above)$'
    run_match 2 "'muon_learning_rate' follows the schedule of 'learning_rate', which is 0" "$BIN/trainer" plan tiny.conf "${muon[@]}" --learning_rate=0
}

@test "ema: a killed run resumes with the same bits, and a run without it or at another rate is refused" {
    begin_and_kill killed --dataset="$data" --ema=0.9 "${often[@]}"
    train --out_dir=killed --quiet --ema=0.9 "${often[@]}" --max_iters=$end --threads=2
    train --out_dir=whole --quiet --ema=0.9 "${often[@]}" --max_iters=$end
    same_run whole killed $end
    run_match 2 "ema is 0, was 0.9" train --out_dir=killed --max_iters=$((end + 1))
    # the loss of the average is where that of the last step is
    average=$(jq -s 'map(.ema_val_loss // empty) | last' whole/metrics.jsonl)
    "$BIN/trainer" status --json whole | jq -e --argjson average "$average" '.ema_val_loss - $average | fabs < 1e-7'
    "$BIN/trainer" status whole | grep -qx "ema_val_loss *$(printf %.4f "$average")"
    grep -q "averaged weights</th><td>$(printf %.4f "$average")<" whole/report.html
    grep -q 'validation data, averaged weights' whole/report.html
    "$BIN/trainer" report -o both.html whole killed
    grep -q '<th>of the averaged weights</th>' both.html && grep -q "<td>$(printf %.4f "$average")</td>" both.html
    run_match 2 "ema is 0.99, was 0.9" train --out_dir=killed --max_iters=$((end + 1)) --ema=0.99
    bytes() { "$BIN/trainer" plan tiny.conf --ema=0.9 | awk -v name="$1" '$0 ~ "^  " name { print $(NF - 2) }'; }
    [ "$(bytes 'averaged weights')" = "$(bytes parameters)" ] # both are fp32
    run_match 2 "'ema' swaps the parameters with their average*use bf16 or fp32" "$BIN/trainer" plan tiny.conf --ema=0.9 --optimizer_state=bf16_sr
}

# bats test_tags=ci
@test "spike_action warns of spikes that stay, skips each or ignores them, and a resumed run compares with the steps before it" {
    train --out_dir=calm --quiet --max_iters=70 --eval_interval=0 --lr_decay_iters=1000 --sample_tokens=0
    for action in off warn skip; do
        cp -r calm $action # 70 steps; the one update with a rate of 10 makes the loss of the step after it a spike
        cp -r calm $action-stays
        more() { run_code 0 train --out_dir="$1" --max_iters=$2 --eval_interval=0 --lr_decay_iters=1000 --sample_tokens=0 --learning_rate=10 --spike_action=$action; }
        more $action-stays 76
        stays=$(grep -cE 'step 7[2-6]: loss .* standard deviations above those of the last 7[1-5] steps' <<<"$output" || true)
        spikes=$(grep -c '"spike"' $action-stays/metrics.jsonl || true)
        more $action 72
        said=$(grep -cE 'step 72: loss .* standard deviations above those of the last 71 steps' <<<"$output" || true)
        skipped=$(grep -cE '^step +72/72 .* \| spike: not applied$' <<<"$output" || true)
        marked=$(jq -c 'select(.spike) | [.step, .spike > 6, .applied]' $action/metrics.jsonl)
        case $action in
        off) [ "$said $skipped $marked $stays $spikes" = "0 0  0 0" ] ;;
        warn) [ "$said $skipped $marked $stays" = "0 0 [72,true,true] 1" ] && [ "$spikes" -ge 3 ] ;;
        skip) [ "$said $skipped $marked $stays" = "1 1 [72,true,false] $spikes" ] ;;
        esac || { echo "$action: $said $skipped $marked $stays $spikes" && return 1; }
    done
}

# bats test_tags=ci
@test "float16: the loss scale is printed, and a killed run resumes with the same bits and type" {
    begin_and_kill killed --dataset="$data" --dtype=float16 "${often[@]}"
    run_code 0 train --out_dir=killed "${often[@]}" --max_iters=$end --dtype=auto # which takes float32 or bfloat16 on a CPU
    [[ "$output" == *"does not multiply float16: float32 products of float16 operands, slower than --dtype="*float* ]]
    [[ "$output" == *"thread, float16"*"| scale 65536"* && "$output" != *"dtype is now"* ]]
    train --out_dir=whole --quiet "${often[@]}" --max_iters=$end --dtype=float16
    grep -q '"loss_scale": 65536' whole/metrics.jsonl
    same_run whole killed $end
    run grep -A3 '"scaler"' "$(checkpoint killed $end)/state.json"
    [[ "$output" == *'"scale": 65536.0'*"\"good\": $end"* ]]
    run train --out_dir=killed --dtype=float32 --max_iters=$((end + 1))
    [[ "$output" == *"dtype is now float32, was float16 until step $end"* && "$output" != *"| scale"* ]]
    run_code 1 grep scaler "$(checkpoint killed $((end + 1)))/state.json"
}

@test "a resumed run keeps the dtype that was chosen" {
    train --out_dir=auto --quiet --max_iters=3 --dtype=auto
    run grep '"dtype"' auto/ckpt-00000003/state.json
    [[ "$output" == *float32* || "$output" == *bfloat16* ]]
    train --out_dir=run --quiet --dtype=bfloat16 --max_iters=3
    run train --out_dir=run --max_iters=6 --dtype=auto
    [[ "$output" == *"thread, bfloat16"* && "$output" != *"dtype is now"* ]]
}

@test "grades change no bit of a run, and one that is killed in 20 places of them writes them again" {
    make_items 30 items
    short=(--max_iters=4 --eval_interval=4 --sample_tokens=0 --quiet)
    graded=("${short[@]}" --items=items --items_interval=2)
    train --out_dir=plain "${short[@]}"
    train --out_dir=run "${graded[@]}"
    same_run plain run 4
    [ "$(grep -c '"items_accuracy"' run/metrics.jsonl)" = 2 ]
    "$BIN/trainer" report plain run
    for page in run/report.html runs.html; do [ "$(sed -n '/<figcaption>Right items/,/<.figure>/p' $page | grep -c '<circle')" = 2 ]; done
    run_code 1 grep 'Right items' plain/report.html
    [ "$(cat run/items-00000002.jsonl run/items-00000004.jsonl | wc -l)" = 62 ]
    diff <(grep -o '"arena_bytes": [0-9]\+' plain/metrics.jsonl) <(grep -o '"arena_bytes": [0-9]\+' run/metrics.jsonl)
    plan() { "$BIN/trainer" plan tiny.conf "$@" | grep -v '^run '; } # whose line has a measured rate
    diff <(plan "${short[@]}") <(plan "${graded[@]}")
    cmp <(tail -n +2 run/items-00000004.jsonl) <("$BIN/trainer" eval --out_dir=run --items=items --json --quiet | tail -n +2)
    mv run whole
    kills=0
    for number in $(seq 3 4 83); do
        rm -rf run
        kill_at write "$number" "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run "${graded[@]}" && kills=$((kills + 1))
        train --out_dir=run "${graded[@]}"
        same_run whole run 4
        for step in 2 4; do cmp {whole,run}/items-0000000$step.jsonl; done
        diff <(grep '"items_accuracy"' whole/metrics.jsonl) <(grep '"items_accuracy"' run/metrics.jsonl)
        [ -z "$(compgen -G 'run/.items*')" ]
    done
    [ "$kills" -ge 20 ]
    # another file is another series; the earlier run takes its grades along
    head -n 9 items >fewer
    run_match 0 "another file than at step 4" train --out_dir=run --max_iters=4 --eval_interval=4 --sample_tokens=0 --items=fewer --items_interval=2
    [ "$(wc -l <run/items-00000004.jsonl)" = 10 ]
    train --out_dir=run "${short[@]}" --fresh
    [ -e run/before-1/items-00000004.jsonl ] && [ -z "$(compgen -G 'run/items*')" ]
    echo '{' >bad
    run_match 65 "'bad' line 1" train --out_dir=refused "${short[@]}" --items=bad --items_interval=2
}

@test "the checkpoint of the highest grade is kept and is --ckpt=graded, in a killed run, in a branch and where only the best are saved" {
    # right is what no text has: the more the model has learned, the lower the grade
    for a in \~ '|' '}' '{' '^' '@' '#'; do
        for b in '%' '&' '*' '+' '=' '_'; do
            echo "{\"task\": \"t\", \"id\": \"$a$b\", \"kind\": \"choice\", \"span\": \"ending\", \"label\": 0, \"texts\": [[\"$a\", \"$a$b\"], [\"$a\", \" t\"]]}"
        done
    done >items
    graded=(--eval_interval=8 --learning_rate=0.02 --lr_decay_iters=24 --min_lr=0.02 --sample_tokens=0 --quiet --items=items --items_interval=2)
    grades() { jq -c 'select(.items_accuracy) | [.step, .items_accuracy]' "$1/metrics.jsonl"; }
    highest() { grades "$1" | jq -s 'max_by([.[1], -.[0]])[0]'; }
    kill_at write 70 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=killed --max_iters=24 "${graded[@]}"
    [ -e killed/items-00000004.jsonl ] && [ ! -e killed/items-00000024.jsonl ]
    for run in killed run; do train --out_dir=$run --max_iters=24 "${graded[@]}"; done
    diff <(grades run) <(grades killed)
    best=$(highest run)
    [ "$best" -ge 2 ] && [ "$best" -lt 16 ]
    [ "$(cd run && echo ckpt-*)" = "$(printf 'ckpt-%08d ' "$best" 22 24 | sed 's/ $//')" ]
    [ "$(ls run)" = "$(ls killed)" ]
    train --out_dir=branch --max_iters=28 "${graded[@]}" --branch_from=run/ckpt-00000022
    train --out_dir=few --max_iters=24 "${graded[@]}" --always_save_checkpoint=False
    for run in run killed branch few; do
        [ "$(highest $run)" = "$best" ]
        jq -se --argjson best "$best" 'map(select(.items_best_step)) | last.items_best_step == $best' $run/metrics.jsonl
        run_match 0 "model: '$run/$(basename "$(checkpoint run "$best")")'" "$BIN/trainer" eval --out_dir=$run --items=items --ckpt=graded
        run_match 0 "model: '$run/ckpt-00000024'" "$BIN/trainer" eval --out_dir=$run --items=items --ckpt=best
    done
    train --out_dir=run --max_iters=32 "${graded[@]:0:6}" # goes on without grades
    train --out_dir=bare --max_iters=34 "${graded[@]:0:6}" --branch_from=run/ckpt-00000032
    for run in run bare; do [ -e "$(checkpoint $run "$best")" ]; done
    run_match 2 "--ckpt=graded is of a run, and init_from is 'run/ckpt-00000032'" "$BIN/trainer" eval --out_dir=run --init_from=run/ckpt-00000032 --ckpt=graded
    train --out_dir=none --max_iters=1 --sample_tokens=0 --quiet
    run_match 66 "the run in 'none' has no grade by items" "$BIN/trainer" eval --out_dir=none --items=items --ckpt=graded
}
