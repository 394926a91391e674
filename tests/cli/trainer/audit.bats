# Auditing a run: its hash chain, the replay of its steps, and the data of a step.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 600 0.1 --vocabulary ascii
    make_other_data 400 --vocabulary ascii
    mkdir runs
    write_tiny_conf tiny.conf
    "$BIN/trainer" train tiny.conf --quiet --dataset=data --out_dir=runs/whole
}

run_copy() { cp -r "$BATS_FILE_TMPDIR/runs/whole" "$1"; } # RUN: a copy of a finished run of 24 steps
replay() { "$BIN/trainer" replay "$@"; }
chain() { sed -nE "s/.*\"step\": $2, \"loss\".*\"chain\": \"([0-9a-f]{64})\".*/\1/p" "$1/metrics.jsonl"; } # RUN STEP

@test "a replay computes all steps again and finds them equal, from a copy of the data, too" {
    run_copy run
    run_match 0 "steps 1 to 24 are equal" replay run
    [[ "$output" == *"and 2 checkpoints"*"chain $(chain run 24)"* ]]
    run_match 0 "steps 18 to 20 are equal" replay run --steps=18..20 --threads=2
    [[ "$output" == *"from the checkpoint of step 16"*"chain $(chain run 20)"* ]]
    run_match 2 "--learning_rate: the run has learning_rate=0.001: a replay takes it from the record" replay run --learning_rate=9
    run_match 2 "--ema: the run has no ema: a replay takes it from the record" replay run --ema=0.5
    cp -r run more # an evaluation that was made twice, at the end of the steps that are replayed
    sed -i '/"step": 16, "val_loss"/p' more/metrics.jsonl
    run_match 1 "has one more line" replay more --steps=15..16
    cp -r "$data" copy
    run_match 0 "steps 3 to 3 are equal" replay run --steps=3 copy
    cp -r run slow # a save that ended only at the evaluation of a later checkpoint
    sed -i '/"step": 16, "val_loss"/i {"step": 16, "saved_step": 8, "save_ms": 900.0}' slow/metrics.jsonl
    run_match 0 "steps 17 to 18 are equal" replay slow --steps=17..18
    diff -r run "$BATS_FILE_TMPDIR/runs/whole" # nothing is written
    mkdir run/ckpt-00000008 # as after a kill in its removal
    run_match 0 "steps 1 to 24 are equal" replay run
}

@test "a run that was killed and resumed has the chain of an undisturbed one, and replays" {
    begin_and_kill run --dataset="$data" "${often[@]}"
    finish run --dataset="$data" --eval_interval=3 --eval_iters=1 # compares the chains of all steps
    run_match 0 "steps 1 to $end are equal" replay run
}

# bats test_tags=ci
@test "a replay gives a model without the markers of conversations their rows, as the run did" {
    seq 99 | jq -c '{prompt: "after \(.)?", completion: "\(. + 1)"}' >pairs.jsonl
    "$BIN/shardtool" tokenize --quiet --turns --val 0 -o pairs pairs.jsonl
    seq 99 | "$BIN/shardtool" tokenize --quiet --docs lines --val 0 -o plain -
    few=(--n_layer=1 --n_head=1 --n_embd=8 --block_size=16 --batch_size=1 --gradient_accumulation_steps=1 --max_iters=2 --eval_interval=0 --sample_tokens=0)
    "$BIN/trainer" train --quiet --dataset=plain --out_dir=base "${few[@]}"
    "$BIN/trainer" export --quiet --out_dir=base -o model
    rm model/tokenizer.json model/vocab.json # GPT-2's, as of a model whose directory names none
    run_match 66 "'pears' is not a dataset directory" "$BIN/trainer" train --dataset=pears --out_dir=tuned "${few[@]}" --loss_tokens=answers
    # rows of prompts alone
    jq -nc '{prompt: ("far " * 400), completion: "x"}' >far.jsonl
    "$BIN/shardtool" tokenize --quiet --turns --val 0 -o far far.jsonl
    for quiet in "" --quiet; do
        # shellcheck disable=SC2086
        run_match 0 "no target of step 1 counts with loss_tokens=answers, so it changes nothing: it has no answer, or prompts are longer than a sequence (block_size)" \
            "$BIN/trainer" train $quiet --dataset=far --init_from=./model --out_dir="far$quiet" "${few[@]}" --loss_tokens=answers
        [ "$(grep -c "no target of step" <<<"$output")" = 1 ]
        [ -n "$quiet" ] || [[ "$output" == *"step      1/2 | loss - | norm - | lr "* && "$output" != *nan* ]]
    done
    run_match 0 " % of the targets count" "$BIN/trainer" train --dataset=pairs --init_from=./model --out_dir=tuned "${few[@]}" --loss_tokens=answers
    run_match 0 "steps 1 to 2 are equal, and 1 checkpoint; computed from the initial weights" replay tuned
}

