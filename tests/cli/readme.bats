# The commands of the README's section on datasets, as they are written there, on small inputs of the same names.

load helpers

@test "the README's commands on datasets run as written" {
    readme=$(realpath "$BATS_TEST_DIRNAME/../../README.md")
    cd "$BATS_TEST_TMPDIR"
    mkdir -p build fineweb web books data && ln -s "$BIN" build/bin
    cp "$DATA/small.parquet" fineweb/a.parquet
    printf '{"text": "one"}\n{"text": "two"}\n' | zstd -q >web/a.jsonl.zst
    seq 2000 | split -l 2 -a 3 --additional-suffix=.txt - books/ && seq 500 >books/long.txt
    seq 3000 | tee corpus.txt | xz >corpus.xz
    tar cJf corpus.tar.xz corpus.txt
    less() { cat; }
    sed -n '/^## Prepare a dataset/,/^## Train/p' "$readme" | awk '/^```/ { inside = !inside; next } inside' >commands
    [ "$(wc -l <commands)" -ge 10 ]
    set -o pipefail
    count=0
    while IFS= read -r -u 3 command; do
        status=0
        # the columns of the small file are others than FineWeb's; a download would be FineWeb itself
        eval "${command/--where \'language_score>=0.65\'/--max-bad 1}" >got 2>err </dev/null || status=$?
        # head and less end before their input does; diff gives 1 for other data
        case $command in
        *" diff "*) [ $status = 1 ] ;;
        *"| head"* | *"| less"*) [ $status = 0 ] || [ $status = 141 ] ;;
        *) [ $status = 0 ] ;;
        esac || { echo "exit $status: $command" && cat got err && return 1; }
        case $command in *" encode "*) [ "$(cat got)" = "${command##*# }" ] ;; esac
        count=$((count + 1))
    done 3<commands
    [ "$count" = "$(wc -l <commands)" ]
    [ -s out/train.bin ] # of the export, the last command
}
