# shardtool train-vocabulary: its inputs, options and errors, and runs that are killed. Programs come from $BIN, data from
# $DATA. What it learns is compared with other trainers in tests/oracle/tokenizer/test_train_vocabulary*.py.

# bats file_tags=ci
load ../helpers

files='.lock merges.txt tokenizer.json tokenizer_config.json vocab.json vocabulary.json vocabulary.tiktoken'
make_docs() { # docs.jsonl: 300 documents
    jq -nc 'range(300) | {text: ("document \(.) of the mill, and of the \(. * 7919) wheels\n" * (. % 40 + 1))}' >docs.jsonl
}
train() { shardtool train-vocabulary -q -V 600 "$@"; } # [OPTION...] -o DIR INPUT...
same_tokens() { cmp "$1/vocabulary.tiktoken" "$2/vocabulary.tiktoken"; }
fails() { # STATUS PATTERN COMMAND...
    local status=0
    "${@:3}" 2>error || status=$?
    [ $status = "$1" ] && grep -q -- "$2" error || { echo "exit $status:" && cat error && return 1; }
}

@test "the vocabulary does not depend on the number of workers, nor on the memory" {
    make_docs && seq 400000 >numbers.txt
    train -o one -j 1 --docs lines docs.jsonl numbers.txt
    train -o two -j 2 --docs lines docs.jsonl numbers.txt
    train -o eight -j 8 --memory 256MiB --docs lines docs.jsonl numbers.txt
    train -o small -j 2 --memory 64MiB --docs lines docs.jsonl numbers.txt # 30 run files
    for other in two eight small; do diff -r -x .lock one $other; done
    [ "$(ls -A one | paste -s -d ' ')" = "$files" ]
}

