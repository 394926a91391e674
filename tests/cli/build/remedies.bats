# A command or option that a message names works in the mode in which the message is printed.
load ../helpers

setup_file() { cd "$BATS_FILE_TMPDIR" && make_data 3000 0.1 --vocabulary ascii; }

make_subjects() { # what the rows read
    cp -r "$BATS_FILE_TMPDIR"/{docs,ascii} . && cp -r "$data" data && cp -r data gone
    make_other_data 600 --vocabulary ascii
    train -q --dataset=data --out_dir=run
    train -q --dataset=gone --out_dir=far && mv gone here
    millrace export -q --out_dir=run -o model
    millrace tokenize -q --val 0 --vocabulary ascii -o whole docs
    printf 'prompt,completion\nWhat is 1?,one\n' >rows.csv
    for i in {1..40}; do echo "{\"prompt\": \"What is $i?\", \"completion\": \"$i\"}"; done >rows.jsonl
    cp "$DATA"/turns/{rows,qa}.parquet . # what the message's pandas writes
    sed 's/"prompt"/"text"/' rows.jsonl >named.txt
    echo '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]' >talks.jsonl
    sed 's/.*/{"chosen": &, "rejected": &}/' talks.jsonl >chosen.jsonl
    sed 's/.*/{"messages": &}/; s/"role"/"from"/g; s/"content"/"value"/g; s/"user"/"human"/; s/"assistant"/"gpt"/' talks.jsonl >shared.jsonl
    printf '\1\0\2\0\3\0%.0s' {1..100} >train.bin
    { printf '\x93NUMPY\1\0v\0%-117s\n' "{'descr': '<u2', 'fortran_order': False, 'shape': (300,), }" && cat train.bin; } >ids.npy
    make_items 3 items.jsonl
}

# What prints a message | what is in it | what it names, with what it leaves open. TRAIN: train tiny.conf --dataset=data, FEW: a short sample.
rows() {
    cat <<'END'
report -o p.png run | : -o p.html | report -o p.html run
report -o p.json run | : -o p.html | report -o p.html run
replay far | name that of the run's dataset 'gone' after the run's | replay far here
replay far data2 | name its directory after the run's | replay far here
sample --out_dir=model | sample and export take it by --init_from=model | sample --init_from=model FEW
status model | train, eval, sample and export take it by --init_from=model | export --init_from=model -o model2
TRAIN --dataset=none | create one with millrace tokenize -o DIR | tokenize -o none --vocabulary ascii docs
eval --out_dir=run --dataset=docs | create one with millrace tokenize -o DIR | tokenize -o made --vocabulary ascii docs
train run | write --out_dir=run | TRAIN --out_dir=run
TRAIN --out_dir=r2 --init_from=run | name its checkpoint, as 'run/ckpt-00000024' | TRAIN --out_dir=r2 --init_from=run/ckpt-00000024
TRAIN --out_dir=r3 --init_from=model/config.json | name its directory, --init_from=model | TRAIN --out_dir=r3 --init_from=model
TRAIN --dataset=whole --out_dir=r4 | or set eval_interval=0 | TRAIN --dataset=whole --out_dir=r4 --eval_interval=0
TRAIN --hellaswag_eval=1 | 'millrace eval --items FILE' | eval --out_dir=run --items items.jsonl
TRAIN --prompt=line | 'millrace sample --start=TEXT' | sample --out_dir=run --start=line FEW
TRAIN --load_best_model_at_end=True | 'millrace sample --ckpt=best' | sample --out_dir=run --ckpt=best FEW
TRAIN --dataloader_num_workers=2 | 'millrace serve --help' | serve --help
sample --out_dir=run -n 3 | millrace cat --random N PATH | cat --random 3 data
ls data | 'millrace info --shards' | info --shards data
stat data | 'millrace info --lengths' | info --lengths data
tokenize --turns -o t1 rows.csv | to_parquet('rows.parquet') | tokenize --turns -o t1 rows.parquet
tokenize --turns -o t7 qa.parquet | --turns-keys 'user=question,assistant=answer' reads them | tokenize --turns-keys user=question,assistant=answer -o t7 qa.parquet
tokenize --turns -o t11 chosen.jsonl | --turns-keys 'messages=chosen,ignore=rejected' reads them | tokenize --turns-keys messages=chosen,ignore=rejected -o t11 chosen.jsonl
tokenize --turns -o t12 shared.jsonl | --turns-keys 'messages=messages,role=from,content=value,user=human,assistant=gpt' reads it | tokenize --turns-keys messages=messages,role=from,content=value,user=human,assistant=gpt -o t12 shared.jsonl
tokenize -o t8 qa.parquet | --turns-keys 'user=question,assistant=answer' reads conversations | tokenize --turns-keys user=question,assistant=answer -o t8 qa.parquet
tokenize -o t10 talks.jsonl | tokenize --turns reads one | tokenize --turns -o t10 talks.jsonl
tokenize -o t9 rows.parquet | tokenize --turns reads conversations | tokenize --turns -o t9 rows.parquet
tokenize --vocabulary ascii -o t2 train.bin | 'millrace import-tokens --format nanogpt' | import-tokens --format nanogpt --vocabulary ascii -o t2 train.bin
tokenize --vocabulary ascii -o t3 ids.npy | 'millrace import-tokens --format npy' | import-tokens --format npy --vocabulary ascii -o t3 ids.npy
tokenize --vocabulary ascii -o t4 named.txt | --format jsonl reads its texts | tokenize --vocabulary ascii --format jsonl -o t4 named.txt
import-tokens --format nanogpt -o t5 data | cat, decode and merge read it | cat data
diff whole whole/train/000/000000.zst | compare them with --ids | diff --ids whole whole/train/000/000000.zst
sample --turns --out_dir=run | (millrace tokenize --turns) | tokenize --turns -o t6 rows.jsonl
tokenize --vocabulary ascii -o data docs | --force | tokenize --vocabulary ascii -o data --force docs
END
}

@test "what a message names works where the message is printed" {
    make_subjects
    failed=
    while IFS='|' read -r wrong message remedy; do
        message=${message# } message=${message% }
        # shellcheck disable=SC2086 # words
        run millrace $wrong </dev/null
        [[ $status -ne 0 && "$output" == *"$message"* ]] || failed+="$wrong: exit $status, no '$message' in: $output"$'\n'
        # shellcheck disable=SC2086
        run millrace $remedy </dev/null
        [ "$status" -eq 0 ] || failed+="$remedy: exit $status: $output"$'\n'
    done < <(rows | sed 's/TRAIN/train tiny.conf --dataset=data --max_iters=24/g; s/FEW/--num_samples=1 --max_new_tokens=1/')
    [ -z "$failed" ] || { echo "$failed" && false; }
}