@test "a replay refuses steps whose bits another version computed, 2, and names it" {
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=2
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=4
    sed -Ei '/^.{0,12}2, "arena_bytes"/s/"bits": [0-9]+, "version": "[^"]*"/"bits": 99, "version": "9.9"/' run/metrics.jsonl
    run_match 0 "steps 1 to 2 are equal" replay run --steps=1..2
    run_match 2 "the steps after step 2 were computed by version 99 of the arithmetic*with the program of the run, millrace 9.9" replay run
    sed -Ei 's/"bits": [0-9]+, //' run/metrics.jsonl
    run_match 2 "the steps after step 0 were computed by version 1 of the arithmetic" replay run --steps=1..2
}

# bats test_tags=ci
@test "a replay follows a run whose settings were changed on the way" {
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=4
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=8 --learning_rate=1e-2 --eval_iters=2
    run_match 0 "steps 1 to 8 are equal" replay run
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=10 --batch_size=1 --gradient_accumulation_steps=4
    run_match 2 "after step 8 the run has batch_size=1, before it 2: replay the steps up to it, and those from 9 on, apart" replay run
    run_match 0 "steps 1 to 8 are equal" replay run --steps=1..8
    run_match 0 "steps 9 to 10 are equal" replay run --steps=9..10
    run_match 0 "10 steps in 2 segments" replay run --receipt ends.json # one ends with the checkpoint of step 8
    [[ "$output" != *nobody* ]]
    run_match 0 "segment 1 of 2, steps 1 to 8: accepted*segment 2 of 2, steps 9 to 10: accepted" replay run --check ends.json
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=12 --batch_size=1 --gradient_accumulation_steps=4
    run_match 2 "replay the steps up to it, and those from 11 on, apart" replay run --steps=9..10
    rm -r run/ckpt-00000010
    run_match 0 "nobody can check segment 1, steps 1 to 12: after step 8 the run has batch_size=1, before it 2; keep" replay run --receipt receipt.json
    run_match 2 "segment 1 of 1, steps 1 to 12: not checked: after step 8 the run has batch_size=1" replay run --check receipt.json
    sed -E '/"step": 10, "arena/s/("machine": ")[^"]*/\1cpu: abacus/' -i.kept run/metrics.jsonl
    run_match 2 "step 11 was computed on 'cpu: abacus', and earlier ones on 'cpu: " replay run --receipt other.json
    mv run/metrics.jsonl.kept run/metrics.jsonl
    run_match 2 "replay the steps up to it; the later steps cannot be replayed: no checkpoint is left" replay run --steps=9..10
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=products --max_iters=1
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=products --max_iters=2 --dtype=float32:highest
    run_match 2 "after step 1 the run has matmul_precision=highest, before it high" replay products
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=rows --max_iters=1
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=rows --max_iters=2 --eval_batch_size=1
    run_match 2 "after step 1 the run has eval_batch_size=1, before it 0" replay rows
    # a start of which no step was kept
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=lost --max_iters=2
    begin --dataset="$data" --out_dir=lost "${endless[@]}" --eval_interval=0 --dropout=0.2
    wait_until grep -q '"dropout": "0.2"' lost/metrics.jsonl
    stop_run 9 137
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=lost --max_iters=3
    run_match 0 "steps 1 to 3 are equal" replay lost
    # a key that is written only with another value than its default
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=sums --max_iters=1 --reduce_dtype=bfloat16
    "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=sums --max_iters=2 2>log
    grep -q 'reduce_dtype is now float32, was bfloat16 until step 1' log
    not grep -q reduce_dtype sums/ckpt-00000002/state.json
    run_match 2 "after step 1 the run has reduce_dtype=float32, before it bfloat16" replay sums
    "$BIN/trainer" export --out_dir=sums --card -o card 2>/dev/null
    grep -qx 'reduce_dtype = bfloat16, from step 2 on float32' card/README.md
}

