# tensorboard_log: the event file of a run, read by TensorBoard.
# peers: tensorboard
load ../helpers

python=$ROOT/build/venv/bin/python
same_points() { "$python" "$ROOT/tests/oracle/trainer/tensorboard_events.py" "$1"; }

setup() {
    "$python" -c 'import tensorboard' 2>/dev/null || skip "build/venv has no tensorboard (make test-peers)"
    enter_test
    make_data 3000 0.1
    write_tiny_conf tiny.conf
}

train() { "$BIN/trainer" train tiny.conf --dataset=data --out_dir=run --quiet --sample_tokens=0 "$@"; }

@test "tensorboard_log=True: TensorBoard reads the points of metrics.jsonl, also after a kill and a resume" {
    train --max_iters=8
    train --max_iters=12 --tensorboard_log=True # with the steps before
    same_points run
    echo '{"step": 13, "loss": 3}' >>run/metrics.jsonl # what a killed run had not saved
    first=$(stat -c %i run/events.out.tfevents.*.millrace)
    printf 'torn' >>run/events.out.tfevents.*.millrace
    train --max_iters=24 --tensorboard_log=True
    same_points run
    # the earlier file stays, for readers that follow it by name, and each step is in one file
    [ "$(ls run/events.out.tfevents.* | wc -l)" -eq 2 ]
    ls -i run | grep -q "^ *$first events"
    "$python" "$ROOT/tests/oracle/trainer/tensorboard_events.py" --files run
}
