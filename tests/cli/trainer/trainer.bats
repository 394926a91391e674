# What a user sees of the trainer: runs, resumes, refusals.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 6000 0.1
    make_other_data 4000
}

setup() { setup_training; }

train() { "$BIN/trainer" train tiny.conf --dataset="$data" "$@"; }
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
    run_match 0 "cpu: " train --out_dir=run
    [[ "$output" == *"step     24/24 | loss "*" | norm "*" | lr "*" ms | "*" tok/s | "*" TFLOP/s"*" | 0:00:0"*" left"* ]]
    [[ "$output" == *"step      0 | train loss "*" | a guess among 50257 ids: 10.8249"* ]] # ln(50257)
    [[ "$output" == *"validation loss 10.8"*" before training, "*" after 24 steps"* ]]
    mean=$(sed -nE 's|.*: ([0-9]+) tok/s, the mean of the steps from 1 on$|\1|p' <<<"$output")
    jq -se "map(select(.tok_s)) | (map(.ms * .tok_s) | add) / (map(.ms) | add) / $mean - 1 | fabs < 1e-3" run/metrics.jsonl
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
    for name in step last_step max_iters evaluated_step tokens_per_s; do "$BIN/trainer" status --man | grep -q "^\.SH DESC\|\`$name'"; done
}

