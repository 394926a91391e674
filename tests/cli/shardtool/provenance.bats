# shardtool: where documents came from, as tables beside shards keep it. The whole of it, through every command, is in
# tests/oracle/shardtool/test_provenance.py. Programs come from $BIN, data from $DATA.

load ../helpers

setup() { enter_test; }

places() { shardtool info --docs --json "$@" | jq -r '"\(.input):\(.record)"'; }

@test "the commands of the page keep, list and print where documents came from" {
    mkdir fineweb
    for i in 1 2 3; do jq -nc "{text: \"text $i\", url: \"https://a.b/$i\", meta: {score: $i.50}}"; done | tee fineweb/b.jsonl | zstd -q >web.jsonl.zst
    sed -n '/provenance.bats/,/^```$/p' "$ROOT/docs/datasets.md" | grep '^millrace' >commands
    PATH=$BIN:$PATH bash -e -o pipefail commands >printed
    grep -q 'web.jsonl.zst:2 url=https://a.b/3 meta.score=3.5' printed
    [ "$(grep -A 4 "argument of the command that made 'web'" printed | tail -n 1)" = "   documents         tokens      %  input of its documents" ]
    [ "$(tail -n 6 printed | sort -u | wc -l)" = 3 ]
}

@test "one document has its own place, and a range has none" {
    seq 5 | jq -c '{text: "document \(.)", n: .}' >in.jsonl
    shardtool tokenize -q --val 0 --keep n -o d in.jsonl
    [ "$(shardtool decode --json --doc 3 d)" = '{"text": "document 4","input":"in.jsonl","record":3,"keys":{"n":"4"}}' ]
    [ "$(shardtool decode --json d 3:5)" = "$(shardtool decode --json --doc 1 d 0:2)" ]
    [ "$(shardtool decode --json d 3:5 | jq -c 'keys')" = '["text"]' ]
}

