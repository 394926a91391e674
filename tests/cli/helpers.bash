# Shared by the command-line tests: a tiny training run, programs in the background, and how to wait for them.
# A test waits for events (a step in metrics.jsonl, a line in a log, the end of a process), never for a fixed time. A run
# that a test interrupts is `endless`: only the test can end it, however slow or fast the machine is.

ROOT=$(realpath "${BASH_SOURCE[0]%/*}/../..")
: "${BIN:=$ROOT/build/bin}" "${DATA:=$ROOT/tests/data}" # without run.sh: the last build
export BIN DATA

# A line of a test fails it by its status, but not as "A && B" where A fails, and never as "! A".
not() { ! "$@"; }

# What a file that has no setup or teardown of its own gets: an empty folder, the programs by their names, no process left.
enter_test() { cd "$BATS_TEST_TMPDIR" && PATH="$BIN:$PATH"; }
setup() { if [ -e "$BATS_FILE_TMPDIR/data" ]; then setup_training; else enter_test; fi; }
setup_training() { # also a configuration, and the dataset of make_data in setup_file
    enter_test
    data=$BATS_FILE_TMPDIR/data
    write_tiny_conf tiny.conf
    [ ! -e "$data/characters.txt" ] || echo "vocabulary = '$data/characters.txt'" >>tiny.conf # for a loader's datasets
}
train() { "$BIN/trainer" train tiny.conf --dataset="$data" "$@"; }
with_gpt2() { # a test that requires the vocabulary of GPT-2: the dataset of setup_file in gpt2/
    data=$BATS_FILE_TMPDIR/gpt2/data
    sed -i '/^vocabulary/d' tiny.conf
}
teardown() { end_background; }

endless=(--max_iters=1000000)
often=("${endless[@]}" --eval_interval=3 --eval_iters=1) # with a checkpoint after a few steps

# write_tiny_conf FILE: 24 steps of a few milliseconds. One thread and float32, so that neither the processor nor the number of cores
# changes its bits or its memory.
write_tiny_conf() {
    cat >"$1" <<END
n_layer = 1
n_head = 2
n_embd = 16
block_size = 16
batch_size = 2
gradient_accumulation_steps = 2
learning_rate = 1e-3
warmup_iters = 5
max_iters = 24
lr_decay_iters = 24
eval_interval = 8
eval_iters = 4
sample_tokens = 8
threads = 1
dtype = 'float32'
checkpoint_interval = 0
END
}

leftovers() { find out -name '*.tmp.*' -o -name .journal -o -name .pending -o -name .window -o -name .new; } # of a killed shardtool

# make_items COUNT FILE: choices of two, one of them longer than a sequence, and texts to continue.
make_items() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) {
        printf "{\"task\": \"t%d\", \"id\": %d, \"kind\": \"%s\", \"texts\": [[\"%s mill %d\", \" w%d\"]", i % 3, i, i % 3 ? "choice" : "greedy", i % 7 ? "a" : "some letters before", i, i
        printf i % 3 ? ", [\"a\", \" stone\"]], \"span\": \"ending\", \"label\": %d}\n" : "]}\n", i % 2 } }' >"$2"
}

# once NAME COMMAND...: a copy, here, of what COMMAND makes in an empty folder: once in a run of tests, for all files (run.sh), or once in
# a run of bats.
once() {
    local made=${FIXTURES:-$BATS_RUN_TMPDIR}/$1
    (
        flock 9
        [ -e "$made" ] || { rm -rf "$made.new" && mkdir "$made.new" && cd "$made.new" && "${@:2}" && mv "$made.new" "$made"; }
    ) 9>"$made.lock" || return
    cp -r "$made/." .
}

# ascii: a vocabulary of 97 characters, for make_data N N --vocabulary ascii, which makes it: a step takes a fifth of the time of one
# of GPT-2's.
make_ascii() { seq 32 126 | awk '{ printf "%c", $1 } END { print "" }' >printable && "$BIN/shardtool" train-vocabulary --characters printable >ascii; }

