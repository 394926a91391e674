# The programs of aarch64 in AARCH64, under qemu, beside those of this machine in BIN. By make check-aarch64.
load ../cli/helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    export QEMU_LD_PREFIX=$SYSROOT MILLRACE_ISA=portable
}
arm() { qemu-aarch64-static "$AARCH64/$1" "${@:2}"; }

@test "shards have tiktoken's ids, and are byte for byte those of x86-64" {
    "$ROOT/build/venv/bin/python" - "$ROOT" <<'PYTHON'
import json, random, sys
sys.path.insert(0, sys.argv[1] + "/tests/oracle")
import gpt2, numpy
random.seed(7)
letters = [chr(c) for c in range(0x20, 0x3000) if chr(c).isprintable()] + [chr(c) for c in range(0x1F300, 0x1F600)] + list(" \n\t'") * 400
words = open(sys.argv[1] + "/README.md").read().split(" ")
texts = ["".join(random.choices(letters, k=random.randrange(200))) + " ".join(random.choices(words, k=random.randrange(200))) for _ in range(300)]
with open("text.jsonl", "w") as out:
    out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
ids = [numpy.array(gpt2.encoding().encode_ordinary(text) + [50256], "<u2") for text in texts]
numpy.concatenate(ids).tofile("expected")
PYTHON
    arm shardtool tokenize --quiet --val 0 -o arm text.jsonl
    "$BIN/shardtool" tokenize --quiet --val 0 -o x86 text.jsonl
    "$BIN/shardtool" cat arm | cmp - expected
    arm shardtool cat x86 | cmp - expected
    arm shardtool verify arm
    diff -r -x .lock arm x86
}

@test "a training run through a loader has the losses of x86-64, and its checkpoint is read there" {
    seq 9000 >text
    "$BIN/shardtool" train-vocabulary --characters text >characters
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.1 --vocabulary characters -o data text
    write_tiny_conf tiny.conf
    same=(tiny.conf --device=cpu --dtype=float32 --threads=1 --seed=3 --vocabulary="$(find data -name characters.txt -o -name tokenizer.json)" --max_iters=16)
    arm loader serve data --endpoint ipc://loader 2>log 3>&- & LOADER=$!
    wait_until grep -q ready log
    arm trainer train "${same[@]}" --out_dir=arm --loader=ipc://loader
    "$BIN/trainer" train "${same[@]}" --out_dir=x86 --dataset=data
    for run in arm x86; do jq -r 'select(.loss) | "\(.step) \(.loss)"' $run/metrics.jsonl >$run.losses; done
    [ "$(wc -l <arm.losses)" = 16 ]
    paste -d ' ' arm.losses x86.losses
    # Sums are in another order: the bits differ. The largest difference that was seen is 4e-8.
    paste -d ' ' arm.losses x86.losses | awk '{ d = $2 - $4; if ($1 != $3 || d > 1e-6 || d < -1e-6) exit 1 }'
    "$BIN/trainer" train "${same[@]}" --out_dir=arm --dataset=data --max_iters=20
    [ "$(steps arm)" = 20 ]
}
