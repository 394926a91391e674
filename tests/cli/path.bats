# The whole way in one go: raw text, shards, a loader, a training that survives what happens to it, a sample. And what
# must not make a difference on the way: names, places, the environment.

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    mkdir -p "Mühlen & Bäche/日本語"
    {
        printf '\xef\xbb\xbfa mark first, <|endoftext|> inside, e\xcc\x81, \xe2\x80\x8b\xc2\xa0\xe3\x80\x80, İıŞş, 👩‍👩‍👧‍👦\r\n\r\n\t tabs  \n'
        printf "they'll we've İt's 日本語 ١٢٣ नमस्ते 𝔘𝔫𝔦\n"
    } >"Mühlen & Bäche/-o ärger.txt"
    printf 'no UTF-8: \xff\xc3 \xed\xa0\x80 end\n' >"Mühlen & Bäche/bad.txt"
    seq 3000 | sed 's/.*/die Mühle № & mahlt; le moulin à eau n’arrête pas — &\n/' | split -l 100 - "Mühlen & Bäche/日本語/тетрадь "
    seq 600 | sed 's/.*/the text of another mill, the wheel of which is still & days/' | split -l 10 - other-
    "$BIN/shardtool" tokenize --quiet --val 0.2 -o "Das Mühlrad/" "Mühlen & Bäche/" 2>words
    "$BIN/shardtool" tokenize --quiet --val 0.2 -o still other-*
    cat >tiny.conf <<END
n_layer = 1
n_head = 2
n_embd = 32
block_size = 32
batch_size = 2
gradient_accumulation_steps = 2
learning_rate = 1e-3
warmup_iters = 5
max_iters = 40
lr_decay_iters = 40
eval_interval = 10
eval_iters = 2
sample_tokens = 8
threads = 1
END
    "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=whole
}

setup() { cd "$BATS_FILE_TMPDIR" || exit; }

teardown() {
    for pid in ${LOADER:-} ${TRAINER:-}; do
        { kill -9 "$pid"; wait "$pid"; } 2>/dev/null || true
    done
}

serve() { # DATASET
    "$BIN/loader" serve "$1" --endpoint ipc://place 2>>log 3>&- &
    LOADER=$!
}
begin() { # in the background
    "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place "$@" >lines 2>words 3>&- &
    TRAINER=$!
}
ends() { # STATUS
    status=0
    wait "$TRAINER" || status=$?
    TRAINER=
    [ "$status" -eq "$1" ] || { cat words && return 1; }
}
steps() { # RUN COUNT: waits until so many are done
    for _ in $(seq 2000); do
        n=$(grep -c '"loss"' "$1/metrics.jsonl" 2>/dev/null) && [ "$n" -ge "$2" ] && return
        sleep 0.01
    done
    return 1
}
losses() { sed -nE '/"(val_)?loss"/s/, "(ms|tokens_per_s)": .*/}/p' "$1/metrics.jsonl"; }
same_run() { # RUN RUN: every loss, every bit of the last checkpoint
    diff <(losses "$1") <(losses "$2")
    for file in model.safetensors optimizer.safetensors; do cmp "$1/ckpt-00000040/$file" "$2/ckpt-00000040/$file"; done
}

@test "awkward text comes back from the shards that zstd unpacks" {
    run cat words
    [[ "$output" == *"U+FFFD stands for invalid UTF-8"* ]]
    shards=("Das Mühlrad"/train/*/*.zst "Das Mühlrad"/val/*/*.zst)
    zstd -tq "${shards[@]}"
    zstd -dcq "${shards[@]}" | "$BIN/shardtool" decode --raw >back
    python3 - <<'END'
import os
want = []
for folder, _, names in os.walk("Mühlen & Bäche"):
    want += [open(os.path.join(folder, name), "rb").read().decode("utf-8", "replace") for name in names]
back = open("back", encoding="utf-8", newline="").read()
assert back.endswith("<|endoftext|>")
marked = "<|endoftext|> inside"  # in a text it is text, not the end of a document
got = back.replace(marked, "\0").split("<|endoftext|>")[:-1]
strip = lambda text: text.removeprefix("\ufeff").replace(marked, "\0")
assert sorted(map(strip, got)) == sorted(map(strip, want)), "the documents are not those of the folder"
END
    "$BIN/shardtool" verify --quiet "Das Mühlrad/"
}

@test "kill -9 of the loader, Ctrl-C of the trainer, another loader: the run is the unbroken one, and it samples" {
    serve "Das Mühlrad"
    begin --out_dir="der Lauf/1/"
    steps "der Lauf/1" 6
    kill -9 "$LOADER"
    serve "$PWD/Das Mühlrad/"
    steps "der Lauf/1" 15
    kill -INT "$TRAINER"
    ends 75
    kill -9 "$LOADER"
    begin --out_dir="der Lauf/1"
    sleep 0.2
    serve "Das Mühlrad"
    ends 0
    same_run whole "der Lauf/1"
    grep -q '"dataset": "Das Mühlrad"' "der Lauf/1/metrics.jsonl"
    run "$BIN/trainer" sample --out_dir="der Lauf/1" --start="die Mühle №" --max_new_tokens=8 --num_samples=1
    [ "$status" -eq 0 ]
    [[ "$output" == *"die Mühle №"* ]]
}

