# shardtool dedup --similar and decontaminate: reports, limits, kills, full disks. The values are compared in
# tests/oracle/test_neardup.py.

load ../helpers
load ../sbatch

# make_copies: `d` has 400 documents of 200 random words, then 100 of these with one other word, 50 with other numbers, 30 equal ones and
# two without words; `e` has 20 of the documents
make_copies() {
    python3 - <<'PYTHON'
import json, random
drawn = random.Random(3)
letters = "abcdefghijklmnopqrstuvwxyz"
words = ["".join(drawn.choices(letters, k=drawn.randint(2, 9))) for _ in range(5000)]
texts = [" ".join(drawn.choices(words, k=200) + ["part", str(i)]) for i in range(400)]
near = [text.replace(text.split()[100], "Changed,", 1) for text in texts[:100]]
numbers = [" ".join(text.split()[:-1] + ["12.5"]) for text in texts[100:150]]
for name, documents in ("d", texts + near + numbers + texts[200:230] + ["...", "?!"]), ("e", texts[:20]):
    with open(name + ".jsonl", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
PYTHON
    shardtool tokenize -q --val 0 --shard-tokens 64k -o d d.jsonl
    shardtool tokenize -q --val 0 -o e e.jsonl
}

data_of() { find "$1" -type f ! -name .lock -exec sha256sum {} + | sed "s: $1/: :" | sort; } # DATASET

@test "dedup --similar names each removed document, the one that stays and their similarity" {
    make_copies
    : >.r.jsonl.tmp.99999999 # of a killed run
    run_code 0 shardtool dedup --similar 0.8 --report r.jsonl -o u d
    [ ! -e .r.jsonl.tmp.99999999 ]
    [[ "$output" == *"removed 180 of 582 documents"* && "$output" == *"50 removed documents are equal to the one that stays but for the numbers in them, for 50 documents"* ]]
    [[ "$output" == *"2 documents have no words and stay"* ]]
    [ "$(wc -l <r.jsonl)" = 180 ]
    jq -es 'all(.document > .kept_document and .similarity >= 0.8 and .removed == "d" and .split == "train" and .kept == "d" and .kept_split == "train")' r.jsonl
    jq -es '[.[] | select(.document < 500) | .document - .kept_document == 400] | length == 100 and all' r.jsonl
    jq -es '[.[] | select(.document >= 500) | .similarity] | length == 80 and all(. == 1)' r.jsonl
    [ "$(shardtool decode --json u | wc -l)" = 402 ]
    shardtool decode --json u | cmp - <(shardtool decode --json d | sed -n '1,400p;581,582p')
    shardtool verify -q u
    run_match 0 "already complete" shardtool dedup --similar 0.8 -o u d
    run_match 0 "already complete" shardtool dedup --similar 0.8 --report r.jsonl -o u d
    sed 1d r.jsonl >less.jsonl && sed 's/"tokens":[0-9]/&1/' r.jsonl >other.jsonl && cp r.jsonl same.jsonl
    for report in less.jsonl other.jsonl absent.jsonl d.jsonl -; do # finished, and this is not the report of that run
        run_match 73 "'u' is already complete, and '$report' is not its report: *--force" shardtool dedup -q --similar 0.8 --report $report -o u d
    done
    [ ! -e absent.jsonl ]
    shardtool dedup -q --similar 0.8 --report again.jsonl --force -o u d && cmp again.jsonl r.jsonl
    run_match 73 "already holds another dataset" shardtool dedup --similar 0.9 -o u d

}

@test "dedup without --similar removes equal documents alone, and reports them" {
    make_copies
    run_match 0 "removed 30 of 582 documents" shardtool dedup --report r.jsonl -o u d
    jq -es 'length == 30 and all(.document - .kept_document == 350 and .similarity == 1)' r.jsonl
}

@test "dedup with a report alone writes no dataset" {
    make_copies
    shardtool dedup -q --similar 0.8 -o u --report with.jsonl d
    run_match 0 "removed 180 of 582 documents" shardtool dedup --similar 0.8 --report without.jsonl d
    cmp with.jsonl without.jsonl
    shardtool dedup -q --similar 0.8 --report - d 2>/dev/null | cmp - with.jsonl
    [ "$(ls)" = "$(printf '%s\n' d d.jsonl e e.jsonl u with.jsonl without.jsonl)" ]
    shardtool dedup -q --report exact.jsonl d && [ "$(wc -l <exact.jsonl)" = 30 ]
    run_match 2 "missing -o DIR" shardtool dedup --similar 0.8 d
    run_match 2 "both the shard and the report" bash -c 'shardtool dedup --similar 0.8 --report - -o - d | cat; exit ${PIPESTATUS[0]}'
}

@test "dedup counts what each PATH loses, and warns of more than 90 percent" {
    make_copies
    run_code 0 shardtool dedup --similar 0.8 --report r.jsonl -o u d e
    [[ "$output" == *"'d': removed 180 of 582 documents"* && "$output" == *"'e' loses 20 of 20 documents, more than 90 %"* ]]
    jq -es '[.[] | select(.removed == "e")] | length == 20 and all(.kept == "d" and .document == .kept_document)' r.jsonl
    run_code 0 shardtool dedup --similar 0.8 --report r.jsonl --force -o u e d # the first in order stays
    jq -es '[.[] | select(.removed == "e")] == []' r.jsonl
}

@test "dedup --similar compares validation documents with those of training" {
    make_copies
    shardtool tokenize -q --val 1 -o v e.jsonl
    shardtool dedup -q --similar 0.8 --report r.jsonl -o u v d
    jq -es '[.[] | select(.split == "val")] | length == 20 and all(.removed == "v" and .kept == "d" and .kept_split == "train")' r.jsonl
    shardtool dedup -q --similar 0.8 --report r.jsonl --split val v && [ ! -s r.jsonl ]
}

@test "dedup --similar removes equal documents that are too long to be compared by their words" {
    mkdir texts
    for name in a b c d; do
        { yes 'some words' | head -c $(((1 << 24) + 8)) && printf '%s' "${name/b/a}"; } >texts/$name.txt
    done
    printf 'some words\n' >texts/e.txt # a text of the same words that is not as long
    shardtool train-vocabulary --characters --docs file texts >abc
    shardtool tokenize -q --val 0 --docs file --vocabulary abc -o long texts
    run_match 0 "at most 1 document removed*4 documents of more than 16777216 tokens: only equal ones" shardtool dedup --similar 0.8 --report r.jsonl -o u long
    jq -es '. == [{removed: "long", split: "train", document: 1, tokens: 16777226, input: "texts/b.txt", record: 0,
        kept: "long", kept_split: "train", kept_document: 0, kept_input: "texts/a.txt", kept_record: 0, similarity: 1}]' r.jsonl
    [ "$(shardtool decode --json u | wc -l)" = 4 ]
    mv u whole && sign_parts 2 --similar 0.8 long
    run_match 0 "4 documents of more than 16777216 tokens" shardtool dedup --similar 0.8 --report parts.jsonl -o u long
    cmp r.jsonl parts.jsonl
    same_without_parts u whole
    shardtool dedup -q --similar 0.8 --part 1/1 -o whole whole
    run_match 0 "removed 5 of 5 documents" shardtool dedup --similar 0.8 --old whole --report old.jsonl long
}

