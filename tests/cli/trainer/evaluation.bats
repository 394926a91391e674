# Evaluation: samples of the whole split, the sources of a mixture, bits per byte, the rule of the best loss.
load ../helpers

# A model that has seen prose and no code; datasets of both kinds, and one with all code before all prose. Of characters: what is
# tested are the samples and their sums.
setup_file() {
    cd "$BATS_FILE_TMPDIR"
    make_ascii
    mkdir sorted code prose
    seq 1 1300 | sed 's/.*/    for (size_t i = 0; i < count_&; i++) sum += table[i & mask] * 0x&;/' | split -l 20 -a 4 - code/a-
    seq 1 1990 | sed 's/.*/line & of a text about mills, rivers and the stream that drives the wheel/' | split -l 20 -a 4 - prose/b-
    cp code/* prose/* sorted
    for name in code prose sorted; do "$BIN/shardtool" tokenize --quiet --val 0.4 --seed 3 --vocabulary ascii -o data/$name $name; done
    write_tiny_conf tiny.conf
    echo "vocabulary = '$PWD/ascii'" >>tiny.conf # for a loader's datasets
    "$BIN/trainer" train tiny.conf --quiet --learning_rate=0.02 --dataset=data/prose --out_dir=run
}
setup() { enter_test && cp -r "$BATS_FILE_TMPDIR"/{data,run,tiny.conf} .; }

evaluate() { "$BIN/trainer" eval --out_dir=run --threads=1 --quiet --json "$@"; }
# within A B SHARE: whether A is B, up to a share of B
within() { python3 -c "import sys; a, b, share = map(float, sys.argv[1:]); sys.exit(abs(a - b) > share * b and f'{a} is not {b}')" "$@"; }
loss_of() { sed -nE "s/.*\"split\": \"$1\", \"loss\": ([0-9.]*).*/\1/p" "$2"; }

# bats test_tags=ci
@test "8192 tokens of a dataset sorted by kind have the loss of the whole" {
    evaluate --dataset=data/sorted --eval_tokens=8192 >few
    evaluate --dataset=data/sorted --eval_tokens=100000000 >whole
    for split in train val; do within "$(loss_of $split few)" "$(loss_of $split whole)" 0.08; done
    # the first tokens are code alone
    evaluate --dataset=data/sorted --eval_tokens=8192 --eval_order=sequential >first
    not within "$(loss_of val first)" "$(loss_of val whole)" 0.08
    # every sample once, in either order
    evaluate --dataset=data/sorted --eval_tokens=100000000 --eval_order=sequential >all
    for split in train val; do within "$(loss_of $split all)" "$(loss_of $split whole)" 1e-6; done
    # the seed of a run does not choose the samples, nor does the batch size, which on some processors changes the rounding
    evaluate --dataset=data/sorted --eval_tokens=8192 --seed=7 --eval_batch_size=3 >batches
    for split in train val; do within "$(loss_of $split batches)" "$(loss_of $split few)" 1e-6; done
}

@test "a mixture has the mean of its sources by weight, for a few tokens and for all" {
    serve_until_ready data/code:1 data/prose:3
    evaluate --loader=ipc://place --eval_tokens=8192 >few
    evaluate --loader=ipc://place --eval_tokens=100000000 >whole
    for name in code prose; do
        evaluate --dataset=data/$name --eval_tokens=100000000 --eval_order=sequential >$name
    done
    for name in code prose; do # all targets of a split
        for split in train val; do echo "$name $split $(text_bytes data/$name $split $name)"; done
    done >bytes
    python3 - <<'END'
import json
read = lambda name: {line["split"]: line for line in map(json.loads, open(name))}
code, prose, few, whole = map(read, ("code", "prose", "few", "whole"))
bytes = {tuple(line.split()[:2]): int(line.split()[2]) for line in open("bytes")}
for split in ("train", "val"):
    a, b = code[split], prose[split]
    loss = (a["loss"] + 3 * b["loss"]) / 4
    x, y = bytes["code", split] / a["tokens"], 3 * bytes["prose", split] / b["tokens"]
    bpb = (a["bpb"] * x + b["bpb"] * y) / (x + y)
    assert abs(whole[split]["loss"] - loss) < 1e-6 * loss, (whole, loss)
    assert abs(whole[split]["bpb"] - bpb) < 1e-6 * bpb, (whole, bpb)
    assert abs(whole[split][f"{split}/code"] - a["loss"]) < 1e-6 and abs(whole[split][f"{split}/prose"] - b["loss"]) < 1e-6
    assert whole[split]["tokens"] == a["tokens"] + b["tokens"] and few[split]["tokens"] == 8192
    assert abs(few[split]["loss"] - loss) < 0.08 * loss and a["loss"] > 1.3 * b["loss"], (few, loss)
END
    # the order of the sources on the command line does not matter
    kill_loader
    serve_until_ready data/prose:3 data/code:1
    evaluate --loader=ipc://place --eval_tokens=8192 >turned
    for split in train val; do within "$(loss_of $split few)" "$(loss_of $split turned)" 1e-6; done
}

# The bytes of the targets of one pass in order: the ids from the second on, in whole sequences.
text_bytes() { # DATASET SPLIT LINES
    local n=$(jq -r "select(.split == \"$2\") | .tokens" "$3")
    "$BIN/shardtool" decode --split "$2" "$1" 1:$((n + 1)) | sed 's/<|endoftext|>//g' | wc -c
}
check_bytes() { # DATASET of tokenize_two
    head -n 1 found | jq -e --argjson bytes "$(text_bytes "$1" train found)" \
        '.loss * .tokens / (0.6931471805599453 * $bytes) / .bpb - 1 | fabs < 1e-7'
}

# bats test_tags=ci
@test "bits per byte divide by the bytes of the targets, of GPT-2's ids and of characters" {
    cat "$BATS_FILE_TMPDIR"/prose/* >prose.txt
    tokenize_two data/two prose.txt
    sed -i '/^vocabulary/d' tiny.conf # each dataset has its own
    "$BIN/trainer" train tiny.conf --quiet --dataset=data/two --max_iters=2 --sample_tokens=0 --out_dir=gpt2
    evaluate --out_dir=gpt2 --dataset=data/two --eval_tokens=1600 --eval_order=sequential >found
    check_bytes data/two
    export LC_ALL=C.UTF-8
    seq 1 400 | sed 's/.*/Die Mühle am Bach, line & of the wheel;/' >text.txt
    "$BIN/shardtool" train-vocabulary --characters text.txt >abc
    tokenize_two data/chars text.txt --vocabulary abc
    "$BIN/trainer" train tiny.conf --quiet --dataset=data/chars --max_iters=2 --sample_tokens=0 --out_dir=chars
    evaluate --out_dir=chars --dataset=data/chars --eval_tokens=1600 --eval_order=sequential >found
    check_bytes data/chars
}

@test "a run records each source and bits per byte, in metrics, the report and status" {
    serve_until_ready data/code:1 data/prose:3
    "$BIN/trainer" train tiny.conf --loader=ipc://place --out_dir=mixed --eval_tokens=1024 --max_iters=8 >lines
    jq -c 'select(.val_loss) | [.val_loss, .val_bpb, .train_bpb, ."val/code", ."val/prose", ."train/code", ."train/prose"]' mixed/metrics.jsonl >found
    [ "$(wc -l <found)" -eq 2 ]
    jq -e 'all(. > 0) and (.[3] * 0.25 + .[4] * 0.75 - .[0] | fabs) < 1e-9' found
    printf '| val loss %.4f, %.4f bits per byte (code %.4f, prose %.4f)' $(jq -r '[.[0, 1, 3, 4]] | @tsv' found | tail -1) >text
    grep -qFf text lines
    "$BIN/trainer" status --json mixed >status
    jq -e --slurpfile found found '[.val_loss, .val_bpb, .train_bpb, ."val/code", ."val/prose"] as $is | $found[-1] as $want |
        all(range(5); $is[.] / $want[.] - 1 | fabs < 1e-7)' status
    grep -q "<th>val/code</th><td>$(jq -r '.[3]' found | tail -1 | xargs printf %.4f)<" mixed/report.html
    grep -q "<th>bits per byte at step $(jq -r 'select(.val_bpb) | .step' mixed/metrics.jsonl | tail -1)</th><td>$(jq -r '.[1]' found | tail -1 | xargs printf %.4f)," mixed/report.html
    # eval uses the weights of the run's position
    evaluate --out_dir=mixed --loader=ipc://place --dtype=float32 | tail -1 >last
    within "$(loss_of val last)" "$(jq -r '.[0]' found | tail -1)" 1e-6
}

@test "an evaluation that was stopped after its step was saved reaches the checkpoint when it is made again" {
    tiny=(--dataset=data/prose --out_dir=late --sample_tokens=0 --always_save_checkpoint=False)
    "$BIN/trainer" train tiny.conf --quiet "${tiny[@]}" --max_iters=4 --eval_interval=4 --eval_iters=1
    begin "${tiny[@]}" --max_iters=10 --eval_interval=8 --eval_iters=100000000
    wait_until grep -q '"step": 8, "loss"' late/metrics.jsonl
    kill -TERM "$TRAINER"
    ends 75
    jq -e '.evaluated == false and .best_step == 4' late/ckpt-00000008/state.json
    "$BIN/trainer" train tiny.conf --quiet "${tiny[@]}" --max_iters=10 --eval_interval=8 --eval_iters=1
    jq -e '.evaluated and .best_step == 8 and .last_loss == .best_loss' late/ckpt-00000008/state.json
    run_match 0 "are equal" "$BIN/trainer" replay late
}

@test "an evaluation uses the weights that the schedule has at its step" {
    echo "24 0 4" >schedule
    serve_until_ready data/code:1 data/prose:3 --schedule schedule
    mixed() { "$BIN/trainer" "$1" --loader=ipc://place --out_dir=mixed --quiet --threads=1 "${@:2}"; }
    train=(train tiny.conf --eval_interval=3 --sample_tokens=0)
    mixed "${train[@]}" --max_iters=3
    [ "$(mixed eval --json | grep -c train/code)" -eq 1 ]
    mixed "${train[@]}" --max_iters=9
    [ "$(mixed eval --json | grep -c train/code)" -eq 0 ]
    # 4 samples a step: both sources at steps 0 and 3, prose alone at steps 6 and 9
    jq -se 'map(select(.val_loss) | if .step < 6 then ."val/code" > 0 else (has("val/code") | not) and .val_loss == ."val/prose" end) | all and length == 4' mixed/metrics.jsonl
}

@test "a loss within documents is not compared with one across them" {
    for mask in False True; do
        "$BIN/trainer" train tiny.conf --quiet --dataset=data/code --out_dir=$mask --max_iters=1 --eval_tokens=256 --document_mask=$mask
        jq -r 'select(.eval_rule) | .eval_rule' $mask/metrics.jsonl | sort -u >rule.$mask
        [ "$(wc -l <rule.$mask)" = 1 ]
    done
    not cmp -s rule.False rule.True
}

@test "a best loss is not compared with one of another evaluation" {
    train() { "$BIN/trainer" train tiny.conf --dataset=data/code --out_dir=rule --sample_tokens=0 "$@" 2>&1; }
    train --max_iters=8
    run train --max_iters=16
    [[ "$status" -eq 0 && "$output" != *"starts again"* && "$output" == *"best so far"* ]]
    "$BIN/trainer" status --json rule | jq -e '.best_step == 16 and .best_since == 0'
    run train --max_iters=24 --eval_tokens=64 --learning_rate=10 # a larger loss
    [[ "$output" == *"the best validation loss so far, "*" at step 16, is of an evaluation of another order, size, dataset, mixture or loss_tokens: the best loss starts again"* ]]
    "$BIN/trainer" status --json rule | jq -e '.best_val_loss == .val_loss and .best_val_loss > .val_loss_before'
    run train --max_iters=32 --eval_tokens=64 --eval_order=sequential
    [[ "$output" == *"at step 24, is of an evaluation of another order"* ]]
    "$BIN/trainer" status rule | grep -qE '^best_since +32$'
    # each line has its rule: an order, a size and data of its own have a rule of their own
    jq -c 'select(.val_loss) | .eval_rule' rule/metrics.jsonl >rules
    [ "$(uniq -c rules | awk '{print $1}' | xargs)" = "3 1 1" ]
}

@test "the losses of a run are not compared with those of another dataset or other weights" {
    train() { "$BIN/trainer" train tiny.conf --out_dir=changed --sample_tokens=0 --always_save_checkpoint=False "$@" 2>&1; }
    train --dataset=data/prose --max_iters=8 --learning_rate=0.02
    train --dataset=data/code --max_iters=16 >lines # code has a larger loss than prose
    grep -q "at step 8, is of an evaluation of another order, size, dataset, mixture or loss_tokens: the best loss starts again" lines
    grep -q "^validation loss [0-9.]* after 16 steps" lines
    "$BIN/trainer" status --json changed | jq -e '.best_val_loss == .val_loss and (.val_loss_before == null)'
    serve_until_ready data/code:1 data/prose:3
    train --loader=ipc://place --max_iters=24 >/dev/null
    kill_loader
    serve_until_ready data/code:3 data/prose:1
    train --loader=ipc://place --max_iters=32 | grep -q "at step 24, is of an evaluation of another order"
}

@test "status shows the loss and the bits per byte of one evaluation, and its step" {
    rm -r run/ckpt-00000024 # the last evaluation is later than the newest checkpoint
    "$BIN/trainer" status --json run >status
    jq -se --slurpfile is status 'map(select(.val_loss))[-1] as $want | $is[0] | .step < .evaluated_step and .evaluated_step == $want.step and
        (.val_loss / $want.val_loss - 1 | fabs < 1e-7) and (.val_bpb / $want.val_bpb - 1 | fabs < 1e-7)' run/metrics.jsonl
}

@test "eval_only writes nothing, beside a live run too" {
    run_match 0 "step 0 | train loss *| val loss " "$BIN/trainer" train tiny.conf --dataset=data/prose --out_dir=none --eval_only=True
    [ ! -e none ]
    last=$(steps run)
    sed -i '$d' run/metrics.jsonl && printf '{"step": 8' >>run/metrics.jsonl # as a live run leaves it for a moment
    cp -r run before
    exec 4<>run/.lock && flock 4
    run_match 0 "step $last | train loss " "$BIN/trainer" train tiny.conf --dataset=data/prose --out_dir=run --eval_only=True
    exec 4>&-
    diff -r before run
}
