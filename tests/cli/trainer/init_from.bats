# Models made by others: what init_from reads, and what it refuses.
load ../helpers

# Python with numpy: the environment of the tests, else the system's.
python=$ROOT/build/venv/bin/python
[ -x "$python" ] || python=python3
model() { "$python" "$ROOT/tests/oracle/trainer/gpt2_model.py" "$@"; }

has_numpy() { "$python" -c 'import numpy' 2>/dev/null; }

setup_file() {
    has_numpy || return 0
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 2000 0.2
    zstd -dcq data/val/*/*.zst >ids
    model make hf
}

setup() {
    has_numpy || skip "python3 has no numpy"
    enter_test
    data=$BATS_FILE_TMPDIR/data ids=$BATS_FILE_TMPDIR/ids hf=$BATS_FILE_TMPDIR/hf
    few=(--dataset="$data" --dtype=float32 --threads=1 --batch_size=2 --gradient_accumulation_steps=1 --eval_tokens=128 --eval_order=sequential)
}

# N ids: the bytes, GPT-2's merges, others after them, and the end of text.
many_ids() {
    "$python" -c 'import base64, sys; sys.path.insert(0, sys.argv[1]); import gpt2
ranks = gpt2.ranks(); more = (b"more%d" % i for i in range(9999))
while len(ranks) < int(sys.argv[2]) - 1: ranks.setdefault(next(more), len(ranks))
for token, rank in sorted(ranks.items(), key=lambda item: item[1]): print(base64.b64encode(token).decode(), rank)' "$ROOT/tests/oracle" "$1"
}
val_loss() { sed -nE 's/.*"split": "val", "loss": ([0-9.]*).*/\1/p'; }
first_val_loss() { sed -nE 's/^\{"step": 0, "val_loss": ([0-9.]*).*/\1/p' "$1/metrics.jsonl"; }
close() { "$python" -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(not abs(a - b) < 1e-5)' "$1" "$2" || { echo "$1 is not $2" && return 1; }; }

# bats test_tags=ci
@test "init_from reads shape, biases, GELU and weights of a model directory, in every type and layout" {
    model make half --activation gelu --dtype F16 --no-prefix
    model make shards --activation gelu_pytorch_tanh --dtype BF16 --shards 3
    ln -s "$hf" whole
    model make padded --padding 47
    [ "$(model loss padded "$ids" 64 2)" != "$(model loss whole "$ids" 64 2)" ]
    run_match 0 "the 50304 ids of './padded' are GPT-2's 50257 and padding, which is left out" "$BIN/trainer" eval --init_from=./padded "${few[@]}"
    close "$("$BIN/trainer" eval --init_from=./padded "${few[@]}" --json 2>/dev/null | val_loss)" "$(model loss whole "$ids" 64 2)"
    "$BIN/trainer" train --quiet --init_from=./padded --out_dir=cut "${few[@]}" --max_iters=1 --sample_tokens=0
    [ "$(jq .vocab_size cut/ckpt-00000001/config.json)" = 50257 ]
    run_match 0 "resuming at step 1" "$BIN/trainer" train --init_from=./padded --out_dir=cut "${few[@]}" --max_iters=2 --sample_tokens=0
    many_ids 50304 >many.tiktoken
    mkdir whose && seq -f '%g words of a text of their own' 20000 >whose/text
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.1 --vocabulary many.tiktoken --pattern gpt2 -o many whose/text
    "$BIN/trainer" train --quiet --dataset=many --out_dir=run --max_iters=1 --eval_interval=0 --sample_tokens=0 --n_layer=1 --n_head=1 --n_embd=8 --block_size=16 --batch_size=1
    "$BIN/trainer" export --quiet --out_dir=run -o exported
    for directory in run/ckpt-00000001 exported; do [ "$(jq .vocab_size $directory/config.json)" = 50304 ]; done
    run_match 0 "val   loss 10.8" "$BIN/trainer" eval --init_from=./exported --dataset=many --eval_tokens=128
    model make other --padding 48
    run_code 66 "$BIN/trainer" eval --init_from=./other "${few[@]}"
    for directory in whole half shards; do
        want=$(model loss $directory "$ids" 64 2)
        close "$("$BIN/trainer" eval --init_from=./$directory "${few[@]}" --json 2>/dev/null | val_loss)" "$want"
        "$BIN/trainer" train --quiet --init_from=./$directory --out_dir=run-$directory "${few[@]}" --max_iters=1 --sample_tokens=0
        close "$(first_val_loss run-$directory)" "$want"
        run_match 0 "resuming at step 1" "$BIN/trainer" train --init_from=./$directory --out_dir=run-$directory "${few[@]}" --max_iters=2 --sample_tokens=0
    done
    rm whole
    "$BIN/trainer" train --quiet --init_from=resume --out_dir=run-whole "${few[@]}" --max_iters=3 --sample_tokens=0
}

@test "a shorter block_size crops the position embeddings, and eval_block_size gives the same loss" {
    want=$(model loss "$hf" "$ids" 16 8)
    close "$("$BIN/trainer" eval --init_from="$hf" --block_size=16 "${few[@]}" --json 2>/dev/null | val_loss)" "$want"
    close "$("$BIN/trainer" eval --init_from="$hf" --eval_block_size=16 "${few[@]}" --json 2>/dev/null | val_loss)" "$want"
    "$BIN/trainer" train --quiet --init_from="$hf" --block_size=32 --eval_block_size=16 --out_dir=run "${few[@]}" --max_iters=1
    close "$(first_val_loss run)" "$want"
    run_code 2 "$BIN/trainer" train --init_from="$hf" --block_size=128 --out_dir=long "${few[@]}"
    [[ "$output" == *"--block_size: 'block_size' is 128, and the model in '$hf' has 64"* ]]
}

# fault 77
@test "keys that contradict the model are errors with both values, 2" {
    run_code 2 "$BIN/trainer" train --init_from="$hf" --n_layer=6 --bias=False --mlp=gelu:exact --out_dir=run "${few[@]}"
    [[ "$output" == *"'n_layer' is 6, and the model in '$hf' has 2"* ]]
    [[ "$output" == *"'bias' is False, and the model in '$hf' has True"* ]]
    [[ "$output" == *"'gelu' is exact, and the model in '$hf' has tanh"* ]]
    [[ "$output" == *"3 mistakes"* && ! -e run ]]
    "$BIN/trainer" plan --init_from="$hf" --n_layer=2 --bias=True --mlp=gelu:tanh "${few[@]}"
}

@test "unknown tensors and other computations in a model directory are refused with 65" {
    "$python" - "$hf" <<'END'
import json, os, sys
source = sys.argv[1]
def variant(name, **keys):
    os.mkdir(name)
    os.symlink(f"{source}/model.safetensors", f"{name}/model.safetensors")
    with open(f"{source}/config.json") as file, open(f"{name}/config.json", "w") as out:
        json.dump(json.load(file) | keys, out)
variant("no-bias", bias=False)
variant("fewer", n_layer=1)
variant("relu", activation_function="relu")
variant("wide", n_inner=100)
variant("epsilon", layer_norm_epsilon=1e-6)
variant("untied", tie_word_embeddings=False)
variant("bert", model_type="bert")
for name, tied in ("loose", True), ("own", False): # a head that is not the embedding
    variant(name, tie_word_embeddings=tied, large=10**30)
    with open(f"{source}/model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    wte = next(header[key] for key in header if key.endswith("wte.weight"))
    begin, end = wte["data_offsets"]
    header["lm_head.weight"] = wte | {"data_offsets": [len(data), len(data) + end - begin]}
    text = json.dumps(header).encode()
    os.unlink(f"{name}/model.safetensors")
    with open(f"{name}/model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data + data[begin:end][::-1])
END
    refused() { # DIRECTORY WORDS
        run "$BIN/trainer" train --init_from=./$1 --out_dir=run "${few[@]}"
        [ "$status" -eq 65 ] || { echo "$1: $status $output" && return 1; }
        [[ "$output" == *"$2"* ]] || { echo "$1: $output" && return 1; }
    }
    refused no-bias "not part of the model that config.json describes: 'transformer.h.0.ln_1.bias', "
    refused fewer "not part of the model that config.json describes: 'transformer.h.1."
    refused relu "activation_function is none of gelu, gelu_new, gelu_pytorch_tanh"
    refused wide "n_inner has a value that is not supported"
    refused epsilon "layer_norm_epsilon has a value"
    refused untied "there is no tensor 'lm_head.weight'"
    refused loose "not part of the model that config.json describes: 'lm_head.weight'; a head of its own needs \"tie_word_embeddings\": false there"
    "$BIN/trainer" plan --init_from=./own "${few[@]}"
    refused bert "does not describe a GPT-2 model"
}

@test "names such as gpt2 are looked up as directories, and a missing one names the files to provide, 66" {
    run_code 66 "$BIN/trainer" train --init_from=gpt2-xl --out_dir=run "${few[@]}"
    [[ "$output" == *"put config.json and model.safetensors of the model 'gpt2-xl' into 'gpt2-xl'"* ]]
    mkdir models runs
    ln -s "$hf" models/gpt2
    touch gpt2
    MILLRACE_MODELS=models "$BIN/trainer" eval --init_from=gpt2 "${few[@]}" --json >one # a file of that name is not a model
    rm gpt2 && mkdir gpt2
    MILLRACE_MODELS=models "$BIN/trainer" eval --init_from=gpt2 "${few[@]}" --json | cmp - one
    ln -s "$hf" runs/gpt2-medium
    "$BIN/trainer" train --quiet --init_from=gpt2-medium --out_dir=runs/new "${few[@]}" --max_iters=0
    ln -s "$hf" gpt2-large
    "$BIN/trainer" eval --init_from=gpt2-large "${few[@]}" --json >two
    cmp one two
    ln -s "$hf" $'m\xff' # state.json could not hold the name
    run_match 2 "is not UTF-8: name it by another path" "$BIN/trainer" train --init_from=$'m\xff' --out_dir=bytes "${few[@]}" --max_iters=0
}

# bats test_tags=ci
@test "nanoGPT's fine-tuning and evaluation files run as they are, with the model directory given once" {
    mkdir models
    ln -s "$hf" models/gpt2
    ln -s "$hf" models/gpt2-xl
    export MILLRACE_MODELS=$PWD/models
    cat >eval_gpt2.py <<'END'
# evaluate the base gpt2
# n_layer=12, n_head=12, n_embd=768
# 124M parameters
batch_size = 8
eval_iters = 500 # use more iterations to get good estimate
eval_only = True
wandb_log = False
init_from = 'gpt2'
END
    cat >finetune_shakespeare.py <<'END'
import time

out_dir = 'out-shakespeare'
eval_interval = 5
eval_iters = 40
wandb_log = False # feel free to turn on
wandb_project = 'shakespeare'
wandb_run_name = 'ft-' + str(time.time())

dataset = 'shakespeare'
init_from = 'gpt2-xl' # this is the largest GPT-2 model

# only save checkpoints if the validation loss improves
always_save_checkpoint = False

# the number of examples per iter:
# 1 batch_size * 32 grad_accum * 1024 tokens = 32,768 tokens/iter
# shakespeare has 301,966 tokens, so 1 epoch ~= 9.2 iters
batch_size = 1
gradient_accumulation_steps = 32
max_iters = 20

# finetune at constant LR
learning_rate = 3e-5
decay_lr = False
END
    mkdir data
    ln -s "$data" data/shakespeare
    run_match 0 "step 0 | train loss * | val loss " "$BIN/trainer" train eval_gpt2.py --dataset=shakespeare
    run_match 0 "ignored: import, wandb_log, wandb_project, wandb_run_name" "$BIN/trainer" train finetune_shakespeare.py --max_iters=1 --sample_tokens=0
    [ -d out-shakespeare/ckpt-00000001 ]
}