@test "dedup warns of groups in which a later copy may be missed" {
    # 80 pages of 100 common words and 13 of their own: J of two is below 0.8, and they share bands
    common=$(seq -f 'common%.0f' 100 | tr '0-9' 'a-j' | paste -sd ' ')
    for i in $(seq 80); do
        echo "{\"text\": \"$common $(seq -f "own${i}x%.0f" 13 | tr '0-9' 'a-j' | paste -sd ' ')\"}"
    done >pages.jsonl
    shardtool tokenize -q --val 0 -o pages pages.jsonl
    run_match 0 "documents that stay share a band with 32 others that stay" shardtool dedup --similar 0.8 --report r.jsonl pages
}

@test "dedup refuses what it cannot do" {
    make_copies
    for value in 0.5 1.1 -1 nan; do run_match 2 "similar" shardtool dedup --similar $value -o u d; done
    run_match 2 "--similar is 0.5999999, and must be from 0.6 to 1" shardtool dedup --similar 0.5999999 -o u d
    run_match 2 "of 1.0 MiB is too small for 582 documents: give it 81M or more" shardtool dedup -j 1 --similar 0.8 --memory 1M -o u d
    run_match 2 "of 80.0 MiB is too small for 582 documents: give it 81M or more" shardtool dedup -j 1 --similar 0.8 --memory 80M -o u d
    run_match 2 "--memory of 1 B is too small for 582 documents" shardtool dedup -j 1 --similar 0.8 --memory 1 -o u d
    shardtool dedup -q --memory 0 --report r.jsonl d && rm r.jsonl
    shardtool dedup -q -j 1 --similar 0.8 --memory 81M --report r.jsonl d && rm r.jsonl
    head -2 d.jsonl >two.jsonl && shardtool tokenize -q --val 0 -o two two.jsonl
    run_match 2 "of 80.0 MiB is too small for 2 documents: give it 81M or more" shardtool dedup -j 1 --similar 0.8 --memory 80M -o u two
    echo "my notes" >notes
    run_match 73 "is there and is not a report" shardtool dedup --similar 0.8 --report notes -o u d
    grep -qx "my notes" notes
    run_match 73 "cannot create" shardtool dedup --similar 0.8 --report absent/r -o u d
    for command in "dedup" "decontaminate --against two.jsonl" merge; do
        # shellcheck disable=SC2086
        run_match 2 "the output 'd/inner' lies in the input 'd': choose another directory" shardtool $command -o d/inner d
    done
    [ ! -e d/inner ]
    run_match 74 "cannot write '/dev/full'" shardtool dedup --report /dev/full d
    run_match 2 "'d' is given twice, and the report names a document by its PATH" shardtool dedup --similar 0.8 --report r.jsonl e d d
    shardtool train-vocabulary --characters d.jsonl >abc && shardtool tokenize -q --val 0 --vocabulary abc -o c d.jsonl
    shardtool dedup -q --similar 0.8 --report r.jsonl c && [ "$(wc -l <r.jsonl)" = 180 ]
    mv c/characters.txt kept
    run_match 65 "no PATH has the file of the vocabulary" shardtool dedup --similar 0.8 --report r.jsonl c
    [ -z "$(ls -A u 2>/dev/null | grep -v '^.lock$')" ]
}

