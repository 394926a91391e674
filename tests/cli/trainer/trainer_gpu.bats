# One process on a GPU: the trainer on the emulated CUDA backend.
# bats file_tags=ci
load ../helpers
load ../ranks

setup_file() { make_character_data; }

setup() {
    enter_emulated
    options=(--dataset="$BATS_FILE_TMPDIR/data" --sample_tokens=0 --log_interval=1)
}

gpu() { "$BIN/trainer" train tiny.conf --device=cuda "${options[@]}" "$@"; }

@test "metrics, status and the report have the memory and the use of the GPU, where the driver has NVML" {
    gpu --out_dir=without
    EMU_NVML=1 gpu --out_dir=with
    not grep -q gpu_ without/metrics.jsonl
    not grep -q "used by all processes" without/report.html
    jq -se 'map(select(.gpu_busy)) | length == 2 and .[1].step == 2 and .[1].gpu_used_bytes == 3221225472 and
        .[1].gpu_free_bytes == 9126805504 and .[1].gpu_busy == 0.97' with/metrics.jsonl
    grep -q "3.0 GiB used by all processes, 8.5 GiB free, 97 % busy" with/report.html
    "$BIN/trainer" status --json with | jq -e '.gpu_used_bytes == 3221225472 and .gpu_free_bytes == 9126805504 and .gpu_busy == 0.97'
    run_match 0 "*gpu_used * 3.0 GiB*gpu_free * 8.5 GiB*gpu_busy * 97 %*" "$BIN/trainer" status with
    "$BIN/trainer" status --json without | jq -e 'has("gpu_busy") | not'
}

@test "the plan for a card by its name is the one that the driver of such a card leads to" {
    local model=(plan --batch_size=64 --gradient_accumulation_steps=8 --n_layer=12)
    while IFS=, read -r card device; do
        run_code 0 "$BIN/trainer" "${model[@]}" --card "$card"
        [[ "$output" =~ "compute capability "([0-9]+)"."([0-9])", "([0-9]+)" multiprocessors".*"memory     "([0-9]+)" bytes".*"context    "([0-9]+)" bytes" ]]
        EMU_NAME=$device EMU_CAPABILITY=${BASH_REMATCH[1]}${BASH_REMATCH[2]} EMU_MULTIPROCESSORS=${BASH_REMATCH[3]} EMU_MEMORY=${BASH_REMATCH[4]} \
            EMU_CONTEXT=${BASH_REMATCH[5]} "$BIN/trainer" "${model[@]}" --device=cuda >device
        "$BIN/trainer" "${model[@]}" --card "$card" | sed '1,/^$/d' >named
        diff named device
    done <<'END'
RTX 3060,NVIDIA GeForce RTX 3060
GTX 1660,NVIDIA GeForce GTX 1660
RTX 4090,NVIDIA GeForce RTX 4090
H200,NVIDIA H200
END
}

@test "the passes before the first batch read no start of a document that nothing has written" {
    gpu --out_dir=run --document_mask=True --n_layer=1 --n_embd=32 --batch_size=2 --gradient_accumulation_steps=1 --eval_tokens=16 --eval_interval=1 --warmup_iters=0 --max_iters=1
    gpu --out_dir=large --document_mask=True --n_layer=1 --n_embd=32 --batch_size=2 --gradient_accumulation_steps=1 --eval_tokens=128 --eval_batch_size=4 --eval_interval=0 --warmup_iters=0 --max_iters=1
    [ "$(jq -s 'map(select(.val_loss)) | length' run/metrics.jsonl)" = 2 ]
}

@test "a run that changes between a GPU and the CPU prints that its bits differ" {
    run_code 0 gpu --out_dir=run --max_iters=2 --warmup_iters=1
    [[ "$output" != *"was computed with"* ]]
    run_match 2 "the run was computed with a GPU, and goes on with " "$BIN/trainer" replay run --device=cpu --steps=1
    run_match 0 "the run was computed with a GPU, and goes on with " "$BIN/trainer" train tiny.conf --device=cpu "${options[@]}" --out_dir=run --max_iters=3 --warmup_iters=1
    run_match 0 ", and goes on with a GPU: its bits are not" gpu --out_dir=run --max_iters=4 --warmup_iters=1
}

@test "float32 on a GPU has the losses of the CPU, those of TF32 differ, and each resumes with its own" {
    losses_within() { # FACTOR RUN RUN
        join <(sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.]+).*/\1 \2/p' "$2/metrics.jsonl") \
            <(sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.]+).*/\1 \2/p' "$3/metrics.jsonl") |
            awk -v most="$1" '{ off = $2 / $3 - 1 } off > most || off < -most { print; bad = 1 } END { exit bad || NR != 2 }'
    }
    "$BIN/trainer" train tiny.conf --device=cpu "${options[@]}" --dtype=float32 --out_dir=cpu
    gpu --dtype=float32:highest --out_dir=highest
    gpu --dtype=float32 --out_dir=high
    losses_within 3e-6 cpu highest
    losses_within 1e-3 cpu high
    not losses_within 1e-7 highest high
    gpu --dtype=float32 --out_dir=high --max_iters=3 2>stderr
    not grep -q "matmul_precision is now" stderr
}