@test "names have no folders of this machine, no user and no query, and are relative" {
    mkdir -p data/a data/b sub
    for name in data/a/1 data/a/2 data/b/1; do echo "$name" >$name.txt; done
    shardtool tokenize -q --val 0 -o one "$PWD"/data/a "$PWD/data/b/1.txt"
    [ "$(places one | tr '\n' ' ')" = "a/1.txt:0 a/2.txt:0 b/1.txt:0 " ]
    shardtool tokenize -q --val 0 -o two "$PWD/data/a/"
    [ "$(places two | tr '\n' ' ')" = "a/1.txt:0 a/2.txt:0 " ]
    shardtool tokenize -q --val 0 -o three ./data/a
    [ "$(places three | head -n 1)" = data/a/1.txt:0 ]
    (cd sub && shardtool tokenize -q --val 0 -o ../four ../data/a)
    [ "$(places four | head -n 1)" = a/1.txt:0 ]
    mkdir -p p/y1/z p/y2 && echo '{"text": "a"}' | tee p/d.jsonl p/y1/d.jsonl p/y1/e.jsonl p/y1/z/d.jsonl >p/y2/d.jsonl # appended, files keep other names
    shardtool tokenize -q --val 0 -o more "$PWD/p/y1/d.jsonl"
    for file in y1/e y1/z/d y2/d d; do shardtool tokenize -q --val 0 --append -o more "$PWD/p/$file.jsonl"; done
    [ "$(places more | tr '\n' ' ')" = "d.jsonl:0 e.jsonl:0 z/d.jsonl:0 ../y2/d.jsonl:0 ../d.jsonl:0 " ]
    shardtool tokenize -q --val 0 -o whole "$PWD/p/y1/d.jsonl" "$PWD/p/y1/e.jsonl" "$PWD/p/y1/z/d.jsonl"
    [ "$(places whole)" = "$(places more | head -n 3)" ]
    for part in 1/2 2/2; do shardtool tokenize -q --val 0 --part $part -o parts "$PWD/p/y1/d.jsonl" "$PWD/p/y1/e.jsonl"; done
    shardtool merge -q --allow-duplicates -o joined parts/* && shardtool tokenize -q --val 0 --append -o joined "$PWD/p/y2/d.jsonl"
    [ "$(places joined | tail -n 1)" = ../y2/d.jsonl:0 ]
    echo text | shardtool tokenize -q --val 0 -o five -
    [ "$(places five)" = -:0 ]
}

@test "a kept value that is not a text or a number, or is too long, is a bad line; a mistyped key is named" {
    printf '{"text": "a", "k": [1]}\n{"text": "b", "k": {"c": 2}}\n{"text": "c", "k": null}\n{"text": "d", "k": "%065536d"}\n' 0 >in.jsonl
    run_match 65 "'in.jsonl' line 1, byte *: --keep 'k': its value is an object or an array, and not a text, a number, true or false: write it as a text, or leave" shardtool tokenize -q --keep k -o out in.jsonl
    run_match 0 "no document that was read has a value of --keep 'k'" shardtool tokenize --val 0 --max-bad 3 --keep k -o out in.jsonl
    [ "$(places out)" = in.jsonl:2 ]
    run_match 0 "a value of --keep 'k,text': repeat --keep for each key" shardtool tokenize --val 0 --keep k,text -o both in.jsonl
    tail -n 1 in.jsonl >long.jsonl
    run_match 65 "its value is 65536 bytes long, more than 65535" shardtool tokenize -q --keep k -o long long.jsonl
    shardtool tokenize -q --val 0 --keep k.c --force -o out --max-bad 1 <(sed -n 2p in.jsonl)
    [ "$(shardtool decode -q --json out | jq -c .keys)" = '{"k.c":"2"}' ]
}

@test "a damaged, missing or unlisted table is found, and the tokens are read all the same" {
    seq 30 | jq -c '{text: "document \(.)", n: .}' >in.jsonl
    shardtool tokenize -q --val 0 --keep n -o good in.jsonl
    cp -r good bad && printf x | dd of=bad/train/000/000000.docs bs=1 seek=40 conv=notrunc status=none
    run_match 1 "bad/train/000/000000.docs' is not the table of documents that the manifest lists" shardtool verify bad
    run_match 65 "is not the table of documents" shardtool info --docs bad
    seq 31 40 | jq -c '{text: "document \(.)", n: .}' >more.jsonl
    shardtool tokenize -q --val 0 --keep n -o more more.jsonl
    for damage in true 'truncate -s -1' 'truncate -s 0'; do # merge links no table that is not the listed one
        $damage bad/train/000/000000.docs
        run_match 65 "bad/train/000/000000.docs'" shardtool merge -o both bad more
        run_match 65 "bad/train/000/000000.docs'" shardtool merge -o both more bad
        [ ! -e both/dataset.jsonl ]
    done
    rm bad/train/000/000000.docs
    run_match 1 "000000.docs" shardtool verify bad
    shardtool cat bad | cmp - <(shardtool cat good)
    cp -r good old && cp old/train/000/000000.docs old/train/000/000001.docs
    run_match 1 "000001.docs' is not listed in the manifest" shardtool verify old
}

@test "a dataset without tables stays valid, and gives datasets without tables" {
    seq 30 | jq -c '{text: "document \(.)", n: .}' >in.jsonl
    shardtool tokenize -q --val 0 -o old in.jsonl
    python3 - old <<'END'
import hashlib, json, pathlib, sys
manifest = pathlib.Path(sys.argv[1], "dataset.jsonl")
header, *lines = manifest.read_text().splitlines()
lines = [json.loads(line) for line in lines]
for line in lines:
    del line["docs"]
text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
header = json.loads(header)
header["lines_hash"] = hashlib.sha256(text.encode()).hexdigest()
del header["header_hash"]
head = json.dumps(header, separators=(",", ":"))[:-1]
manifest.write_text(f'{head},"header_hash":"{hashlib.sha256(head.encode()).hexdigest()}"}}\n{text}')
END
    rm old/train/000/000000.docs
    shardtool verify -q old
    [ "$(places old | sort -u)" = null:null ]
    run_match 0 "'old' has no tables of documents" shardtool info --sources old
    shardtool filter -q --min-tokens 1 -o new old
    ! find new -name '*.docs' | grep .
    cmp <(shardtool cat old) <(shardtool cat new)
    echo '{"text": "document 31"}' >z.jsonl
    shardtool tokenize -q --append --val 0 -o old z.jsonl # of the old documents nothing is known
    [ "$(places old | sort | uniq -c | tr -s ' ' | tr '\n' ,)" = " 30 null:null, 1 z.jsonl:0," ]
    [ "$(shardtool info --sources old | tail -n 2 | tr -s ' ' | cut -d ' ' -f 2,5- | tr '\n' ,)" = "30 not known,1 z.jsonl," ]
}

@test "reports name where the removed document and the one that stays came from" {
    seq 40 | jq -c '{text: ("a document with some words of its own, number \(. % 30)" + " and more of them" * (. % 30)), url: "https://a.b/\(.)"}' >in.jsonl
    printf '{"text": "%s", "url": "https://a.b/41"}\n' "$(sed -n 29p in.jsonl | jq -r .text) and one" >>in.jsonl
    shardtool tokenize -q --val 0 --keep url -o d in.jsonl
    shardtool shuffle -q -o s d
    shardtool dedup -q --report exact.jsonl s
    [ "$(wc -l <exact.jsonl)" = 10 ]
    shardtool dedup -q --similar 0.8 --report similar.jsonl s
    [ "$(wc -l <similar.jsonl)" -ge 11 ]
    echo "a document with some words of its own, number 7$(printf ' and more of them%.0s' {1..7})" >items.txt
    shardtool decontaminate -q --docs lines --against items.txt --report hits.jsonl s
    [ "$(wc -l <hits.jsonl)" -ge 2 ]
    shardtool tokenize -q --val 0 --keep url -o none <(echo '{"text": "a text of another kind", "url": "https://a.b/-"}')
    for rule in "" "--similar 0.8"; do # the old documents that stay
        # shellcheck disable=SC2086
        for old in none s; do shardtool dedup -q $rule --part 1/1 -o "$old" "$old"; done
        # shellcheck disable=SC2086
        shardtool dedup -q $rule --old none --old s --report "of$rule.jsonl" d
        [ "$(jq -r .kept "of$rule.jsonl" | uniq -c)" = "     41 s" ]
        jq -c 'del(.document)' "of$rule.jsonl" >>kept.jsonl
        rm -f s/hashes-* none/hashes-*
    done
    python3 - exact.jsonl similar.jsonl hits.jsonl kept.jsonl <<'END'
import json, subprocess, sys
read = lambda command: [json.loads(line) for line in subprocess.run(command, capture_output=True, check=True).stdout.splitlines()]
documents = read(["shardtool", "decode", "-q", "--json", "s"])
lines = [json.loads(line) for line in open("in.jsonl")]
for row in (json.loads(line) for name in sys.argv[1:] for line in open(name)):
    for prefix, number in ("", row.get("document")), ("kept_", row.get("kept_document")):
        if number is not None:
            source = lines[row[f"{prefix}record"]]
            assert row[f"{prefix}input"] == "in.jsonl" and row[f"{prefix}keys"] == {"url": source["url"]}, row
            assert source["text"] == documents[number]["text"], row
END
}

@test "names with separators and control characters stay what they are in params, and forge no line" {
    echo '{"text": "a", "a&b": 1, "a": 2, "b": 3}' >in.jsonl && echo '{"text": "b"}' >more.jsonl
    shardtool tokenize -q --val 0 --keep 'a&b' -o d in.jsonl
    for keep in "--keep a --keep b" "--keep a%26b"; do
        # shellcheck disable=SC2086
        run_code 2 shardtool tokenize -q --val 0 $keep --append -o d more.jsonl
    done
    shardtool tokenize -q --val 0 --keep 'a&b' --append -o d more.jsonl
    [[ "$(shardtool info --json d | jq -r .params)" == *";keep=a%26b;val=0;"* ]]
    shardtool tokenize -q --val 0 --keep 'x;val=0' --where $'text != "\nkind forged\e[2J"' -o e in.jsonl
    [[ "$(shardtool info --json e | jq -r .params)" == *";where=text != \"%0Akind forged%1B[2J\";keep=x%3Bval=0;val=0;"* ]]
    python3 - e <<'END'
import hashlib, json, pathlib, sys
manifest = pathlib.Path(sys.argv[1], "dataset.jsonl") # of an older version
header, lines = manifest.read_text().split("\n", 1)
header = json.loads(header)
header["params"] = "frame_tokens=1;where=\nkind forged\x1b[2J"
del header["header_hash"]
head = json.dumps(header, separators=(",", ":"))[:-1]
manifest.write_text(f'{head},"header_hash":"{hashlib.sha256(head.encode()).hexdigest()}"}}\n{lines}')
END
    [ "$(shardtool info e | grep -c '^kind')" = 1 ] && ! shardtool info e | grep -q $'\e'
}

@test "which names the file and the line of each document of a step" {
    seq 200 | jq -c '{text: "document number \(.) of a few", id: .}' >in.jsonl
    shardtool tokenize -q --val 0.1 --keep id -o d in.jsonl
    shardtool shuffle -q -o s d
    "$BIN/trainer" train --dataset=s --out_dir=run --n_layer=1 --n_head=1 --n_embd=8 --block_size=16 --batch_size=4 --max_iters=2 \
        --eval_interval=0 --device=cpu --quiet
    "$BIN/trainer" which run --steps=2 --json >which.jsonl
    python3 - which.jsonl <<'END'
import json, subprocess, sys
listed = [json.loads(line) for line in subprocess.run(["shardtool", "info", "--docs", "--json", "s"], capture_output=True, check=True).stdout.splitlines()]
count = 0
for sample in map(json.loads, open(sys.argv[1])):
    first, last = sample["first_token"], sample["first_token"] + sample["tokens"] - 1
    want = [row for row in listed if row["first"] <= last and row["first"] + row["tokens"] > first]
    assert sample["documents"] == [{key: row[key] for key in ("document", "input", "record", "keys")} for row in want], sample
    count += len(want)
assert count >= 8
END
    "$BIN/trainer" which run --steps=2 | grep -q '^  document [0-9]*: in.jsonl:[0-9]* id=[0-9]*$'
}

@test "info shows how each part of a dataset came about, and the card of a model has it" {
    seq 900 | jq -c '{text: "document \(.)"}' >old.jsonl
    seq 901 1000 | jq -c '{text: "document \(.)"}' >new.jsonl
    seq 1001 1010 | jq -c '{text: "document \(.)"}' >z.jsonl
    echo "a long item of a benchmark of so many words that it is searched for in all" >items.txt
    own="tokenize invalid=replace;docs=file;field=text;val=0.1;val_seed=0"
    shardtool tokenize -q --val 0.1 -o web old.jsonl
    shardtool decontaminate -q --docs lines --against items.txt -o clean web
    shardtool tokenize -q --val 0.1 -o month new.jsonl
    shardtool filter -q --min-tokens 3 -o all clean month
    history() { shardtool info "$1" | sed -n '/^history/,/^fingerprint/p' | sed '$d'; }
    against=$(shardtool info clean | grep -o 'against=[0-9a-f]*' | head -n 1)
    diff - <(history all) <<END
history       filter min_tokens=3
                88.8 % clean: decontaminate $against;words=13;form=3
                  100.0 % web: $own
                11.2 % month: $own
END
    [ "$(shardtool info --json all | jq -r '.history.from[1] | .name, .documents, .command')" = $'month\n100\ntokenize' ]
    # more of the same is the same; more of another is a part
    shardtool tokenize -q --val 0.1 --append -o month z.jsonl
    [ "$(history month)" = "history       $own" ]
    shardtool merge -q -o both web month
    shardtool tokenize -q --val 0.1 --append -o both <(echo more) 
    diff - <(history both) <<END
history       tokenize --append
                99.9 % both: merge
                  87.8 % web: $own
                  12.2 % month: $own
                0.1 % $own
END
    mkdir in && cp old.jsonl new.jsonl in
    for part in 1/2 2/2; do shardtool tokenize -q --val 0.1 --part $part -o parts in; done
    shardtool merge -q -o joined parts/*
    shardtool tokenize -q --val 0.1 -o whole in
    [ "$(history joined)" = "$(history whole)" ]
    shardtool filter -q --min-tokens 3 -o some web/train/000/000000.zst
    [ "$(history some | tail -n 1)" = "                100.0 % 000000.zst: not known" ]
    "$BIN/trainer" train --dataset=all --out_dir=run --n_layer=1 --n_head=1 --n_embd=8 --block_size=16 --batch_size=4 --max_iters=2 \
        --eval_interval=2 --eval_tokens=64 --device=cpu --quiet
    "$BIN/trainer" export --quiet --card --out_dir=run -o model
    diff <(history all | cut -c 15-) <(sed -n '/^  ```text/,/^  ```$/p' model/README.md | sed '1d; $d' | cut -c 3-)
    not grep -q 'old.jsonl' model/README.md # the names of inputs are listed on request
    run_match 2 "add --card" "$BIN/trainer" export --quiet --sources --out_dir=run -o asked
    "$BIN/trainer" export --quiet --card --sources --out_dir=run -o asked
    shardtool info --json all | jq -r '(.train_tokens + .val_tokens) as $all | .history.from[] | # nothing of them is removed
        "  - `\({clean: "old", month: "new"}[.name]).jsonl`: documents: \(.documents), tokens: \(.tokens) (\(1000 * .tokens / $all | round / 10) %)"' |
        diff - <(grep 'jsonl`' asked/README.md)
    mv all moved
    "$BIN/trainer" export --quiet --card --sources --out_dir=run -o away
    grep -q '  - its inputs: not known, as it is not where the run read it' away/README.md
}

@test "a history that is left out as too long is named" {
    echo '{"text": "a"}' >in.jsonl && shardtool tokenize -q --val 0 -o d0 in.jsonl
    for i in 0 1 2 3; do shardtool filter -q --min-tokens 1 -o d$((i + 1)) d$i d$i d$i d$i d$i d$i d$i d$i; done
    run_match 0 "the history of 'd4' is left out, as those of the inputs are longer than 1 MiB together" shardtool filter --min-tokens 1 -o all d4 d4 d4 d4
    shardtool info all | grep -qx ' *25.0 % d4: not known'
}

@test "documents of a list go and info proves it; which names the steps that had them, as a join does" {
    seq 300 | jq -c '{text: "document number \(.) of a page", url: "https://a.b/\(. % 100)"}' >in.jsonl
    printf '{"text": "without the key %d"}\n' {1..9} >>in.jsonl
    echo '{"text": "with an empty one", "url": ""}' >>in.jsonl
    printf 'https://a.b/7\r\nhttps://a.b/42\n\nhttps://a.b/7\nhttps://a.b/none' >removed.txt
    shardtool tokenize -q --val 0.1 --keep url -o web in.jsonl
    run_match 0 "2 of 3 lines of 'url' occur in 6 documents*9 documents have no kept key 'url': whether they are listed is not known, and they stay" \
        shardtool filter --invert --listed url=removed.txt -o rest web
    [ "$(for split in train val; do shardtool decode -q --json --split $split rest; done | jq -r .keys.url | sort | uniq -c | wc -l)" = 100 ]
    hash=$(tr -d '\r' <removed.txt | awk NF | LC_ALL=C sort -u | sha256sum | cut -c 1-16)
    shardtool info rest | grep -q "^history *filter listed=url:$hash;invert$"
    [ "$(shardtool info --json rest | jq '.history.from[0].documents - .train_documents - .val_documents')" = 6 ]
    run_match 66 "0 of 3 lines of 'url' occur in 0 documents" shardtool filter --listed url=removed.txt -o none rest
    run_match 0 "of 3 lines of 'url' occur in 6 documents" shardtool filter --listed url=removed.txt -o listed web
    run_match 2 "no document has a kept key 'id': tokenize --keep keeps one" shardtool filter --listed id=removed.txt -o none web
    run_match 2 "is not KEY=FILE" shardtool filter --listed removed.txt -o none web
    run_match 2 "remove those of --listed in a run of its own" shardtool filter --invert --min-tokens 3 --listed url=removed.txt -o none web
    echo https://a.b/8 >more.txt # several lists: what any of them names goes
    run_match 0 "2 of 3 lines*1 of 1 line of 'url' occur in 3 documents" shardtool filter --invert --listed url=removed.txt --listed url=more.txt -o two web
    [ "$(for split in train val; do shardtool decode -q --json --split $split two; done | jq -r .keys.url | sort | uniq -c | wc -l)" = 99 ]
    shardtool info two | grep -q "^history *filter listed=url:$hash;listed=url:$(sha256sum more.txt | cut -c 1-16);invert$"
    tr -d '\r' <removed.txt >lf.txt
    for name in UTF-16 UTF-16LE; do iconv -t $name <lf.txt >$name; done
    gzip -nc lf.txt >gzip && zstd -q lf.txt -o zstd && tr '\n' '\0' <lf.txt >nul && tr '\n' '\r' <lf.txt >cr
    for name in "UTF-16 is UTF-16 text" "UTF-16LE holds a NUL" "gzip is compressed" "zstd is compressed" "nul holds a NUL" "cr has a carriage return"; do
        run_match 65 "'${name%% *}' ${name#* }" shardtool filter --listed "url=${name%% *}" -o none web
    done
    printf '\xEF\xBB\xBFhttps://a.b/7\r\n' | run_match 0 "1 of 1 line of 'url' occur in 3" shardtool filter --listed url=/dev/stdin -o bom web
    run_match 66 "has no lines" shardtool filter --listed url=/dev/null -o none web
    small="--n_layer=1 --n_head=1 --n_embd=8 --block_size=16 --batch_size=4 --eval_interval=0 --device=cpu --quiet"
    "$BIN/trainer" train --dataset=web --out_dir=runs/gpt2 $small --max_iters=20
    "$BIN/trainer" train --dataset=web --out_dir=runs/gpt2 $small --max_iters=40 # a second process
    rm -r rest && sed -n '/provenance.bats/,/^```$/p' "$ROOT/docs/clean.md" | grep '^millrace' >commands
    PATH=$BIN:$PATH bash -e -o pipefail commands >printed
    "$BIN/trainer" which runs/gpt2 --listed url=removed.txt --json >found.jsonl 2>found.log
    count=$(shardtool info --docs --json web | jq -r .keys.url | grep -cxE 'https://a.b/(7|42)') # of training
    [ "$(grep -c "2 of 3 lines of 'url' occur in $count documents" found.log)" = 1 ] # of two processes
    grep -q "document.* no kept key 'url': whether a step had them is not known" found.log
    [ "$("$BIN/trainer" which runs/gpt2 --listed url=removed.txt --listed url=more.txt | wc -l)" -gt "$(wc -l <found.jsonl)" ]
    run_match 0 "0 of 1 line of 'url' occur in 0 documents" "$BIN/trainer" which runs/gpt2 --listed url=<(echo none)
    for step in $(seq 40); do "$BIN/trainer" which runs/gpt2 --steps=$step --json; done |
        jq -c '. as $s | .documents[] | select(.keys.url == "https://a.b/7" or .keys.url == "https://a.b/42") |
            {step: $s.step, sample: $s.sample, dataset: "web"} + .' >want.jsonl
    [ "$(wc -l <want.jsonl)" -ge 5 ]
    diff <(jq -Sc . found.jsonl) <(jq -Sc . want.jsonl)
    [ "$(wc -l <printed)" = "$(wc -l <want.jsonl)" ]
    run_match 2 "expected --steps=N, from 1 on, or --listed" "$BIN/trainer" which runs/gpt2
    run_match 2 "no document has a kept key 'id'" "$BIN/trainer" which runs/gpt2 --listed id=removed.txt
}
