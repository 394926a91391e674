# Configurations: nanoGPT's files and flags, mistakes, warnings.
load ../helpers

setup_file() { cd "$BATS_FILE_TMPDIR" && make_data 600 0.1; }

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
    "n_head": 2, "n_embd": 24, "lr_schedule": "'wsd:3'", "min_lr": 3e-5, "dropout": 0.123456789, "spike_action": "'skip:1e+30'", "mlp": "'gelu:tanh'",
    "position": "'rope:500.5'", "dtype": "'float32:highest'",
    "until": "''", "optimizer_state": "'bf16'", "mem_limit": "'11.3GiB'", "recompute": "'block:5'", "deterministic": True}
for row in re.split(r"^(?=KEY|WORD)", open(sys.argv[1]).read(), flags=re.M)[1:]:
    kind, arguments = row.split("(", 1)
    words = re.findall(r'\bW\([^"]*"(.*?)"\)', arguments)
    first, name, default = (part.strip() for part in arguments.split(",")[:3])
    if (kind != "KEY" and not words and name not in values) or re.search(r'ANY, ALWAYS, ""|, PART|9\), ALWAYS, ""', row): continue  # the words are listed elsewhere; no keys
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
    trainer --until=40m >one # which sets other keys
    trainer one >two
    diff <(values one) <(values two)
    trainer --batch_size=4 --gradient_accumulation_steps=2 --block_size=32 --batch_size=auto --tokens_per_step=256 | grep -q '^gradient_accumulation_steps *= 2 '
}

@test "depth sets the shape, but for what is set beside it or behind it" {
    shape() { "$BIN/trainer" plan --print_config "$@" 2>&1 | sed -nE 's/^(n_layer|n_head|n_embd) *= *([0-9]+) .*/\2/p' | xargs; }
    printf 'n_layer = 3\nn_head = 2\nn_embd = 32\n' >shape.conf
    printf 'n_embd = 96\ndepth = 6\n' >beside.conf
    [ "$(shape --depth=5)" = "5 5 320" ]
    [ "$(shape shape.conf --depth=5)" = "5 5 320" ]
    [ "$(shape shape.conf --depth=5 --n_embd=640)" = "5 5 640" ]
    [ "$(shape beside.conf)" = "6 6 96" ]
    [ "$(shape beside.conf --n_layer=2 --depth=0)" = "2 12 96" ]
}

@test "contradictory schedules are refused with 2, and unusual ones only warn" {
    run_match 2 "'lr_schedule' is wsd:25, more steps than 'lr_decay_iters' 24" train --out_dir=run --lr_schedule=wsd:25
    run_match 2 "'min_lr' 1 is above 'learning_rate' 0.001" train --out_dir=run --min_lr=1
    warns() { run_match 0 "$1" train --max_iters=1 --warmup_iters=0 --out_dir=run --fresh "${@:2}"; }
    warns ""
    [[ "$output" != *"warning"* ]]
    warns "rises from 1e-05 to min_lr 6e-05" --learning_rate=1e-5
    warns "" --learning_rate=1e-5 --min_lr=1 --decay_lr=False
    [[ "$output" != *"rises"* ]]
    warns "the warmup of 24 steps ends after lr_decay_iters 24" --warmup_iters=24
    warns "the warmup of 2 steps is not shorter than the run of 1" --warmup_iters=2
    warns "the cooldown of 20 steps begins before the warmup of 5 steps ends" --lr_schedule=wsd:20 --warmup_iters=5
    warns "the cooldown of 2 steps begins before the warmup of 7 steps ends" --lr_schedule=wsd --lr_decay_iters=8 --warmup_iters=7
    # max_iters without lr_decay_iters: the rate of its last step by the formula of the cosine is still that of the first
    warns "the run ends at step 1, and the learning rate falls until lr_decay_iters, 600000: it ends at 0.001, not at min_lr 6e-05; set lr_decay_iters=1" --lr_decay_iters=600000
    warns "" --lr_decay_iters=600000 --decay_lr=False
    [[ "$output" != *"lr_decay_iters"* ]]
}

