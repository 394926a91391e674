# Another oneDNN under the trainer than the one it was built with. Each is a preloaded library of a few functions.
load ../helpers

setup_file() { cd "$BATS_FILE_TMPDIR" && make_ascii && make_data 1200 0.2 --vocabulary ascii; }
setup() {
    ldd "$BIN/trainer" | grep -q libdnnl || skip "oneDNN is part of the program"
    command -v cc >/dev/null || skip "needs a C compiler"
    setup_training
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
}
train() { "$BIN/trainer" train tiny.conf --quiet --dataset="$data" --max_iters=8 --eval_interval=4 --reduce_order=fast "$@"; }

@test "a oneDNN that computes when it is waited for gives the same bits" {
    preload other_onednn -D_GNU_SOURCE
    for dtype in float32 bfloat16; do
        # 24 channels: with AVX-512 oneDNN packs the weights itself, another call
        train --out_dir=$dtype --dtype=$dtype --threads=2 --n_embd=24
        LD_PRELOAD=$PWD/other_onednn.so train --out_dir=later-$dtype --dtype=$dtype --threads=2 --n_embd=24
        same_weights $dtype later-$dtype 8
    done
}

@test "a oneDNN of another runtime than OpenMP is refused by its name and file, 71; doctor names every one" {
    "$BIN/trainer" doctor --device=cpu | grep -qE "^ok +onednn +oneDNN [23]\.[0-9.]+ for (OpenMP|one thread), /.*libdnnl"
    for runtime in "4 TBB" "8 a thread pool" "512 SYCL" "64 an unknown runtime"; do
        preload other_onednn -D_GNU_SOURCE -DRUNTIME="${runtime%% *}"
        for command in train plan; do
            run_match 71 " for ${runtime#* }, $PWD/other_onednn.so; this program needs oneDNN" \
                env LD_PRELOAD="$PWD/other_onednn.so" "$BIN/trainer" $command tiny.conf --quiet --dataset="$data" --out_dir=run
        done
        [ ! -e run ]
        run_match 1 "error    device  another oneDNN is loaded: oneDNN " env LD_PRELOAD="$PWD/other_onednn.so" "$BIN/trainer" doctor --device=cpu
        [[ "$output" == *"warning  onednn  another oneDNN is loaded: "* ]]
    done
}
