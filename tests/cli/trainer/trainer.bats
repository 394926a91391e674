# What a user sees of the trainer: runs, resumes, refusals.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 6000 0.1 --vocabulary ascii
    mkdir gpt2 && cd gpt2
    make_data 6000 0.1
    make_other_data 4000
}

last() { checkpoint "$1" 24; }

# multiply_gains CHECKPOINT DIRECTORY FACTOR: a model directory without hashes, with other gains of the last norm
multiply_gains() {
    mkdir "$2"
    cp "$1/config.json" "$2"
    python3 - "$1/model.safetensors" "$2/model.safetensors" "$3" <<'END'
import array, json, sys
raw = open(sys.argv[1], "rb").read()
start = 8 + int.from_bytes(raw[:8], "little")
header = json.loads(raw[8:start])
del header["__metadata__"]
begin, end = (start + offset for offset in header["transformer.ln_f.weight"]["data_offsets"])
gains = array.array("f", [float(sys.argv[3]) * gain for gain in array.array("f", raw[begin:end])])
text = json.dumps(header).encode()
with open(sys.argv[2], "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text + raw[start:begin] + gains.tobytes() + raw[end:])
END
}

# bats test_tags=ci
@test "the report shows the texts that a run has sampled, the newest first, and its memory" {
    printed() { sed -n '/^-----*$/,/^-----*$/p' "$1" | sed '1d;$d'; }
    sample_of() { # STEP: what the report shows for it
        python3 -c 'import html, re, sys
print(html.unescape(re.search(f"<h3>step {sys.argv[1]}</h3>\n<pre>(.*?)</pre>", open("run/report.html").read(), re.S)[1]))' "$1"
    }
    train --out_dir=run --max_iters=2 --sample_tokens=30 >first
    python3 - "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --max_iters=4 --sample_tokens=30 --sample_start='a<b' >second <<'END'
import os, sys
pid = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss / 1024, file=open("peak", "w"))
sys.exit(os.waitstatus_to_exitcode(status))
END
    [ "$(sed -n 's/^<h3>step \([0-9]*\)<.*/\1/p' run/report.html | paste -sd ' ')" = "4 2" ]
    diff <(printed first) <(sample_of 2)
    diff <(printed second) <(sample_of 4)
    [[ "$(printed second)" == a\<b* ]]
    arena=$("$BIN/trainer" plan tiny.conf | sed -nE 's/^ *arena +[0-9]+ +([0-9.]+ [A-Za-z]+)$/\1/p')
    shown=$(sed -nE "s/.*arena of $arena by the plan, process of at most ([0-9.]+) MiB.*/\1/p" run/report.html)
    awk -v shown="$shown" '{ exit !(shown > 0.8 * $1 && shown < 1.02 * $1) }' peak
}

@test "one command trains a model and writes checkpoints, metrics and a report" {
    with_gpt2
    run_match 0 "cpu: " train --out_dir=run
    [[ "$output" == *"step     24/24 | loss "*" | norm "*" | lr "*" ms | "*" tok/s | "*" TFLOP/s"*" | 0:00:0"*" left"* ]]
    [[ "$output" == *"step      0 | train loss "*" | a guess among 50257 ids: 10.8249"* ]] # ln(50257)
    [[ "$output" == *"validation loss 10.8"*" before training, "*" after 24 steps"* ]]
    mean=$(sed -nE 's|.*: ([0-9]+) tok/s, the mean of the steps from 1 on$|\1|p' <<<"$output")
    jq -se "map(select(.tok_s)) | (map(.ms * .tok_s) | add) / (map(.ms) | add) / $mean - 1 | fabs < 1e-3 + 0.5 / $mean" run/metrics.jsonl
    [ "$(steps run)" -eq 24 ]
    [ "$(grep -c val_loss run/metrics.jsonl)" -eq 4 ]
    [ "$(ls -d run/ckpt-* | wc -l)" -eq 2 ]
    last=$(jq -r 'select(.val_loss) | .val_loss' run/metrics.jsonl | tail -1 | xargs printf %.5g)
    grep -q "^validation data $last (step 24)" run/report.html # under the pointer
    grep -q '<th>backend</th><td>cpu: ' run/report.html
    speed=$(awk -F'"ms": |, "tok_s": |, "wait"' '/tok_s/ { s += $2; t += $2 * $3 } END { printf "%.0f", t / s }' run/metrics.jsonl)
    grep -q "<th>speed</th><td>$speed tokens/s in steps, mean of the run" run/report.html
    run_code 1 grep -E 'src=|href=|<script|https?://' run/report.html
    run "$BIN/trainer" status run
    [[ "$output" == *"step "*"24"*"val_loss_before"* ]]
    "$BIN/trainer" status --json run | grep -q '^{"step": 24, "val_loss_before": 10.8'
    "$BIN/trainer" status --json run | jq -e '.max_iters == 24 and .checkpoint == "run/ckpt-00000024"'
    [[ "$output" == *"max_iters "*"24"*"checkpoint "*"run/ckpt-00000024"* ]]
    [[ "$output" == *"the median of the last steps"* ]]
    cmp <("$BIN/trainer" status --man) <("$BIN/trainer" --man status)
    for name in step last_step max_iters evaluated_step tokens_per_s; do "$BIN/trainer" status --man | grep -q "^\.B $name\$"; done
}

@test "trainer status shows what other programs had of the processor where it was above 20 %" {
    mkdir run
    printf '{"step": %s, "loss": 3.5, "ms": 2, "tok_s": 100}\n{"step": %s, "processor_lost": %s}\n' 32 32 0.345 >run/metrics.jsonl
    run_match 0 "*processor_lost * 34 %*" "$BIN/trainer" status run
    "$BIN/trainer" status --json run | jq -e .processor_lost==0.34
    echo '{"step": 64, "processor_lost": 0.012}' >>run/metrics.jsonl
    "$BIN/trainer" status --json run | jq -e 'has("processor_lost") | not'
}

# bats test_tags=ci
@test "trainer report puts the run with the lowest loss first, where the losses compare" {
    for rate in 1e-5 1e-2 1e-3; do train --quiet --out_dir="lr$rate" --learning_rate=$rate --decay_lr=False --sample_tokens=0; done
    order() { sed -nE 's/^<tr><td>([^<]*)<.*/\1/p' runs.html; }
    lowest() { jq -r 'select(.val_loss) | .val_loss' "$1/metrics.jsonl" | sort -g | head -1; }
    want=$(for run in lr*; do echo "$(lowest "$run") $run"; done | sort -g | cut -d' ' -f2)
    "$BIN/trainer" report lr*
    diff <(echo "$want") <(order)
    grep best runs.html | grep -q "^<tr><td>$(head -1 <<<"$want")<.*<b>$(lowest "$(head -1 <<<"$want")" | xargs printf %.4f)</b> best"
    [ "$(grep -c best runs.html)" = 1 ]
    train --quiet --out_dir=other --learning_rate=1e-3 --eval_iters=2 --sample_tokens=0
    "$BIN/trainer" report lr* other
    diff <(printf '%s\n' lr* other) <(order)
    not grep best runs.html
}

