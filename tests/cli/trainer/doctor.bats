# trainer doctor: what a machine has, and what would stop a run.
# bats file_tags=ci
load ../helpers

setup() { cd "$BATS_TEST_TMPDIR" && cp "$BIN/trainer" . && cp "$BIN/loader" .; }

@test "doctor prints a line for each check, and 0 where a run can start" {
    run_code 0 ./trainer doctor
    for name in device onednn cuda mpi zstd cores memory disk limits loader; do grep -qE "^(ok|warning) +$name " <<<"$output"; done
    [ "${#lines[@]}" = 10 ]
    version=$(grep -oE 'zstd +[0-9.]+' <<<"$output" | grep -oE '[0-9.]+')
    case $version in
    1.5.[1-7]) [[ "$output" == *" $version has CVE-2026-124851, mended in 1.6.0 and Debian's 1.5.4+dfsg2-5+deb12u1: decoders here begin with zeros, one for each file"* ]] ;;
    *) not grep CVE <<<"$output" ;;
    esac
}

@test "doctor names the MPI that a run of several processes loads, or what to install" {
    run_match 0 "ok       mpi     '*/lib/millrace/mpi.so' is missing; runs of several processes need it: it is built where libopenmpi-dev is installed" ./trainer doctor
    [ -e "$BIN/../lib/millrace/mpi.so" ] && command -v ompi_info >/dev/null || skip "built without Open MPI"
    mkdir -p bin lib && cp trainer loader bin/ && cp -r "$BIN/../lib/millrace" lib/
    run_match 0 "ok       mpi     Open MPI v$(ompi_info --version | sed -n 's/^Open MPI v//p'), '*/libmpi.so*'" bin/trainer doctor
}

@test "doctor names limits of the shell, a missing loader and a directory that does not exist" {
    run_code 0 bash -c 'ulimit -f 1000; ./trainer doctor'
    grep -qE '^warning +limits +file size 1024000 \(ulimit -f\)' <<<"$output"
    rm loader
    ./trainer doctor | grep -qE "^warning +loader +no program 'millrace-loader' or '.*/loader'"
    touch file
    run_code 2 ./trainer doctor nowhere file/below
    run_code 1 ./trainer doctor file/below
    grep -qE "^error +disk +'file/below': Not a directory" <<<"$output"
}

@test "doctor names what the configuration asks for and the machine lacks; -q prints nothing else" {
    run_code 1 ./trainer doctor -q --device=cuda
    [[ "$output" == "error    device  no NVIDIA driver on this machine"* || "$output" == *"built without CUDA"* ]] && [ "${#lines[@]}" = 1 ]
    run_code 1 ./trainer doctor -q --dataset=/no/where
    [ "$output" = "error    inputs  dataset: '/no/where' is not a dataset directory: create one with millrace tokenize -o DIR, or give --loader" ]
    run_code 1 ./trainer doctor -q --init_from=/no/where
    [ "$output" = "error    inputs  init_from: '/no/where': No such file or directory" ]
    seq 90 >text
    "$BIN/shardtool" tokenize -q --docs lines -o set text
    run_match 1 "error    inputs  dataset: the training data of 'set' has 180 tokens" ./trainer doctor -q --dataset=set
    mkdir model && touch model/model.safetensors && echo '{}' >model/config.json
    run_match 0 "ok       inputs  dataset 'set', initial weights 'model'" ./trainer doctor --dataset=set --init_from=model --eval_interval=0 --block_size=8
    truncate -s 100000 loader
    run_code 1 ./trainer doctor -q
    [ "$output" = "error    loader  '$PWD/loader' does not start: install it again, or name a running one with loader=" ]
    run_code 0 ./trainer doctor -q --loader=tcp://mill:5
}

@test "doctor takes the vocabulary of a dataset, as a run does, and names one that is missing or another" {
    write_tiny_conf tiny.conf
    seq 300 >text
    make_ascii
    seq 500 | sed 's/^/b /' >other && "$BIN/shardtool" train-vocabulary --characters other >few
    "$BIN/shardtool" tokenize -q --docs lines --val 0.1 --vocabulary ascii -o set text
    run_match 0 "ok       inputs  dataset 'set'" ./trainer doctor tiny.conf --dataset=set
    ./trainer train -q tiny.conf --dataset=set --out_dir=run --max_iters=1 --eval_interval=0 --sample_tokens=0
    run_match 0 "ok       inputs  dataset 'set'" ./trainer doctor run --dataset=set
    run_match 1 "error    inputs  vocabulary: 'few' has a vocabulary of 14 ids, and the model one of 97" ./trainer doctor run --vocabulary=few
    run_match 1 "error    inputs  vocabulary: the model has a vocabulary of 97 ids: name its characters.txt" ./trainer doctor tiny.conf --vocab_size=97
}

@test "doctor looks at the parent of a new directory, and at the size of the model of a configuration" {
    run_code 0 ./trainer doctor not/yet
    grep -qE "^(ok|warning) +disk +.* free in '.'" <<<"$output"
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root to mount a small file system"
    write_tiny_conf tiny.conf
    unshare -m bash -c 'mkdir small && mount -t tmpfs -o size=30m tmpfs small
        ./trainer doctor small; ./trainer doctor tiny.conf small/run; ./trainer doctor tiny.conf --out_dir=small/run --n_embd=256; echo "exit $?"' >output
    grep -qE "^warning +disk +30.0 MiB free in 'small'; two checkpoints of GPT-2 124M take 2.8 GiB" output
    grep -qE "^ok +disk +30.0 MiB free in 'small'" output
    grep -qE "^error +disk +30.0 MiB free in 'small'; two checkpoints of this model take " output
    grep -q "exit 1" output
}

