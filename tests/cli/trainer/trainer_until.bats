# Branches, and runs that are finished at a time. What the clock decides is data: it is given here by --until=now and by a signal.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 6000 0.1 --vocabulary ascii
}

setup() { setup_training; }

train() { "$BIN/trainer" train tiny.conf --dataset="$data" --sample_tokens=0 "$@"; }

@test "--branch_from: bits, chain and record are those of a run with this end from the start, and the first run stays" {
    wsd=(--quiet --lr_schedule=wsd --checkpoint_interval=4)
    train --out_dir=whole "${wsd[@]}" --max_iters=30 --lr_decay_iters=30
    train --out_dir=first "${wsd[@]}" --max_iters=20 --lr_decay_iters=60
    find first -type f -exec sha256sum {} + | sort >before
    train --out_dir=branch "${wsd[@]}" --max_iters=30 --lr_decay_iters=30 --branch_from=first/ckpt-00000016
    same_run whole branch 30
    find first -type f -exec sha256sum {} + | sort | cmp before -
    run_match 0 "steps 1 to 30 are equal" "$BIN/trainer" replay branch
    # it goes on by the same command, without the other run
    rm -r branch/ckpt-00000030 && mv first moved
    train --out_dir=branch "${wsd[@]}" --max_iters=30 --lr_decay_iters=30 --branch_from=first/ckpt-00000016
    same_run whole branch 30
    mkdir two && mv moved first
    run_match 2 "is a branch of '*first/ckpt-00000016', not of 'whole'" train --out_dir=branch --branch_from=whole
    run_match 2 "the run in 'whole' is not a branch" train --out_dir=whole --branch_from=first
    run_match 66 "there is no checkpoint in 'two', and it is not RUN/ckpt-STEP" train --out_dir=new --branch_from=two
    run_match 66 "cannot read 'first/ckpt-00000099'" train --out_dir=new --branch_from=first/ckpt-00000099
    run_match 2 "*--fresh and --branch_from" train --out_dir=new --branch_from=first --fresh
    printf x | dd of=first/ckpt-00000020/model.safetensors bs=1 seek=4000 conv=notrunc status=none
    run_match 65 "model.safetensors" train --out_dir=new --branch_from=first/ckpt-00000020
    not [ -e new ]
}

@test "a branch that is refused after its copy leaves nothing, and one that has begun stays" {
    train --out_dir=first --quiet --max_iters=4
    run_match 2 "a branch has weights, *'*first/ckpt-00000004', whose run began from 'scratch'; leave init_from out, or --branch_from" \
        train --out_dir=new --branch_from=first --init_from=first/ckpt-00000004
    train --out_dir=tuned --quiet --init_from=first/ckpt-00000004 --max_iters=4
    train --out_dir=branch --quiet --branch_from=tuned --init_from=first/ckpt-00000004 --max_iters=5
    run_match 2 "n_embd" train --out_dir=new --branch_from=first --n_embd=32
    run_match 82 "the plan needs" train --out_dir=new --branch_from=first --mem_limit=1MiB --batch_size=512
    run_match 66 "none" "$BIN/trainer" train tiny.conf --dataset=none --out_dir=new --branch_from=first
    not [ -e new ]
    mkdir mine && touch mine/notes
    run_match 2 "n_embd" train --out_dir=mine --branch_from=first --n_embd=32
    [ "$(find mine -type f -name '[!.]*')" = mine/notes ]
    train --out_dir=new --quiet --branch_from=first --max_iters=8
    run_match 2 "n_embd" train --out_dir=new --branch_from=first --n_embd=32
    run_match 2 "not of 'mine'" train --out_dir=new --branch_from=mine
    [ -e new/ckpt-00000008 ]
}