# make_data LINES VAL [OPTION...]: the dataset `data` from the folder `docs`, of text.txt in documents of 60 lines.
make_data() { once "data $*" new_data "$@"; }
new_data() {
    seq 1 "$1" | sed 's/.*/line & of a text about mills, rivers and the stream that drives the wheel/' >text.txt
    [[ " $* " != *" ascii "* ]] || make_ascii || return
    mkdir docs
    split -l 60 text.txt docs/part-
    "$BIN/shardtool" tokenize --quiet --val "$2" "${@:3}" -o data docs
}
make_other_data() { once "other $*" new_other_data "$@"; } # LINES [OPTION...]: `data2`
new_other_data() {
    [[ " $* " != *" ascii "* ]] || make_ascii || return
    mkdir other
    seq 1 "$1" | sed 's/.*/& other words: bread, flour, sacks, carts and & horses/' | split -l 40 - other/part-
    "$BIN/shardtool" tokenize --quiet --val 0.1 "${@:2}" -o data2 other
}

# wait_until COMMAND...: polls until COMMAND succeeds. Fails after ten minutes, which only a broken program takes, or as soon
# as the trainer that is waited for has ended.
wait_until() {
    local end=$((SECONDS + 600)) ended=
    until "$@"; do
        [ -z "$ended" ] || { echo "the trainer ended during: $*" && cat stderr && return 1; }
        [ "$SECONDS" -lt "$end" ] || { echo "ten minutes of waiting for: $*" && return 1; }
        [ -z "${TRAINER:-}" ] || kill -0 "$TRAINER" 2>/dev/null || ended=1 # look once more
        sleep 0.02
    done
}

begin() { # OPTION...: a training run in the background, started by the command in LAUNCH if there is one
    ${LAUNCH:-} "$BIN/trainer" train tiny.conf --quiet "$@" 2>stderr >stdout 3>&- &
    TRAINER=$!
}
stderr_has() { grep -q "$1" stderr; } # PATTERN
is_gone() { ! kill -0 "$1" 2>/dev/null; }
ends() { # STATUS: waits for the end of the training run
    local status=0 pid=$TRAINER
    TRAINER=
    wait_until is_gone "$pid" || { kill -9 "$pid" && return 1; }
    wait "$pid" || status=$?
    [ "$status" -eq "$1" ] || { echo "exit $status, not $1:" && cat stderr && return 1; }
}
stop_run() { # SIGNAL STATUS: ends the training run
    kill -"$1" "$TRAINER"
    ends "$2"
}
# begin_and_kill RUN OPTION...: kills the run after its first checkpoint; `end` is two steps later.
begin_and_kill() {
    begin --out_dir="$1" "${@:2}"
    wait_for_checkpoint "$1"
    stop_run 9 137
    end=$(($(steps "$1") + 2))
}
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"loss"' || true; } # RUN
has_steps() { [ "$(steps "$1")" -ge "$2" ]; }
wait_for_steps() { wait_until has_steps "$1" "$2"; }                             # RUN COUNT
wait_for_more_steps() { wait_for_steps "$1" $(($(steps "$1") + ${2:-4})); }      # RUN [COUNT]
has_checkpoint() { compgen -G "$1/ckpt-*" >/dev/null; }
wait_for_checkpoint() { wait_until has_checkpoint "$1"; }                        # RUN
losses() { sed -nE '/"(val_)?loss"/{s/, "ms": .*/}/;p}' "$1/metrics.jsonl"; } # RUN
checkpoint() { printf '%s/ckpt-%08d' "$1" "$2"; }                                # RUN STEP

state() { grep -vE '^ *"(name|hash)"' "$1/state.json"; } # CHECKPOINT: all but what names the dataset's folder

same_weights() { # RUN RUN STEP: every bit of the weights and of the optimizer, and every loss
    local one two
    one=$(checkpoint "$1" "$3") two=$(checkpoint "$2" "$3")
    cmp "$one/model.safetensors" "$two/model.safetensors" && cmp "$one/optimizer.safetensors" "$two/optimizer.safetensors" &&
        diff <(losses "$1") <(losses "$2")
}
same_run() { # RUN RUN [STEP]: also the rest of the checkpoint
    local one two
    one=$(checkpoint "$1" "${3:-24}") two=$(checkpoint "$2" "${3:-24}")
    same_weights "$1" "$2" "${3:-24}" && cmp "$one/config.json" "$two/config.json" && diff <(state "$one") <(state "$two")
}

