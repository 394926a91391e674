# Modern options of the model: runs, resumes, refusals, exports.
load ../helpers

setup_file() { cd "$BATS_FILE_TMPDIR" && make_data 6000 0.1 --vocabulary ascii; }

every=(--tie_embeddings=False --logit_softcap=15.3 --z_loss=1e-3 --norm=rmsnorm --qk_norm=True --mlp=swiglu --position=rope:5000
    --n_kv_head=1)
train() { "$BIN/trainer" train tiny.conf --dataset="$data" --quiet "$@"; }
value() { sed -nE "s/.*\"$2\": ([^,}]*).*/\1/p" "$1"; } # FILE KEY
val_loss() { value "$1/metrics.jsonl" val_loss | tail -1; }

@test "a run with every option learns, and a resumed one is bit-identical to an uninterrupted one" {
    train "${every[@]}" --out_dir=whole
    awk "BEGIN { first = $(value whole/metrics.jsonl val_loss | head -1) - log(97); exit !(first * first < 0.01 && $(val_loss whole) < 4.5) }"
    train "${every[@]}" --out_dir=parts --max_iters=16
    train "${every[@]}" --out_dir=parts
    same_run whole parts
}

@test "eval, sample and init_from take the options from the checkpoint" {
    train "${every[@]}" --out_dir=run
    "$BIN/trainer" eval --out_dir=run --dataset="$data" --threads=1 --json 2>/dev/null >found
    awk "BEGIN { off = $(value found loss | tail -1) - $(val_loss run); exit !(off * off < 1e-12) }"
    "$BIN/trainer" sample --out_dir=run --num_samples=1 --max_new_tokens=9 --threads=1 >text
    [ -s text ]
    train --init_from="$(checkpoint run 24)" --out_dir=tuned --z_loss=1e-3 --max_iters=1
    grep -q '"model_type": "millrace"' "$(checkpoint tuned 1)/config.json"
    run_match 2 "'rope_theta' is 500000, and the model in * has 5000" train --init_from="$(checkpoint run 24)" --out_dir=other --position=rope:500000
    run_match 2 "'mlp' is gelu, and the model in * has swiglu" train --init_from="$(checkpoint run 24)" --out_dir=other --mlp=gelu
}

@test "a checkpoint of a GPT-2 has no key of the options, and a resumed run refuses them with 2" {
    train --out_dir=run --max_iters=8
    for key in tie_embeddings logit_softcap z_loss mlp norm qk_norm position rope_theta n_kv_head; do
        run_code 1 grep -q "\"$key\":" "$(checkpoint run 8)"/{state,config}.json
    done
    run_code 2 train --out_dir=run --norm=rmsnorm
    [[ "$output" == *"norm is rmsnorm, was layernorm"* || "$output" == *"'norm' is rmsnorm, and the model in "*" has layernorm"* ]]
}

@test "options that contradict the shape are errors with both values, 2" {
    run_match 2 "'n_kv_head' 3 does not divide 'n_head' 4" train --n_head=4 --n_kv_head=3
    run_match 2 "'position' is rope, which turns pairs of channels, and a head has n_embd / n_head = 3" train --n_embd=6 --n_head=2 --position=rope
    run_code 2 train --logit_softcap=-1
    run_match 2 "gelu, relu2, swiglu" train --mlp=relu
}

@test "a config.json with options that no model has is an error, 65" {
    train "${every[@]}" --out_dir=run --max_iters=1
    cp -r "$(checkpoint run 1)" model
    rm model/state.json # which has the hash of config.json
    train --init_from=./model --out_dir=same --quiet
    for change in 's/"norm": "rmsnorm"/"norm": "none"/' 's/"n_kv_head": 1/"n_kv_head": 3/' 's/"rope_theta": 5000/"rope_theta": 0.5/' \
        's/"activation_function": "swiglu"/"activation_function": "silu"/' 's/"model_type": "millrace"/"model_type": "llama"/' \
        's/"n_layer"/"head_scale": 2.5, "n_layer"/'; do
        sed "$change" "$(checkpoint run 1)/config.json" >model/config.json
        run_code 1 cmp -s "$(checkpoint run 1)/config.json" model/config.json
        run train --init_from=./model --out_dir=other
        [[ $status -eq 65 && "$output" != *damaged* ]] || { echo "$change: $status $output" && false; }
    done
}
