# document_mask: attention within documents, from the configuration to the evaluation of a checkpoint.
load ../helpers

# bats test_tags=ci
@test "document_mask changes the loss, and eval uses the setting of the run" {
    seq 1 3000 | sed 's/.*/line & of a text about mills, rivers and the stream that drives the wheel/' >text.txt
    mkdir docs
    split -l 2 -a 4 text.txt docs/part-
    "$BIN/shardtool" tokenize --quiet --val 0.2 -o data docs
    printf '%s\n' n_layer=1 n_head=2 n_embd=32 block_size=64 batch_size=2 gradient_accumulation_steps=1 dtype=\"float32\" \
        threads=1 max_iters=4 warmup_iters=1 eval_interval=4 eval_tokens=1280 learning_rate=0.01 >tiny.conf
    val_loss() { "$BIN/trainer" eval --quiet --dataset=data "$@" | sed -nE 's/^val +loss ([0-9.]*) .*/\1/p'; }
    for mask in False True; do
        "$BIN/trainer" train tiny.conf --quiet --dataset=data --out_dir=$mask --document_mask=$mask
        loss=$(jq -r 'select(.step == 4) | .val_loss // empty' $mask/metrics.jsonl)
        [ "$(val_loss --out_dir=$mask)" = "$(printf %.4f "$loss")" ]
        [ "$(val_loss --out_dir=$mask --document_mask=$mask)" = "$(printf %.4f "$loss")" ]
    done
    [ "$(val_loss --out_dir=True --document_mask=False)" != "$(val_loss --out_dir=True)" ]
}