@test "a replay names the first step that differs, 1, damage, 65, and what is missing, 66" {
    run_copy run
    sed -i 's/\("step": 5, .*"norm": 1\)/\11/' run/metrics.jsonl
    run_match 1 "step 5: norm is 11" replay run
    run_match 0 "are equal" replay run --steps=17..24
    cp "$BATS_FILE_TMPDIR/runs/whole/metrics.jsonl" run/
    run_match 66 "has no step 25: its last is 24" replay run --steps=3..25
    run_match 2 "not A..B" replay run --steps=5..3
    run_match 0 "none of the datasets named is 'data' of these steps: taking '*data'*are equal" replay run --steps=1 "$BATS_FILE_TMPDIR/data2"
    run_match 66 "metrics.jsonl" replay nowhere
    for flip in "\"seed\"/\"Seed\"" "\"always_save_checkpoint\": \"True\"/\"always_save_checkpoint\": \"true\""; do # the values stay the same
        sed -i "s/$flip/" run/metrics.jsonl
        run_match 65 "configuration *" replay run
        cp "$BATS_FILE_TMPDIR/runs/whole/metrics.jsonl" run/
    done
    damaged=$(checkpoint run 16)/optimizer.safetensors
    printf x | dd of="$damaged" bs=1 seek=$(($(stat -c %s "$damaged") - 2000)) conv=notrunc status=none
    run_match 65 "is damaged" replay run --steps=17..18
    run_match 65 "is damaged" replay run
    run_match 0 "from the initial weights" replay run --steps=9..12
    cp -r "$BATS_FILE_TMPDIR/runs/whole" lacking
    sed -i '/"step": 16, ".*loss"/d' lacking/metrics.jsonl # what follows names the save of step 16
    run_match 66 "'lacking/metrics.jsonl' lacks step 16" replay lacking
    cp -r "$BATS_FILE_TMPDIR/runs/whole" cut
    sed -i '/"step": 22, "loss"/,$d' cut/metrics.jsonl
    run_match 65 "ends with step 21, and there is a checkpoint of step 24: its end is missing" replay cut
    run_match 0 "'cut/metrics.jsonl' ends with step 21: the steps after it up to 24 are not recorded" "$BIN/trainer" train tiny.conf \
        --dataset="$data" --out_dir=cut --max_iters=25
    truncate -s -1 run/metrics.jsonl
    run_match 65 "the last line is cut short" replay run --steps=1
    cp -r "$BATS_FILE_TMPDIR/runs/whole" part
    for step in 16 24; do # 16 is the older of the two that a run keeps
        mv part/ckpt-000000$step/state.json kept
        run_match 66 "part/ckpt-000000$step/state.json" replay part
        [ $step = 24 ] || mv kept part/ckpt-000000$step/state.json
    done
    sed -i '/"step": 22, "loss"/,$d' part/metrics.jsonl
    run_match 65 "there is a checkpoint of step 24: its end is missing" replay part
}