# bats test_tags=ci
@test "dedup --similar that is killed, also twice, leaves nothing behind and gives the same bytes" {
    make_copies
    shardtool dedup -q -j 1 --similar 0.8 --report whole.jsonl -o whole d
    data_of whole >want
    local runs=0 small="--memory 81930k" # so little that temporary files are written
    for call in write fsync rename openat unlink pread64; do
        for number in 1 2 3 5 8 12 20 33 60 100; do
            rm -rf u r.jsonl
            kill_at $call "$number" shardtool dedup -q -j 1 $small --similar 0.8 --report r.jsonl -o u d || break
            kill_at $call $((number / 2 + 1)) shardtool dedup -q -j 2 --similar 0.8 --report r.jsonl -o u d || true
            [ -z "$(find . -name '*.tmp.*' ! -path './u/*' ! -name '.r.jsonl.tmp.*')" ]
            shardtool dedup -q -j 2 --similar 0.8 --report r.jsonl -o u d 2>/dev/null
            data_of u | cmp - want
            [ ! -e r.jsonl ] || cmp r.jsonl whole.jsonl
            [ -z "$(find u -name '.new' -o -name '.journal' -o -name '*.tmp.*')" ]
            runs=$((runs + 1))
        done
    done
    [ $runs -gt 10 ]
}

@test "dedup --similar on a full disk is 74, and runs again" {
    make_copies
    for size in 4 16 64; do # KiB of the largest file
        run_code 74 bash -c "trap '' XFSZ; ulimit -f $size; shardtool dedup -j 1 --memory 81930k --similar 0.8 --report r.jsonl -o u d"
        [ ! -e r.jsonl ] || [ "$(wc -l <r.jsonl)" = 180 ]
        [ -z "$(find u -name '*.zst')" ]
    done
    shardtool dedup -q --similar 0.8 --report r.jsonl -o u d
    [ "$(wc -l <r.jsonl)" = 180 ]
}

# sign_parts N OPTION... PATH...: the parts of `dedup OPTION... -o u PATH...`, the last one first
sign_parts() {
    for part in $(seq "$1" -1 1); do shardtool dedup -q -j 1 -o u --part "$part/$1" "${@:2}"; done
}
same_without_parts() { diff -r -x '*-of-*' "$1" "$2"; } # DATASET DATASET

