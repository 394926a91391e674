#!/bin/sh
# first_steps.sh TREE [VOCABULARY]: what make demo does, smaller: text to tokens, a loader, a run through it that is resumed, a sample. In a folder of its
# own, as a user, without a network; only with the tools that each system has.
set -eu
PATH=$1/bin:$PATH vocabulary=${2:+--vocabulary=$2}
work=$(mktemp -d) && cd "$work"
mkdir books
i=0
while [ $i -lt 200 ]; do i=$((i + 1)) && seq $((i * 50)) $((i * 50 + 400)) >books/$i.txt; done
set -x
millrace tokenize --quiet --val 0.05 $vocabulary -o data books
millrace verify data
[ "$(millrace cat data | head -c 3 | wc -c)" = 3 ]
small="--n_layer=2 --n_head=2 --n_embd=32 --block_size=32 --batch_size=4 --gradient_accumulation_steps=1 --lr_decay_iters=40 --warmup_iters=2
    --eval_interval=10 --eval_iters=2 --sample_tokens=4 --device=cpu --dropout=0 $vocabulary"
millrace serve data --endpoint ipc://loader &
loader=$!
trap 'kill $loader' EXIT
millrace train "$1/share/millrace/config/demo.conf" $small --max_iters=20 --out_dir=run --loader=ipc://loader --quiet
millrace train "$1/share/millrace/config/demo.conf" $small --max_iters=40 --out_dir=run --loader=ipc://loader --quiet
millrace status run
millrace sample --out_dir=run --start=1 --max_new_tokens=10 --num_samples=1
millrace doctor . || [ $? = 1 ]
[ -s run/report.html ]
