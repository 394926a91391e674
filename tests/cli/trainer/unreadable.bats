# What cannot be read now is not damaged: the command stops with 74, nothing is renamed, and the same command continues.

load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" && make_data 1200 0.1 --vocabulary ascii
    write_tiny_conf tiny.conf && echo "vocabulary = '$PWD/data/characters.txt'" >>tiny.conf
    "$BIN/trainer" train tiny.conf -q --dataset=data --out_dir=run --sample_tokens=0 3>&- # checkpoints 16 and 24
}
setup() {
    setup_training
    cp -r "$BATS_FILE_TMPDIR/run" .
    more=(train tiny.conf -q --dataset="$data" --out_dir=run --sample_tokens=0 --max_iters=25)
}

# stops RULE PATTERN COMMAND...: with 74, and no word of damage or of a new run
stops() {
    run_match 74 "$2" refused "$1" "$BIN/trainer" "${@:3}" || { echo "with $1" && return 1; }
    [[ "$output" != *DAMAGED* && "$output" != *damaged* && "$output" != *--fresh* ]] || { echo "$1: $output" && return 1; }
    diff -r -x .lock "$BATS_FILE_TMPDIR/run" run
}
stops_train() { stops "$1" "cannot read 'run/ckpt-00000024' now; the same command continues *'run/$2': $3" "${more[@]}"; }

@test "an error of open, read or stat of a checkpoint stops a run with 74, and nothing is renamed" {
    newest=ckpt-00000024
    for errno in 5 116 110 19; do # EIO, ESTALE, ETIMEDOUT, ENODEV
        stops_train open:$errno:$newest/model.safetensors $newest/model.safetensors
    done
    stops_train open:116:$newest/optimizer.safetensors $newest/optimizer.safetensors "Stale file handle"
    stops_train open:5:$newest/state.json $newest/state.json "Input/output error"
    stops_train read:5:$newest/state.json $newest/state.json "Input/output error"
    stops_train open:5:$newest/config.json $newest/config.json "Input/output error"
    stops_train stat:5:$newest/model.safetensors $newest/model.safetensors "Input/output error"
    stops_train fstat:5:$newest/optimizer.safetensors $newest/optimizer.safetensors "Input/output error"
    stops_train open:116:/model.safetensors $newest/model.safetensors "Stale file handle" # of all checkpoints
    stops opendir:5:run "cannot read 'run' now; the same command continues *'run': Input/output error" "${more[@]}"
    stops stat:5:run/metrics.jsonl "cannot read 'run/metrics.jsonl': Input/output error" "${more[@]}" # was cut to nothing
    "$BIN/trainer" "${more[@]}"
    "$BIN/trainer" "${more[@]/=run/=whole}"
    same_run whole run 25
}

@test "eval, sample, export, replay, init_from and doctor take no unreadable checkpoint for a damaged one" {
    run=(tiny.conf --dataset="$data" --out_dir=run)
    for rule in open:116:ckpt-00000024/model.safetensors read:5:ckpt-00000024/state.json stat:5:ckpt-00000024/optimizer.safetensors; do
        for command in eval sample "export -o model" "eval --ckpt=24"; do
            # shellcheck disable=SC2086
            stops $rule "cannot read 'run/ckpt-00000024' now; the same command continues" $command "${run[@]}"
        done
        run_match 1 "error    run     cannot read 'run/ckpt-00000024' now; " refused $rule "$BIN/trainer" doctor run
        [[ "$output" != *damaged* ]]
    done
    stops open:5:run/ckpt-00000024/state.json "state.json': Input/output error" status run
    stops open:5:run/ckpt-00000024/state.json "state.json': Input/output error" replay run --steps=17..24
    stops open:116:run/ckpt-00000016/model.safetensors "model.safetensors': Stale" replay run --steps=17..24
    stops open:5:run/ckpt-00000024/model.safetensors "model.safetensors': Input/output error" eval --init_from=./run/ckpt-00000024 --dataset="$data"
    [ ! -e model ]
}

