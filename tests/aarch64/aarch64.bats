# The programs of aarch64 in AARCH64, under qemu, beside those of this machine in BIN. By make check-aarch64.
load ../cli/helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    export QEMU_LD_PREFIX=$SYSROOT
}
teardown() { end_background; }
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
encoding = gpt2.encoding()
ids = [numpy.array(encoding.encode_ordinary(text) + [50256], "<u2") for text in texts]
numpy.concatenate(ids).tofile("expected")
PYTHON
    arm shardtool tokenize --quiet --val 0 -o arm text.jsonl
    "$BIN/shardtool" tokenize --quiet --val 0 -o x86 text.jsonl
    "$BIN/shardtool" cat arm | cmp - expected
    arm shardtool cat x86 | cmp - expected
    arm shardtool verify arm
    diff -r -x .lock arm x86
}

@test "a training run through a loader has the bits of x86-64, and goes on there" {
    seq 9000 >text
    "$BIN/shardtool" train-vocabulary --characters text >characters
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.1 --vocabulary characters -o data text
    write_tiny_conf tiny.conf
    same=(tiny.conf --reduce_order=fixed --seed=3 --vocabulary="$(find data -name characters.txt -o -name tokenizer.json)" --max_iters=16)
    qemu-aarch64-static "$AARCH64/loader" serve data --endpoint ipc://loader 2>log 3>&- & LOADER=$!
    wait_until grep -q ready log
    arm trainer train "${same[@]}" --out_dir=arm --loader=ipc://loader
    for steps in 16 20; do
        "$BIN/trainer" train "${same[@]}" --out_dir=x86 --dataset=data --max_iters=$steps
        [ $steps = 16 ] || "$BIN/trainer" train "${same[@]}" --out_dir=arm --dataset=data --max_iters=$steps
        for file in model optimizer; do cmp {arm,x86}/ckpt-*$steps/$file.safetensors; done
    done
}

@test "every shape of test_bits has the bits of x86-64, with one thread and with three" {
    TRAINERS="$BIN/trainer $ROOT/tests/aarch64/program.sh" "$ROOT/build/venv/bin/python" - "$ROOT" <<'PYTHON'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/oracle")
import rooms, test_bits
tools = test_bits.open_builds(".")
for name in test_bits.SHAPES:
    case = test_bits.open_shape(tools[0], name)
    for threads in 1, 3:
        test_bits.compare(tools, case, "portable", threads, 1, 1)
PYTHON
}

@test "by the fast order, and with activations of two bytes, a run has about the losses of x86-64" {
    seq 9000 >text
    "$BIN/shardtool" train-vocabulary --characters text >characters
    "$BIN/shardtool" tokenize --quiet --docs lines --val 0.1 --vocabulary characters -o data text
    write_tiny_conf tiny.conf
    for program in trainer loader; do cp "$ROOT/tests/aarch64/program.sh" $program; done
    for dtype in float32 bfloat16 float16; do
        same=(train tiny.conf --quiet --dtype=$dtype --reduce_order=fast --dataset=data --vocabulary="$(find data -name characters.txt -o -name tokenizer.json)")
        ./trainer "${same[@]}" --out_dir=arm-$dtype
        "$BIN/trainer" "${same[@]}" --out_dir=x86-$dtype
        for machine in arm x86; do jq '.loss // empty' $machine-$dtype/metrics.jsonl >$machine; done
        paste arm x86 | awk '{ apart = $1 - $2; if (apart ^ 2 > 1e-6) bad = 1 } END { exit bad || NR != 24 }' || { paste arm x86 && false; }
    done
}

@test "make dist MACHINE=aarch64: it needs glibc 2.31 alone, its wheel is for aarch64 alone, the first steps run, and so do the tests above" {
    dist=$ROOT/build/dist-aarch64
    wheel=$(ls "$dist"/millrace_gpt-*-py3-none-manylinux_2_31_aarch64.whl) || skip "not made: make dist MACHINE=aarch64"
    tar -xf "$dist"/millrace-gpt-*-linux-aarch64.tar.xz
    export AARCH64=$(echo "$PWD"/millrace-gpt-*/bin) QEMU_LD_PREFIX=$ROOT/build/floor-aarch64/sysroot
    TREE=$(dirname "$dist"/millrace-gpt-*/bin) DIST_MACHINE=aarch64 run_code 0 bats "$ROOT"/tests/dist/{dist,wheel}.bats \
        -f '2.31 at most|names the folder|empty tables|has its licence|its record'
    [ "$(grep -c '^ok' <<<"$output")" = 5 ]
    install=("$ROOT/build/venv/bin/pip" install -q --disable-pip-version-check --no-index --no-deps --only-binary :all: --target folder)
    run_match 1 "not a supported wheel on this platform" "${install[@]}" "$wheel"
    "${install[@]}" --platform manylinux_2_31_aarch64 "$wheel"
    for program in folder/bin/*; do cmp "$program" "$AARCH64/${program##*/}" && cp "$ROOT/tests/aarch64/program.sh" "$program"; done
    seq 9000 >text
    folder/bin/shardtool train-vocabulary --characters text >characters # with GPT-2's 50,257 ids qemu needs ten minutes
    sh "$ROOT/tests/dist/first_steps.sh" "$PWD/folder" "$PWD/characters" >log 2>&1 || { tail -n 30 log && false; }
    folder/bin/millrace-trainer --man | diff - folder/share/man/man1/millrace-trainer.1
    for program in loader trainer; do ln -s millrace-$program "$AARCH64/$program"; done
    SYSROOT=$QEMU_LD_PREFIX run_code 0 bats "$ROOT/tests/aarch64/aarch64.bats" -f 'tiktoken|through a loader|every shape|fast order'
    [ "$(grep -c '^ok' <<<"$output")" = 4 ]
}