@test "of two names of one setting the later source holds, and both in one source are refused with both values" {
    printf '%s\n' 'eval_tokens = 96' "lr_schedule = 'linear'" "recompute = 'mlp'" >new.conf
    printf '%s\n' 'eval_iters = 5' 'decay_lr = False' 'grad_checkpoint = True' 'batch_size = 2' 'block_size = 16' >nanogpt.conf
    while read -r key new nanogpt old want; do
        value() { "$BIN/trainer" plan "$@" --print_config 2>/dev/null | sed -nE "s/^$key *= *([^ ]*) .*/\1/p"; }
        [ "$(value new.conf --batch_size=2 --block_size=16 "--$nanogpt=$old")" = "$want" ]
        [ "$(value new.conf nanogpt.conf)" = "${want/96/160}" ]
        for source in "nanogpt.conf --$key=$new" "nanogpt.conf new.conf"; do
            # shellcheck disable=SC2086
            [ "$(value $source)" = "$new" ]
        done
        run_match 2 "--$nanogpt: '$nanogpt' is $old, and '$key' is ${new//\'/} (--$key): set one of them" \
            "$BIN/trainer" plan new.conf "--$nanogpt=$old" "--$key=$new"
    done <<'END'
eval_tokens 96 eval_iters 5 160
lr_schedule 'linear' decay_lr False 'constant'
recompute 'mlp' grad_checkpoint True 'block'
END
    # the default of nanoGPT's key, over another size of a file
    run_match 0 "eval_tokens  *= 0  *# --eval_iters" "$BIN/trainer" plan new.conf --eval_iters=200 --print_config
}

@test "what a word takes behind its colon is named, and 0 is not taken for its default" {
    while IFS='|' read -r given want; do
        run_match 2 "$want" "$BIN/trainer" plan "--$given"
    done <<'END'
lr_schedule=wsd:abc|'lr_schedule' is 'wsd:abc': 'wsd:' takes an integer above 0
lr_schedule=wsd:0|'lr_schedule' is 'wsd:0': 'wsd:' takes an integer above 0
recompute=mlp:|'recompute' is 'mlp:': 'mlp:' takes an integer above 0
recompute=mlp:0|'recompute' is 'mlp:0': 'mlp:' takes an integer above 0
mlp=gelu:|'mlp' is 'gelu:': 'gelu:' takes one of exact, tanh
mlp=gelu:erf|'mlp' is 'gelu:erf': 'gelu:' takes one of exact, tanh
mlp=relu2:tanh|'mlp' is 'relu2:tanh', not one of gelu, relu2, swiglu
dtype=float32:low|'float32:' takes one of highest, high
position=rope:x|'rope:' takes a number above 0
spike_action=skip:x|'skip:' takes a number above 0
END
}

@test "keys that have no effect warn, unless their value is the default" {
    warns() { run_code 0 train --max_iters=1 --sample_tokens=0 --out_dir=run --fresh "$@"; }
    warns --muon_learning_rate=1 --muon_momentum=0.5
    for key in "muon_learning_rate' has no effect unless optimizer is muon" "muon_momentum' has no effect unless optimizer is muon"; do
        [[ "$output" == *"$key"* ]] || { echo "no '$key' in: $output" && return 1; }
    done
    warns --recompute=block:5
    [[ "$output" == *"the number of layers of 'recompute' has no effect unless it is below n_layer"* ]]
    echo >items
    warns --items=items
    [[ "$output" == *"--items: 'items' has no effect where items_interval is 0"* ]]
    run_match 2 "--until: the time is empty: leave it out, and the run ends at max_iters" "$BIN/trainer" train tiny.conf --dataset="$data" --until=
    "$BIN/trainer" train tiny.conf --print_config >all.conf # sets every key, to its default
    run_code 0 "$BIN/trainer" train all.conf --dataset="$data" --max_iters=1 --sample_tokens=0 --out_dir=all
    [[ "$output" != *"no effect"* ]]
    warns --grad_checkpoint=True
    [[ "$output" == *"grad_checkpoint: recompute = block"* && "$output" != *"no effect"* ]]
}

@test "vocab_size=50304, as in many files for nanoGPT, is GPT-2's vocabulary with its padding" {
    echo 'vocab_size = 50304' >padded.py
    "$BIN/trainer" plan tiny.conf padded.py >padded 2>note
    diff <("$BIN/trainer" plan tiny.conf | grep -v ^run) <(grep -v ^run padded) # whose speed is measured
    grep -F "vocab_size 50304 is GPT-2's 50257 with padding, which is added here" note
    run_match 66 "the model has a vocabulary of 50305 ids" "$BIN/trainer" plan tiny.conf --vocab_size=50305
    "$BIN/trainer" train --quiet tiny.conf padded.py --dataset="$data" --out_dir=gpt2 --max_iters=1 --sample_tokens=0
    for size in 50304 50257; do # GPT-2's in each command
        "$BIN/trainer" eval --quiet tiny.conf --vocab_size=$size --dataset="$data" --out_dir=gpt2 --eval_iters=1
        "$BIN/trainer" sample --quiet --vocab_size=$size --out_dir=gpt2 --max_new_tokens=2
        "$BIN/trainer" train --quiet tiny.conf --vocab_size=$size --dataset="$data" --init_from=./gpt2/ckpt-00000001 --out_dir=tuned$size --max_iters=1 --sample_tokens=0
    done
    run_match 2 "'vocab_size' is 50305, and the model in './gpt2/ckpt-00000001' has 0, which is GPT-2's 50257" \
        "$BIN/trainer" train tiny.conf --vocab_size=50305 --dataset="$data" --init_from=./gpt2/ckpt-00000001 --out_dir=new
}