@test "dedup in parts has the dataset, the report and the log of one run" {
    make_copies
    shardtool tokenize -q --val 0.3 --shard-tokens 64k -o m d.jsonl
    for similar in 0 0.8; do
        shardtool dedup --similar $similar --report whole.jsonl -o whole m e 2>whole.log
        for parts in 1 3 16; do
            sign_parts $parts --similar $similar m e
            shardtool dedup --similar $similar --report u.jsonl -o u m e 2>log
            cmp u.jsonl whole.jsonl
            same_without_parts u whole
            diff <(grep -v 'may be removed' log) whole.log
            run_match 0 "'u' is already complete" shardtool dedup --similar $similar --report u.jsonl -o u m e
            run_match 73 "'absent.jsonl' is not its report" shardtool dedup -q --similar $similar --report absent.jsonl -o u m e
            rm -r u u.jsonl
        done
        rm -r whole whole.jsonl
    done
    head -2 d.jsonl >two.jsonl && shardtool tokenize -q --val 0 -o two two.jsonl
    sign_parts 5 --similar 0.8 two # three have no document
    run_match 0 "removed 0 of 2 documents" shardtool dedup --similar 0.8 -o u two
    rm u/bands-*-of-5
    sign_parts 2 --similar 0.6 --split val --force m
    run_match 0 "'u/bands-\*-of-2' may be removed" shardtool dedup --similar 1 --split val --force -o u m # of any --similar
    shardtool dedup -q --similar 1 --split val -o whole m
    same_without_parts u whole
}

@test "dedup names the parts that are missing, running, or not those of this command" {
    make_copies
    near() { shardtool dedup --similar 0.8 -o u "$@"; }
    for i in 1 5; do near -q --part $i/6 d e; done
    : >u/.bands-3-of-6.tmp.1
    run_match 66 "of 6 parts in 'u' 2 are done; running, or killed: 3; missing: 2, 4, 6; run these with --part I/6" near d e
    [ ! -e u/dataset.jsonl ] && [ ! -e u/train ]
    run_match 66 "dedup --similar: of 6 parts in 'u' 2 are done; running, or killed: 3; missing: 2, 4, 6: 'u' is a directory without" shardtool info u
    run_code 0 near --part 6/6 d e
    [[ "$output" == *"all 6 parts take up to"*"of 6 parts in 'u' 3 are done; running, or killed: 3; missing: 2, 4"* ]]
    for i in 2 3 4; do near -q --part $i/6 d e; done
    run_match 0 "'u/bands-2-of-6' is already complete" near --part 2/6 d e
    # the same part on another machine removes the temporary file before it is renamed, and finishes, or not
    local second=(shardtool dedup -q --similar 0.8 --part 2/6 -o u d e)
    rm u/bands-2-of-6
    BEFORE="rm u/.bands-2-of-6.tmp.* && ${second[*]}" run_code 1 kill_at rename 1 "${second[@]}"
    [ -z "$output" ]
    rm u/bands-2-of-6
    BEFORE="rm u/.bands-2-of-6.tmp.*" run_match 1 "exit 66 instead" kill_at rename 1 "${second[@]}"
    "${second[@]}"
    run_match 2 "'u/bands-1-of-6' was made of other datasets than the PATHs are now, or of these in another order" near e d
    run_match 2 "'u/bands-2-of-6' was made of other datasets" near --part 2/6 d
    run_match 2 "'u/bands-1-of-6' was made with another --split (split all, not train)" near --split train d e
    run_match 2 "'u' holds parts of dedup --similar, as 'bands-" shardtool dedup -o u d e
    run_match 2 "'u' holds parts of dedup --similar, as 'bands-" shardtool dedup -q --part 1/6 -o u d e
    run_match 2 "'u' holds parts of 6, not of 2: remove 'bands-*-of-6'" near -q --part 1/2 d e
    cp u/bands-1-of-6 u/bands-1-of-2
    run_match 2 "'u' holds one of * parts and one of *: remove the files of one of the two" near d e
    rm u/bands-1-of-2
    mv u/bands-3-of-6 x && mv u/bands-4-of-6 u/bands-3-of-6 && mv x u/bands-4-of-6
    run_match 65 "'u/bands-3-of-6' holds bands of part 4 of 6: it was renamed" near d e
    mv u/bands-3-of-6 x && mv u/bands-4-of-6 u/bands-3-of-6 && mv x u/bands-4-of-6
    cp -r u whole
    for change in 'truncate -s -1' 'truncate -s 100' 'truncate -s 0' 'sed -i 1s/words=./words=7/' 'sed -i $s/$/x/'; do
        $change u/bands-5-of-6
        run_match 65 "'u/bands-5-of-6' is damaged or was cut short: run its part again" near d e
        run_match 0 "is damaged or was cut short: run its part again: doing this now" near --part 5/6 d e
        diff -r u whole
    done
    run_code 74 bash -c "trap '' XFSZ; ulimit -f 16; shardtool dedup -q --similar 0.8 -o u d e" # a full disk
    near -q --report r.jsonl d e
    [ "$(wc -l <r.jsonl)" = 200 ]
    run_match 2 "--part '3/2' is not I/N" near --part 3/2 d
    run_match 2 "give --report to the command without --part" near --part 1/2 --report x d
    run_match 2 "give it by -o DIR" shardtool dedup --part 1/2 d
    run_match 2 "give it by -o DIR" bash -c 'shardtool dedup --part 1/2 -o - d | cat; exit ${PIPESTATUS[0]}'
}