@test "trainer report compares runs: curves, last values, the keys in which they differ" {
    for rate in 1e-3 5e-3; do train --out_dir="run $rate" --quiet --learning_rate=$rate; done
    run_match 0 "runs.html" "$BIN/trainer" report "run 1e-3" "run 5e-3"
    run_code 1 grep -E 'src=|href=|<script|https?://' runs.html
    [ "$(grep -c '<figure>' runs.html)" = 5 ]
    arena=$("$BIN/trainer" plan tiny.conf | sed -nE 's/^ *arena +[0-9]+ +([0-9.]+) MiB$/\1/p')
    [ "$(grep -c "<td>$arena MiB</td></tr>" runs.html)" = 2 ]
    for rate in 1e-3 5e-3; do
        grep -q "<td>run $rate</td><td>24</td>.*<td>$(jq -r 'select(.val_loss) | .val_loss' "run $rate/metrics.jsonl" | tail -1 | xargs printf %.4f)</td>" runs.html
    done
    [ "$(sed '1,/different keys/d' runs.html | grep -oE '^<tr><th>[a-z_]+' | tr -d '\n')" = "<tr><th>dataset<tr><th>learning_rate" ]
    train --out_dir=rope --quiet --learning_rate=1e-3 --position=rope
    for runs in "run 1e-3,rope" "rope,run 1e-3"; do # a checkpoint leaves out a key of the model that has its default
        "$BIN/trainer" report "${runs%,*}" "${runs#*,}"
        grep -q '<tr><th>position</th><td>\(learned</td><td>rope\|rope</td><td>learned\)</td></tr>' runs.html
    done
    "$BIN/shardtool" tokenize -q --val 0.5 -o other "$BATS_FILE_TMPDIR/docs"
    train --out_dir=third --quiet --dataset=other
    "$BIN/trainer" report "run 1e-3" third
    grep -q '<th>evaluation</th><td></td><td>of other tokens: its losses do not compare with the first</td>' runs.html
    rm -r third/ckpt-*
    "$BIN/trainer" report "run 1e-3" third
    not grep -q 'do not compare' runs.html
    run_code 2 "$BIN/trainer" report
    run_code 66 "$BIN/trainer" report none
    mkdir refused
    run_match 0 "'refused' has no steps, and is left out" "$BIN/trainer" report refused third
    run_code 66 "$BIN/trainer" report refused none
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

@test "losses do not depend on the number of threads" {
    train --out_dir=one --quiet --max_iters=9
    train --out_dir=two --quiet --max_iters=9 --threads=2
    same_run one two 9
}

@test "losses do not depend on eval_batch_size" {
    ! "$BIN/trainer" doctor | grep -q '(avx2)' || skip "on AVX2 products round by their number of rows"
    train --out_dir=one --quiet --max_iters=9
    train --out_dir=two --quiet --max_iters=9 --eval_batch_size=1
    same_run one two 9
}

@test "recompute changes the memory of a step, but not its bits" {
    short=(--quiet --n_layer=3 --max_iters=4)
    train --out_dir=whole "${short[@]}"
    for level in gelu norm mlp qkv block; do
        train --out_dir=run$level "${short[@]}" --recompute=$level --recompute_layers=2
        same_weights whole run$level 4
    done
    run_match 2 "'recompute' is '7', not one of none, gelu, norm, mlp, qkv, block, auto" train --out_dir=no --recompute=7
    run_match 2 "'recompute_layers' is set, and 'recompute' is auto" train --out_dir=no --recompute_layers=2
}

# fault 39
@test "losses do not change when the loader is killed and restarted" {
    serve "$data"
    begin --loader=ipc://place --out_dir=run "${endless[@]}"
    for _ in 1 2; do
        wait_for_more_steps run
        kill_loader
        serve "$data"
    done
    wait_for_more_steps run 20 # more than what was fetched ahead
    stop_run INT 75
    finish run --dataset="$data"
}

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
    grep -q "the dataset is now 'data2' ([0-9a-f]*), was 'data' ([0-9a-f]*), from step" stderr
    old=$(sed -n 's/.*"dataset": "data", "fingerprint": "\([0-9a-f]*\)".*/\1/p' run/metrics.jsonl)
    grep '"dataset": "data2"' run/metrics.jsonl | grep -q "\"old\": \"$old\""
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

@test "without a loader the trainer exits with 69" {
    run_match 69 "no loader at ipc://nowhere" "$BIN/trainer" train tiny.conf --loader=ipc://nowhere --data_timeout=1 --out_dir=run
}

# fault 54
@test "the trainer saves and exits with 69 when the loader does not come back" {
    serve "$data"
    begin --loader=ipc://place --out_dir=run --data_timeout=1 "${endless[@]}"
    wait_for_steps run 3
    kill_loader
    ends 69
    [ -n "$(ls -d run/ckpt-*)" ]
    finish run --dataset="$data"
    # without --quiet it also prints where
    serve_until_ready "$data"
    "$BIN/trainer" train tiny.conf --loader=ipc://place --out_dir=run --data_timeout=1 "${endless[@]}" >stdout 2>stderr 3>&- &
    TRAINER=$!
    wait_for_more_steps run
    kill_loader
    ends 69
    grep -qE "saved at step [0-9]+: run the same command again to resume" stderr
}

# fault 83
@test "all mistakes of a configuration are printed, with the nearest key, 2" {
    printf 'batchsize = 3\nn_head = 5\n' >bad.conf
    run_code 2 "$BIN/trainer" train tiny.conf bad.conf --n_layr=3 --device=tpu
    [[ "$output" == *"bad.conf:1:1: unknown key 'batchsize', did you mean 'batch_size'?"* ]]
    [[ "$output" == *"--n_layr=3: unknown key 'n_layr', did you mean 'n_layer'?"* ]]
    [[ "$output" == *"'n_embd' 16 is not divisible by 'n_head' 5: take 40"* ]]
    [[ "$output" == *"'device' is 'tpu'"* ]]
    [[ "$output" == *"4 mistakes in the configuration"* ]]
    run_match 2 "--n_layer=abc: 'n_layer' takes an integer: the name 'abc' is not set above" "$BIN/trainer" plan --n_layer=abc --bias=maybe --dtype=int8
    [[ "$output" == *"--bias=maybe: 'bias' takes True or False"*"--dtype=int8: 'dtype' is 'int8', not one of "* ]]
    run_code 2 "$BIN/trainer" plan --batch_size=65536 --block_size=65536 # 2^32 tokens, which an int does not count
    [[ "$output" == *"'batch_size' 65536 times 'block_size' 65536 is more than 16777216 tokens"* ]]
}

# fault 103
@test "a '~' that the shell has left in a path is refused, 2, and makes no folder of that name" {
    for key in out_dir dataset init_from vocabulary loader key_file; do
        run_match 2 "--$key: '$key' is '~/x': '~' is not the home folder here: write the whole path" train --max_iters=1 "--$key=~/x"
    done
    echo "out_dir = '~/x'" >home.conf
    run_match 2 "home.conf:1: 'out_dir' is '~/x': '~' is not" train home.conf --max_iters=1
    run_match 2 "--output: '~/x': '~' is not" shardtool tokenize "--output=~/x" "$BATS_FILE_TMPDIR/docs"
    run_match 2 "-o: '~': '~' is not" shardtool merge "-o~" "$data" "$data"
    run_match 2 "--endpoint: '~/x': '~' is not" loader serve "$data" "--endpoint=ipc://~/x"
    run_match 2 "-o: '~/x': '~' is not" trainer export "-o~/x"
    [ ! -e '~' ]
    train --quiet --out_dir=./~/run --max_iters=1
    [ -d ./~/run/ckpt-00000001 ]
}

@test "the evaluation of a model whose loss is not finite exits with 81" {
    train --out_dir=run --quiet --max_iters=1 --eval_interval=0
    multiply_gains run/ckpt-00000001 broken nan
    run_code 81 train --out_dir=next --init_from=./broken --eval_only=True
    run_code 81 bash -c '"$BIN/trainer" eval --init_from=./broken --dataset="$0" --threads=1 --eval_tokens=64 --json 2>/dev/null' "$data"
    [ "$output" = '{"split": "train", "loss": null, "bpb": null, "tokens": 64}' ]
}

@test "--print_config shows each value and where it comes from" {
    run_code 0 "$BIN/trainer" train tiny.conf --seed=7 --print_config
    [[ "$output" =~ n_layer\ *=\ 1\ *#\ tiny.conf:1 ]]
    [[ "$output" =~ seed\ *=\ 7\ *#\ --seed ]]
    [[ "$output" =~ beta1\ *=\ 0.9\ *#\ default ]]
}

@test "the output of --print_config is a file that gives the same configuration, for every key" {
    python3 - "$ROOT/trainer/config/keys.def" >odd.py <<'END'
import re, sys
values = {  # where one that differs from the default is not enough
    "dataset": repr("it's \\n # \"here\"\t"), "sample_start": r"'\\ \' \n'", "out_dir": repr("o" * 300), "init_from": "'scratch'",
    "batch_size": "'auto'", "checkpoint_interval": 7, "tokens_per_step": 480, "gradient_accumulation_steps": 4, "block_size": 24, "eval_block_size": 8,
    "n_head": 2, "n_embd": 24, "cooldown_iters": 3, "min_lr": 3e-5, "dropout": 0.123456789, "spike_z": 1e30,
    "mem_limit": "'11.3GiB'", "recompute": "'block'", "deterministic": True}
for row in re.split(r"^(?=KEY|WORD)", open(sys.argv[1]).read(), flags=re.M)[1:]:
    kind, arguments = row.split("(", 1)
    words = re.findall(r'\bW\([^"]*"(.*?)"\)', arguments)
    first, name, default = (part.strip() for part in arguments.split(",")[:3])
    if kind != "KEY" and not words: continue  # the words are listed elsewhere
    if name not in values:
        values[name] = (repr(words[-1]) if words else default != "true" if first == "FLAG" else repr("a " + name) if first == "STRING"
                        else 0.1 + float(default) / 3 if first == "FLOAT" else int(default) // 2 + 1)
    print(f"{name} = {values[name]}")
END
    [ "$(wc -l <odd.py)" -gt 50 ]
    trainer() { "$BIN/trainer" train "$@" --print_config; }
    values() { sed -E 's/ +#.*; .*//' "$1"; }
    trainer odd.py >one
    trainer one >two
    diff <(values one) <(values two)
    [ "$(grep -c '# one:' two)" = "$(grep -vc '^# ' two)" ]
    python3 -c '
import sys
written, printed = {}, {}
exec(open("odd.py").read(), written), exec(open("one").read(), printed) # as nanoGPT reads a configuration
del written["__builtins__"], written["mem_limit"]
assert printed["mem_limit"] == int(11.3 * 2**30), printed["mem_limit"]
for name in written: assert written[name] == printed[name], (name, written[name], printed[name])'
    # the size of a step is kept where batch_size was a number before it was auto
    trainer --batch_size=6 --gradient_accumulation_steps=5 --block_size=16 --batch_size=auto >one
    grep -q '^tokens_per_step *= 480 ' one
    trainer one >two
    diff <(values one) <(values two)
    trainer --batch_size=4 --gradient_accumulation_steps=2 --block_size=32 --batch_size=auto --tokens_per_step=256 | grep -q '^gradient_accumulation_steps *= 2 '
}

@test "contradictory schedules are refused with 2, and unusual ones only warn" {
    run_match 2 "'cooldown_iters' 25 is more than 'lr_decay_iters' 24" train --out_dir=run --lr_schedule=wsd --cooldown_iters=25
    run_match 2 "'min_lr' 1 is above 'learning_rate' 0.001" train --out_dir=run --min_lr=1
    warns() { run_match 0 "$1" train --max_iters=1 --warmup_iters=0 --out_dir=run --fresh "${@:2}"; }
    warns ""
    [[ "$output" != *"warning"* ]]
    warns "rises from 1e-05 to min_lr 6e-05" --learning_rate=1e-5
    warns "" --learning_rate=1e-5 --min_lr=1 --decay_lr=False
    [[ "$output" != *"rises"* ]]
    warns "the warmup of 24 steps ends after lr_decay_iters 24" --warmup_iters=24
    warns "the warmup of 2 steps is not shorter than the run of 1" --warmup_iters=2
    warns "--cooldown_iters: 'cooldown_iters' has no effect unless lr_schedule is wsd" --cooldown_iters=2
    warns "the cooldown of 20 steps begins before the warmup of 5 steps ends" --lr_schedule=wsd --cooldown_iters=20 --warmup_iters=5
    # max_iters without lr_decay_iters: the rate of its last step by the formula of the cosine is still that of the first
    warns "the run ends at step 1, and the learning rate falls until lr_decay_iters, 600000: it ends at 0.001, not at min_lr 6e-05; set lr_decay_iters=1" --lr_decay_iters=600000
    warns "" --lr_decay_iters=600000 --decay_lr=False
    [[ "$output" != *"lr_decay_iters"* ]]
}

@test "keys that have no effect warn, unless their value is the default" {
    warns() { run_code 0 train --max_iters=1 --sample_tokens=0 --out_dir=run --fresh "$@"; }
    warns --muon_learning_rate=1 --rope_theta=5 --spike_z=2 --recompute=none --recompute_layers=1 --spike_action=off
    for key in "muon_learning_rate' has no effect unless optimizer is muon" "rope_theta' has no effect unless position is rope" \
        "spike_z' has no effect where spike_action is off" "recompute_layers' has no effect where recompute is none"; do
        [[ "$output" == *"$key"* ]] || { echo "no '$key' in: $output" && return 1; }
    done
    warns --recompute=block --recompute_layers=5
    [[ "$output" == *"'recompute_layers' has no effect unless it is below n_layer"* ]]
    "$BIN/trainer" train tiny.conf --print_config >all.conf # sets every key, to its default
    run_code 0 "$BIN/trainer" train all.conf --dataset="$data" --max_iters=1 --sample_tokens=0 --out_dir=all
    [[ "$output" != *"no effect"* ]]
    warns --grad_checkpoint=True --n_layer=2 --recompute_layers=1
    [[ "$output" == *"grad_checkpoint: recompute = block"* && "$output" != *"no effect"* ]]
}

@test "eval --choices reads a pipe, and refuses a dataset" {
    train --out_dir=run --quiet --max_iters=1 --sample_tokens=0
    echo '{"ctx": "the mill", "endings": ["wheel", "stone"], "label": 1}' >items
    evaluate() { "$BIN/trainer" eval --out_dir=run --threads=1 --device=cpu --json "$@"; }
    evaluate --choices=items >whole
    cmp whole <(evaluate --choices=- <items)
    cmp whole <(cat items | evaluate --choices=/dev/stdin)
    echo "dataset = '$data'" >with.conf # of the training run
    cmp whole <(evaluate with.conf --choices=items)
    run_code 2 evaluate --choices=
    run_match 2 "--dataset and --choices" evaluate --choices=items --dataset="$data"
    printf '\xef\xbb\xbf{}\n' >marked
    run_match 65 "'marked' line 1: not a JSON object: " evaluate --choices=marked
}

@test "vocab_size=50304, as in many files for nanoGPT, is GPT-2's vocabulary with its padding" {
    echo 'vocab_size = 50304' >padded.py
    "$BIN/trainer" plan tiny.conf padded.py >padded 2>note
    diff <("$BIN/trainer" plan tiny.conf | grep -v ^run) <(grep -v ^run padded) # whose speed is measured
    grep -F "vocab_size 50304 is GPT-2's 50257 with padding, which is added here" note
    run_match 66 "the model has a vocabulary of 50305 ids" "$BIN/trainer" plan tiny.conf --vocab_size=50305
}

@test "a statement behind an ignored one in its line is read" {
    for line in "torch.manual_seed(1); n_embd = 7" "wandb_log = False; n_embd = 7" "import os; n_embd = 7"; do
        echo "$line" >two.py
        run_match 2 "two.py:1: 'n_embd' 7 is not divisible" "$BIN/trainer" plan tiny.conf two.py
    done
    echo "wandb_run_name = 'a; b' # one; statement" >one.py
    run_match 0 "ignored: wandb_run_name" "$BIN/trainer" plan tiny.conf one.py
}

@test "lines of nanoGPT's files are read, and ignored keys are named" {
    printf 'wandb_log = True\nimport time\ncompile = False\nmax_iters = 2 * 1\n' >nano.py
    run_match 0 "ignored: wandb_log, import, compile" "$BIN/trainer" plan tiny.conf nano.py
    # what notes on memory tell nanoGPT's users to add
    printf "%s\n" "torch.set_float32_matmul_precision('medium')  # or 'high'" "mode='reduce-overhead'" \
        'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True' 'torch._dynamo.config.suppress_errors = True' \
        "scaler = torch.amp.GradScaler('cuda', enabled=(dtype == 'float16'))" 'model = torch.compile(model)' 'eval_batch_size = 4' >pasted.py
    run_match 0 "ignored: torch.set_float32_matmul_precision, mode, export, torch._dynamo.config.suppress_errors, scaler, model" \
        "$BIN/trainer" plan tiny.conf pasted.py
    printf '%s\n' '```python' 'model = GPT(GPTConfig(n_layer=9))' 'scaler = GradScaler(enabled=True)' 'batch_size = 2' '```' >chat.py
    run_match 0 "ignored: \`\`\`python, model, scaler, \`\`\`" "$BIN/trainer" plan tiny.conf chat.py
    echo 'max_iters = round(3)' >call.py
    run_match 2 "call.py:1:13: 'max_iters' takes an integer" "$BIN/trainer" plan tiny.conf call.py
    run_match 2 "'mem_limit' is 12 bytes: did you mean '12GiB'?" "$BIN/trainer" plan tiny.conf --mem_limit=12
    run_match 2 "unknown key 'prompt', did you mean 'start'?" "$BIN/trainer" sample --prompt=x
    echo "model = 'gpt2'" >bad.py
    run_match 2 "bad.py:1:1: unknown key 'model'" "$BIN/trainer" plan tiny.conf bad.py
}

@test "flags are --key=VALUE or --key VALUE, and what other programs call a key is a hint" {
    diff <("$BIN/trainer" plan --print_config tiny.conf --n-layer 2 --bias False --dtype=float32 2>&1) \
        <("$BIN/trainer" plan --print_config tiny.conf --n_layer=2 --bias=False --dtype=float32 2>&1)
    run_match 2 "--n_layer: write --n_layer=VALUE" "$BIN/trainer" plan tiny.conf --n_layer --bias
    run_match 2 "--lr=3: unknown key 'lr', did you mean 'learning_rate'?" "$BIN/trainer" plan tiny.conf --lr=3
    run_match 2 "did you mean 'max_iters'?" "$BIN/trainer" plan tiny.conf --epochs=3
    run_match 66 "cannot open 'none.conf'" "$BIN/trainer" plan none.conf
    run_match 2 "unknown key 'x'" "$BIN/trainer" plan none.conf --x=3
    run_match 2 "did you mean 'float16'?" "$BIN/trainer" plan tiny.conf --dtype=fp16
    run_match 2 "did you mean 'cuda'?" "$BIN/trainer" plan tiny.conf --device=gpu
    run_match 2 "'optimizer' is 'gpu', not one of adamw, muon"$'\n' "$BIN/trainer" plan tiny.conf --optimizer=gpu
    same() { # --KEY VALUE as --KEY=VALUE, also of keys that are no keys and ignored ones
        run_code "$1" "$BIN/trainer" plan --print_config tiny.conf "${@:2}"
        with_space=$output
        run_code "$1" "$BIN/trainer" plan --print_config tiny.conf "${@:2:$#-3}" "${@: -2:1}=${*: -1}"
        [ "$with_space" = "$output" ]
    }
    same 0 --decay_lr 0
    same 0 --bias 1
    same 0 --compile False
    same 0 --wandb_project mill
    same 2 --lr 3
    same 2 --lr 3e-4
    same 2 --optim adamw
    run_match 66 "cannot open 'none.conf'" "$BIN/trainer" plan --compile none.conf
    run_match 66 "cannot open 'none.conf'" "$BIN/trainer" plan --bias none.conf
    run_match 0 "n_layer *= 7 " "$BIN/trainer" plan --print_config --wandb_log <(echo n_layer = 7)
    for width in 512:8 448:7; do
        run_match 2 "or 'n_head' ${width#*:}" "$BIN/trainer" plan --n_embd=${width%:*}
    done
}

@test "options, words and commands that do not exist suggest the nearest one" {
    run_match 2 "unknown option '--temprature': did you mean --temperature?" "$BIN/trainer" sample --temprature=1
    run_match 2 "unknown option '--frehs': did you mean --fresh?" "$BIN/trainer" train tiny.conf --frehs
    run_match 2 "unknown option '--qiet': did you mean --quiet?" "$BIN/trainer" train tiny.conf --qiet
    run_match 2 "unknown key 'max_iter', did you mean 'max_iters'?" "$BIN/trainer" train tiny.conf --max_iter=3
    run_match 2 "unknown key 'nothing_like_it'"$'\n' "$BIN/trainer" train tiny.conf --nothing_like_it=3
    run_match 2 "'lr_schedule' is 'cosin', not one of cosine, linear, constant, wsd: did you mean 'cosine'?" "$BIN/trainer" plan --lr_schedule=cosin
    run_match 2 "'device' is 'mps', not one of "*"did you mean 'cpu'?" "$BIN/trainer" plan --device=mps
    run_match 2 "'bfloat' is not one of "*": did you mean bfloat16?" "$BIN/trainer" export -o x --dtype bfloat
    run_match 2 "unexpected text after the value of 'learning_rate': ',5'" "$BIN/trainer" plan --learning_rate=6e-4,5
    run_match 2 "missing command before '--out_dir=x' (see trainer --help)" "$BIN/trainer" --out_dir=x
    run_match 2 "--temperature: -1 is outside 0 to 1e+09" "$BIN/trainer" sample --temperature=-1
    run_match 0 "usage: trainer train" "$BIN/trainer" train --help=1
    run_match 2 "-j: 'x' is not a number such as 4 or 64k" "$BIN/shardtool" tokenize -j x -o o docs
    echo 'a: 1' >a.yaml
    run_match 2 "a.yaml:1:1: not a 'key = value' line, as n_layer = 12" "$BIN/trainer" plan a.yaml
}

@test "a folder of nanoGPT's is named with the command that imports it" {
    mkdir -p data/openwebtext && head -c 4096 /dev/zero >data/openwebtext/train.bin
    run_match 66 "shardtool import --from nanogpt -o DIR data/openwebtext" "$BIN/trainer" train tiny.conf --dataset=openwebtext
}

# fault 71
@test "validation data shorter than block_size is an error, 2" {
    "$BIN/shardtool" tokenize --quiet --val 0 -o noval "$BATS_FILE_TMPDIR/docs/part-aa"
    run_code 2 "$BIN/trainer" train tiny.conf --dataset=noval --out_dir=run
    [[ "$output" == *"the validation data of 'noval' has 0 tokens, block_size 16 needs at least 17"*"--val"* ]]
    seq 20 | sed 's/$/ of twenty lines, each of which is a document of some ten or twelve tokens and more/' >twenty
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0 -o twenty.data twenty
    run_code 2 "$BIN/trainer" train tiny.conf --dataset=twenty.data --out_dir=run
    [[ "$output" == *"tokenize with --val 0.15 or more, or set eval_interval=0" ]] # of three documents; of 17 tokens 0.01
}

@test "plan ends as train does with a dataset that cannot be trained on" {
    "$BIN/shardtool" tokenize --quiet --val 0 -o noval "$BATS_FILE_TMPDIR/docs/part-aa"
    "$BIN/shardtool" tokenize --quiet --val 0.5 -o damaged "$BATS_FILE_TMPDIR/docs/part-aa" "$BATS_FILE_TMPDIR/docs/part-ab"
    sed -i 's/"tokens":1/"tokens":2/' damaged/dataset.jsonl
    seq 400 | sed 's/.*/& lines/' >text.txt
    "$BIN/shardtool" characters text.txt >abc
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.5 -o chars --characters abc text.txt
    tr 'lines' 'LINES' <text.txt >upper.txt
    "$BIN/shardtool" characters upper.txt >upper
    (cat text.txt && echo X) | "$BIN/shardtool" characters >more
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
    [ ! -e run/metrics.jsonl ]
    run_match 0 "arena" "$BIN/trainer" plan tiny.conf --dataset=noval --eval_interval=0
    run_match 0 "arena" "$BIN/trainer" plan tiny.conf --dataset=nowhere # that is not made yet
}

# fault 71
@test "one file of text is one document: tokenize and train say how to cut it, and the demo cuts it" {
    seq 6000 | sed 's/.*/& a line\n/' >"one text.txt"
    run_code 0 "$BIN/shardtool" tokenize --val 0.5 -o val "one text.txt"
    [[ "$output" == *"1 document goes to one split as a whole ("*" train and 0 val tokens): cut it with --docs paragraphs or lines"* ]]
    run_code 0 "$BIN/shardtool" tokenize --val 0.999 -o train "one text.txt"
    [[ "$output" == *"1 document goes to one split as a whole (0 train and "*"cut it with --docs paragraphs or lines"* ]]
    run_code 2 train --out_dir=run --dataset=val --block_size=400
    [[ "$output" == *"the validation data of 'val' has 0 tokens, block_size 400 needs at least 401: tokenize with --docs paragraphs (here 1 went to one split each as a whole) and --val 0.03 or more, or set eval_interval=0"* ]]
    run_match 2 "the training data of 'train' has 0 tokens*--docs paragraphs*--val 0.97 or less" train --out_dir=run --dataset=train --block_size=400
    "$BIN/shardtool" tokenize --quiet --docs paragraphs --val 0.04 -o cut "one text.txt"
    train --quiet --out_dir=run --dataset=cut --block_size=400 --max_iters=1 --sample_tokens=0
    mkdir programs
    ln -s "$BIN/shardtool" programs
    printf '#!/bin/sh\necho "$@"\n' | tee programs/trainer >programs/loader
    chmod +x programs/*
    run_match 0 "-V 8192 needs *GPT-2's vocabulary*6000 documents, *--loader=ipc://build/demo/loader"$'\n' bash "$ROOT/scripts/demo.sh" programs "one text.txt"
    # with enough text it has a vocabulary of its own
    python3 -c 'import random; r = random.Random(1); print(*("".join(r.choices("abcdefghij", k=6)) for i in range(9000)))' >words.txt
    run_match 0 "*8192 ids *--loader=ipc://build/demo/loader --vocabulary=build/demo/data/tokenizer.json"$'\n' bash "$ROOT/scripts/demo.sh" programs words.txt 1
}

@test "a directory without a dataset is an error, 66" {
    run_match 66 "'nowhere' is not a dataset directory" "$BIN/trainer" train tiny.conf --dataset=nowhere --out_dir=run
}

# fault 80
@test "a run directory in use is an error, 73" {
    begin --dataset="$data" --out_dir=run "${endless[@]}"
    wait_for_steps run 1
    run_match 73 "locked by pid $TRAINER" train --out_dir=run
}

# fault 74
@test "failed saves are warnings, a failed last save exits with 74, and no partial checkpoint is left" {
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
    run_code 0 train --out_dir=run "${small[@]}" --eval_only=True --eval_iters=2
    run_code 0 train --out_dir=run "${small[@]}" --max_iters=3 --learning_rate=1
    [[ "$output" == *"learning_rate is now 1, was 0.001 until step 2"* && "$output" != *"complete"* ]]
}

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
    train --out_dir=run --quiet
    cp -r run whole
    printf x | dd of="$(last run)/model.safetensors" bs=1 seek=100000 conv=notrunc status=none
    run_match 0 "A CHECKPOINT IS DAMAGED*transformer.wte.weight*resuming at step 16" train --out_dir=run
    same_run whole run
}

# fault 55
@test "three steps that are not finite roll the run back past their samples; the second time it exits with 81" {
    run_code 81 train --out_dir=run --learning_rate=1e30 --grad_clip=0 --weight_decay=0 --eval_interval=100
    [[ "$output" == *"not finite: not applied"*"three steps in a row were not finite: going back from step"* ]]
    grep -q rolled_back_from run/metrics.jsonl
    grep -q passed_from run/metrics.jsonl
}

# fault 58
@test "a plan that does not fit is an error before anything is allocated, 82, and a plan that fits is suggested" {
    run_code 82 "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=run --batch_size=64 --block_size=256 --gradient_accumulation_steps=1 --mem_limit=200MiB
    [ ! -e run ]
    [[ "$output" != *"for 200.0 MiB: batch_size"* ]] # no choice is printed where none fits
    [[ "$output" =~ (--batch_size=[0-9]+)\ (--gradient_accumulation_steps=[0-9]+) ]]
    run_match 0 "arena*spare" "$BIN/trainer" plan tiny.conf "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" --block_size=256 --mem_limit=200MiB
}

@test "eval prints the loss of the evaluation in the run; sample prints the same text for the same seed" {
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

# fault 97
@test "each checkpoint has the tokenizer's files as hard links to one copy, which a change of one does not reach" {
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

# fault 97
@test "a file system without hard links gets copies, and a save that is killed between two links leaves nothing" {
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

@test "export writes a model with its tokenizer, in float32 with the same loss" {
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
    run_code 66 "$BIN/trainer" export -o none --out_dir=elsewhere
    [ ! -e none ]
}

@test "sample prints each token as it comes" {
    train --out_dir=run --quiet
    # It would take hours to its end.
    sample() { exec "$BIN/trainer" sample --out_dir=run --start="the wheel" --num_samples=1000000 --max_new_tokens=1000000 2>/dev/null 3>&-; }
    [ "$(timeout 60 head -c 60 < <(sample) | wc -c)" -eq 60 ]
}

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

@test "the time left is that of steps, not of the evaluation before the first, and a loss that was not evaluated is not printed" {
    seq 1 3000 | sed 's/$/ is a number of a text/' >long.txt
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.4 -o long long.txt
    run train --dataset=long --out_dir=run --max_iters=120 --eval_interval=120 --eval_tokens=8192
    grep -Eq '^step +1/120 .* 0:00:0[0-9] left' <<<"$output"
    run train --dataset=long --out_dir=run --max_iters=122 --eval_interval=0
    [[ "$output" == *"step    122/122 | loss "* && "$output" != *"before training"* && "$output" != *nan* ]]
}

@test "the step line has the time left, TFLOP/s and their share of the measured peak" {
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

@test "plan names the level of recompute that the memory has room for" {
    run_match 0 "has room for --recompute=none, whose steps are predicted to take " "$BIN/trainer" plan tiny.conf --device=cpu --mem_limit=1GiB --grad_checkpoint=True
    run_code 0 "$BIN/trainer" plan tiny.conf --device=cpu --mem_limit=1GiB
    [[ "$output" != *"has room for"* ]]
    run_code 0 "$BIN/trainer" plan tiny.conf --device=cpu --grad_checkpoint=True
    [[ "$output" != *"has room for"* ]]
}

@test "plan has one form of units: bytes and multiples of 1024" {
    "$BIN/trainer" plan tiny.conf --device=cpu --mem_limit=1GiB --offload=optimizer >output
    grep -q '^  buffer  *bytes  *size$' output
    grep -q 'arena  largest batch_size in mem_limit, in sequences, by optimizer_state$' output
    not grep -E '[0-9] ?[KMGT]B' output
}

@test "plan prints the hours of a run: by a probe of the CPU, by the run in out_dir, or for given rates" {
    run "$BIN/trainer" plan tiny.conf --device=cpu --max_iters=100000000
    # steps of 2 * 2 * 16 tokens; 6 * (all parameters but the positions) + 12 L C T operations a token
    flops=$(python3 -c "V, C, T = 50257, 16, 16; print(f'{1e8 * 64 * (6 * (V * C + 12 * C * C + 5 * C) + 12 * C * T):.3g}')")
    [[ "$output" == *"run        100000000 steps, 6.40 G tokens, ${flops} FLOP: at least "*" TFLOP/s of matrix products alone in a short probe"* ]]
    [[ "$output" =~ "at least "([0-9.]+)" h, at the "([0-9.]+)" TFLOP/s" ]]
    python3 -c "assert abs($flops / ${BASH_REMATCH[2]}e12 / 3600 / ${BASH_REMATCH[1]} - 1) < 0.02"
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
    [[ "$output" == *"built without CUDA"* || "$output" == *" at 10 TFLOP/s, "*" at 100 TFLOP/s (the device was not measured)"* ]]
}

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

@test "eval_interval=0 trains without validation data" {
    "$BIN/shardtool" tokenize --quiet --val 0 -o noval "$BATS_FILE_TMPDIR/docs/part-aa"
    run_code 0 "$BIN/trainer" train tiny.conf --dataset=noval --out_dir=run --eval_interval=0 --max_iters=4
    [ -d run/ckpt-00000004 ]
    not grep -q val_loss run/metrics.jsonl
    run "$BIN/trainer" train tiny.conf --dataset=noval --out_dir=run --eval_interval=0 --max_iters=6
    [[ "$output" == *"resuming at step 4"* ]]
}

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

# data/run_0.1.0.tar.gz: 4 steps by the tree before the order of an epoch had 64 strata.
@test "a run whose samples had another order resumes with a sentence" {
    for i in $(seq 300); do echo "abc dad cab bad $((i % 7)) "; done >t.txt
    printf 'abcd 0123456\n' >chars.txt
    shardtool tokenize -q --characters chars.txt --docs lines --val 0.2 -o lines t.txt
    tar xf "$DATA/run_0.1.0.tar.gz"
    old=(train --out_dir=run --dataset=lines --n_layer=1 --n_head=1 --n_embd=16 --block_size=8 --batch_size=2
        --gradient_accumulation_steps=1 --warmup_iters=1 --eval_interval=4 --eval_iters=1 --device=cpu --dtype=float32 --sample_tokens=0)
    run_match 0 "resuming at step 4*this run began with another order of samples*the best loss starts again" "$BIN/trainer" "${old[@]}" --max_iters=6
    run "$BIN/trainer" "${old[@]}" --max_iters=8
    [[ "$output" == *"resuming at step 6"* && "$output" != *"another order of samples"* && "$output" != *"starts again"* ]]
}

@test "the report counts the tokens of every step after a change of the batch" {
    train --out_dir=run --quiet --max_iters=4
    train --out_dir=run --quiet --max_iters=6 --gradient_accumulation_steps=6
    grep -q '<th>tokens seen</th><td>640 </td>' run/report.html # 4 * 64 + 2 * 192
    grep -q '"tokens": 640,' run/ckpt-00000006/state.json
}

@test "status shows a live run, also before its first checkpoint, and --watch follows it" {
    begin --dataset="$data" --out_dir=run "${endless[@]}" --eval_interval=1000000
    wait_for_steps run 3
    run_code 0 "$BIN/trainer" status --json run
    [[ "$output" =~ "\"last_step\": "[0-9]+", \"last_loss\": 1"[0-9.]+", \"tokens_per_s\": "[0-9]+ ]]
    "$BIN/trainer" status --watch run >watched 2>&1 3>&- &
    LOADER=$! # ended by teardown
    two_lines() { [ "$(grep -c '^step .* | loss .* tok/s$' watched)" -ge 2 ]; }
    wait_until two_lines
}

@test "init_from starts a run with the weights of another run" {
    train --out_dir=run --quiet --max_iters=4
    run_code 0 train --out_dir=next --init_from=run/ckpt-00000004 --max_iters=1
    before=$(sed -n 's/{"step": 4, "val_loss": \([0-9.]*\).*/\1/p' run/metrics.jsonl)
    grep -q "{\"step\": 0, \"val_loss\": $before" next/metrics.jsonl
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
    mkdir llama
    echo '{"model_type": "llama"}' >llama/config.json
    run_match 65 "does not describe a GPT-2 model: of a model that 'trainer export' wrote, name the checkpoint, RUN/ckpt-STEP" \
        train --init_from=./llama --out_dir=next
}

@test "the configurations in config/ are valid" {
    for file in "$ROOT"/config/*.conf; do
        run "$BIN/trainer" plan "$file" --print_config --device=cpu
        [ "$status" -eq 0 ] || { echo "$file: $output"; false; }
    done
}

# fault 58
@test "plan for a GPU that is not present: the table, and 83 with settings that fit and keep the step" {
    run "$BIN/trainer" plan --device=cuda --n_layer=1 --recompute=0
    [[ "$output" != *"built without CUDA"* ]] || skip "built without CUDA"
    card=(plan --device=cuda --mem_limit=11.3GiB --batch_size=64 --gradient_accumulation_steps=8)
    run_match 83 "  block: whole blocks computed again" "$BIN/trainer" "${card[@]}" --recompute=0
    [[ "$output" == *"these fit: --batch_size=16 --gradient_accumulation_steps=32 ("* ]]
    [[ "$output" == *"; --recompute=mlp ("* ]]
    run_match 0 "64 x 8 sequences*recompute  mlp in 11 layers, norm in 1: saves * time +8.6 % (rates of an H200)" "$BIN/trainer" "${card[@]}"
    [[ "$output" == *"* mlp: and the input of GELU"* ]]
    run_code 83 "$BIN/trainer" "${card[@]}" --n_layer=48 --n_head=25 --n_embd=1600 --offload=none
    [[ "$output" == *"these fit: "*"--batch_size=8 --gradient_accumulation_steps=64 --loss_chunk_rows=256 --offload=optimizer ("* ]]
    run_match 83 "no batch size fits" "$BIN/trainer" "${card[@]/11.3GiB/8GiB}" --n_layer=48 --n_head=25 --n_embd=1600
}

@test "the largest batch_size that a plan prints fits, and one more does not" {
    card=(plan --device=cuda --mem_limit=10.8GiB --gradient_accumulation_steps=1 --eval_batch_size=1 --offload=none --recompute=none)
    run "$BIN/trainer" "${card[@]}" --batch_size=12
    [[ "$output" != *"built without CUDA"* ]] || skip "built without CUDA"
    largest=$(grep -E '^. none: ' <<<"$output" | sed 's/.*iB *//' | awk '{print $1}')
    [ "$largest" -gt 12 ]
    "$BIN/trainer" "${card[@]}" --batch_size="$largest"
    run_code 83 "$BIN/trainer" "${card[@]}" --batch_size=$((largest + 1))
}

@test "the configurations for GPUs of 6 to 24 GB fit them, with half a million tokens in a step" {
    run "$BIN/trainer" plan --device=cuda --n_layer=1
    [[ "$output" != *"built without CUDA"* ]] || skip "built without CUDA"
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

@test "offload=optimizer and all are bit-identical to offload=none, also in a run that was killed and resumed with the other one" {
    for state in fp32 bf16 bf16_sr; do
        [ $state = bf16 ] && back=none || back=optimizer
        [ $state = fp32 ] && away=all || away=optimizer
        begin_and_kill away-$state --dataset="$data" --optimizer_state=$state --offload=$away "${often[@]}"
        train --out_dir=away-$state --quiet --optimizer_state=$state "${often[@]}" --max_iters=$end --offload=$back
        train --out_dir=$state --quiet --optimizer_state=$state "${often[@]}" --max_iters=$end
        same_run $state away-$state $end
    done
}

# fault 61
@test "the trainer starts without the libraries of the CUDA toolkit" {
    libraries=$(LD_TRACE_LOADED_OBJECTS=1 "$BIN/trainer")
    [[ "$libraries" == *libc.so* && "$libraries" != *libcu[bd]* ]]
}

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

@test "dropout: a killed run resumes with the same masks, also with other threads, recompute and offload" {
    begin_and_kill killed --dataset="$data" --dropout=0.2 "${often[@]}"
    train --out_dir=killed --quiet --dropout=0.2 "${often[@]}" --max_iters=$end --threads=2 --recompute=block --offload=optimizer
    train --out_dir=whole --quiet --dropout=0.2 "${often[@]}" --max_iters=$end
    same_weights whole killed $end
    train --out_dir=none --quiet "${often[@]}" --max_iters=1
    [ "$(losses none | grep '"step": 1, "loss"')" != "$(losses whole | grep '"step": 1, "loss"')" ]
    [ "$(losses none | head -1)" = "$(losses whole | head -1)" ] # an evaluation has no dropout
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

@test "lr_schedule=wsd: the rate rises, stays, and falls to min_lr in the last cooldown_iters steps" {
    train --out_dir=run --quiet --eval_interval=0 --lr_schedule=wsd --cooldown_iters=6 --min_lr=0 --sample_tokens=0
    jq -se '[.[] | select(.loss) | .lr * 1e3] | length == 24 and (.[:5] | . == sort and .[4] < 1) and (.[5:19] | unique == [1])
        and (.[18:] | . == (sort | reverse) and (unique | length) == 6 and .[-1] > 0)' run/metrics.jsonl
}

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
