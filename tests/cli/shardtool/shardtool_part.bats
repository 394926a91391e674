# Datasets in parts: tokenize --part on many machines, by GNU parallel, mpirun and Slurm arrays, and merge.

# bats file_tags=ci
load ../helpers
load ../sbatch

# Thirteen files of several documents: their names do not sort by number.
inputs() {
    mkdir -p in/sub
    for i in $(seq 13); do seq "$i" $((i * 9)) | awk '{ print "{\"text\": \"" $1 " green bottles, " $1 * 777 "\"}" }' >"in/$i.jsonl"; done
    mv in/9.jsonl in/sub
}
options=(-q --val 0.3 --shard-tokens 300 --frame-tokens 100)
split_documents() { shardtool decode --split "$2" "$1" | tr '\n' ' ' | sed 's/<|endoftext|>/\n/g' | sort; } # DATASET SPLIT
shards() { (cd "$1" && find train val -type f -exec sha256sum {} + | sort -k2); }                         # DATASET

@test "parts have the documents and the split of one run, and the same bytes every time" {
    inputs
    shardtool tokenize "${options[@]}" -o whole in
    for i in $(seq 12); do shardtool tokenize "${options[@]}" --part "$i/12" -j 1 -o parts in; done
    shardtool tokenize "${options[@]}" --part 7/12 -j 3 -o again in
    diff <(shards parts/part-7-of-12) <(shards again/part-7-of-12)
    [ "$(ls parts | wc -l)" = 12 ]
    shardtool merge -q -o merged parts/part-* # part-10 sorts before part-2
    shardtool verify -q merged
    for split in train val; do
        [ "$(split_documents merged $split | grep -c .)" -ge 10 ]
        diff <(split_documents whole $split) <(split_documents merged $split)
    done
    mapfile -t numbers < <(seq -f 'parts/part-%g-of-12/' 12 -1 1)
    shardtool merge -q -o reversed "${numbers[@]}"
    diff <(shards merged) <(shards reversed)
    in_order=$(for i in $(seq 12); do shardtool cat "parts/part-$i-of-12"; done | sha256sum)
    [ "$in_order" = "$(shardtool cat merged | sha256sum)" ]
    run_code 0 shardtool tokenize "${options[@]}" --part 7/12 -o parts in
    run_code 0 shardtool tokenize --val 0.3 --shard-tokens 300 --frame-tokens 100 --part 7/12 -o parts in
    [[ "$output" == *"part 7 of 12 (from --part): 1 of 13 files, to 'parts/part-7-of-12'"* ]]
    [[ "$output" == *"is already complete"* ]]
    run_code 0 shardtool tokenize --part 3/12 -o few in # its own validation split may be empty
    [[ "$output" == *"documents, "*" 0 val tokens"* && "$output" != *"share"* && "$output" != *"as a whole"* ]]
}

@test "merge refuses parts of other files, and a part whose directory was renamed" {
    inputs
    for i in 1 2; do shardtool tokenize "${options[@]}" --part "$i/3" -o parts in; done
    cp in/12.jsonl in/12b.jsonl # a file that arrives later moves those after it to other parts
    shardtool tokenize "${options[@]}" --part 3/3 -o parts in
    run_match 2 "are not parts of the same files" shardtool merge -o whole parts/part-*
    rm -r parts in/12b.jsonl
    for i in 1 2; do shardtool tokenize "${options[@]}" --part "$i/2" -o parts in; done
    mv parts/part-1-of-2 one && mv parts/part-2-of-2 parts/part-1-of-2 && mv one parts/part-2-of-2
    run_match 2 "'parts/part-1-of-2' holds part 2, its directory was renamed" shardtool merge -o whole parts/part-*
    [ ! -e whole/dataset.jsonl ]
}