# rclone's mounts show the files of a renamed folder as empty for some seconds.
@test "an empty file of a checkpoint is not damage, and a missing one is" {
    for file in state.json config.json model.safetensors optimizer.safetensors; do
        cp -r run/ckpt-00000024/$file kept
        : >run/ckpt-00000024/$file
        run_match 74 "cannot read 'run/ckpt-00000024' now; *: 'run/ckpt-00000024/$file' reads as empty" "$BIN/trainer" "${more[@]}"
        rm run/ckpt-00000024/$file && mkfifo run/ckpt-00000024/$file # nobody writes to it
        run_match 65 "'run/ckpt-00000024/$file' is not a regular file; trying the previous" timeout 60 "$BIN/trainer" eval tiny.conf --out_dir=run --dataset="$data"
        rm run/ckpt-00000024/$file && mv kept run/ckpt-00000024/$file
    done
    diff -r -x .lock "$BATS_FILE_TMPDIR/run" run
    rm run/ckpt-00000024/model.safetensors
    run_match 0 "A CHECKPOINT IS DAMAGED: cannot open 'run/ckpt-00000024/model.safetensors': No such file or directory; trying the previous" "$BIN/trainer" "${more[@]}"
}

# FUSE with direct I/O has no shared maps; when its program has ended, every call is ENOTCONN.
@test "a run resumes on FUSE with direct I/O, and stops with 74 while the mount is dead" {
    "$BIN/trainer" "${more[@]/=run/=whole}"
    resumes() {
        cp -r run mnt/run && "$BIN/trainer" "${more[@]/=run/=mnt/run}" && same_run whole real/run 25 || return
        "$BIN/trainer" eval tiny.conf -q --dataset="$data" --out_dir=mnt/run && "$BIN/trainer" doctor mnt/run | grep "^ok  *run" || return
        kill -9 "$MOUNT"
        run_match 74 "Transport endpoint is not connected" "$BIN/trainer" "${more[@]/=run/=mnt/run}"
    }
    on_direct_io resumes
    [[ "$output" != *--fresh* ]]
}

@test "a TMPDIR without locks is a line, and the run goes on" {
    mkdir -m 700 t
    for errno in 38 95 37; do # ENOSYS, EOPNOTSUPP, ENOLCK
        rm -rf run
        TMPDIR=$PWD/t run_match 0 "': this file system (TMPDIR) has no locks: " refused "flock:$errno:/owner" "$BIN/trainer" "${more[@]}"
    done
    compgen -G "t/millrace-*/run-*" | not grep .
}

@test "train and doctor name what out_dir lacks, before a step is computed" {
    for rule in rename:1:.probe rename:18:-2 fsync:5:.probe; do
        run refused $rule "$BIN/trainer" train tiny.conf --dataset="$data" --out_dir=new
        [[ ($status = 74 || $status = 77) && "$output" == *"'new' cannot hold a run: cannot "* ]] || { echo "$status: $output" && false; }
        run_match 1 "error    disk    'new' cannot hold a run: cannot " refused $rule "$BIN/trainer" doctor new
        [ -z "$(find new -name '*ckpt*' -o -name '*.probe*' -o -name metrics.jsonl)" ]
    done
    lacks="no maps of files (No such device): whole files are read into memory; no hard links (Operation not permitted): files are copied"
    run_match 0 "disk    * free in 'new'; $lacks; no locks (Function not implemented): start no second run there" \
        refused "mmap:19:.probe link:1:.probe flock:38:.probe" "$BIN/trainer" doctor new
    run_match 0 "'new': $lacks" refused "mmap:19:/new/ mmap:19:.probe link:1:/new link:1:new/" "$BIN/trainer" "${more[@]/=run/=new}"
    "$BIN/trainer" "${more[@]/=run/=whole}" --fresh
    same_run whole new 25
    run_match 0 "ok       disk" "$BIN/trainer" doctor new
}