@test "documents in any format and container, and in any order of files, give the same tokens" {
    make_docs
    train -o jsonl docs.jsonl
    gzip -k docs.jsonl && train -o gz docs.jsonl.gz
    tar cf docs.tar docs.jsonl && xz -0 docs.tar && train -o tar docs.tar.xz
    mkdir parts reversed && split -n l/7 --additional-suffix .jsonl docs.jsonl parts/ && train -o parts-out parts
    for part in parts/*; do tac "$part" >"reversed/$((100 - $(ls reversed | wc -l))).jsonl"; done
    train -o reversed-out reversed
    mkdir files && for n in $(seq 300); do sed -n "${n}p" docs.jsonl | jq -j .text >files/$n.txt; done && train -o files-out files
    train -o stdin - <docs.jsonl
    for other in gz tar parts-out reversed-out files-out stdin; do same_tokens jsonl $other; done
}

@test "a document longer than a batch is counted as in one piece, also one without white space" {
    seq 500000 | tr '\n' ' ' >long.txt # 3.4 MB: a piece is a blank and a number
    (head -c 3000000 /dev/zero | tr '\0' a && seq 1000) >word.txt # as many a, then each number with the line end before
    train -V 260 -o long long.txt
    train -V 260 -o word word.txt
    [ "$(jq .pieces long/vocabulary.json)" = 500001 ] # with the last blank
    [ "$(jq .pieces word/vocabulary.json)" = 2001 ]
    fails 65 'a word of more than 1000000 bytes at byte 0 (--max-word)' train -o other --max-word 1000000 word.txt
}

@test "a sample has the documents that tokenize would choose last for validation" {
    make_docs
    train -o sample --max-bytes 100000 docs.jsonl
    local documents
    documents=$(jq .documents sample/vocabulary.json)
    [ "$(jq '.bytes >= 100000 and .bytes < 110000' sample/vocabulary.json)" = true ]
    divide() { shardtool tokenize -q --force --val "0.$1" -o data docs.jsonl; } # THOUSANDTHS
    trained() { shardtool info --json data | jq .train_documents; }
    local low=400 high=900 middle # the smallest share of validation that leaves as many documents for training is between them
    divide $low
    [ "$(trained)" -gt "$documents" ]
    while [ $((high - low)) -gt 1 ]; do
        middle=$(((low + high) / 2))
        divide $middle
        if [ "$(trained)" -gt "$documents" ]; then low=$middle; else high=$middle; fi
    done
    divide $high
    shardtool decode --json data >train.jsonl
    [ "$(wc -l <train.jsonl)" = "$documents" ]
    train -o chosen train.jsonl
    same_tokens sample chosen
    train -o all --max-bytes 1G docs.jsonl && train -o whole docs.jsonl && same_tokens all whole
    fails 2 "reads the inputs twice, and '-' is a stream" train -o other --max-bytes 1000 - <docs.jsonl
}

@test "what is not a vocabulary is refused, with its exit code and the next step" {
    make_docs
    fails 2 'missing -o DIR' train docs.jsonl
    fails 2 '-V 256 is not between 257' train -V 256 -o out docs.jsonl
    fails 65 "merges" train -V 50257 -o many docs.jsonl
    fails 2 '--memory 1.0 MiB is too small for 1 worker: at least ' train -j 1 --memory 1MiB -o out docs.jsonl
    fails 2 '<|endoftext|>: it is always there, as the last id' train --special '<|endoftext|>' -o out docs.jsonl
    fails 2 '<x> is there twice' train --special '<x>' --special '<x>' -o out docs.jsonl
    fails 2 "--special x: each byte is a token of the text" train --special x -o out docs.jsonl
    fails 2 "is not UTF-8" train --special $'<\xff>' -o out docs.jsonl
    fails 2 "--special has a token of 256 bytes, and at most 255 are supported" train --special "$(printf 'q%.0s' {1..256})" -o out docs.jsonl
    [ ! -e out ]
    fails 66 'no-such-file' train -o out no-such-file
    : >empty.jsonl && fails 66 'the inputs contain no documents' train -o out empty.jsonl
    fails 65 "' mill' is also a token of the text, with id" train -o out --special ' mill' docs.jsonl
    printf 'a\xffb' >bad.txt && fails 65 "invalid UTF-8 at byte 1" train --invalid-utf8 fail -o bad bad.txt
    mkdir other && touch other/notes.txt && fails 73 "'other' holds 'notes.txt'" train -o other docs.jsonl
    mkdir in && cp docs.jsonl in && fails 2 'in/out' train -o in/out in
}

@test "bytes that are not UTF-8 are replaced, or kept" {
    yes "$(printf 'mill \xff\xfe wheel')" | head -n 1000 >bad.txt
    yes "$(printf 'mill \xef\xbf\xbd\xef\xbf\xbd wheel')" | head -n 1000 >good.txt
    train -V 265 -o replaced bad.txt && train -V 265 -o good good.txt
    same_tokens replaced good
    shardtool train-vocabulary -V 265 -o warned bad.txt 2>&1 | grep 'replaced invalid UTF-8 by U+FFFD in 2000 places'
    train -V 260 -o kept --invalid-utf8 bytes bad.txt
    cut -d ' ' -f 1 kept/vocabulary.tiktoken | while read -r token; do base64 -d <<<"$token" | xxd -p; done | grep -qx 20ff # the pair ( , 0xff)
}

@test "a finished vocabulary is kept, and replaced with --force only" {
    make_docs
    train -o out docs.jsonl
    shardtool train-vocabulary -V 600 -o out docs.jsonl 2>&1 | grep "'out' is already complete"
    fails 2 "'out' was made with --vocab-size=600, this run has --vocab-size=500: choose another directory, or" train -V 500 -o out docs.jsonl
    fails 2 'made with --special=<|endoftext|>, this run has --special=<|user|>,<|endoftext|>' train --special '<|user|>' -o out docs.jsonl
    head -n 200 docs.jsonl >fewer.jsonl
    fails 2 "'out' was made from other inputs" train -o out fewer.jsonl
    train -o two --special '<a>,<b>;c=1' docs.jsonl # what separates tokens in the line of the options may be in one
    fails 2 'made with --special=<a>%2C<b>%3Bc=1,<|endoftext|>, this run has --special=<a>,<b>' train --special '<a>' --special '<b>;c=1' -o two docs.jsonl
    train -V 500 --special '<|user|>' --force -o out docs.jsonl
    [ "$(wc -l <out/vocabulary.tiktoken)" = 498 ] && [ "$(jq -c .special out/vocabulary.json)" = '["<|user|>","<|endoftext|>"]' ]
}

@test "the merges that do not fit the memory are refused with what they need; with it, the documents are not read again" {
    seq 1000000 >numbers.txt && seq 5 >more.txt
    fails 82 'merging 9999.. different pieces needs at least 7[0-9].* of memory, and --memory allows 16.0 MiB: raise it, or leave out' train -j 1 --memory 16MiB -o out --docs lines numbers.txt
    fails 2 'other inputs, or they have changed: repeat that command, or start over with --force' train -o out --docs lines numbers.txt more.txt
    shardtool train-vocabulary -V 600 -o out --docs lines numbers.txt 2>&1 | grep 'continuing after 1000000 documents'
    train -o whole --docs lines numbers.txt
    diff -r -x .lock whole out
}

@test "tokenize takes the vocabulary, from its own files as from tokenizer.json, and decode gives the text back" {
    make_docs
    train -o out docs.jsonl
    train -o out --force --pattern o200k --special '<|user|>' docs.jsonl
    [ "$(ls out | paste -s -d ' ')" = "tokenizer.json tokenizer_config.json vocabulary.json vocabulary.tiktoken" ] # the others name no pattern
    shardtool tokenize -q --vocabulary out --val 0 -o data docs.jsonl
    shardtool decode --json data | jq -c '{text}' | cmp - docs.jsonl
    [ "$(shardtool info --json data | jq -c '[.vocab_size, .eot_id]')" = '[600,599]' ]
    mkdir own && cp out/vocabulary.* own && shardtool tokenize -q --vocabulary own --val 0 -o data2 docs.jsonl
    diff -r -x .lock data data2
}

@test "rare pieces are left out with --min-count" {
    (yes 'aa bb' | head -n 5 && yes cc | head -n 4) >text.txt
    train -V 260 --min-count 5 -o out text.txt
    yes 'aa bb' | head -n 5 >often.txt && train -V 260 -o often often.txt
    same_tokens out often
    fails 65 'the text has only 3 merges' train -V 270 --min-count 5 -o other text.txt
}

# fault 107
@test "kill -9 after lines of the journal, and at calls that change files, leads to the same bytes" {
    local round=0 kills=0 calls
    seq 90000 | jq -c '{text: "\(.) \(. * 7)"}' >docs.jsonl && gzip -k docs.jsonl && split -n l/5 --additional-suffix .jsonl docs.jsonl part-
    for input in docs.jsonl docs.jsonl.gz 'part-aa.jsonl part-ab.jsonl part-ac.jsonl part-ad.jsonl part-ae.jsonl' "--max-bytes 1M docs.jsonl"; do
        rm -rf whole && train -o whole $input
        for calls in fdatasync:2 rename:9 unlinkat:3 unlink:7; do # as many as a run with three run files makes
            rm -rf out
            for _ in 1 2; do # the run that continues is killed as well, if it gets that far
                kill_at ${calls%:*} $((RANDOM % ${calls#*:} + 1)) shardtool train-vocabulary -q -V 600 -j 1 --memory 24MiB -o out $input && kills=$((kills + 1))
            done
            train -j $((round++ % 4 + 1)) -o out $input
            diff -r -x .lock whole out
            [ "$(ls -A out | paste -s -d ' ')" = "$files" ]
        done
    done
    echo "# $kills kills" >&3
    [ $kills -ge 16 ]
}

# fault 108
@test "a run file that was damaged after a kill is refused, and counted again with --force" {
    seq 90000 | jq -c '{text: "\(.) \(. * 7)"}' >docs.jsonl
    kill_at fdatasync 2 shardtool train-vocabulary -q -V 600 -j 1 --memory 24MiB -o out docs.jsonl
    for run in out/.counts-*; do printf '\x55' | dd of=$run bs=1 seek=1000 conv=notrunc status=none; done
    fails 65 "'out/.counts-.*' is damaged: --force counts the pieces again" train -o out docs.jsonl
    [ ! -e out/vocabulary.json ]
    train --force -o out docs.jsonl && train -o whole docs.jsonl
    diff -r -x .lock whole out
}
