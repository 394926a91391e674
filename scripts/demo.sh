#!/usr/bin/env bash
# demo.sh BIN [TEXT] [FRESH] [MINUTES]: trains a small GPT from raw text in build/demo. A second run resumes; FRESH=1 starts over and
# leaves what was there in build/demo-before. With MINUTES the shape is planned for a run of that time.
set -eu
bin=$1 text=${2:-} fresh=${3:-} minutes=${4:-}
demo=build/demo
endpoint=ipc://$demo/loader

say() { printf '\n== %s\n' "$*"; }
docs=() # of texts without marks, each document goes to one split as a whole
[ -z "$text" ] || docs=(--docs paragraphs)
[ -n "$text" ] || text=$(scripts/corpus.sh)

# shellcheck disable=SC2206  # TEXT may name several files
[ -e "$text" ] && files=("$text") || files=($text)
for file in "${files[@]}"; do
    [ -r "$file" ] || { echo "make demo: cannot read '$file', which TEXT names" >&2 && exit 66; }
done
if [ -n "$fresh" ] && [ -e "$demo" ]; then
    rm -rf "$demo-before"
    mv "$demo" "$demo-before"
fi
mkdir -p "$demo"

say "millrace train-vocabulary: 8,192 ids, because a small model spends most of its time on GPT-2's 50,257"
vocabulary=(--vocabulary $demo/vocabulary)
"$bin/millrace" train-vocabulary -V 8192 ${docs[@]+"${docs[@]}"} -o $demo/vocabulary "${files[@]}" || {
    status=$?
    [ $status != 2 ] || echo "make demo: with another TEXT, FRESH=1 starts over" >&2
    [ $status = 65 ] || exit $status # 65: too little text
    echo "going on with GPT-2's vocabulary"
    vocabulary=()
}

say "millrace tokenize: $text"
"$bin/millrace" tokenize --val 0.05 --seed 3 ${docs[@]+"${docs[@]}"} ${vocabulary[@]+"${vocabulary[@]}"} -o $demo/data "${files[@]}"

config=(config/demo.conf)
if [ -n "$minutes" ]; then
    config=($demo/planned.conf)
    if [ ! -f $demo/planned.conf ]; then
        say "millrace plan: the shape for $minutes minutes"
        "$bin/millrace" plan --dataset=$demo/data --until="${minutes}m" >$demo/plan.txt
        sed -n '/^# model /q; s/^# \{0,1\}//p' $demo/plan.txt
        { grep -v -e '^#' -e '^dataset ' $demo/plan.txt && grep -v '^ ' config/demo.conf | sed -nE '/^(log_interval|sample_start) /p'; } >$demo/planned.new
        mv $demo/planned.new $demo/planned.conf
    fi
fi

say "millrace serve: a separate process serves the batches"
"$bin/millrace" serve $demo/data --endpoint $endpoint &
loader=$!
trap 'kill $loader 2>/dev/null || true; wait $loader 2>/dev/null || true' EXIT

say "millrace train: a small GPT"
kept=() # a loader does not send the vocabulary's file
[ ! -f $demo/data/tokenizer.json ] || kept=(--vocabulary=$demo/data/tokenizer.json)
"$bin/millrace" train "${config[@]}" --out_dir=$demo/run --loader=$endpoint ${kept[@]+"${kept[@]}"}

say "a sample"
"$bin/millrace" sample --out_dir=$demo/run --start="It was" --max_new_tokens=120 --num_samples=1 --temperature=0.7 --top_k=50

say "result"
"$bin/millrace" status $demo/run
cat <<END

your prompt  build/bin/millrace sample --out_dir=$demo/run --start="She had"
your text    make demo TEXT=path FRESH=1
GPT-2 124M   build/bin/millrace plan config/train_gpt2_124m_12gb.conf    (README.md, First steps)

The curves are in $demo/run/report.html
END