# bats test_tags=ci
@test "dedup in parts of which each is killed at each of its writes has the bytes of one run" {
    make_copies
    shardtool dedup -q --similar 0.8 --report whole.jsonl -o whole d e
    local runs=0
    for call in write fsync rename openat unlink; do
        rm -rf u
        for command in "--part 2/3" "--part 1/3" "--part 3/3" "--report r.jsonl"; do
            for number in 1 2 3 5 8 12 20; do
                # shellcheck disable=SC2086
                kill_at $call $number shardtool dedup -q -j 1 --similar 0.8 $command -o u d e || break
                [ ! -e u/dataset.jsonl ] || break
                runs=$((runs + 1))
            done
            # shellcheck disable=SC2086
            shardtool dedup -q -j 1 --similar 0.8 $command -o u d e
        done
        same_without_parts u whole
        [ "$(ls -A u | grep -c tmp)" = 0 ]
        [ ! -e r.jsonl ] || cmp r.jsonl whole.jsonl
        rm -f r.jsonl
    done
    [ $runs -gt 20 ]
}

@test "dedup --old writes the new documents that stay, and names old ones that they are similar to" {
    make_copies
    new() { shardtool dedup --similar 0.8 --old old "$@"; }
    head -400 d.jsonl >first.jsonl && tail -182 d.jsonl >rest.jsonl
    shardtool tokenize -q --val 0.3 -o old first.jsonl && shardtool tokenize -q --force --val 0.3 -o d rest.jsonl
    run_match 66 "the documents of --old 'old' are not signed: do that once, by dedup --similar 0.8 --part 1/1 -o old old" new -o u d
    shardtool dedup -q --similar 0.8 --part 1/1 -o old old
    run_match 0 "removed 200 of 202 documents" new --report r.jsonl -o u d e
    jq -es 'map(.kept) | unique == ["old"]' r.jsonl
    jq -es 'map(.kept_split) | unique == ["train", "val"]' r.jsonl
    jq -r '"\(.removed) \(.split) \(.document) \(.kept_split) \(.kept_document)"' r.jsonl | head -40 | while read -r path split document kept_split kept; do
        difference=$(comm -3 <(shardtool decode $path --split $split --doc "$document" | tr ' ' '\n' | sort) \
            <(shardtool decode old --split $kept_split --doc "$kept" | tr ' ' '\n' | sort) | wc -l)
        [ "$difference" -le 3 ]
    done
    run_match 0 "already complete" new -o u d e
    run_match 73 "already holds another dataset" shardtool dedup --similar 0.8 -o u d e
    shardtool dedup -q --similar 0.8 --part 1/1 -o e e
    shardtool dedup -q --part 1/1 -o both d
    run_match 66 "no documents are left" new --old e -o v e
    run_match 66 "--old 'd.jsonl' is not a dataset" shardtool dedup --old d.jsonl -o v d
    run_match 2 "'old' holds parts of dedup --similar*remove them, or choose another directory" shardtool dedup --old old -o v d
    run_match 2 "--old 's3://b/old' is not a directory of this machine" shardtool dedup --similar 0.8 --old s3://b/old -o v d
    run_match 2 "lies in the input 'old'" new -o old/v d
    shardtool train-vocabulary --characters d.jsonl >abc && shardtool tokenize -q --val 0 --vocabulary abc -o c rest.jsonl
    run_match 65 "vocabular" new --report c.jsonl c
    shardtool tokenize -q --force --val 0.4 -o old first.jsonl
    run_match 2 "'old/bands-1-of-1' was made of other datasets than the PATHs are now" new -o v d
}