@test "merge names the parts that are missing or have not finished" {
    inputs
    for i in 1 2 4; do shardtool tokenize "${options[@]}" --part "$i/4" -o parts in; done
    rm parts/part-2-of-4/dataset.jsonl
    run_match 66 "of the 4 parts in 'parts/', these are not there: 2 (not finished), 3 (missing)" shardtool merge -o whole parts/part-*
    [ ! -e whole/dataset.jsonl ]
    run_match 2 "'parts/part-1-of-4' is named twice" shardtool merge -o whole parts/part-1-of-4 parts/part-4-of-4 parts/part-1-of-4
    cp -r parts other && mv other/part-1-of-4 other/part-1-of-2
    run_match 2 "parts of different runs" shardtool merge -o whole parts/part-* other/part-1-of-2
    run_match 2 "on their own first" shardtool merge -o whole parts/part-1-of-4 in
    mkdir elsewhere && cp -r parts/part-1-of-4 elsewhere/part-1-of-1
    shardtool merge -q -o one elsewhere/part-1-of-1
}

@test "a part outside 1 to N, of more parts than files, or beside --max-tokens is refused" {
    inputs
    for part in 0/3 4/3 1 1/3x -1/3 ""; do
        run_match 2 "--part '$part' is not I/N" shardtool tokenize --part "$part" -o parts in
    done
    run_match 2 "14 parts of 13 files" shardtool tokenize --part 1/14 -o parts in
    run_code 2 shardtool tokenize --part 1/2 --max-tokens 10 -o parts in
    run_code 2 env PMI_RANK=1 PMI_SIZE=2 shardtool tokenize --max-tokens 10 -o parts in
    [[ "$output" == *"part 2 of 2 (from mpiexec): --part 1/1 takes all inputs" ]]
    run_code 2 shardtool tokenize --part 1/2 -o parts - <in/1.jsonl
    [ ! -e parts ]
}

@test "a Slurm array or a launcher chooses the part, and one process alone is the whole" {
    inputs
    array() { # ID FIRST LAST STEP COUNT
        env SLURM_ARRAY_TASK_ID="$1" SLURM_ARRAY_TASK_MIN="$2" SLURM_ARRAY_TASK_MAX="$3" SLURM_ARRAY_TASK_STEP="$4" SLURM_ARRAY_TASK_COUNT="$5" \
            "${@:6}"
    }
    run_match 0 "part 3 of 3 (from the Slurm array): 4 of 13 files, to 'parts/part-3-of-3'" array 6 2 6 2 3 shardtool tokenize -o parts in
    run_match 0 "this Slurm array has one task, which takes all inputs: to repeat one part, add --part I/N" array 3 3 3 1 1 shardtool tokenize -o one in
    run_match 2 "has gaps" array 6 1 6 1 3 shardtool tokenize -o parts in # --array=1,2,6
    run_code 0 array 6 1 6 1 3 shardtool tokenize --part 2/3 -o parts in
    run_code 0 array 5 5 5 1 1 shardtool tokenize -o alone in
    [ -e alone/dataset.jsonl ]
    run_match 0 "part 1 of 2 (from srun)" env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 shardtool tokenize -o parts in
    run_match 0 "part 2 of 2 (from mpiexec)" env PMI_RANK=1 PMI_SIZE=2 shardtool tokenize -o parts in
    # a batch script that was given several tasks and runs one program is not a part
    run_code 0 env SLURM_PROCID=0 SLURM_NTASKS=8 shardtool tokenize -o batch in
    [ -e batch/dataset.jsonl ]
    run_match 2 "a task of srun in a Slurm array: name the part" array 1 1 2 1 2 env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 shardtool tokenize -o parts in
    run_code 2 env PMI_RANK=2 PMI_SIZE=2 shardtool tokenize -o parts in
    run_code 2 env PMI_RANK=two PMI_SIZE=2 shardtool tokenize -o parts in
}