@test "a wsd run keeps the checkpoint before its cooldown, and a longer one says that its weights have cooled" {
    long=(--lr_schedule=wsd --max_iters=30 --lr_decay_iters=30)
    train --out_dir=run --quiet --lr_schedule=wsd --max_iters=20 --lr_decay_iters=20 --eval_interval=2
    [ "$(echo run/ckpt-*)" = "run/ckpt-00000016 run/ckpt-00000018 run/ckpt-00000020" ]
    run_match 0 "the weights have cooled down since step 16: --branch_from=run/ckpt-00000016" train --out_dir=run "${long[@]}" --max_iters=21
    [[ "$(train --out_dir=other "${long[@]}" --branch_from=run/ckpt-00000016 2>&1)" != *"have cooled"* ]]
    train --out_dir=whole --quiet "${long[@]}" --eval_interval=2
    train --out_dir=other --quiet "${long[@]}" --eval_interval=2 --max_iters=30
    same_weights whole other 30
}

# The rate that a step of the record must have: constant, then 1 - sqrt(the part of the cooldown), from tiny.conf's 1e-3 to 6e-5.
check_rates() { # RUN FROM STEPS
    jq -se --argjson from "$2" --argjson steps "$3" '[.[] | select(.loss) | {step: (.step - 1), lr}] | length == $from + $steps and all(.[];
        (if .step < 5 then 1e-3 * (.step + 1) / 6 elif .step < $from then 1e-3 else 6e-5 + (1 - ((.step - $from) / $steps | sqrt)) * 94e-5 end) as $right
        | (.lr / $right - 1 | fabs) < 1e-8)' "$1/metrics.jsonl"
}

@test "--until=now cools down in a fifth of the steps; it is the run of wsd with that end, resumed and replayed" {
    train --out_dir=run --quiet --max_iters=20 --lr_schedule=constant
    run_match 0 "cooling down in 5 steps" train --out_dir=run --until=now --checkpoint_interval=2
    check_rates run 20 5
    [ -e run/ckpt-00000020 ] && [ -e run/ckpt-00000025 ]
    train --out_dir=wsd --quiet --lr_schedule=wsd:5 --max_iters=25 --lr_decay_iters=25
    sed '/"step": 20, "val_loss"/d' -i.all run/metrics.jsonl # of the end of the run that was not to be longer
    sed -i '/"step": 24, "val_loss"/d' wsd/metrics.jsonl     # until: none in the first eval_interval steps of a cooldown
    same_weights run wsd 25
    mv run/metrics.jsonl.all run/metrics.jsonl
    run_match 0 "steps 1 to 25 are equal" "$BIN/trainer" replay run
    accept_receipt run
    grep -q '"cooldown_begun": 20' receipt.json
    cp -r run late && sed -i 's/"cooldown_begun": 20, "cooldown_steps": 5/"cooldown_begun": 20, "cooldown_steps": 6/' late/metrics.jsonl
    run_match 65 "refused: line 5 of the receipt is not that of the run" "$BIN/trainer" replay late --check receipt.json
    rm receipt.json && "$BIN/trainer" replay late --receipt receipt.json # a forger's, who names another cooldown
    run_match 65 "refused" "$BIN/trainer" replay late --check receipt.json
    # from the middle of the cooldown, and from the step before it, whose decision is made again
    for step in 24 20; do
        cp -r run again && rm -r again/ckpt-00000025 && { [ $step = 24 ] || rm -r again/ckpt-00000024; }
        run_match 0 "resuming at step $step" train --out_dir=again --until=now
        same_weights again run 25 && cmp <(state again/ckpt-00000025) <(state run/ckpt-00000025)
        rm -r again
    done
    run_match 0 "it has cooled down by step 25; --branch_from=run/ckpt-00000020 with another out_dir" train --out_dir=run --until=now
    run_match 0 "max_iters*25" "$BIN/trainer" status run
    run_match 2 "has cooled down: --branch_from=*run/ckpt-00000020 begins before that" train --out_dir=cooled --branch_from=run --until=1h
    run_match 2 "until is now, and there is no step to cool down from" train --out_dir=new --until=now
}