# make_items: documents of 400 random words; some hold an item whole, its first half, a third of it, or re-wrapped in capitals
make_items() {
    python3 - <<'PYTHON'
import json, random
drawn = random.Random(4)
words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9))) for _ in range(3000)]
items = [drawn.choices(words, k=40) for _ in range(6)] + [drawn.choices(words, k=9), drawn.choices(words, k=5)]
def hidden(*inside): return " ".join([*drawn.choices(words, k=200), *inside, *drawn.choices(words, k=200)])
documents = [hidden(*items[0]), hidden(*items[1][:27]), hidden(*items[2][:24]), hidden("\n".join(items[3]).upper() + "?!"),
             hidden(*items[6]), hidden(*items[6][:8]), hidden(*items[7]), hidden(), " ".join(items[4]), hidden(*items[0], *items[5])]
with open("docs.jsonl", "w") as file:
    file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
with open("items.jsonl", "w") as file: # the strings of a line are one item, whatever their keys
    file.writelines(json.dumps({"q": " ".join(item[:3]), "n": 7, "c": [" ".join(item[3:5])], "a": {"b": " ".join(item[5:])}}) + "\n" for item in items)
open("items.txt", "w").writelines(" ".join(item) + "\n" for item in items)
PYTHON
    shardtool tokenize -q --val 0 -o d docs.jsonl
}

@test "decontaminate removes documents with half of the windows of an item, and names both" {
    make_items
    run_code 0 shardtool decontaminate --against items.jsonl --report r.jsonl -o clean d
    [[ "$output" == *"removed 6 of 10 documents"* && "$output" == *"items that occur: 6 of 7"* ]] # one beside another
    [[ "$output" == *"1 item of fewer than 8 words was not searched for"* ]]
    jq -r '"\(.removed) \(.split) \(.document) \(.against) \(.item) \(.share)"' r.jsonl >got
    printf 'd train %s\n' "0 items.jsonl 0 1" "1 items.jsonl 1 0.5357" "3 items.jsonl 3 1" "4 items.jsonl 6 1" "8 items.jsonl 4 1" \
        "9 items.jsonl 0 1" | cmp got -
    [ "$(head -1 r.jsonl | jq -r .words)" = "$(head -1 items.txt | cut -d' ' -f1-13)" ]
    [ "$(sed -n 4p r.jsonl | jq -r .words)" = "$(sed -n 7p items.txt)" ]
    shardtool decode --json clean | cmp - <(shardtool decode --json d | sed -n '3p;6,8p')
    shardtool decontaminate -q -j 4 --against items.txt --report text.jsonl d 2>/dev/null # lines of text are items, too
    cmp <(sed 's/items.jsonl/items.txt/' r.jsonl) text.jsonl
    run_match 0 "already complete" shardtool decontaminate --against items.txt -o clean d # the same items
    run_match 0 "already complete" shardtool decontaminate --against items.txt --report text.jsonl -o clean d
    run_match 73 "'absent.jsonl' is not its report" shardtool decontaminate -q --against items.txt --report absent.jsonl -o clean d
    shardtool decontaminate -q --against items.txt --words 8 --report 8.jsonl d 2>/dev/null
    [ "$(wc -l <8.jsonl)" -ge 6 ]
    jq -c '{text: .q}' items.jsonl >short.jsonl
    run_match 0 "items that occur: 0 of 0*8 items of fewer than 8 words were not searched for" shardtool decontaminate --text-field text --against short.jsonl --report none.jsonl d
}