@test "the initial weights are saved by max_iters=0, and a run from them is the run" {
    train --quiet --out_dir=start --max_iters=0
    "$BIN/trainer" export --quiet --out_dir=start -o model
    train --quiet --out_dir=whole
    train --quiet --out_dir=from --init_from=start/ckpt-00000000
    diff <(losses whole) <(losses from)
    train --quiet --out_dir=other --init_from=./model
    diff <(losses whole) <(losses other)
    train --quiet --out_dir=start # goes on
    diff <(losses whole) <(losses start)
}

@test "eval reads one split, and a dataset that has one" {
    train --quiet --out_dir=run
    evaluate() { "$BIN/trainer" eval --out_dir=run --threads=1 --json "$@" 2>log; }
    evaluate --dataset="$data" >both
    [ "$(wc -l <both)" = 2 ]
    diff <(head -1 both) <(evaluate --dataset="$data" --split=train)
    diff <(tail -1 both) <(evaluate --dataset="$data" --split=val)
    "$BIN/shardtool" tokenize --quiet --val 1 --vocabulary "$BATS_FILE_TMPDIR/ascii" -o held "$BATS_FILE_TMPDIR/docs/part-aa"
    evaluate --dataset=held >found
    [[ "$(cat found)" == '{"split": "val", "loss": '* ]] && [ "$(wc -l <found)" = 1 ]
    grep -q "no train data" log
    run_match 2 "the train data has no more than 16 tokens" "$BIN/trainer" eval --out_dir=run --dataset=held --split=train
    run_match 2 "--split is train or val, not 'test'" "$BIN/trainer" eval --out_dir=run --dataset=held --split=test
    run_match 2 "are of no split" "$BIN/trainer" eval --out_dir=run --items=x --split=val
}

# bats test_tags=ci
@test "trainer report compares runs: curves, last values, the keys in which they differ" {
    for rate in 1e-3 5e-3; do train --out_dir="run $rate" --quiet --learning_rate=$rate; done
    run_match 0 "runs.html" "$BIN/trainer" report "run 1e-3" "run 5e-3"
    run_code 1 grep -E 'src=|href=|<script|https?://' runs.html
    [ "$(grep -c '<figure>' runs.html)" = 5 ]
    arena=$("$BIN/trainer" plan tiny.conf | sed -nE 's/^ *arena +[0-9]+ +([0-9.]+ [KM]iB)$/\1/p')
    [ "$(grep -c "<td>$arena</td></tr>" runs.html)" = 2 ]
    for rate in 1e-3 5e-3; do
        grep -q "<td>run $rate</td><td>24</td>.*<td>$(jq -r 'select(.val_loss) | .val_loss' "run $rate/metrics.jsonl" | tail -1 | xargs printf %.4f)</td>" runs.html
    done
    [ "$(sed '1,/different keys/d' runs.html | grep -oE '^<tr><th>[a-z_]+' | tr -d '\n')" = "<tr><th>dataset<tr><th>learning_rate" ]
    train --out_dir=rope --quiet --learning_rate=1e-3 --position=rope
    for runs in "run 1e-3,rope" "rope,run 1e-3"; do # a checkpoint leaves out a key of the model that has its default
        "$BIN/trainer" report "${runs%,*}" "${runs#*,}"
        grep -q '<tr><th>position</th><td>\(learned</td><td>rope\|rope</td><td>learned\)</td></tr>' runs.html
    done
    "$BIN/shardtool" tokenize -q --val 0.5 --vocabulary "$BATS_FILE_TMPDIR/ascii" -o other "$BATS_FILE_TMPDIR/docs"
    train --out_dir=third --quiet --dataset=other
    "$BIN/trainer" report "run 1e-3" third
    grep -q '<th>evaluation</th><td></td><td>of other tokens: its losses do not compare with the first</td>' runs.html
    train --out_dir=without --quiet --max_iters=1 --eval_interval=0
    "$BIN/trainer" report without "run 1e-3"
    not grep -q 'do not compare' runs.html
    rm -r third/ckpt-*
    "$BIN/trainer" report "run 1e-3" third
    not grep -q 'do not compare' runs.html
    run_code 2 "$BIN/trainer" report
    run_code 66 "$BIN/trainer" report none
    mkdir refused
    run_match 0 "'refused' has no steps, and is left out" "$BIN/trainer" report refused third
    run_code 66 "$BIN/trainer" report refused none
}

@test "the evaluation of a model whose loss is not finite exits with 81" {
    train --out_dir=run --quiet --max_iters=1 --eval_interval=0
    multiply_gains run/ckpt-00000001 broken nan
    run_code 81 train --out_dir=next --init_from=./broken --eval_only=True
    run_code 81 bash -c '"$BIN/trainer" eval --init_from=./broken --dataset="$0" --threads=1 --eval_tokens=64 --json 2>/dev/null' "$data"
    [ "$output" = '{"split": "train", "loss": null, "bpb": null, "tokens": 64}' ]
}

@test "no token is drawn from logits that are not finite: sample exits with 81, and training ends without a sample" {
    with_gpt2
    yes '{"prompt": "the mill", "completion": "the wheel of it"}' | head -20 >pairs.jsonl
    "$BIN/shardtool" tokenize --quiet --turns --val 0 -o pairs pairs.jsonl
    run_match 0 "no sample: the logits are not finite" train --dataset=pairs --out_dir=run --max_iters=2 --eval_interval=0 \
        --warmup_iters=0 --decay_lr=False --learning_rate=1e10 --grad_clip=0 --sample_tokens=5
    not grep -q '"sample"' run/metrics.jsonl
    for temperature in 0 1; do
        run_match 81 "the logits are not finite" "$BIN/trainer" sample --out_dir=run --num_samples=2 --temperature=$temperature
        run_match 81 "the logits are not finite" "$BIN/trainer" sample --out_dir=run --turns --temperature=$temperature <<<"the mill"
    done
}

@test "a run whose vocabulary was removed meanwhile ends without a sample" {
    cp "$data/characters.txt" own.txt
    train --vocabulary=own.txt --out_dir=run --max_iters=1000 --eval_interval=0 --checkpoint_interval=0 --sample_tokens=5 2>log |
        { grep -m1 -q '^step' && rm own.txt && cat >lines; } # the trainer cannot end before: its lines are more than a pipe holds
    [ "${PIPESTATUS[*]}" = "0 0" ]
    [ "$(wc -c <lines)" -gt 65536 ]
    grep -q "no sample: cannot open 'own.txt'" log
}