@test "kill -9 of the trainer's own loader: another is started, the run is the unbroken one; killed again at once: 69" {
    "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=orphan >lines 2>words 3>&- &
    TRAINER=$!
    steps orphan 3
    kill -STOP "$TRAINER" # while it lives on, its loader becomes older than five seconds
    sleep 5
    pkill -9 -P "$TRAINER"
    kill -CONT "$TRAINER"
    ends 0
    same_run whole orphan
    grep -q "starting it again" words
    "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=doomed >lines 2>words 3>&- &
    TRAINER=$!
    steps doomed 3
    pkill -9 -P "$TRAINER"
    ends 69
    grep -q "within seconds of its start" words
}

@test "over tcp with keys the run is the same; without the loader's key it says what to do" {
    "$BIN/loader" keygen mill.key >mill.public
    "$BIN/loader" keygen miller.key >allowed
    "$BIN/loader" serve "Das Mühlrad" --endpoint tcp://127.0.0.1:17717 --key mill.key --allow allowed 2>>log 3>&- &
    LOADER=$!
    "$BIN/trainer" train tiny.conf --quiet --loader=tcp://127.0.0.1:17717 --loader_key="$(cat mill.public)" \
        --key_file=miller.key --out_dir=far
    same_run whole far
    run "$BIN/trainer" train tiny.conf --quiet --loader=tcp://127.0.0.1:17717 --key_file=miller.key --out_dir=further
    [ "$status" -eq 2 ]
    [[ "$output" == *"keys come in twos"* ]]
}

@test "a dataset changed under a run is recorded, and survives Ctrl-C and resume" {
    fingerprint() { "$BIN/shardtool" info --json "$1" | sed 's/.*"fingerprint":"\([0-9a-f]*\)".*/\1/'; }
    serve "Das Mühlrad"
    begin --out_dir=swapped
    steps swapped 6
    kill -9 "$LOADER"
    serve still
    for _ in $(seq 2000); do grep -q '"dataset": "still"' swapped/metrics.jsonl && break; sleep 0.01; done
    kill -INT "$TRAINER"
    ends 75
    begin --out_dir=swapped
    ends 0
    for set in "Das Mühlrad" still; do grep -q "$(fingerprint "$set" | head -c 16)" swapped/ckpt-00000040/state.json; done
    [ "$(losses swapped | grep -c '"loss"')" -eq 40 ]
}

@test "from another folder, with a dataset named relative to it, the run is the same" {
    mkdir -p elsewhere/deep
    cd elsewhere/deep
    "$BIN/trainer" train ../../tiny.conf --quiet --dataset="../../Das Mühlrad/" --out_dir=../here/
    same_run "$BATS_FILE_TMPDIR/whole" ../here
}

@test "the environment changes no byte and no loss" {
    for setting in "-uHOME LC_ALL=tr_TR.UTF-8 OMP_NUM_THREADS=0 COLUMNS=1 TMPDIR=/nowhere TERM=none" -i; do
        rm -rf set run
        # shellcheck disable=SC2086  # settings are words
        env $setting "$BIN/shardtool" tokenize --quiet --val 0.2 -o set "Mühlen & Bäche" 2>err
        "$BIN/shardtool" diff set "Das Mühlrad"
        # shellcheck disable=SC2086
        env $setting "$BIN/trainer" train tiny.conf --quiet --dataset=set --out_dir=run 2>>err
        same_run whole run
        # shellcheck disable=SC2086
        env $setting "$BIN/trainer" --help | grep -q "train "
    done
}

@test "with closed descriptors nothing lands in the wrong file" {
    bash -c '"$BIN/shardtool" tokenize --val 0.2 -o closed "Mühlen & Bäche" <&- >&- 2>&-'
    "$BIN/shardtool" diff closed "Das Mühlrad"
    run bash -c '"$BIN/trainer" train tiny.conf --dataset=closed --out_dir=mute <&- >&- 2>&-'
    [ "$status" -eq 74 ] # what it had to say could not be said, what it had to do is done
    same_run whole mute
}

@test "nothing on the way touches a network" {
    export ASAN_OPTIONS=detect_leaks=0 # the leak sanitizer and strace are one tracer too many
    strace -f -qq -e trace=socket,connect -o calls "$BIN/trainer" train tiny.conf --quiet --dataset=still --out_dir=local --max_iters=3
    strace -f -qq -e trace=socket,connect -o more "$BIN/shardtool" tokenize --quiet -o local-set other-*
    grep -q AF_UNIX calls
    run grep -h AF_INET calls more
    [ "$status" -eq 1 ]
}

@test "a dataset and a program that may only be read are enough" {
    as_user() {
        if [ "$(id -u)" != 0 ]; then "$@"; else
            for folder in "$BATS_RUN_TMPDIR" "$(dirname "$BATS_FILE_TMPDIR")" "$BATS_FILE_TMPDIR"; do chmod 755 "$folder"; done
            setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
        fi
    }
    mkdir -m 777 theirs
    chmod -R a-w "Das Mühlrad"
    as_user "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=theirs/run
    chmod -R u+w "Das Mühlrad"
    same_run whole theirs/run
}