@test "decontaminate takes the right text of an item of a grade, without its examples and wrong endings" {
    make_items
    words() { sed -n "$1p" items.txt | cut -d ' ' -f "$2"; }
    { # each item: wrong and right endings, examples that other documents hold
        jq -nc --arg shots "$(words 4 1-)" --arg context "$(words 1 1-30)" --arg right " $(words 1 31-)" --arg wrong " $(words 2 1-)" \
            '{task: "a", id: 0, kind: "choice", shots: $shots, label: 1, span: "differing", texts: [[$context, $wrong], [$context, $right]]}'
        jq -nc --arg context "$(words 5 1-36)" --arg right " $(words 5 37-)" '{task: "a", id: 1, kind: "greedy", texts: [[$context, $right]]}'
        jq -nc --arg user "$(words 6 1-20)" --arg answer "$(words 6 21-)" '{task: "b", id: 2, kind: "answers", messages: [{role: "user", content: $user}], answer: $answer}'
        jq -nc --arg text "$(words 3 1-)" '{question: $text, kind: "choice"}' # no item of a grade: all strings
    } >grade.jsonl
    run_code 0 shardtool decontaminate --against grade.jsonl --report r.jsonl d
    jq -r '"\(.document) \(.item)"' r.jsonl | cmp - <(printf '%s\n' "0 0" "8 1" "9 0")
    [[ "$output" == *"items that occur: 3 of 4"* ]]
    head -1 grade.jsonl >one.jsonl
    run_code 0 shardtool decontaminate --text-field shots --against one.jsonl --report shots.jsonl d # a key that is named
    [ "$(jq .document shots.jsonl)" = 3 ]
    jq -c 'del(.label)' grade.jsonl | run_match 65 "line 1*an item of the kind choice without a number as its label" shardtool decontaminate --against - --report x d
    jq -c '.label = 2' grade.jsonl >beyond.jsonl
    run_match 65 "an item without a context and an ending as its right text" shardtool decontaminate --against beyond.jsonl --report x d
    jq -c 'del(.answer)' grade.jsonl | sed -n 3p >silent.jsonl
    run_match 65 "an item of the kind answers without messages and an answer" shardtool decontaminate --against silent.jsonl --report x d
}

@test "decontaminate finds an item across the markers of a conversation" {
    jq -Rc 'split("|") | {messages: [to_entries[] | {role: (if .key % 2 == 0 then "user" else "assistant" end), content: .value}]}' >c.jsonl <<'LINES'
what is the capital city of the old kingdom|it is the mill
x|y
well|go on|one two three four five six seven|eight nine
one two three four five six se|ven eight nine
LINES
    jq -nc '{task: "q", id: 1, kind: "answers", messages: [{role: "user", content: "What is the capital city of the old kingdom?"}], answer: "It is the mill"}' >c.items
    echo "one two three four five six seven eight nine" >plain.txt
    shardtool tokenize --turns --val 0 -q -o c c.jsonl
    for part in 1 2; do shardtool decontaminate -q --against c.items --against plain.txt --part "$part/2" -o parts c; done
    run_code 0 shardtool decontaminate --against c.items --against plain.txt --report r.jsonl -o whole c
    [[ "$output" == *"removed 2 of 4 documents"* && "$output" == *"items that occur: 2 of 2"* ]]
    jq -r '"\(.document) \(.against) \(.share) \(.words)"' r.jsonl | cmp - <(printf '%s\n' \
        "0 c.items 1 what is the capital city of the old kingdom it is the mill" "2 plain.txt 1 one two three four five six seven eight nine")
    shardtool decontaminate -q --against c.items --against plain.txt -o parts c
    shardtool decode --json parts | cmp - <(shardtool decode --json whole)
    shardtool info whole | grep -F "form=3"
}