# finish RUN OPTION...: two more steps of an interrupted run, the same steps as `RUN-whole` in one go; both hold the same bits.
finish() {
    local run=$1 end=$(($(steps "$1") + 2))
    shift
    "$BIN/trainer" train tiny.conf --quiet --max_iters=$end --out_dir="$run" "$@"
    "$BIN/trainer" train tiny.conf --quiet --max_iters=$end --out_dir="$run-whole" "$@"
    same_run "$run-whole" "$run" $end
}

serve() { # DATASET [OPTION...]: a loader in the background, at ENDPOINT or ipc://place; 3>&- lets bats end
    "$BIN/loader" serve "$1" --endpoint "${ENDPOINT:-ipc://place}" "${@:2}" 2>>log 3>&- &
    LOADER=$!
}
serve_until_ready() { # DATASET [OPTION...]
    : >log
    serve "$@"
    wait_until grep -q ready log
}
stop_loader() { # [SIGNAL]: after which it exits with 0
    kill -"${1:-TERM}" "$LOADER"
    wait "$LOADER"
    LOADER=
}
kill_loader() {
    kill -9 "$LOADER"
    wait "$LOADER" 2>/dev/null || true
    LOADER=
}

# A TCP port that nothing listens on.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# as_user COMMAND...: as a user who is not root, because permissions do not bind root.
as_user() {
    if [ "$(id -u)" != 0 ]; then
        "$@"
        return
    fi
    for folder in "$BATS_RUN_TMPDIR" "$(dirname "$PWD")" "$PWD" "$BATS_FILE_TMPDIR"; do chmod a+rx "$folder"; done
    local user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    "${user[@]}" test -x "$BIN/trainer" 2>/dev/null || skip "user 65534 cannot reach $BIN"
    "${user[@]}" "$@"
}

# needs_cpu FLAG...: skips the test where the processor lacks one of /proc/cpuinfo's flags.
needs_cpu() {
    local flag
    for flag in "$@"; do grep -m 1 '^flags' /proc/cpuinfo | grep -qw "$flag" || skip "this processor has no $flag"; done
}

end_background() { # for teardown
    for pid in ${LOADER:-} ${TRAINER:-}; do
        { kill -9 "$pid"; wait "$pid"; } 2>/dev/null || true
    done
}

# run_code CODE COMMAND...: the exit code, and stdout and stderr together in $output
run_code() {
    local want=$1
    shift
    run "$@"
    [ "$status" -eq "$want" ] || { echo "exit $status, not $want: $output" && return 1; }
}
# run_match CODE PATTERN COMMAND...: also an output with the glob PATTERN in it
run_match() {
    run_code "$1" "${@:3}" || return
    [[ "$output" == *$2* ]] || { echo "no '$2' in: $output" && return 1; }
}

is_sanitized() { grep -q __asan_init "$BIN/trainer"; } # it is ten times as slow
# For tests under ulimit -v.
needs_address_limit() { ! is_sanitized || skip "the address sanitizer reserves address space"; }

# preload NAME [OPTION...]: makes NAME.so of tests/cli/preload/NAME.c.
preload() {
    command -v cc >/dev/null || skip "needs a C compiler"
    cc -shared -fPIC -O1 -o "$1.so" "${@:2}" "$ROOT/tests/cli/preload/$1.c"
}

# on_direct_io FUNCTION: calls it with a mount, mnt/, of the folder real/ by FUSE with direct I/O, which has no shared maps. MOUNT: the
# process that serves it.
on_direct_io() {
    local result=0
    command -v bindfs >/dev/null && [ "$(id -u)" = 0 ] && [ -w /dev/fuse ] || skip "needs bindfs, root and /dev/fuse"
    mkdir -p real mnt
    bindfs -f -o direct_io real mnt 3>&- &
    MOUNT=$!
    until mountpoint -q mnt; do is_gone $MOUNT && skip "cannot mount with FUSE" || sleep 0.02; done
    "$@" || result=$?
    umount mnt
    wait $MOUNT || true
    return $result
}