@test "eval --items reads standard input, names a bad line, 65, and refuses a dataset" {
    train --out_dir=run --quiet --max_iters=1 --sample_tokens=0
    item() { echo '{"task": "a", "id": 7, "kind": "choice", "span": "ending", "texts": [["the mill", " wheel"], ["the mill", " stone"]], "label": 1}'; }
    evaluate() { "$BIN/trainer" eval --out_dir=run --threads=1 --device=cpu --json "$@"; }
    item >items
    evaluate --items=items >whole
    [[ "$(head -1 whole)" == '{"format":"millrace items 1",'*',"step":1,"block":16,'* ]]
    cmp whole <(evaluate --items=- <items)
    cmp whole <(cat items | evaluate --items=-)
    echo "dataset = '$data'" >with.conf # of the training run
    cmp whole <(evaluate with.conf --items=items)
    run_code 2 evaluate --items=
    run_match 2 "--dataset and --items" evaluate --items=items --dataset="$data"
    run_match 2 "'--choices' is now '--items" evaluate --choices=items
    # keys that are not read may have what only some readers of JSON take
    { printf '\xef\xbb\xbf\n \r\n' && sed 's/}$/, "n": 18446744073709551615, "x\\u0000": [NaN, 1e400, "\\ud83d"]}/' items && echo; } >other
    cmp <(tail -1 whole) <(evaluate --items=other | tail -1)
    while IFS='|' read -r change message; do
        { item && item | sed "$change"; } >bad
        run_match 65 "'bad' line 2: *$message" evaluate --items=bad
    done <<'END'
s/.*/[]/|not a JSON object
s/}$//|not valid JSON: it ends within a value
s/.*/PAR1/|not valid JSON: not a JSON object
s/.*/{"ctx": "a", "endings": ["b", "c"], "label": 0}/|docs/grade.md
s/"task": "a", //|no text 'task'
s/7/[7]/|'id' is neither
s/choice/letters/|'kind' is not
s/, \["the mill", " stone"\]//|2 to 64 texts
s/choice/greedy/|kind greedy, and 'texts' is not a list of one text
s/"span": "ending", //|'span' is not
s/" wheel"/""/|text 0: no token of its own
s/" wheel"/3/|text 0: a text is not ?context, ending?
s/"label": 1/"label": 2/|'label' is not the number of a text, 0 to 1
s/ending", "t/common", "t/|do not end alike
s/ wheel/ wheel and more than the sixteen tokens of a sequence/|text 0: * of a text are scored
s/"kind": .*/"kind": "answers", "messages": [], "answer": "b"}/|train it with --turns
s/"label"/"shots": ["abc ", "def "], "label"/|'shots' is not a text
s/"label"/"shots": {"a": 1}, "label"/|'shots' is not a text
s/"label"/"shots": 5, "label"/|'shots' is not a text
s/"label"/"begin": "no", "label"/|'begin' is not true or false
s/"label"/"begin": 0, "label"/|'begin' is not true or false
s/"label"/"chance": "0.5", "label"/|'chance' is not a number
s/"ending"/["ending"]/|'span' is not
s/"label": 1/"label": true/|'label' is not the number
s/\[\[.*\]\]/{"a": 1, "b": 2}/|'texts' is not a list of 2 to 64
s/"kind": "choice", "span": "ending"/"kind": "greedy", "span": 3/;s/, \["the mill", " stone"\]//|'span' is not
s/"choice"/["choice"]/|'kind' is not
s/: 7/: 7.5/|'id' is neither
s/"a"/""/|'task' is empty
s/"a"/"a\\nb"/|a line end or a control character
s/"a"/"a\\u001b[31m"/|a line end or a control character
s/"a"/"a\\u0085b"/|a line end or a control character
s/"a"/"a\\u0000b"/|a line end or a control character
END
    sed 's/}$/, "shots": null, "begin": null, "chance": null}/' items >nulls # as pandas writes keys that are left out
    cmp <(tail -1 whole) <(evaluate --items=nulls | tail -1)
    item | sed 's/7/"7"/' | cat items - >other # a number and a text
    run_code 0 evaluate --items=other
    for i in {1..3000}; do item | sed "s/7/$i/"; done >many && item | sed 's/7/2/' >>many
    run_match 65 "'many' line 3001: task 'a' has the id 2 in line 2, too" evaluate --items=many
    item | sed 's/7/8/;s/ending/differing/' | cat items - >rules
    run_match 65 "'rules' line 2: task 'a' is graded by the rule mean, and from line 1 on by sum" evaluate --items=rules
    gzip -k items && zstd -q items
    for packed in items.gz items.zst; do run_match 65 "'$packed' is compressed: unpack it first" evaluate --items=$packed; done
    : >empty
    run_code 66 evaluate --items=empty
}

@test "eval --items grades a model that answers nothing" {
    for _ in {1..99}; do echo '{"prompt": "Why?", "completion": ""}'; done >pairs.jsonl
    "$BIN/shardtool" tokenize --quiet --turns --val 0 -o pairs pairs.jsonl
    "$BIN/trainer" train --quiet --dataset=pairs --out_dir=mute --loss_tokens=answers --n_layer=1 --n_head=1 --n_embd=8 --block_size=16 --batch_size=4 \
        --gradient_accumulation_steps=1 --max_iters=30 --warmup_iters=0 --learning_rate=0.05 --eval_interval=0 --sample_tokens=0 --threads=1
    echo '{"task": "a", "id": 1, "kind": "answers", "messages": [{"role": "user", "content": "Why?"}], "answer": "Because"}' >items
    [[ "$("$BIN/trainer" eval --out_dir=mute --items=items --json --quiet)" == *'"right":0,'*'"text":""}' ]]
    while IFS='|' read -r change message; do
        sed "$change" items >bad
        run_match 65 "'bad' line 1: *$message" "$BIN/trainer" eval --out_dir=mute --items=bad
    done <<'END'
s/\(}\)\]/\1, {"role": "assistant", "content": "Why not"}]/|the last message is not of the user
s/"user"/"system"/|the last message is not of the user
s/"user"/"tool"/|the last message is not of the user
s/"role"/"name": "Bo", "role"/|message 0: it has 'name'
s/"Why?"/["Why?"]/|message 0: a message is not of a role
s/\[{.*}\]/{"role": "user"}/|without messages
s/"Because"/5/|without messages and the text of an answer
s/"answer"/"shots": "Who? Me. ", "answer"/|kind answers reads no 'shots'
END
}

# fault 71
@test "validation data shorter than block_size is an error, 2" {
    with_gpt2
    "$BIN/shardtool" tokenize --quiet --val 0 -o noval "$BATS_FILE_TMPDIR/docs/part-aa"
    run_code 2 "$BIN/trainer" train tiny.conf --dataset=noval --out_dir=run
    [[ "$output" == *"the validation data of 'noval' has 0 tokens, block_size 16 needs at least 17"*"--val"* ]]
    seq 20 | sed 's/$/ of twenty lines, each of which is a document of some ten or twelve tokens and more/' >twenty
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0 -o twenty.data twenty
    run_code 2 "$BIN/trainer" train tiny.conf --dataset=twenty.data --out_dir=run
    [[ "$output" == *"tokenize with --val 0.15 or more, or set eval_interval=0" ]] # of three documents; of 17 tokens 0.01
}