@test "decontaminate in parts has the dataset, the report and the log of one run" {
    make_items
    sed 1,5d docs.jsonl >rest.jsonl
    shardtool tokenize -q --val 0.5 -o e docs.jsonl && shardtool tokenize -q --val 0.5 -o f rest.jsonl
    run_decontaminate() { shardtool decontaminate --against items.jsonl "$@" e f; }
    run_decontaminate --report whole.jsonl -o whole 2>whole.log
    for parts in 1 2 5 40; do
        for part in $(seq $parts -1 1); do run_decontaminate -q -j 1 -o u --part "$part/$parts"; done
        run_decontaminate --report u.jsonl -o u 2>log
        cmp u.jsonl whole.jsonl
        same_without_parts u whole
        diff <(grep -v 'may be removed' log) whole.log
        rm -r u
    done
    for part in 1 3; do run_decontaminate -q -o u --part "$part/3"; done
    run_match 66 "of 3 parts in 'u' 2 are done; missing: 2" run_decontaminate -o u
    run_decontaminate -q -o u --part 2/3
    run_match 2 "'u/hits-1-of-3' was made by other rules (rules against=*;words=13;form=3, not against=*;words=12;form=3)" run_decontaminate --words 12 -o u
    run_match 2 "'u/hits-1-of-3' was made by other rules" shardtool decontaminate --against docs.jsonl -o u e f
    run_match 2 "'u' holds parts of decontaminate, as 'hits-" shardtool dedup -o u e f
    run_match 0 "items that occur: 6 of 7" run_decontaminate -o u
}

@test "decontaminate refuses what it cannot do" {
    make_items
    run_match 2 "missing --against FILE" shardtool decontaminate -o u d
    run_match 2 "missing -o DIR" shardtool decontaminate --against items.txt d
    run_match 2 "must be from 1 to 64" shardtool decontaminate --against items.txt --words 65 -o u d
    run_match 66 "absent" shardtool decontaminate --against absent -o u d
    : >empty.txt
    run_code 66 shardtool decontaminate --against empty.txt -o u d
    run_code 74 bash -c "trap '' XFSZ; ulimit -f 1; shardtool decontaminate -q --against items.txt -o u d"
    shardtool decontaminate -q --against items.txt -o u d 2>/dev/null
}

@test "docs/clean.md runs as written" {
    mkdir fineweb && cp "$DATA/small.parquet" fineweb
    echo '{"question": "how many words has an item that is long enough", "answer": "more than eight"}' | tee gsm8k.jsonl >mmlu.jsonl
    sed -n '1,/^## /p' "$ROOT/docs/clean.md" | grep '^millrace' | sed 's/--min-tokens 32/--min-tokens 1/' >commands
    [ "$(wc -l <commands)" = 4 ]
    bash -e commands
    shardtool verify -q clean
}

@test "the commands of docs/clean.md for each dump alone" {
    make_copies && mkdir data && mv d e data && printf '%s\n' d e >dumps.txt
    . <(sed -n '/^### Each dump/,/^### In/p' "$ROOT/docs/clean.md" | awk '/^```/ { inside = !inside; next } inside')
    [ "$(shardtool decode --json web | wc -l)" = $((402 + 20)) ]
    [ "$(ls clean)" = "$(printf '%s\n' d e)" ]
}

@test "the commands of docs/clean.md for parts make the dataset of one run" {
    make_copies && mv d web && ln -s "$ROOT/scripts" scripts
    shardtool dedup -q --similar 0.8 --report whole.jsonl -o whole web
    sed -n '/^### In parts/,/^### N/p' "$ROOT/docs/clean.md" | awk '/^```/ { inside = !inside; next } inside' >commands
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    for engine in parallel mpirun sbatch; do
        type "$engine" >/dev/null || { echo "$engine" >>missing && continue; }
        grep -w $engine commands >some
        [ $engine = sbatch ] || grep '^millrace' commands >>some # the last job of sbatch is this command
        . ./some
        cmp removed.jsonl whole.jsonl
        same_without_parts clean whole
        [ "$(ls clean | grep -c '^bands-.*-of-16$')" = 16 ]
        rm -r clean
    done
    [ ! -e missing ] || skip "not installed: $(cat missing)"
}

@test "the commands of docs/clean.md for new documents beside old ones" {
    make_copies
    head -300 d.jsonl >web.jsonl && sed -n 301,450p d.jsonl >june.jsonl && sed -n '451,$p' d.jsonl >july.jsonl
    for name in web june july; do shardtool tokenize -q --val 0 -o $name $name.jsonl; done
    sed -n '/^### New against old/,/^## /p' "$ROOT/docs/clean.md" | awk '/^```/ { inside = !inside; next } inside' >commands
    bash -e commands
    shardtool dedup -q --similar 0.8 -o whole web june july
    cat <(shardtool decode --json web) <(shardtool decode --json june-new) <(shardtool decode --json july-new) | cmp - <(shardtool decode --json whole)
}
