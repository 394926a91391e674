# One process on a GPU: the trainer on the emulated CUDA backend.
load ../helpers
load ../ranks

setup_file() { make_character_data; }

setup() {
    [ -x "$BIN/../emulated/trainer" ] || skip "built without nvcc"
    enter_test
    mkdir programs && cp "$BIN/../emulated/trainer" "$BIN/loader" programs/
    BIN=programs
    write_tiny_conf tiny.conf
    make_emulated_conf
    options=(--dataset="$BATS_FILE_TMPDIR/data" --sample_tokens=0 --log_interval=1)
    export ASAN_OPTIONS=detect_leaks=0
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