@test "doctor --report writes what a report of a bug needs, and no name of a user or machine, and nothing of the environment" {
    export HOME=$PWD/home/alice USER=alice LOGNAME=alice TOKEN=sec-ret MILLRACE_MODELS=$PWD/private
    run_dir=$HOME/alice-$(uname -n)/run
    mkdir -p "$HOME/data" "$(dirname "$run_dir")"
    seq 9000 >text
    "$BIN/shardtool" tokenize -q --val 0.1 --docs lines -o "$HOME/data/set" text
    write_tiny_conf tiny.conf
    arguments=(tiny.conf --dataset="$HOME/data/set" --out_dir="$run_dir")
    ./trainer train "${arguments[@]}" --quiet --max_iters=9 --sample_tokens=0
    run_match 0 "report for a bug: 'bug.txt'" ./trainer doctor "${arguments[@]}" --report bug.txt --loader_key=sec-ret
    for part in "$(./trainer --version | sed -n "1s|.* ||p")" "commit $(./trainer --version | sed -n "2s|commit \([^ ]*\).*|\1|p")" "trainer *sha256 $(sha256sum <trainer | cut -d ' ' -f 1)" \
        "loader *sha256 $(sha256sum <loader | cut -d ' ' -f 1)" "manifest *sha256 $(sha256sum <"$HOME/data/set/dataset.jsonl" | cut -d ' ' -f 1)" \
        "ok *disk " "^out_dir *= '~/USER-HOST/run'" "^max_iters *= 24 .*tiny.conf:9" \
        "newest checkpoint: step 9" "$(./trainer plan "${arguments[@]}" 2>/dev/null | grep -E '^ *arena ')"; do
        grep -qE -- "$part" bug.txt || { echo "no $part" && cat bug.txt && return 1; }
    done
    for text in "$(uname -r)" "$(sed -n 's/^model name.*: //p;T;q' /proc/cpuinfo)"; do grep -qF -- "$text" bug.txt; done
    [ "$(tail -n 1 "$run_dir/metrics.jsonl")" = "$(grep . bug.txt | tail -n 1)" ]
    [ "$(sed -nE '/^== configuration/,/^== dataset/s/^([a-z_0-9]+) +=.*/\1/p' bug.txt)" = "$(./trainer plan --print_config | sed -nE 's/^([a-z_0-9]+) +=.*/\1/p')" ]
    for name in alice "$(uname -n)" "$(id -un)" sec-ret private; do not grep -qwiE "(^|[^a-z0-9])$name([^a-z0-9]|$)" bug.txt; done
    # without a run, a dataset and room for a checkpoint, each part says so
    run_code 1 ./trainer doctor --n_layer=96 --n_embd=12288 --n_head=96 --out_dir=none --report=bug.txt --loader=tcp://mill:5
    grep -q "^cannot open 'none/metrics.jsonl'" bug.txt
    grep -q "^of a running loader" bug.txt
    not grep -q "mill:5" bug.txt
    run_code 74 bash -c 'ulimit -f 1; ./trainer doctor --report big.txt'
    run_match 73 "nowhere/bug.txt" ./trainer doctor --report nowhere/bug.txt
}

@test "doctor RUN has the plan and configuration of the newest checkpoint of the run" {
    seq 9000 >text
    "$BIN/shardtool" tokenize -q --val 0.1 --docs lines -o set text
    write_tiny_conf tiny.conf
    ./trainer train tiny.conf --dataset=set --out_dir=run --quiet --max_iters=9 --sample_tokens=0
    run_match 0 "ok       run     'run/ckpt-00000009', step 9 of 9" ./trainer doctor run --report bug.txt
    for part in "^out_dir *= 'run' *# argument;" "^n_embd *= 16 *# run/ckpt-00000009;" "^dtype *= 'float32' " "^threads *= 0 *# default;" \
        "^dataset 'set', fingerprint $(jq -rs '.[0].fingerprint' run/metrics.jsonl ), 36 samples" \
        "$(./trainer plan tiny.conf --max_iters=9 --threads=0 --out_dir=run 2>/dev/null | grep -E '^ *arena ')"; do
        grep -qE -- "$part" bug.txt || { echo "no $part" && cat bug.txt && return 1; }
    done
    run_code 0 ./trainer doctor run --init_from=gone # a run that goes on needs no initial weights
    ./trainer doctor run --max_iters=30 --report bug.txt
    grep -qE "^max_iters *= 30 *# --max_iters;" bug.txt
}

@test "doctor names a directory without a run, and a report needs a run" {
    run_match 0 "warning  run     'nowhere' does not exist: 'millrace train --out_dir=nowhere' starts a run there" ./trainer doctor nowhere
    run_match 66 "no run in 'nowhere'" ./trainer doctor nowhere --report bug.txt
    [ ! -e bug.txt ]
    mkdir empty
    run_match 0 "warning  run     'empty' has no checkpoint" ./trainer doctor empty
}