# refused CALL[,CALL...]:ERROR:PART COMMAND...: with calls that fail for paths with PART (preload/refuse.c)
refused() {
    [ -e "$BATS_TEST_TMPDIR/refuse.so" ] || (cd "$BATS_TEST_TMPDIR" && preload refuse)
    ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 REFUSE=$1 LD_PRELOAD=$BATS_TEST_TMPDIR/refuse.so "${@:2}"
}

# clock_preload BODY: makes other_clock.so, whose CLOCK_MONOTONIC is what BODY makes of `ns`, the time, at its call number `call`.
clock_preload() {
    preload other_clock "-DBODY=${1//$'\n'/ }" # a macro ends with its line
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
}

# begin_with_later OPTION...: a training run for which 20 s pass with each look at the clock while the file `later` is there.
begin_with_later() {
    rm -f later
    clock_preload 'if (!access("later", F_OK)) sum += 20000000000; ns += sum;'
    LAUNCH="env LD_PRELOAD=$PWD/other_clock.so" begin --data_timeout=1000 "$@"
}

# in_group MIB COMMAND...: in a control group of that memory; 99 where none can be made
in_group() {
    local group=/sys/fs/cgroup/memory limit=memory.limit_in_bytes status=0
    [ -d $group ] || group=/sys/fs/cgroup limit=memory.max
    [ -w $group/cgroup.procs ] && mkdir $group/millrace-$BASHPID 2>/dev/null || return 99
    group=$group/millrace-$BASHPID
    if echo $(($1 << 20)) >$group/$limit; then
        (echo "$BASHPID" >$group/cgroup.procs && exec "${@:2}") || status=$?
        wait_until rmdir $group 2>/dev/null # when its loader has ended
    else
        status=99 && rmdir $group
    fi
    return $status
}

# kill_at CALL N COMMAND...: runs COMMAND and kills it before the N-th system call CALL of one of its threads; fails when there are
# fewer calls.
kill_at() {
    local program=$BATS_RUN_TMPDIR/kill_at_$1 status=0
    [ -x "$program" ] || ${CC:-cc} -D_GNU_SOURCE -DCALL="SYS_$1" -o "$program" "$ROOT/tests/cli/kill_at.c"
    ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" "$program" "${@:2}" >/dev/null 2>&1 || status=$?
    [ $status = 0 ] || [ $status = 137 ] || { echo "exit $status instead of a kill: ${*:2}" && exit 1; }
    [ $status = 137 ]
}

# complete_after_kills WHOLE made/DIR COMMAND...: killed at any of its calls that change the disk, COMMAND leaves nothing or all
# under its name; repeated, it makes what is in WHOLE, and nothing else is left beside it.
complete_after_kills() {
    local whole=$1 directory=$2 call number
    shift 2
    for call in mkdir write fsync rename renameat; do
        for number in $(seq 1 50); do
            rm -rf made
            kill_at $call "$number" "$@" || break
            if [ -e "$directory" ]; then diff -r "$directory" "$whole"; else "$@"; fi
            diff -r "$directory" "$whole"
            [ "$(ls -A made)" = "${directory#made/}" ] || { ls -A made && return 1; }
        done
        [ "$number" -gt 1 ]
    done
}

# The leak sanitizer does not work in a program that is traced.
strace() { ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" command strace "$@"; }
export -f strace

accept_receipt() { # RUN [DIR]: both checkers accept a receipt of the run
    rm -f receipt.json && "$BIN/trainer" replay "$1" --receipt receipt.json
    run_match 0 ": accepted" "$BIN/trainer" replay "$1" --check receipt.json "${@:2}"
    python3 "$ROOT/loader/python/millrace_loader/receipt.py" receipt.json "$1"
}
wide_vocabulary() { python3 "$ROOT/tests/oracle/tokenizer/wide_vocabulary.py" "$1"; } # FILE: a .tiktoken of 65,792 tokens

# Makes a dataset of one document in each split, so that no target of an evaluation is the end of a text.
tokenize_two() { # DATASET TEXT [OPTION]...
    local seed
    head -n 100 "$2" >short.txt
    for seed in {1..50}; do
        "$BIN/shardtool" tokenize --quiet --force --format text --val 0.5 --seed "$seed" "${@:3}" -o "$1" "$2" short.txt
        "$BIN/shardtool" info --json "$1" | jq -e '.train_documents == 1 and .val_documents == 1' && return
    done
    false
}
