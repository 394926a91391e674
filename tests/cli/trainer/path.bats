# The whole way in one go: raw text, shards, a loader, a training that survives what happens to it, a sample. And what
# must not make a difference on the way: names, places, the environment.

load ../helpers

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
    "$BIN/shardtool" tokenize --quiet --val 0.2 -o "Das Mühlrad/" "Mühlen & Bäche/" 2>stderr
    "$BIN/shardtool" tokenize --quiet --val 0.2 -o still other-*
    write_tiny_conf tiny.conf
    "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=whole
}

setup() { cd "$BATS_FILE_TMPDIR" || exit; }

@test "text with unusual characters is restored from shards that zstd unpacks" {
    run cat stderr
    [[ "$output" == *"replaced invalid UTF-8 by U+FFFD"* ]]
    shards=("Das Mühlrad"/train/*/*.zst "Das Mühlrad"/val/*/*.zst)
    zstd -tq "${shards[@]}"
    zstd -dcq "${shards[@]}" | "$BIN/shardtool" decode --raw >back
    python3 - <<'END'
import os
want = []
for folder, _, names in os.walk("Mühlen & Bäche"):
    want += [open(os.path.join(folder, name), "rb").read().decode("utf-8-sig", "replace") for name in names]
back = open("back", encoding="utf-8", newline="").read()
assert back.endswith("<|endoftext|>")
marked = "<|endoftext|> inside"  # in a text it is text, not the end of a document
got = back.replace(marked, "\0").split("<|endoftext|>")[:-1]
plain = lambda text: text.replace(marked, "\0")
assert sorted(map(plain, got)) == sorted(map(plain, want)), "the documents are not those of the folder"
END
    "$BIN/shardtool" verify --quiet "Das Mühlrad/"
}

@test "a run equals an uninterrupted one after kill -9 of the loader, Ctrl-C of the trainer and a new loader, and it samples" {
    serve "Das Mühlrad"
    begin --loader=ipc://place --out_dir="der Lauf/1/" "${endless[@]}"
    wait_for_steps "der Lauf/1" 6
    kill_loader
    serve "$PWD/Das Mühlrad/"
    wait_for_more_steps "der Lauf/1" 9
    stop_run INT 75
    kill_loader
    end=$(($(steps "der Lauf/1") + 8))
    begin --loader=ipc://place --out_dir="der Lauf/1" --max_iters=$end
    serve "Das Mühlrad"
    ends 0
    "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=unbroken --max_iters=$end
    same_run unbroken "der Lauf/1" $end
    grep -q '"dataset": "Das Mühlrad"' "der Lauf/1/metrics.jsonl"
    run_match 0 "die Mühle №" "$BIN/trainer" sample --out_dir="der Lauf/1" --start="die Mühle №" --max_new_tokens=8 --num_samples=1
}

# bats test_tags=ci
@test "the trainer starts another loader after kill -9 of its own, and the run equals an uninterrupted one" {
    begin --dataset="Das Mühlrad" --out_dir=orphan "${endless[@]}"
    wait_for_steps orphan 3
    pkill -9 -P "$TRAINER"
    wait_until grep -q "the loader was killed (signal 9): restarting it" stderr
    wait_for_more_steps orphan 20 # more than what was fetched ahead
    stop_run INT 75
    finish orphan --dataset="Das Mühlrad"
}

# A loader that runs until the file `broken` exists, and is then killed at each start.
breakable_loader() {
    mkdir -p programs
    cp "$BIN/trainer" programs
    printf '#!/bin/sh\n[ -e broken ] && kill -9 $$\nexec "%s/loader" "$@"\n' "$BIN" >programs/loader
    chmod +x programs/loader
}

# bats test_tags=ci
@test "a loader that is killed at every start is restarted until data_timeout, then the run saves and exits with 69" {
    breakable_loader
    rm -f broken
    BIN=programs begin_with_later --dataset="Das Mühlrad" --out_dir=doomed "${endless[@]}"
    wait_for_steps doomed 3
    touch broken
    pkill -9 -P "$TRAINER"
    restarts() { [ "$(grep -c 'the loader was killed (signal 9): restarting it' stderr)" -ge 3 ]; }
    wait_until restarts
    touch later
    ends 69
    [ -n "$(ls -d doomed/ckpt-*)" ]
}

@test "a loader that is killed before the first step is restarted" {
    breakable_loader
    touch broken
    BIN=programs begin --dataset="Das Mühlrad" --out_dir=late --max_iters=2
    wait_until grep -q "the loader was killed (signal 9): restarting it" stderr
    rm broken
    ends 0
}

# bats test_tags=ci
@test "a loader that ends at every start before it has served is an error after five starts" {
    breakable_loader
    touch broken
    run_code 69 programs/trainer train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=never
    [[ "$output" == *"the loader '"*"/programs/loader' ended "*" times before it served 'Das Mühlrad': the program is damaged (install it again), or something on this machine ends it" ]]
}

@test "a loader that is stopped does not keep the trainer from exiting" {
    begin_with_later --dataset="Das Mühlrad" --out_dir=stopped "${endless[@]}"
    wait_for_steps stopped 3
    pkill -STOP -P "$TRAINER"
    touch later
    ends 69
    [ -n "$(ls -d stopped/ckpt-*)" ]
}