@test "a file that takes keys from another one is refused, and what takes none is ignored" {
    echo 'n_layer = 1' >base.py
    for line in "exec(open('base.py').read())" "exec('n_layer = 1')" "from base import *" "from base import (out, n_layer as layers)"; do
        printf '%s\nbatch_size = 3\n' "$line" >more.py
        run_match 2 "more.py:1:1: takes keys from elsewhere, which is not done: name both files, that one first" "$BIN/trainer" plan tiny.conf more.py
    done
    printf "exec(open('configurator.py').read()) # overrides\nfrom model import GPTConfig, GPT\nfrom contextlib import nullcontext # and n_layer\nimport *\n" >less.py
    run_match 0 "ignored: exec, from, from, import" "$BIN/trainer" plan tiny.conf less.py
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
    run_match 2 "'mem_limit' is 12 bytes, too few for any plan: the unit is as in 10.8GiB" "$BIN/trainer" plan tiny.conf --mem_limit=12
    run_match 2 "--mem_limit=1.5: 'mem_limit' takes a number of bytes, as 1000000 or '10.8GiB'" "$BIN/trainer" plan tiny.conf --mem_limit=1.5
    run_match 2 "unknown key 'prompt': the beginning of a text is 'millrace sample --start=TEXT'" "$BIN/trainer" sample --prompt=x
    echo "model = 'gpt2'" >bad.py
    run_match 2 "bad.py:1:1: unknown key 'model'" "$BIN/trainer" plan tiny.conf bad.py
}

@test "flags are --key=VALUE or --key VALUE, and what other programs call a key is a hint" {
    diff <("$BIN/trainer" plan --print_config tiny.conf --n-layer 2 --bias False --dtype=float32 2>&1) \
        <("$BIN/trainer" plan --print_config tiny.conf --n_layer=2 --bias=False --dtype=float32 2>&1)
    run_match 2 "--n_layer: write --n_layer=VALUE" "$BIN/trainer" plan tiny.conf --n_layer --bias
    run_match 2 "--lr=3: unknown key 'lr', did you mean 'learning_rate'?" "$BIN/trainer" plan tiny.conf --lr=3
    run_match 2 "did you mean 'recompute=block'?" "$BIN/trainer" plan tiny.conf --gradient-checkpointing
    run_match 2 "--lora_rank=8: unknown key 'lora_rank': there are no adapters: init_from=DIR trains all weights" "$BIN/trainer" plan tiny.conf --lora_rank=8
    run_match 66 "cannot open 'none.conf'" "$BIN/trainer" plan none.conf
    run_match 2 "unknown key 'x'" "$BIN/trainer" plan none.conf --x=3
    run_match 2 "did you mean 'float16'?" "$BIN/trainer" plan tiny.conf --dtype=fp16
    run_match 2 "did you mean 'cuda'?" "$BIN/trainer" plan tiny.conf --device=gpu
    run_match 2 "'optimizer' is 'gpu', not one of adamw, muon"$'\n' "$BIN/trainer" plan tiny.conf --optimizer=gpu
    same() { # --KEY VALUE as --KEY=VALUE, also of keys that are not keys and ignored ones
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
    for width in 512:8 448:14; do
        run_match 2 "or 'n_head' ${width#*:}" "$BIN/trainer" plan --n_embd=${width%:*}
    done
    run_match 2 "or 'n_head' 4" "$BIN/trainer" plan --n_embd=64 --n_head=5
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
    run_match 2 "'1.5' is not a number such as 4 or 64k" "$BIN/shardtool" tokenize --max-tokens 1.5 -o o docs
    echo 'a: 1' >a.yaml
    run_match 2 "a.yaml:1:1: not a 'key = value' line, as n_layer = 12" "$BIN/trainer" plan a.yaml
}

@test "a folder of nanoGPT's is named with the command that imports it" {
    mkdir -p data/openwebtext && head -c 4096 /dev/zero >data/openwebtext/train.bin
    run_match 66 "millrace import-tokens --format nanogpt -o DIR data/openwebtext" "$BIN/trainer" train tiny.conf --dataset=openwebtext
}

@test "the configurations in config/ are valid" {
    for file in "$ROOT"/config/*.conf; do
        run "$BIN/trainer" plan "$file" --print_config --device=cpu
        [ "$status" -eq 0 ] || { echo "$file: $output"; false; }
    done
}