@test "a replay follows changes of the dataset, and finds the datasets by fingerprint where they have moved" {
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run --max_iters=8
    "$BIN/trainer" train tiny.conf --quiet --dataset="$BATS_FILE_TMPDIR/data2" --out_dir=run --max_iters=12
    run_match 0 "steps 1 to 12 are equal" replay run
    accept_receipt run
    run_match 0 "steps 1 to 8 are equal" replay run --steps=1..8
    run_match 0 "steps 9 to 12 are equal" replay run --steps=9..12
    [[ "$("$BIN/trainer" which run --steps=9 --json | head -n 1)" == *data2\"* ]]
    [[ "$("$BIN/trainer" which run --steps=8 --json | head -n 1)" == *data\"* ]]
    cp -r "$data" "a \"b\""
    cp -r "$BATS_FILE_TMPDIR/data2" second
    sed -i 's|"data": "[^"]*"|"data": "/nowhere"|' run/metrics.jsonl
    run_match 0 "steps 1 to 12 are equal" replay run second "a \"b\""
    run_match 66 "step 9 used the dataset 'data2'" replay run "a \"b\""
    run_match 66 "not a dataset directory" replay run
    "$BIN/trainer" train tiny.conf --quiet --dataset="a \"b\"" --out_dir=other --max_iters=2
    run_match 0 "are equal" replay other
    [ "$("$BIN/trainer" which other --steps=2 | grep -c 'a "b" train tokens')" -eq 4 ]
}

@test "a run that read from a loader replays with it, or with its dataset" {
    serve_until_ready "$data"
    "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --out_dir=run --max_iters=2
    run_match 0 "steps 1 to 2 are equal" replay run
    stop_loader
    run_match 0 "steps 1 to 2 are equal" replay run "$data"
    accept_receipt run "$data"
    run_match 66 "not checked: name the dataset 'data' after the run" replay run --check receipt.json
    "$BIN/trainer" which run --steps=2 "$data"
    run_match 2 "name the datasets that it served" "$BIN/trainer" which run --steps=2
}

@test "a replay knows every line that a run writes" {
    cd "$ROOT"
    names=$(cat trainer/run/*.c | tr '\n' ' ' | grep -oP 'metrics_add\(&run->metrics, [^"]*"\\"\K\w+' | sort -u)
    [ "$(wc -w <<<"$names")" -ge 7 ] # those of trainer/engine end a replay when they are not known
    for name in $names; do grep -qE "^    \{LINE_\w+, \"$name\"" trainer/audit/record.c || { echo "$name" && false; }; done
}

# bats test_tags=ci
@test "runs of every kind replay: optimizers, types, options of the model, dropout, skipped spikes, initial weights" {
    run_copy run
    for options in "--optimizer=muon --dropout=0.1" "--dtype=bfloat16 --optimizer_state=bf16_sr" "--eval_interval=0" \
        "--position=rope --norm=rmsnorm --mlp=swiglu" "--document_mask=True --recheck_interval=2 --sampling=documents" \
        "--eval_order=sequential --eval_block_size=8 --checkpoint_interval=3" "--init_from=run/ckpt-00000024" \
        "--always_save_checkpoint=False --learning_rate=3e-2 --eval_interval=1" \
        "--dtype=float16 --n_embd=64 --block_size=7 --batch_size=3 --eval_batch_size=1" \
        "--spike_action=skip:1 --max_iters=150 --eval_interval=50 --batch_size=1 --gradient_accumulation_steps=1"; do
        rm -rf kind
        # shellcheck disable=SC2086
        "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=kind --max_iters=4 $options
        run_match 0 "are equal" replay kind
        accept_receipt kind
    done
    grep -q '"applied": false' kind/metrics.jsonl
}

# bats test_tags=ci
@test "a run of an earlier version, whose tokenizer.json trims offsets, replays" {
    make_data 600 0.1
    write_tiny_conf tiny.conf
    "$BIN/trainer" train tiny.conf --quiet --dataset=data --out_dir=older --max_iters=4
    sed -i 's/"trim_offsets": false/"trim_offsets": true/' older/ckpt-00000004/tokenizer.json
    run_match 0 "are equal" replay older
    sed -i '1,/use_regex/s/"use_regex": true/"use_regex": false/' older/ckpt-00000004/tokenizer.json
    run_match 1 "tokenizer.json in 'older/ckpt-00000004' is not that" replay older
}

@test "a replay takes no initial weights from the record" {
    run_copy run
    sed -i 's/"seed": "1337"/"seed": "1337", "init_from": "elsewhere"/' run/metrics.jsonl
    run_match 65 "has a key that no run writes" replay run
}

@test "a replay refuses other initial weights than those of the record" {
    run_copy run
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=tuned --max_iters=4 --init_from=run/ckpt-00000024
    run_match 2 "init_from is 'other', and the run began from 'run/ckpt-00000024'" replay tuned --init_from=other
}

@test "a run that was rolled back replays with the samples that it skipped" {
    run_code 81 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --learning_rate=1e30 --grad_clip=0 --weight_decay=0 --eval_interval=100
    grep -q passed_from run/metrics.jsonl
    run_match 0 "are equal" replay run
    sed -i 's/"passed_to": \([0-9]*\)/"passed_to": 1\1/' run/metrics.jsonl
    run_match 1 "passed_to" replay run
}

@test "the loss of step 0 stays the best one of a run that goes back to its start" {
    # a thread waits for signals: it takes the second when it has noted the first. The loader, which has this clock too, gets none
    clock_preload 'static char text[1 << 16], *found; static int sent; sigset_t waiting;
        const int file = open("run/metrics.jsonl", O_RDONLY);
        if (strstr(program_invocation_short_name, "trainer") && file >= 0 && pread(file, text, sizeof text - 1, 0) > 0 && (found = strstr(text, "rolled_back_from")) && strstr(found, "\"step\": 1, \"loss\""))
            for (; sent < 2; sent++) for (kill(getpid(), SIGTERM); !sigpending(&waiting) && sigismember(&waiting, SIGTERM);) usleep(1000);
        close(file);'
    LD_PRELOAD=$PWD/other_clock.so run_code 75 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --learning_rate=1e30 --grad_clip=0 --weight_decay=0 --checkpoint_interval=0
    jq -e '.rolled_back and .best_loss == .first_loss and .best_loss > 0' run/ckpt-*/state.json
    run_match 0 "are equal, and 1 checkpoint" replay run
    accept_receipt run
    grep -q rolled_back_from receipt.json
}

# bats test_tags=ci
@test "which names the tokens that a step was trained on, in every order, and of a mixture" {
    eot=$("$BIN/shardtool" info --json "$data" | jq .eot_id)
    for order in epoch shifted documents crop; do
        "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=$order --sampling=$order --max_iters=2 --eval_interval=0 --print_ranks 2>err
        "$BIN/trainer" which $order --steps=2 --json >which
        [ "$(wc -l <which)" -eq 4 ]
        for i in 1 3; do # the hash of the first and of the second micro-batch, of two samples each
            for sample in $i $((i + 1)); do
                read -r first tokens < <(sed -n ${sample}p which | jq -r '"\(.first_token) \(.tokens)"')
                "$BIN/shardtool" cat "$data" "$first:$((first + tokens))" | cat
            done >ids
            grep -q "sha256 $(sha256sum ids | head -c 16)" err
        done
        # a token's document, by the ends of the documents before it
        "$BIN/shardtool" cat --ids "$data" 0: | tr ' ' '\n' >all
        jq -r '"\(.first_token) \(.first_document)\n\(.first_token + .tokens - 1) \(.last_document)"' which | while read -r token document; do
            [ "$(head -n "$token" all | grep -cx "$eot")" -eq "$document" ]
        done
    done
    serve_until_ready "$data" "$BATS_FILE_TMPDIR/data2:3"
    "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --out_dir=mixed --max_iters=2 --eval_interval=0
    stop_loader
    run_match 2 "name the datasets that it served" "$BIN/trainer" which mixed --steps=1
    run_match 66 "no mixture of them" "$BIN/trainer" which mixed --steps=1 "$data" "$BATS_FILE_TMPDIR/data2"
    run_match 2 "a weight is a whole number up to 1000000" \
        "$BIN/trainer" which mixed --steps=1 "$data:1000000" "$BATS_FILE_TMPDIR/data2:3000000"
    "$BIN/trainer" which mixed --steps=1 --json "$data" "$BATS_FILE_TMPDIR/data2:3" >which
    [ "$(jq -r .dataset which | xargs -n 1 basename | sort | uniq -c | xargs)" = "1 data 3 data2" ]
    [ "$(jq -c 'select(.dataset) | .sources' mixed/metrics.jsonl)" = '[{"name":"data","weight":16384},{"name":"data2","weight":49152}]' ]
    "$BIN/trainer" export --quiet --card --out_dir=mixed -o model
    grep -q 'a mixture of `data` (25.00 %), `data2` (75.00 %)' model/README.md
    # orders that end read all datasets as one split: a sample may be of two of them
    train_tokens() { "$BIN/shardtool" info --json "$1" | jq .train_tokens; }
    seq 11 | sed 's/$/ miller/' >lines && "$BIN/shardtool" tokenize --quiet --val 0 --vocabulary "$BATS_FILE_TMPDIR/ascii" -o few lines
    few=$(train_tokens few) one=$(train_tokens "$data") two=$(train_tokens "$BATS_FILE_TMPDIR/data2")
    [ "$few" -lt 180 ] && [ $((few % 16)) -ne 0 ] # its last sample has tokens of the next dataset
    for order in permuted sequential; do
        for few_first in 1 ""; do
            sets=("$BATS_FILE_TMPDIR/data2:3" "$data" few)
            [ -z "$few_first" ] || sets=(few "$data" "$BATS_FILE_TMPDIR/data2:3")
            serve_until_ready "${sets[@]}"
            rm -rf joined
            "$BIN/trainer" train tiny.conf --loader=ipc://place --out_dir=joined --sampling=$order --max_iters=6 --eval_interval=0 --sample_tokens=0 --print_ranks 2>err
            stop_loader
            grep -q "in this order of samples the 3 datasets of '.*' are one split: their weights count in evaluations alone" err
            for step in 1 2 3 6; do
                "$BIN/trainer" which joined --steps=$step --json "${sets[@]}" >which
                for batch in 0 1; do
                    first=$((4 * (step - 1) + 2 * batch))
                    jq -r "select(.sample >= $first and .sample < $first + 2) | \"\(.dataset) \(.first_token):\(.first_token + .tokens)\"" which |
                        while read -r dataset range; do "$BIN/shardtool" cat "$dataset" "$range"; done >ids
                    grep -q "samples $first to $((first + 1)), sha256 $(sha256sum ids | head -c 16)" err
                done
            done
        done
    done
    [ "$(jq -c 'select(.dataset) | [.sources[].tokens]' joined/metrics.jsonl)" = "[$two,$one,$few]" ]
    "$BIN/trainer" export --quiet --card --out_dir=joined -o card
    grep -q "one split of .data2. ($two tokens), .data. ($one tokens), .few. ($few tokens)" card/README.md
}

# bats test_tags=ci
@test "the card of a run whose mixture got other weights has the samples and weights of each part" {
    seq 1 3000 | sed 's/.*/line & of mills/' >a.txt && seq 1 3000 | sed 's/.*/and & rivers/' >b.txt
    "$BIN/shardtool" train-vocabulary --characters a.txt b.txt >abc
    for name in a b; do "$BIN/shardtool" tokenize --quiet --vocabulary abc --val 0 --docs lines -o $name $name.txt; done
    : >schedule
    serve_until_ready a:3 b:1 --schedule schedule
    many() { # 32,768 samples a step, as weights change 65,536 after the last
        "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --vocabulary=abc --out_dir=run --n_embd=8 --n_head=1 --block_size=2 \
            --batch_size=4096 --gradient_accumulation_steps=8 --eval_interval=0 --sample_tokens=0 "$@"
    }
    many --max_iters=2
    "$BIN/loader" swap :1 :3 --from 150000 --endpoint ipc://place
    many --max_iters=6
    [ "$(jq -c 'select(.dataset) | [.sources[].weight, .weights_from]' run/metrics.jsonl | xargs)" = "[49152,16384,null] [16384,49152,150000]" ]
    "$BIN/trainer" export --quiet --card --out_dir=run -o model
    grep -q ': 65536 samples, 131 k tokens; a mixture of `a` (75.00 %), `b` (25.00 %)$' model/README.md
    grep -q ': 131072 samples, 262 k tokens; a mixture of `a` (25.00 %), `b` (75.00 %) from sample 150000 on$' model/README.md
    "$BIN/trainer" report run
    [ "$(grep -oE '</code></td><td>[0-9]+</td>' run/report.html | grep -oE '[0-9]+' | xargs)" = "65536 131072" ]
    # tokens that were read before count once
    "$BIN/loader" serve-status --endpoint ipc://place --json | jq -e '[.sources[].tokens] | add | . >= 393216 and . < 500000'
}

@test "the record and the card have the weights of a schedule that the loader began with" {
    printf '60 1 3\n100000 1 1\n' >schedule
    serve_until_ready "$data:3" "$BATS_FILE_TMPDIR/data2:1" --schedule schedule
    for end in 10 20; do # with a resume
        "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --out_dir=run --max_iters=$end --eval_interval=0 --sample_tokens=0
    done
    [ "$(jq -c 'select(.dataset) | [.sources[].weight, .weights_from]' run/metrics.jsonl | xargs)" = "[49152,16384,null] [16384,49152,60] [32768,32768,100000]" ]
    "$BIN/trainer" export --quiet --card --out_dir=run -o model
    grep -q ': 80 samples, 1.28 k tokens; a mixture of `data` (75.00 %), `data2` (25.00 %), then `data` (25.00 %), `data2` (75.00 %) from sample 60 on$' model/README.md
    run_match 0 "are equal" replay run --loader=ipc://place
}

@test "which names the steps of a mixture before and after its weights change, and those in the order of before" {
    two=$BATS_FILE_TMPDIR/data2
    : >schedule
    serve_until_ready "$data:3" "$two:1" --schedule schedule
    printf '60 1 3\n' >schedule # as those of a change at 65,536 samples and more
    stop_loader
    serve_until_ready "$data:3" "$two:1" --schedule schedule
    "$BIN/trainer" train tiny.conf --loader=ipc://place --out_dir=run --max_iters=20 --eval_interval=0 --sample_tokens=0 --print_ranks 2>err
    run_match 66 "and the changes of their weights with --schedule=FILE" "$BIN/trainer" which run --steps=2 "$data:3" "$two:1"
    for step in 2 14 15 16 20; do
        "$BIN/trainer" which run --steps=$step --schedule=schedule --json "$data:3" "$two:1" >which
        for i in 1 3; do
            sed -n "$i,$((i + 1))p" which | jq -r '"\(.dataset) \(.first_token) \(.first_token + .tokens)"' |
                while read -r dataset first end; do "$BIN/shardtool" cat "$dataset" "$first:$end" | cat; done >ids
            grep -q "sha256 $(sha256sum ids | head -c 16)" err
        done
    done
    # until protocol version 3 the sources of a mixture shared one random stream
    fingerprint=$(head -1 "$data/dataset.jsonl" | jq -r .fingerprint)
    shared=$(printf 'mixture\n%s 32768\n%s 32768\n' "$fingerprint" "$fingerprint" | sha256sum | cut -d' ' -f1)
    sed -i "s/$(jq -r 'select(.dataset) | .fingerprint' run/metrics.jsonl | head -1)/$shared/" run/metrics.jsonl
    [ "$("$BIN/trainer" which run --steps=3 --json "$data" "$data" | jq .first_token | uniq -c | awk '{print $1}' | xargs)" = "2 2" ]
}

@test "weights of later samples change no link, and the loader's own schedule replays the steps before" {
    two=$BATS_FILE_TMPDIR/data2
    : >schedule
    serve_until_ready "$data:3" "$two:1" --schedule schedule
    train() { "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --eval_interval=8 --sample_tokens=0 --lr_decay_iters=24 --out_dir="$@"; }
    train whole --max_iters=16
    cp -r whole killed
    rm -r killed/ckpt-00000016
    "$BIN/loader" swap :1 :1 --endpoint ipc://place # holds from a sample that no run reaches
    train whole --max_iters=24
    train killed --max_iters=24
    [ "$(chain whole 24)" = "$(chain killed 24)" ]
    cmp {whole,killed}/ckpt-00000024/model.safetensors
    for run in whole killed; do
        run_match 0 "steps 1 to 16 are equal" replay $run --steps=1..16 --loader=ipc://place
        run_match 0 "steps 1 to 24 are equal, and 2 checkpoints" replay $run --loader=ipc://place
        run_match 0 "steps 17 to 24 are equal" replay $run --steps=17..24 --loader=ipc://place
        accept_receipt $run --loader=ipc://place
        "$BIN/trainer" which $run --steps=9 --schedule=schedule --json "$data:3" "$two:1" >which-$run
    done
    cmp which-whole which-killed
    stop_loader
    serve_until_ready "$data:2" "$two:1" # a forger who claims the mixture of the run, and has other weights
    run_match 66 "not checked: step 1 used the dataset " replay killed --check receipt.json --loader=ipc://place
}

@test "the card and both reports have every value that a key had, and from which step on" {
    resume() { "$BIN/trainer" train tiny.conf --quiet --out_dir=run --eval_interval=4 "$@"; }
    resume --dataset="$data" --max_iters=4
    resume --dataset="$data" --max_iters=8 --learning_rate=3e-3 --eval_iters=2
    cp -r run/ckpt-00000008 run/kept
    resume --dataset="$BATS_FILE_TMPDIR/data2" --max_iters=12 --eval_iters=2
    "$BIN/trainer" export --quiet --card --out_dir=run -o model
    "$BIN/trainer" report run
    for file in model/README.md run/report.html; do
        grep -Eqx 'learning_rate += 0.001, from step 5 on 0.003, from step 9 on 0.001' $file
        grep -Eqx 'eval_tokens += 128, from step 5 on 64' $file
        grep -Eqx 'weight_decay += 0.1' $file
        grep -q 'evaluations read other tokens from step 8 on, and from step 12 on: losses' $file
    done
    grep -q '<tr><th>learning_rate</th><td>0.001, from step 5 on 0.003, from step 9 on 0.001</td></tr>' runs.html
    fingerprint() { "$BIN/shardtool" info --json "$1" | jq -r '.fingerprint[:12]'; }
    grep -q "<th>dataset</th><td>data <code>$(fingerprint "$data")</code>, from step 9 on data2 <code>$(fingerprint "$BATS_FILE_TMPDIR/data2")</code></td>" runs.html
    grep -q '<th>evaluation</th><td>evaluations read other tokens from step 8 on, and from step 12 on: ' runs.html
    not grep -q weight_decay runs.html
    # a model of an earlier checkpoint has the values up to its step
    "$BIN/trainer" export --quiet --card --init_from=run/kept -o before
    grep -qx 'learning_rate = 0.001, from step 5 on 0.003' before/README.md
}

@test "the card of a fine-tuned model has the data and the chain of its base, and no path" {
    local whole=$BATS_FILE_TMPDIR/runs/whole
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --init_from="$whole/ckpt-00000024" --out_dir=second
    "$BIN/trainer" train tiny.conf --quiet --dataset="$BATS_FILE_TMPDIR/data2" --init_from="$PWD/second/ckpt-00000024/" --out_dir="$PWD/third"
    "$BIN/trainer" export --quiet --card --out_dir=third -o model
    for of in data data2; do "$BIN/shardtool" info --json "$BATS_FILE_TMPDIR/$of" | jq -r .fingerprint >$of; done
    history=$("$BIN/shardtool" info "$data" | sed -n 's/^history *//p')
    sed -nE '/^## Base/,/^## Training/{/^## Training/d;/^$/d;p}' model/README.md >found
    diff found - <<END
## Base: \`second/ckpt-00000024\`
- \`data\`, fingerprint \`$(cat data)\`: 96 samples, 1.54 k tokens
  \`\`\`text
  $history
  \`\`\`
- link of step 24 in the chain of its run: \`$(chain second 24)\`
## Base: \`whole/ckpt-00000024\`
- \`data\`, fingerprint \`$(cat data)\`: 96 samples, 1.54 k tokens
  \`\`\`text
  $history
  \`\`\`
- link of step 24 in the chain of its run: \`$(chain "$whole" 24)\`
END
    grep -q "fingerprint \`$(cat data2)\`" model/README.md
    not grep -F "$BATS_FILE_TMPDIR" model/README.md
    not grep -F "$PWD" model/README.md
    "$BIN/trainer" export --quiet --out_dir="$whole" -o plain
    "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --init_from=./plain --out_dir=fourth
    "$BIN/trainer" export --quiet --card --out_dir=fourth -o other
    grep -qxF -- "- its data is not known; model.safetensors has the SHA-256 \`$(sha256sum <plain/model.safetensors | cut -d' ' -f1)\`" other/README.md
}

@test "the card of an exported model has its data, order, tokens, versions and hashes" {
    "$BIN/trainer" export --quiet --card --out_dir="$BATS_FILE_TMPDIR/runs/whole" -o model
    run cat model/README.md
    fingerprint=$("$BIN/shardtool" info --json "$data" | jq -r .fingerprint)
    for part in "# \`model\`" "\`data\`, fingerprint \`$fingerprint\`: 96 samples, 1.54 k tokens" "order of the samples: \`epoch\`, seed 1337" \
        "tokens: 1.54 k (1536)" "steps: 24" "trained it: \`$(sed -nE 's/.*"version": "([^"]*)".*/\1/p' "$BATS_FILE_TMPDIR/runs/whole/metrics.jsonl")\`" \
        "learning_rate = 0.001" "$(chain "$BATS_FILE_TMPDIR/runs/whole" 24)"; do
        [[ "$output" == *"$part"* ]] || { echo "no '$part' in $output" && false; }
    done
    cd model
    grep -E '^[0-9a-f]{64}  ' README.md >../sums
    sha256sum -c ../sums
    [ "$(wc -l <../sums)" -eq "$(($(ls | wc -l) - 1))" ]
    run_match 66 "not a checkpoint of a run" "$BIN/trainer" export --card --init_from=../model -o ../again
    [ ! -e ../again ]
}

@test "a receipt is written once it is whole, and options that have no effect are refused" {
    run_copy run
    run_match 0 "24 steps in 2 segments" replay run --receipt receipt.json
    [ "$(wc -c <receipt.json)" -le 10000 ]
    run_match 0 "segment 2 of 2, steps 17 to 24: accepted" replay run --check receipt.json --segments=2 --seed=1
    [[ "$output" == *"chance to miss forged segments: 1 of 2: 0, 2 of 2: 0"*"not computed: grades by items"* ]]
    run_match 73 "exists: remove it" replay run --receipt receipt.json
    run_match 2 "--segments is 3, and the receipt has 2" replay run --check receipt.json --segments=3 --seed=1
    run_match 2 "--segments needs a number that you choose after the receipt was published" replay run --check receipt.json --segments=1
    run_match 2 "--seed" replay run --seed=1
    run_match 2 "--steps" replay run --receipt other.json --steps=1
    run_match 66 "" replay run --check missing.json
    cp receipt.json before
    sed -i 's/\("step": 5, .*"chain": "\)./\1x/' run/metrics.jsonl # a link that the re-run refuses
    run_match 65 "segment 1 of 2, steps 1 to 16: refused: a line of *segment 2 of 2, steps 17 to 24: accepted" replay run --check receipt.json
    [[ "$output" != *chance* ]]
    sed -i '/"step": 5, "loss"/d' run/metrics.jsonl
    run_match 66 "segment 1 of 2, steps 1 to 16: not checked: 'run/metrics.jsonl' lacks step 5" replay run --check receipt.json
    run_match 66 "lacks step 5" replay run --receipt other.json
    cp "$BATS_FILE_TMPDIR/runs/whole/metrics.jsonl" run/
    rm -r run/ckpt-*
    run_match 66 "has no checkpoint" replay run --receipt other.json
    cmp receipt.json before # stays as it was
    (cd "$BATS_FILE_TMPDIR" && ulimit -f 0 && not "$BIN/trainer" replay runs/whole --receipt "$BATS_TEST_TMPDIR/full.json" 2>/dev/null)
    [ ! -e full.json ]
}