# bats test_tags=ci
@test "a trainer does not remove the directory of another one, even from another process id namespace" {
    unset TMPDIR
    begin --dataset="Das Mühlrad" --out_dir=first "${endless[@]}"
    wait_for_steps first 2
    directory=$(tr '\0' '\n' <"/proc/$(pgrep -P "$TRAINER")/cmdline" | sed -n 's|^ipc://||p')
    mkdir -p "/tmp/millrace-$(id -u)/run-stale0"
    touch "/tmp/millrace-$(id -u)/run-stale0/owner"
    # Each process in the new namespace has a process id that is not the one of the first trainer.
    enter=
    unshare --map-root-user --pid --fork true 2>/dev/null && enter="unshare --map-root-user --pid --fork"
    $enter "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=second --max_iters=1
    [ -S "$directory/data.sock" ]
    [ ! -e "/tmp/millrace-$(id -u)/run-stale0" ]
    stop_run INT 75
    [ ! -e "$directory" ]
}

@test "a run over tcp with keys is the same, and without the loader's key the error states what to do" {
    endpoint=tcp://127.0.0.1:$(free_port)
    "$BIN/loader" keygen mill.key >mill.public
    "$BIN/loader" keygen miller.key >allowed
    ENDPOINT=$endpoint serve "Das Mühlrad" --key mill.key --allow allowed
    "$BIN/trainer" train tiny.conf --quiet --loader="$endpoint" --loader_key="$(cat mill.public)" \
        --key_file=miller.key --out_dir=far
    same_run whole far
    run_match 2 "must be given together" "$BIN/trainer" train tiny.conf --quiet --loader="$endpoint" --key_file=miller.key --out_dir=further
}

@test "a run from another folder with a relative path to its dataset is the same" {
    mkdir -p elsewhere/deep
    cd elsewhere/deep
    "$BIN/trainer" train ../../tiny.conf --quiet --dataset="../../Das Mühlrad/" --out_dir=../here/
    same_run "$BATS_FILE_TMPDIR/whole" ../here
}

@test "an instruction set that does not exist is refused, 2" {
    for command in "shardtool tokenize --ids --format text" "trainer doctor"; do
        # shellcheck disable=SC2086  # a program and its command
        MILLRACE_ISA=avx3 run "$BIN"/$command </dev/null
        [ "$status" = 2 ]
        [[ "$output" == *"MILLRACE_ISA is 'avx3', not portable, avx2 or avx512" ]]
    done
}

# fault 26, 86
# bats test_tags=ci
@test "the environment changes no byte and no loss" {
    isa=$(env | grep -E '^(MILLRACE_ISA|DNNL_MAX_CPU_ISA)=' || true) # which choose the kernels
    for setting in "-uHOME LC_ALL=tr_TR.UTF-8 OMP_NUM_THREADS=0 COLUMNS=1 TMPDIR=/nowhere TERM=none" "-i $isa"; do
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

# fault 67
@test "closed standard descriptors are not reused for files" {
    bash -c '"$BIN/shardtool" tokenize --val 0.2 -o closed "Mühlen & Bäche" <&- >&- 2>&-'
    "$BIN/shardtool" diff closed "Das Mühlrad"
    run_code 0 bash -c '"$BIN/trainer" train tiny.conf --dataset=closed --out_dir=mute <&- >&- 2>&-'
    same_run whole mute
}

@test "tokenizing and training open no network socket" {
    strace -f -qq -e trace=socket,connect -o calls "$BIN/trainer" train tiny.conf --quiet --dataset=still --out_dir=local --max_iters=3
    strace -f -qq -e trace=socket,connect -o more "$BIN/shardtool" tokenize --quiet -o local-set other-*
    grep -q AF_UNIX calls
    run_code 1 grep -h AF_INET calls more
}

@test "a dataset and a program that may only be read are enough" {
    mkdir -m 777 theirs
    chmod -R a-w "Das Mühlrad"
    as_user "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=theirs/run
    chmod -R u+w "Das Mühlrad"
    same_run whole theirs/run
}

@test "a run starts where another user has taken the name of the folder for its sockets" {
    folder=$(mktemp -d /tmp/squat.XXXX)
    mkdir -m 755 "$folder/millrace-$(id -u)" && touch "$folder/millrace-$(id -u)/of-another"
    TMPDIR=$folder "$BIN/trainer" train tiny.conf --quiet --dataset="Das Mühlrad" --out_dir=squatted --max_iters=1
    rm -r "$folder/millrace-$(id -u)"
    TMPDIR=$folder begin --dataset="Das Mühlrad" --out_dir=squatted "${endless[@]}"
    wait_for_steps squatted 2
    [ -d "$folder/millrace-$(id -u)" ]
    stop_run INT 75
    rm -r "$folder"
}

@test "the name of a dataset may begin with -, and a dataset without permission is refused, 77" {
    cp -r "Das Mühlrad" ./-data
    "$BIN/trainer" train tiny.conf --quiet --dataset=-data --out_dir=dash --max_iters=1
    cp -r "Das Mühlrad" closed && chmod 000 closed
    mkdir -m 777 out
    run_match 77 "Permission denied" as_user "$BIN/trainer" train tiny.conf --dataset=closed --out_dir=out/run
}