@test "until: SIGUSR1 cools down at once, max_iters with the command is the last step, and a replay gives the same steps" {
    begin --dataset="$data" --out_dir=run --until=300d --sample_tokens=0
    wait_for_more_steps run 12
    stop_run USR1 0
    read -r begun steps < <(jq -r 'select(.cooldown_begun) | "\(.cooldown_begun) \(.cooldown_steps)"' run/metrics.jsonl)
    [ "$steps" -eq $((begun / 4)) ] && check_rates run "$begun" "$steps"
    run_match 0 "steps 1 to $((begun + steps)) are equal" "$BIN/trainer" replay run
    train --out_dir=most --quiet --until=300d --max_iters=20
    check_rates most 16 4
    sed -i 's/"cooldown_begun": [^}]*/&, "at_once": false/' most/metrics.jsonl # which no run writes
    run_match 0 "steps 1 to 20 are equal" "$BIN/trainer" replay most
    [ "$(jq -rs '[.[] | select(.until)] | "\(length) \(.[0].until_at - now > 299 * 86400)"' most/metrics.jsonl)" = "1 true" ]
}

@test "until: weights that cooled down in too few steps, or for an earlier end, name the checkpoint before that" {
    train --out_dir=run --quiet --max_iters=20 --lr_schedule=constant --checkpoint_interval=2
    run_match 0 "until *, in 300 days*cooling down in 2 steps*" train --out_dir=run --until=300d --max_iters=22
    [[ "$output" != *branch_from* && "$output" != *" 7199:59:"*" left"* ]]
    rm -r run/ckpt-00000022
    run_match 0 "less than half of them are left: --branch_from=run/ckpt-00000020" train --out_dir=run --until=300d --max_iters=21
    train --out_dir=run2 --quiet --until=300d --max_iters=20 --checkpoint_interval=2 --always_save_checkpoint=True
    rm -r run2/ckpt-00000020
    run_match 0 "now until *cooling down for an earlier time: --branch_from=run2/ckpt-00000016" train --out_dir=run2 --until=301d --max_iters=20
    run_match 0 "until  *max_iters" "$BIN/trainer" status run2
}

@test "until: a process that has made no evaluation leaves time for the last one" {
    has_cooldown() { jq -es 'any(.[]; .end_s)' run/metrics.jsonl; }
    end_s() { # the cooldown of the run from step 8 on
        begin --dataset="$data" --out_dir=run "${large[@]}" --until=300d --max_iters=9 --eval_iters=1000000
        wait_until has_cooldown
        stop_run 9 137
        jq -es "map(select(.end_s)) | last.end_s $1" run/metrics.jsonl
    }
    large=(--n_layer=4 --n_head=2 --n_embd=128)
    train --out_dir=run --quiet "${large[@]}" --max_iters=8 --eval_iters=1
    end_s "> 2" # by a forward pass
    sed -i '/"end_s"/d' run/metrics.jsonl && echo '{"step": 8, "evaluate_s": 4000}' >>run/metrics.jsonl
    end_s "> 5000" # by that of an earlier process
}