# bats test_tags=ci
# fault 71
@test "one file of text is one document: tokenize and train say how to cut it, and the demo cuts it" {
    with_gpt2
    seq 6000 | sed 's/.*/& a line\n/' >"one text.txt"
    run_code 0 "$BIN/shardtool" tokenize --val 0.5 -o val "one text.txt"
    [[ "$output" == *"1 document goes to one split as a whole ("*" train and 0 val tokens): --docs paragraphs or lines makes more of the text"* ]]
    run_code 0 "$BIN/shardtool" tokenize --val 0.999 -o train "one text.txt"
    [[ "$output" == *"1 document goes to one split as a whole (0 train and "*": --docs paragraphs or lines makes more of the text"* ]]
    run_code 2 train --out_dir=run --dataset=val --block_size=400
    [[ "$output" == *"the validation data of 'val' has 0 tokens, block_size 400 needs at least 401: tokenize with --docs paragraphs (here 1 went to one split each as a whole) and --val 0.03 or more, or set eval_interval=0"* ]]
    run_match 2 "the training data of 'train' has 0 tokens*--docs paragraphs*--val 0.97 or less" train --out_dir=run --dataset=train --block_size=400
    "$BIN/shardtool" tokenize --quiet --docs paragraphs --val 0.04 -o cut "one text.txt"
    train --quiet --out_dir=run --dataset=cut --block_size=400 --max_iters=1 --sample_tokens=0
    mkdir programs
    ln -s "$BIN/shardtool" programs
    cp "$BIN/millrace" programs
    printf '#!/bin/sh\necho "$@"\n' | tee programs/trainer >programs/loader
    chmod +x programs/*
    run_match 0 "-V 8192 needs *GPT-2's vocabulary*6000 documents, *--loader=ipc://build/demo/loader"$'\n' bash "$ROOT/scripts/demo.sh" programs "one text.txt"
    # with enough text it has a vocabulary of its own
    python3 -c 'import random; r = random.Random(1); print(*("".join(r.choices("abcdefghij", k=6)) for i in range(9000)))' >words.txt
    run_match 0 "*8192 ids *--loader=ipc://build/demo/loader --vocabulary=build/demo/data/tokenizer.json"$'\n' bash "$ROOT/scripts/demo.sh" programs words.txt 1
}

# fault 80
@test "a run directory in use is an error, 73" {
    begin --dataset="$data" --out_dir=run "${endless[@]}"
    wait_for_steps run 1
    run_match 73 "locked by pid $TRAINER" train --out_dir=run
}

# fault 74
@test "failed saves are warnings, a failed last save exits with 74, and no partial checkpoint is left" {
    with_gpt2
    run_code 74 bash -c 'ulimit -f 1000; "$BIN/trainer" train tiny.conf --dataset="$0" --out_dir=run --eval_interval=4' "$data"
    [ "$(grep -c "no checkpoint: .*File too large; training continues" <<<"$output")" -eq 5 ] # of six: at the last step nothing continues
    [ "$(ls -A run | tr '\n' ' ')" = ".lock metrics.jsonl report.html " ]
}

# fault 77
@test "another model in the same directory is an error that lists the differences, 2; --fresh moves the old run" {
    train --out_dir=run --quiet --max_iters=2
    run_match 2 "n_layer is 2, was 1" train --out_dir=run --n_layer=2
    run_code 0 train --out_dir=run --n_layer=2 --max_iters=2 --fresh
    [ -e run/before-1/metrics.jsonl ]
    [ -d run/before-1/ckpt-00000002 ]
    [ -d run/ckpt-00000002 ]
}

# fault 85
@test "a complete run with other keys, another dataset or another model is refused, 2; the same command trains nothing" {
    with_gpt2
    small=(--max_iters=2 --eval_interval=2 --eval_iters=1 --sample_tokens=0)
    refused() { # WORDS OPTION...
        run_match 2 "$1" train --out_dir=run "${small[@]}" "${@:2}"
    }
    train --out_dir=run --quiet "${small[@]}"
    refused "the run in 'run' is complete (step 2 of 2), nothing was trained: learning_rate is 1, was 0.001 (raise max_iters" --learning_rate=1
    make_other_data 400
    refused "the run in 'run' is complete (step 2 of 2), nothing was trained: the dataset is 'data2', was 'data'" --dataset=data2
    refused "nothing to do: step 2 of the run in 'run' is beyond max_iters 1" --max_iters=1
    # another model first: with a larger max_iters it would still be another
    refused "'run/ckpt-00000002' is of another run: seed is 7, was 1337; n_layer is 2, was 1 (another out_dir" \
        --n_layer=2 --seed=7 --learning_rate=1 --max_iters=1
    [[ "$output" != *"nothing to do"* && "$output" != *"learning_rate"* ]]
    refused "nothing to do: step 2 of the run in 'run' is beyond max_iters 1" --max_iters=1 --learning_rate=1
    refused "init_from is './run/ckpt-00000002', and the run in 'run', at step 2, began from 'scratch'" --init_from=./run/ckpt-00000002
    refused "init_from is './run/ckpt-00000002', and the run" --init_from=./run/ckpt-00000002 --max_iters=3
    run_match 0 "the run in 'run' is complete (step 2 of 2): nothing is trained; raise max_iters to go on" train --out_dir=run "${small[@]}"
    for i in 1 2; do train --out_dir=run --quiet "${small[@]}" --sample_tokens=3; done
    [ "$(grep -c '"sample": ' run/metrics.jsonl)" = 1 ] # the model is the same
    run_code 0 train --out_dir=run "${small[@]}" --eval_only=True --eval_iters=2
    run_code 0 train --out_dir=run "${small[@]}" --max_iters=3 --learning_rate=1
    [[ "$output" == *"learning_rate is now 1, was 0.001 until step 2"* && "$output" != *"complete"* ]]
}

# bats test_tags=ci
# fault 85
@test "a run that began from a model resumes with the same init_from or without it" {
    train --out_dir=first --quiet --max_iters=1 --sample_tokens=0
    mkdir models
    "$BIN/trainer" export --quiet --out_dir=first -o models/tiny
    export MILLRACE_MODELS=$PWD/models
    for more in --init_from=tiny --init_from=tiny --init_from=./models/tiny --init_from=resume --init_from=scratch --init_from=tiny; do
        n=$((${n:-0} + 1))
        run_code $([ $more = --init_from=./models/tiny ] && echo 2 || echo 0) train --out_dir=run --max_iters=$n --sample_tokens=0 $more
    done
    grep -q "\"init_from\": \"$PWD/models/tiny\"" run/ckpt-00000006/state.json
}

# fault 76
@test "a damaged checkpoint is reported, and the one before it is used" {
    with_gpt2
    train --out_dir=run --quiet
    cp -r run whole
    printf x | dd of="$(last run)/model.safetensors" bs=1 seek=100000 conv=notrunc status=none
    run_match 0 "A CHECKPOINT IS DAMAGED*transformer.wte.weight*resuming at step 16" train --out_dir=run
    same_run whole run
}

@test "with a damaged newest checkpoint an older one is sampled, evaluated and exported only by its step, which doctor names" {
    train --out_dir=run --quiet --sample_tokens=0
    "$BIN/trainer" status run | grep -q "^best_val_loss (saved) "
    printf x | dd of="$(last run)/optimizer.safetensors" bs=1 seek=9000 conv=notrunc status=none
    for command in sample eval "export -o model"; do
        # shellcheck disable=SC2086
        run_match 65 "'run/ckpt-00000024' is damaged: --ckpt=16 takes 'run/ckpt-00000016'" "$BIN/trainer" $command tiny.conf --dataset="$data" --out_dir=run
    done
    [ ! -e model ]
    "$BIN/trainer" export tiny.conf -q --out_dir=run -o model --ckpt=16
    cmp model/model.safetensors run/ckpt-00000016/model.safetensors
    run_match 0 "warning  run     'run/ckpt-00000024' is damaged: 'millrace train' continues from 'run/ckpt-00000016', step 16" "$BIN/trainer" doctor run
    printf x | dd of=run/ckpt-00000016/model.safetensors bs=1 seek=9000 conv=notrunc status=none
    run_match 1 "error    run     no undamaged checkpoint in 'run' (2 damaged)" "$BIN/trainer" doctor run
}

# fault 55
@test "three steps that are not finite roll the run back past their samples; the second time it exits with 81" {
    run_code 81 train --out_dir=run --learning_rate=1e30 --grad_clip=0 --weight_decay=0 --eval_interval=100
    [[ "$output" == *"not finite: not applied"*"three steps in a row were not finite: going back from step"* ]]
    grep -q rolled_back_from run/metrics.jsonl
    grep -q passed_from run/metrics.jsonl
    run_match 0 "the last 2 steps were not finite: with a larger max_iters this run would skip other samples" train --out_dir=ends --learning_rate=1e30 \
        --grad_clip=0 --weight_decay=0 --eval_interval=100 --max_iters=3
}

@test "a roll-back fails without 'saved at step' when the run's directory was moved" {
    clock_preload 'static char text[1 << 16];
        const int file = open("run/metrics.jsonl", O_RDONLY);
        if (file >= 0 && pread(file, text, sizeof text - 1, 0) > 0 && strstr(text, "\"step\": 3, \"loss\"") && gettid() == getpid()) {
            while (access("run/ckpt-00000001/state.json", F_OK) && access("gone", F_OK));
            rename("run", "gone");
        }
        close(file);'
    LD_PRELOAD=$PWD/other_clock.so run_code 73 train --out_dir=run --learning_rate=1e30 --grad_clip=0 --weight_decay=0 --checkpoint_interval=1 --eval_interval=0
    [ -e gone/ckpt-00000001 ] && [[ "$output" != *"saved at step"* ]]
}

# bats test_tags=ci
@test "a run that is longer than the one pass of its order is refused with the steps that it can have" {
    with_gpt2
    seq 300 >lines && "$BIN/shardtool" tokenize -q --docs lines --val 0 -o pass lines
    data=pass steps=$((($("$BIN/shardtool" info --json pass | jq .train_tokens) - 1) / 16 / 4))
    for order in sequential permuted; do
        one="sampling=$order is one pass over the [0-9]* samples of 'pass', which ends at step $steps, before max_iters $((steps + 1)): set max_iters=$steps "
        long=(--sampling=$order --max_iters=$((steps + 1)) --eval_interval=0 --sample_tokens=0)
        for command in train plan doctor; do
            run "$BIN/trainer" $command tiny.conf --dataset="$data" --out_dir=new "${long[@]}"
            [ "$status" = "$([ $command = doctor ] && echo 1 || echo 2)" ] && grep -q "$one" <<<"$output" || { echo "$command $status $output" && return 1; }
        done
        run_match 2 "and until needs an order that does not end: set --max_iters=$steps with" "$BIN/trainer" train tiny.conf --dataset="$data" --sampling=$order --until=9h --eval_interval=0
        train --quiet --out_dir=$order "${long[@]}" --max_iters=$steps
        run_code 2 train --out_dir=$order "${long[@]}" # goes on
        grep -q "$one" <<<"$output"
    done
}

# bats test_tags=ci
@test "a run goes back to a checkpoint before the steps that were not finite, wherever it was saved, stopped or ended with 81" {
    bad=(--learning_rate=1e30 --grad_clip=0 --weight_decay=0 --min_lr=0)
    steps_of() { grep -E '"(loss|val_loss|rolled_back_from|passed_from)"' "$1/metrics.jsonl" | sed -E 's/, "(chain|ms)".*//; s/"step": [0-9]+, ("rolled)/\1/' | sort; }
    run_code 81 train --out_dir=one "${bad[@]}" --checkpoint_interval=1 --eval_interval=1 --eval_iters=1
    [[ "$output" == *"going back from step 4 to 1 "* ]]
    [ "$(ls -d one/ckpt-*)" = one/ckpt-00000001 ]
    run_code 81 train --out_dir=two "${bad[@]}" --checkpoint_interval=2 --eval_interval=0 # no checkpoint of step 2, which is bad
    [[ "$output" == *"going back from step 4 to 0 "* ]]
    run_code 81 train --out_dir=none "${bad[@]}" --checkpoint_interval=0 --eval_interval=0
    [[ "$output" == *"going back from step 4 to 0 "* ]]
    diff <(steps_of one | grep -v val_loss) <(steps_of none)
    cp -r one before
    run_code 81 train --out_dir=one "${bad[@]}" --checkpoint_interval=1 --eval_interval=1 --eval_iters=1 # from its checkpoint
    diff <(steps_of before) <(steps_of one)
    run_match 0 "are equal" "$BIN/trainer" replay one
}

@test "eval prints the loss of the evaluation in the run; sample prints the same text for the same seed" {
    with_gpt2
    train --out_dir=run --quiet
    in_run=$(sed -n 's/{"step": 24, "val_loss": \([0-9.]*\).*/\1/p' run/metrics.jsonl)
    run bash -c '"$BIN/trainer" eval --out_dir=run --dtype=float32 --dataset="$0" --eval_tokens=128 --json 2>/dev/null | tail -1' "$data"
    jq -e --argjson in_run "$in_run" '.split == "val" and .tokens == 128 and (.loss - $in_run | fabs) < 1e-6' <<<"$output"
    one=$("$BIN/trainer" sample --out_dir=run --start="the wheel" --num_samples=2 --max_new_tokens=12)
    two=$("$BIN/trainer" sample --out_dir=run --start="the wheel" --num_samples=2 --max_new_tokens=12)
    [ "$one" = "$two" ]
    greedy=("$BIN/trainer" sample --out_dir=run --temperature=0 --num_samples=1 --max_new_tokens=6)
    [ "$("${greedy[@]}" --start='<|endoftext|>')" = "<|endoftext|>$("${greedy[@]}" --start='')" ]
    printf 'the\0wheel' >nul
    "${greedy[@]}" --start=FILE:nul | cmp -n 9 - nul
    printf 'the \xff\xe2\x82 wheel' >bytes # not UTF-8
    "${greedy[@]}" --start=FILE:bytes | cmp -n 13 - bytes
    run_code 66 "${greedy[@]}" --start=FILE:/tmp
    "$BIN/trainer" sample --out_dir=run --start=a --temperature=5 --top_k=0 --num_samples=5 --max_new_tokens=100 >hot
    python3 -c 'text = open("hot", encoding="utf-8").read(); assert "\ufffd" in text'
    [[ "$one" == "the wheel"* ]]
    [[ "$("$BIN/trainer" sample --out_dir=run --start="the wheel" --stop="wheel" --num_samples=1 --max_new_tokens=2)" == "the wheel"* ]] # of the start
    for top_p in 0 1.5 nan; do
        run_code 2 "$BIN/trainer" sample --out_dir=run --top_p=$top_p
    done
    for option in --start=a --num_samples=3 --stop=x; do
        run_match 2 "not with --start, --num_samples or --stop" "$BIN/trainer" sample --out_dir=run --turns $option
    done
}

# check_tokenizer DIRECTORY: its files have the ids of another implementation
check_tokenizer() {
    python3 - "$ROOT/tests/oracle" "$1" <<'EOF'
import json, os, sys
sys.path.insert(0, sys.argv[1])
import gpt2
os.chdir(sys.argv[2])
spelt = {byte: character for character, byte in gpt2.byte_of().items()}
want = {"".join(spelt[byte] for byte in token): id for token, id in gpt2.ranks().items()} | {"<|endoftext|>": 50256}
whole = json.load(open("tokenizer.json"))
assert json.load(open("vocab.json")) == want == whole["model"]["vocab"]
assert [tuple(merge.split()) for merge in whole["model"]["merges"]] == gpt2.merges()
assert open("merges.txt").read() == open(gpt2.TABLE).read()
assert json.load(open("generation_config.json"))["eos_token_id"] == 50256
json.load(open("tokenizer_config.json"))
EOF
}

tokenizer_files=(vocab.json merges.txt tokenizer.json tokenizer_config.json generation_config.json)
has_links() { # COUNT CHECKPOINT: of each of the tokenizer's files
    for file in "${tokenizer_files[@]}"; do [ "$(stat -c %h "$2/$file")" = "$1" ] || { stat "$2/$file" && return 1; }; done
}

# bats test_tags=ci
# fault 97
@test "each checkpoint has the tokenizer's files as hard links to one copy, which a change of one does not reach" {
    with_gpt2
    train --out_dir=run --quiet
    check_tokenizer "$(last run)"
    has_links 2 "$(last run)"
    has_links 2 "$(checkpoint run 16)"
    "$BIN/trainer" export -o exported --out_dir=run
    for file in "${tokenizer_files[@]}"; do cmp "exported/$file" "$(last run)/$file"; done
    has_links 1 exported
    echo damage >>"$(last run)/vocab.json" && rm "$(last run)/merges.txt"
    train --out_dir=run --quiet --max_iters=26
    check_tokenizer "$(checkpoint run 26)"
    [ "$(stat -c %h "$(checkpoint run 26)/vocab.json")" = 1 ]
    [ "$(stat -c %h "$(checkpoint run 26)/tokenizer.json")" = 2 ] # those of steps 24 and 26
    cp -r "$(checkpoint run 26)" copy
    train --out_dir=other --quiet --init_from=./copy --max_iters=1
    train --out_dir=whole --quiet --max_iters=26
    same_run whole run 26
}

# bats test_tags=ci
# fault 97
@test "a file system without hard links gets copies, and a save that is killed between two links leaves nothing" {
    with_gpt2
    command -v strace >/dev/null || skip "needs strace"
    train --out_dir=whole --quiet
    strace -f -qq -o /dev/null -e trace=linkat -e inject=linkat:error=EPERM \
        "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run
    has_links 1 "$(last run)"
    check_tokenizer "$(last run)"
    same_run whole run
    for number in 1 3 5; do
        rm -rf run
        kill_at linkat $number "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --out_dir=run
        [ "$(ls -d run/ckpt-*)" = "$(checkpoint run 8)" ] # the second save has links to it
        train --out_dir=run --quiet
        has_links 2 "$(last run)"
        [ -z "$(compgen -G 'run/.ckpt*')" ]
        same_run whole run
    done
}

# bats test_tags=ci
@test "export writes a model with its tokenizer, in float32 with the same loss" {
    with_gpt2
    train --out_dir=run --quiet
    "$BIN/trainer" export -o whole --out_dir=run
    cmp <(tail -c 100000 whole/model.safetensors) <(tail -c 100000 "$(last run)/model.safetensors")
    cmp whole/config.json "$(last run)/config.json"
    "$BIN/trainer" export -o half --out_dir=run --dtype=float16
    [ "$(stat -c %s half/model.safetensors)" -lt $(($(stat -c %s whole/model.safetensors) * 51 / 100)) ]
    losses() { "$BIN/trainer" eval "$@" --dataset="$data" --dtype=float32 --eval_tokens=128 --eval_batch_size=2 --threads=1 --json 2>/dev/null; }
    [ "$(losses --init_from=./whole)" = "$(losses --out_dir=run)" ]
    [ "$(losses --init_from=./half | sed -nE 's/.*"loss": (.{5}).*/\1/p')" = "$(losses --out_dir=run | sed -nE 's/.*"loss": (.{5}).*/\1/p')" ]
    check_tokenizer half
    python3 -c 'import json; assert json.load(open("half/config.json"))["torch_dtype"] == "float16"'
    run_code 73 "$BIN/trainer" export -o half --out_dir=run
    run_match 2 "missing -o DIR" "$BIN/trainer" export --out_dir=run
    mkdir files && "$BIN/trainer" export -o files/x.GGUF --out_dir=run
    [ "$(head -c 4 files/x.GGUF)" = GGUF ]
    for name in .gguf files/.GgUf; do run_match 2 "'$name' is an extension without a name" "$BIN/trainer" export -o "$name" --out_dir=run; done
    run_code 66 "$BIN/trainer" export -o none --out_dir=elsewhere
    [ ! -e none ]
}

@test "export writes the whole model, and best names no step where the loss was lowest before the first" {
    train --out_dir=run --quiet --max_iters=8 --eval_interval=4 --learning_rate=5 --decay_lr=False --sample_tokens=0
    run_match 2 "--block_size: 'block_size' is 2, and the model in 'run/ckpt-00000008' has 16" "$BIN/trainer" export -o half --out_dir=run --block_size=2
    [ ! -e half ]
    run_match 66 "the lowest loss of the run in 'run' is that before its first step" "$BIN/trainer" export -o none --out_dir=run --ckpt=best
    train --out_dir=none --quiet --max_iters=1 --eval_interval=0 --sample_tokens=0
    for command in eval "export -o other"; do
        run_match 66 "the run in 'none' has no finite validation loss" "$BIN/trainer" $command --out_dir=none --ckpt=best
    done
}

@test "the next start removes what a kill has left of an old checkpoint" {
    train --out_dir=run --quiet --max_iters=24 --checkpoint_interval=8 --eval_interval=0 --sample_tokens=0
    mkdir run/ckpt-00000008 && cp run/ckpt-00000024/optimizer.safetensors run/ckpt-00000008
    train --out_dir=run --quiet --eval_only=True && [ -e run/ckpt-00000008 ] # which changes nothing
    train --out_dir=run --quiet --max_iters=24 --checkpoint_interval=8 --eval_interval=0 --sample_tokens=0
    [ "$(echo run/ckpt-*)" = "run/ckpt-00000016 run/ckpt-00000024" ]
}

@test "sample prints each token as it comes" {
    train --out_dir=run --quiet
    # It would take hours to its end.
    sample() { exec "$BIN/trainer" sample --out_dir=run --start="the wheel" --num_samples=1000000 --max_new_tokens=1000000 2>/dev/null 3>&-; }
    [ "$(sample | timeout 60 head -c 60 | wc -c)" -eq 60 ]
}

# bats test_tags=ci
@test "with always_save_checkpoint=False the best checkpoint is evaluated and sampled, and --ckpt selects another" {
    train --out_dir=run --quiet --always_save_checkpoint=False --max_iters=16
    run_match 0 "sampling from the best checkpoint, 'run/ckpt-00000016'" train --out_dir=run --always_save_checkpoint=False --learning_rate=0.7 --decay_lr=False
    loss_of() { sed -nE "s/.*\"step\": $1, \"val_loss\": ([0-9.]{7}).*/\\1/p" run/metrics.jsonl; }
    evaluate() { "$BIN/trainer" eval --out_dir=run --dataset="$data" --threads=1 --json "$@" 2>/dev/null | tail -1; }
    [[ "$(evaluate)" == *"\"val\", \"loss\": $(loss_of 16)"*'"tokens": 128}' ]]
    [[ "$(evaluate --ckpt=best)" == *"\"val\", \"loss\": $(loss_of 16)"* ]]
    [[ "$(evaluate --ckpt=newest)" == *"\"val\", \"loss\": $(loss_of 24)"* ]]
    [[ "$(evaluate --ckpt=24)" == *"\"val\", \"loss\": $(loss_of 24)"* ]]
    sample=("$BIN/trainer" sample --out_dir=run --num_samples=1 --max_new_tokens=8)
    [ "$("${sample[@]}")" = "$("${sample[@]}" --ckpt=16)" ]
    [ "$("${sample[@]}")" != "$("${sample[@]}" --ckpt=newest)" ]
    run_match 66 "there is no checkpoint of step 7 in 'run'" "${sample[@]}" --ckpt=7
    run_code 2 "${sample[@]}" --ckpt=last
}

@test "evaluations print their progress" {
    script -qefc "exec '$BIN/trainer' train tiny.conf --dataset='$data' --out_dir=run --eval_tokens=10000000000" terminal >stderr 3>&- &
    TRAINER=$!
    wait_until grep -q "evaluating on training data.* %.* left" terminal
    kill -INT "$(pgrep -P "$TRAINER")"
    ends 75
}

# bats test_tags=ci
@test "the time left is that of steps, not of the evaluation before the first, and a loss that was not evaluated is not printed" {
    seq 1 3000 | sed 's/$/ is a number of a text/' >long.txt
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.4 --vocabulary "$BATS_FILE_TMPDIR/ascii" -o long long.txt
    clock_preload 'ns = sum += 100000;' # from one look at the clock to the next, of which the evaluation has thousands
    export LD_PRELOAD=$PWD/other_clock.so
    run train --dataset=long --out_dir=run --max_iters=120 --eval_interval=120 --eval_tokens=8192
    grep -Eq '^step +1/120 .* 0:00:0[0-9] left' <<<"$output"
    run train --dataset=long --out_dir=run --max_iters=122 --eval_interval=0
    [[ "$output" == *"step    122/122 | loss "* && "$output" != *"before training"* && "$output" != *nan* ]]
}

@test "the step line has the time left, TFLOP/s and their share of the measured peak" {
    with_gpt2
    run train --out_dir=run --max_iters=3 --eval_interval=0
    [[ "$output" =~ "step      1/3 | loss ".*" TFLOP/s"(" ("[0-9]+" % of measured peak)")?.*" | 0:"[0-9]+:[0-9]+" left" ]]
    # the share by the printed rates and by metrics.jsonl, whose tok_s is the more exact rate of the step
    python3 - "$output" <<'END'
import json, re, sys
products = float(re.search(r"measured peak: (\S+) TFLOP/s", sys.argv[1])[1]) * 1e12
V, C, T = 50257, 16, 16
flops = 6 * (V * C + 12 * C * C + 5 * C) + 12 * C * T
shares = re.findall(r"TFLOP/s(?: \((\S+) % of measured peak\))? \|", sys.argv[1])
rows = [row for row in map(json.loads, open("run/metrics.jsonl")) if "loss" in row]
assert len(shares) == len(rows) == 3
for share, row in zip(shares, rows):
    want = row["tok_s"] * flops / products
    assert abs(row["product_share"] / want - 1) < 0.02, (row, want)
    assert want > 0.98 if not share else abs(float(share) - 100 * want) <= 0.5 + 0.02 * float(share), (share, want)
END
}

@test "eval_interval=0 trains without validation data" {
    with_gpt2
    "$BIN/shardtool" tokenize --quiet --val 0 -o noval "$BATS_FILE_TMPDIR/docs/part-aa"
    run_code 0 "$BIN/trainer" train tiny.conf --dataset=noval --out_dir=run --eval_interval=0 --max_iters=4
    [ -d run/ckpt-00000004 ]
    not grep -q val_loss run/metrics.jsonl
    run "$BIN/trainer" train tiny.conf --dataset=noval --out_dir=run --eval_interval=0 --max_iters=6
    [[ "$output" == *"resuming at step 4"* ]]
}

@test "the report counts the tokens of every step after a change of the batch" {
    train --out_dir=run --quiet --max_iters=4
    train --out_dir=run --quiet --max_iters=6 --gradient_accumulation_steps=6
    grep -q '<th>tokens seen</th><td>640 </td>' run/report.html # 4 * 64 + 2 * 192
    grep -q '"tokens": 640,' run/ckpt-00000006/state.json
}

@test "status shows a live run, also before its first checkpoint, and --watch follows it" {
    with_gpt2
    begin --dataset="$data" --out_dir=run "${endless[@]}" --eval_interval=1000000
    wait_for_steps run 3
    run_code 0 "$BIN/trainer" status --json run
    [[ "$output" =~ "\"last_step\": "[0-9]+", \"last_loss\": 1"[0-9.]+", \"tokens_per_s\": "[0-9]+ ]]
    "$BIN/trainer" status --watch run >watched 2>&1 3>&- &
    LOADER=$! # ended by teardown
    two_lines() { [ "$(grep -c '^step .* | loss .* tok/s$' watched)" -ge 2 ]; }
    wait_until two_lines
    kill $LOADER
    mkdir bad && echo '{"step": 3, "loss": null, "tok_s": 5}' >bad/metrics.jsonl
    "$BIN/trainer" status --watch --json bad >watched 3>&- &
    LOADER=$!
    wait_until grep -q . watched
    jq -e '.step == 3 and .loss == null' watched
}

@test "eval, sample and export with init_from and out_dir read the one that is meant, and name it" {
    train --out_dir=run --quiet --max_iters=4
    train --out_dir=tuned --quiet --init_from=run/ckpt-00000004 --max_iters=2
    for command in "eval --dataset=$data --eval_tokens=64" "sample --num_samples=1 --max_new_tokens=2"; do
        # shellcheck disable=SC2086  # a command and its options
        reads() { run_match 0 "model: '$1'" "$BIN/trainer" $command --threads=1 "${@:2}"; }
        reads run/ckpt-00000004 --out_dir=run
        reads tuned/ckpt-00000002 --out_dir=run --init_from=tuned/ckpt-00000002
        echo "init_from = 'run/ckpt-00000004'" >of_tuned.conf
        reads tuned/ckpt-00000002 of_tuned.conf --out_dir=tuned
        reads run/ckpt-00000004 of_tuned.conf
        # shellcheck disable=SC2086
        run_match 2 "'tuned' began from it: leave init_from out to read the run, or out_dir" \
            "$BIN/trainer" $command --out_dir=tuned --init_from=run/ckpt-00000004
        # shellcheck disable=SC2086
        run_match 2 "'run' began from another model: leave init_from out" "$BIN/trainer" $command of_tuned.conf --out_dir=run
    done
    run_match 0 "exported 'tuned/ckpt-00000002'" "$BIN/trainer" export --out_dir=run --init_from=tuned/ckpt-00000002 -o exported
}

@test "a run where a model or a configuration is expected is named, with what to write" {
    train --out_dir=runs/m --quiet --max_iters=2
    run_match 66 "'runs/m' is a run: name its checkpoint, as 'runs/m/ckpt-00000002'" train --init_from=runs/m --out_dir=next
    run_match 66 "'runs/m' is a directory: to name a run, write --out_dir=runs/m" "$BIN/trainer" eval runs/m
    run_match 66 "'$data' is a directory: to name a dataset, write --dataset=$data" "$BIN/trainer" train "$data"
    mkdir my && echo text >my/a.txt
    run_match 66 "'my/' is a directory: \`millrace tokenize -o DATA my/\` makes a dataset of its texts, for --dataset=DATA" "$BIN/trainer" train my/
    mkdir llama
    echo '{"model_type": "llama"}' >llama/config.json
    run_match 65 "does not describe a GPT-2 model: of a model that 'millrace export' wrote, name the checkpoint, RUN/ckpt-STEP" \
        train --init_from=./llama --out_dir=next
}

# fault 61
@test "the trainer starts without the libraries of the CUDA toolkit" {
    libraries=$(LD_TRACE_LOADED_OBJECTS=1 "$BIN/trainer")
    [[ "$libraries" == *libc.so* && "$libraries" != *libcu[bd]* ]]
}

@test "status, report and plan show the epochs of the data" {
    epochs=$(python3 -c 'import json; print(24 * 64 / json.loads(open("'"$data"'/dataset.jsonl").readline())["train"]["tokens"])')
    train --out_dir=run --quiet --sample_tokens=0
    "$BIN/trainer" status --json run | jq -e ".tokens == 1536 and (.evaluated_epochs / $epochs - 1 | fabs) < 1e-6 and (has(\"epochs\") | not)"
    grep -q "<th>epochs of the data at step 24</th><td>$(printf %.2f "$epochs")</td>" run/report.html
    run_match 0 "run        24 steps, 1.54 k tokens, $(printf %.2f "$epochs") epochs of '$data', " "$BIN/trainer" plan tiny.conf --dataset="$data"
    "$BIN/trainer" plan tiny.conf >output
    not grep -q epochs output
}

@test "lr_schedule=wsd: the rate rises, stays, and falls to min_lr in the last steps" {
    train --out_dir=run --quiet --eval_interval=0 --lr_schedule=wsd:6 --min_lr=0 --sample_tokens=0
    jq -se '[.[] | select(.loss) | .lr * 1e3] | length == 24 and (.[:5] | . == sort and .[4] < 1) and (.[5:19] | unique == [1])
        and ([.[18:], [range(6) | 1 - (. / 6 | sqrt)]] | transpose | all(.[0] - .[1] | fabs < 1e-7))' run/metrics.jsonl
}

# bats test_tags=ci
@test "float16: the loss scale is halved until the gradients are finite, and the run continues" {
    small=(--dtype=float16 --block_size=1 --batch_size=1 --gradient_accumulation_steps=1 --eval_interval=100)
    train --out_dir=first --quiet "${small[@]}" --max_iters=1
    multiply_gains first/ckpt-00000001 loud 64 # and so the gradients below them
    run_code 0 train --out_dir=run "${small[@]}" --init_from=./loud --max_iters=16
    skipped=$(grep -c "not finite: not applied" <<<"$output")
    [ "$skipped" -gt 3 ]
    scales=$(sed -n 's/.*| scale \([0-9]*\) .*| not finite.*/\1/p' <<<"$output" | head -4 | xargs)
    [ "$scales" = "65536 32768 16384 8192" ] && [[ "$output" != *"going back from step"* ]]
    grep -q "\"scale\": $((65536 >> skipped)).0" run/ckpt-00000016/state.json
    grep -q "\"updates\": $((16 - skipped))," run/ckpt-00000016/state.json
}

# bats test_tags=ci
@test "float16: a run that is stopped between steps that are not finite computes them again" {
    with_gpt2
    small=(--dtype=float16 --block_size=1 --batch_size=1 --gradient_accumulation_steps=400 --eval_interval=0)
    train --out_dir=first --quiet "${small[@]}" --max_iters=1
    multiply_gains first/ckpt-00000001 loud 1000
    begin --dataset="$data" --out_dir=run "${small[@]}" --init_from=./loud "${endless[@]}"
    wait_for_steps run 1
    kill -TERM "$TRAINER"
    ends 75
    stderr_has 'the last [1-9] steps were not finite and are not saved: the next start computes them again'
    finish run --dataset="$data" "${small[@]}" --init_from=./loud
}

# fault 55
@test "float16: losses that are not finite exit with 81, as in other types" {
    run_code 81 train --out_dir=run --dtype=float16 --learning_rate=1e30 --grad_clip=0 --weight_decay=0 --eval_interval=100
    [[ "$output" == *"not finite: not applied"*"three steps in a row were not finite: going back from step"* ]]
}

@test "ps lists the trainer under its own name" {
    begin --dataset="$data" --out_dir=run "${endless[@]}"
    wait_for_steps run 1
    [ "$(cat "/proc/$TRAINER/comm")" = trainer ]
}