@test "a part goes to standard output too, and --part 1/1 takes everything, to DIR itself" {
    inputs
    for i in 1 2 3; do shardtool tokenize -q --part "$i/3" -o - in >"part$i"; done
    cmp part2 <(env SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=3 shardtool tokenize -q -o - in)
    diff <(cat part? | split_documents - train) <(shardtool tokenize -q -o - in | split_documents - train)
    PMI_RANK=1 PMI_SIZE=2 shardtool tokenize -q --part 1/1 --max-tokens 1000000 -o whole in
    diff <(split_documents whole train) <(shardtool tokenize -q --val 0.0005 -o again in && split_documents again train)
    [ ! -e whole/part-1-of-1 ]
}

@test "the commands of docs/datasets.md for many machines make the same dataset" {
    inputs && mv in corpus
    ln -s "$ROOT/scripts" scripts
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 # as many ranks as we like
    sed -n '/^## On many machines/,/^## [^O]/p' "$ROOT/docs/datasets.md" | awk '/^```/ { inside = !inside; next } inside' >commands
    for engine in parallel mpirun sbatch; do
        grep -wq "$engine" commands
        type "$engine" >/dev/null || { echo "$engine" >>missing && continue; }
        rm -rf data
        while IFS= read -r command; do
            case $command in
            *sbatch*) [ $engine = sbatch ] ;;
            *parallel* | *mpirun*) [[ "$command" == *$engine* ]] ;;
            *) [ $engine != sbatch ] ;; # sbatch has merged
            esac || continue
            eval "$command" </dev/null
        done <commands
        shardtool tokenize -q -j 1 --part 2/4 -o expected corpus
        diff <(shards expected/part-2-of-4) <(shards data/parts/part-2-of-4)
        shardtool verify -q data/corpus
        shardtool cat data/corpus | sha256sum >>sums
    done
    [ "$(sort -u sums | wc -l)" = 1 ]
    [ ! -e missing ] || skip "not installed: $(tr '\n' ' ' <missing)"
}

@test "merge of parts has their lists of bad inputs, and refuses a dataset whose last document has no end before another" {
    mkdir bad && for i in 1 2; do printf '{"text": "one %s"}\nbad %s\n' $i $i >bad/$i.jsonl; done
    for i in 1 2; do shardtool tokenize -q -o parts --max-bad 100% --part $i/2 bad; done
    shardtool merge -q -o merged parts/part-*
    shardtool tokenize -q -o one --max-bad 100% bad
    cmp merged/skipped.jsonl one/skipped.jsonl
    run_match 2 "merge the parts of a run on their own first" shardtool merge -o other one parts/part-2-of-2
    mkdir ids && python3 -c 'import struct; open("ids/open.bin", "wb").write(struct.pack("<4H", 1, 50256, 5, 6)); open("ids/ended.bin", "wb").write(struct.pack("<2H", 7, 50256))'
    for name in open ended; do shardtool import-tokens -q --format nanogpt -o $name ids/$name.bin; done
    run_match 65 "the last document of 'open' has no end-of-text id, so that it and the first of 'ended' would become one: name 'open' last" \
        shardtool merge -o whole open ended
    [ ! -e whole/dataset.jsonl ]
    shardtool merge -q -o whole ended open
    shardtool verify -q whole
}

@test "parts whose files have no document are finished, and merged with the others" {
    mkdir some && for i in 1 4; do echo "{\"text\": \"words of $i\"}" >some/$i.jsonl; done
    for i in 2 3; do echo '{"text": null}' >some/$i.jsonl; done
    for i in 1 2 3 4; do shardtool tokenize -q -o parts --part $i/4 some; done
    run_match 0 "'parts/part-2-of-4' is already complete" shardtool tokenize -o parts --part 2/4 some
    shardtool merge -q -o merged parts/part-*
    shardtool tokenize -q -o one some
    shardtool cat merged | cmp - <(shardtool cat one)
    mkdir empty && cp some/2.jsonl some/3.jsonl empty
    for i in 1 2; do shardtool tokenize -q -o void --part $i/2 empty; done
    run_match 66 "no part of 'none' has a document" shardtool merge -o none void/part-*
    [ ! -e none/dataset.jsonl ]
    run_code 66 shardtool tokenize -q -o alone some/2.jsonl
}