@test "until: the time is that of the first start; another moves it, and one that has passed or is too short ends the start" {
    at() { jq -s '[.[] | select(.until)] | last.until_at' "$1/metrics.jsonl"; }
    interrupt() {
        begin --dataset="$data" --out_dir=run --sample_tokens=0 "$@"
        wait_for_more_steps run
        stop_run TERM 75
        at run
    }
    first=$(interrupt --until=300d)
    [ "$(interrupt --until=300d)" = "$first" ]
    run_match 0 "until " "$BIN/trainer" status run
    cp -r run timeless && train --out_dir=timeless --quiet --max_iters=$(($(steps run) + 5))
    run_match 0 "last_step *$(steps timeless)" "$BIN/trainer" status timeless
    [[ "$output" != *until* && "$(steps timeless)" = $(($(steps run) + 5)) ]]
    cp -r run passed && sed -i 's/"until_at": [0-9]*/"until_at": 1/' passed/metrics.jsonl
    train --out_dir=other --quiet --until=300d --max_iters=$(($(steps run) + 5)) --branch_from=passed # the same words, another time
    [ "$(at other)" -ge "$first" ]
    run_match 0 "now until " train --out_dir=run --until=301d --max_iters=$(($(steps run) + 5))
    [ "$(at run)" -gt "$first" ]
    run_match 2 "until 2020-01-01 08:00 has passed" train --out_dir=old --until="2020-01-01 08:00"
    run_match 2 "until 1s is too short: " train --out_dir=short --until=1s --warmup_iters=1000 --n_layer=4 --n_embd=512 --block_size=128
    run_match 2 "until 9s is too short: no time is left for steps" train --out_dir=short --until=9s --warmup_iters=1000 --n_layer=4 --n_embd=512 \
        --block_size=128 --sample_tokens=1000000
    run_match 2 "has passed: another time starts a run" train --out_dir=run --fresh --until="2020-01-01 08:00"
    [ ! -e run/before-1 ]
    run_match 2 "cools down as lr_schedule=wsd" train --until=1h --lr_schedule=cosine
    run_match 2 "'until' sets 'lr_decay_iters'" train --until=1h --lr_decay_iters=50
    run_match 0 "until 3m: the steps are not known before it" "$BIN/trainer" plan tiny.conf --until=3m
    run_match 2 "until 1h is too short: 1000000000 steps of warmup" train --out_dir=short --until=1h --warmup_iters=1000000000
    end=$(($(date +%s) + 86400 * 300))
    SLURM_JOB_END_TIME=$end train --out_dir=job --quiet --until=job --max_iters=10
    [ "$(at job)" = "$end" ]
    rm -r job/ckpt-00000010 # the next job has another end
    SLURM_JOB_END_TIME=$((end + 60)) train --out_dir=job --quiet --until=job --max_iters=10
    [ "$(at job)" = $((end + 60)) ]
    run_match 2 "no SLURM_JOB_END_TIME" env -u SLURM_JOB_END_TIME "$BIN/trainer" train tiny.conf --dataset="$data" --until=job
    run_match 0 "val   loss 4" env -u SLURM_JOB_END_TIME "$BIN/trainer" eval tiny.conf --dataset="$data" --out_dir=job --until=job
    run_match 2 "'soon' is not a time to come: write 90s, 40m" train --until=soon
}

@test "until: no step follows a sleep past the time, which a later one continues; a clock that is set moves the recorded end of a duration" {
    preload other_day
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
    at() { jq -s '[.[] | select(.until)] | last.until_at' run/metrics.jsonl; }
    # the evaluation of the end is not at a multiple of this, and is in the record of a run that goes on
    LAUNCH="env LD_PRELOAD=$PWD/other_day.so" begin --dataset="$data" --out_dir=run --until=300d --sample_tokens=0 --eval_interval=1000
    wait_for_more_steps run
    before=$(at)
    touch set
    wait_for_more_steps run
    moved=$(($(at) - before))
    [ $moved -ge 3598 ] && [ $moved -le 3602 ]
    touch slept
    ends 0
    stderr_has "no time is left: the run ends after step $(steps run), 0 % into the cooldown; another time continues it"
    stderr_has "the run ended 1[0-9][0-9] days after its time"
    rm set slept
    step=$(steps run)
    check_rates run "$step" 0
    train --out_dir=run --quiet --until=301d --max_iters=$((step + 5)) --eval_interval=1000
    check_rates run "$step" 5
    [ "$(jq -r 'select(.val_loss) | .step' run/metrics.jsonl | xargs)" = "0 $step $((step + 5))" ]
    run_match 0 "steps 1 to $((step + 5)) are equal" "$BIN/trainer" replay run
}
