# shardtool: the inputs that tokenize and text read, and those they refuse. Programs come from $BIN, data from $DATA.

load ../helpers

documents() { # N files d/NNN.txt, with pages of every kind among them
    mkdir -p "$1"
    for i in $(seq 100 119); do printf 'Page %s of the collection.\n' "$i" >"$1/$i.txt"; done
    printf '{"text": "not the whole page"}\nmore\n' >"$1/101.txt"
    printf '<html><body>a page about HTML</body></html>\n' >"$1/102.txt"
    printf '<!DOCTYPE html>\n' >"$1/103.txt"
    printf '\0\1\2\3\4\5\6\7\0\1\2\3\4\5\6\7 control characters\n' >"$1/104.txt"
    printf '\x1f\x8b\x08 begins like gzip\n' >"$1/105.txt"
    printf '%%PDF-1.4 begins like a PDF\n' >"$1/106.txt"
    printf '[{"a": 1}]\n' >"$1/107.txt"
    printf '{\n  "a": 1\n}\n' >"$1/108.txt"
}

@test "a .txt in a folder or an archive is text, whatever it starts with" {
    documents pages
    cat pages/*.txt >want
    run_code 0 shardtool tokenize -q --val 0 --invalid-utf8 bytes -o out pages
    shardtool cat out/train/000/000000.zst | shardtool decode --raw | sed 's/<|endoftext|>//g' | cmp - want
    run_match 0 "train_documents 20" shardtool info out
    # the nest that OpenWebText ships: a tar.xz of .xz files, each a tar of .txt
    tar cf a.tar pages/10* && tar cf b.tar pages/11* && xz -0 a.tar b.tar && mv a.tar.xz a.xz && mv b.tar.xz b.xz
    tar cJf nest.tar.xz a.xz b.xz
    shardtool decode -0 nest.tar.xz | tr -d '\0' >got
    cat want | tr -d '\0' | cmp - got
}

@test "foreign formats are refused by name, also where they look like text" {
    printf 'PAR1' >x.parquet && head -c 1000 /dev/zero | tr '\0' 'a' >>x.parquet
    printf '%%PDF-1.7\ntext\n' >x.pdf
    printf 'Rar!\x1a\x07\x00 stored text' >x.rar
    printf "7z\xbc\xaf\x27\x1c" >x.7z
    printf 'WARC/1.0\r\nWARC-Type: response\r\n' >x.warc
    printf 'ARROW1\0\0' >x.arrow
    printf '\x93NUMPY\x01\0' >x.npy
    printf 'SQLite format 3\0' >x.db
    printf '\xff\xfeh\0i\0' >utf16
    local -A name=([x.pdf]="PDF" [x.rar]="RAR" [x.7z]="7-Zip" [x.warc]="WARC" [x.arrow]="Arrow" [x.npy]="NumPy" [x.db]="SQLite" [utf16]="UTF-16")
    for file in "${!name[@]}"; do
        run_code 65 shardtool decode --json "$file"
        [[ "$output" == *"'$file' is "*"${name[$file]}"* ]] || { echo "$file: $output" && return 1; }
        cp "$file" unknown
        run_code 65 shardtool decode --json - <unknown
    done
    run_match 65 "x.parquet" shardtool decode --json x.parquet
}

@test "JSON that is not JSON lines is refused with the command that converts it" {
    printf '[{"text": "a"}, {"text": "b"}]\n' >array
    run_match 65 "is a JSON array*jq -c '.\[\]'" shardtool decode --json array
    printf '{\n  "text": "a"\n}\n' >indented
    run_match 65 "over several lines*jq -c ." shardtool decode --json indented
    printf '# comment\n{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n' >comment
    run_match 65 "--format jsonl" shardtool decode --json - <comment
    # as a file that is named for JSON lines, and where each line but the last could be taken for one
    printf '[\n{"text": "a"},\n{"text": "b"}\n]\n' >lines
    for file in array indented lines; do
        for name in $file.json $file.jsonl $file.json.gz; do
            if [[ $name == *.gz ]]; then gzip -c "$file" >"$name"; else cp "$file" "$name"; fi
            run_match 65 "'$name' is a JSON *jq -c" shardtool decode --json "$name"
            run_match 66 "skipped 1 bad input, *jq -c" shardtool decode --json --max-bad 100% "$name"
        done
        run_match 65 "jq -c" shardtool decode --json --format jsonl "$file"
    done
    cp comment comment.jsonl && run_match 65 "'comment.jsonl' line 1" shardtool decode --json comment.jsonl
    printf '{"text": "a"}\n{"text": "b"}\n' | iconv -t UTF-16LE >utf16.jsonl
    run_match 65 "UTF-16 text*iconv" shardtool decode --json utf16.jsonl
    run_match 66 "UTF-16 text*iconv" shardtool decode --json --max-bad 100% utf16.jsonl
    run_code 0 shardtool decode --json --format text array
    [ "$(jq -r .text <<<"$output")" = "$(cat array)" ]
}

@test "JSON lines that are named as text are refused, and in a folder one warning a run" {
    mkdir in && printf '{"text": "a"}\n{"text": "b"}\n' | tee in/1.txt in/2.txt | gzip >3.txt.gz
    run_match 65 "'3.txt.gz' has JSON lines, but is named as text: --format jsonl reads its texts" shardtool decode --json 3.txt.gz
    run_code 0 shardtool tokenize -o out --val 0 in
    [[ "$output" == *"'in/1.txt' looks like JSON lines, but is named as text: --format jsonl reads its texts"*" 2 documents"* ]]
    [ "$(grep -c 'looks like' <<<"$output")" = 1 ]
    run_code 0 shardtool tokenize -o lines --format jsonl in 3.txt.gz
    [[ "$output" == *" 6 documents"* && "$output" != *"looks like"* ]]
    run_code 0 shardtool decode --json --format text in
    [[ "$output" != *"looks like"* ]]
    printf '{"text": "%%s"}' "$(seq 9999 | tr '\n' ' ')" >long.txt # longer than the bytes that are looked at
    run_match 0 "'long.txt' looks like JSON lines" shardtool decode --json -q long.txt
    printf '{\n"text": 1}\n' >object.txt && printf 'a\n{"text": 1}\nb\n' >prose.md
    run_code 0 shardtool decode --json object.txt prose.md
    [[ "$output" != *"looks like"* ]]
}

@test "a key that a writer leaves out where the text is null is a null text" {
    # Spark and DataFusion: rows 1, 3 and 5 of five have no text
    printf '{"id":1}\n{"id":2,"text":"a"}\n{"id":3}\n{"id":4,"text":"b"}\n{"id":5}\n' >s.jsonl
    run_match 0 "skipped 3 null texts" shardtool tokenize -o out --val 0 s.jsonl
    [ "$(jq -c .line out/skipped.jsonl | paste -sd ' ')" = "1 3 5" ]
    [ "$(shardtool decode --json out | jq -r .text | paste -sd ' ')" = "a b" ]
    # no line has it, or has another value for it: damage
    printf '{"id":1}\n{"id":2}\n' >none.jsonl && printf '{"id":1,"text":5}\n{"text":"a"}\n' >number.jsonl
    run_match 65 "'none.jsonl' line 1, *no text at the key 'text'*the keys id" shardtool decode --json none.jsonl
    run_match 65 "'number.jsonl' line 1, *whose value is a number" shardtool decode --json number.jsonl
    run_match 66 "skipped 2 bad inputs" shardtool decode --json --max-bad 100% none.jsonl
    { seq 5000 | sed 's/.*/{"id":&}/' && echo '{"text":"a"}'; } >late.jsonl
    run_match 65 "'late.jsonl' line 1, *no text at the key" shardtool decode --json late.jsonl
}

@test "the commands of docs/clean.md for scores keep the documents above a threshold, with their scores" {
    jq -nc 'range(60) | {text: "document \(.)", score: (. / 10)}' | zstd -q >scored.jsonl.zst
    sed -n '/^## Scores/,/^## R/p' "$ROOT/docs/clean.md" | grep '^millrace' >commands
    less() { cat; }
    . commands
    for split in train val; do shardtool decode --json --split $split good; done | jq -r '"\(.text) \(.keys.score)"' | sort -V |
        diff - <(seq 30 59 | awk '{ print "document", $1, $1 / 10 }')
}

@test "--where reads the JSON lines that meet every condition, in which an absent key is null" {
    cat >a.jsonl <<'END'
{"text": "a", "score": 3, "lang": "en", "m": {"q": 1.5}}
{"text": "b", "score": 18446744073709551615, "lang": "it's", "ok": true}
{"score": 1e400, "m": {"q": 1}, "m.q": 9, "lang": null, "text": "c"}
{"text": "d", "score": NaN, "lang": "", "m": {"q": null}}
{"text": "e", "score": -0.0, "lang": "EN", "m": [{"q": 2}], "ok": false}
{"text": "f", "score": 5, "score": null, "m": 4}
{"text": null, "score": 3, "lang": "en"}
{"score": 3, "lang": "en"}
{"text": "g", "score": 9007199254740993, "lang": "en"}
END
    while IFS=$'\t' read -r condition want; do
        found=$(shardtool decode -0 -q --where "$condition" a.jsonl 2>/dev/null | tr -d '\0')
        [ "$found" = "$want" ] || { echo "$condition: $found" && return 1; }
    done <<'END'
lang = 'en' and score >= 3	ag
lang == "en" AND score<4	a
lang != 'en'	bde
lang='it''s'	b
score >= 18446744073709551615.5	cd
score = 18446744073709551615	b
score = 'nan'	d
score = 0	e
score < 9007199254740993	ae
score <= 9007199254740993 and score > 9007199254740992	g
score = 9007199254740992e0	g
m.q >= 1	ac
"m.q" = 9	c
ok = true	b
ok < 1	e
text > 'a' and text <> 'e'	bcdfg
END
    run_match 66 "none of the 9 documents meets --where 'absent = 1'" shardtool decode --json --where 'absent = 1' a.jsonl
    run_match 65 "'a.jsonl' line 1, byte 56: --where 'lang > 5': 'lang' is a text, which is compared byte by byte: quote the value, '5', to compare it so" \
        shardtool decode --json --where 'lang > 5' a.jsonl
    run_match 65 "--where 'score > 'x'': 'score' is a number, and 'x' is not a number" shardtool decode --json --where "score > 'x'" a.jsonl
    run_match 65 "--where 'm = 1': 'm' is an object or an array; only" shardtool decode --json --where 'm = 1' a.jsonl
    run_match 0 '"documents":2,*"null_texts":2,"left_out":5,' shardtool tokenize --json -o out --where 'lang = en' a.jsonl
}

@test "--where is applied before a text of several parts is read, and to conversations" {
    { printf '{"text": "' && head -c 3000000 /dev/zero | tr '\0' x && printf '", "keep": "no"}\n{"text": "y", "keep": "yes"}\n'; } >long.jsonl
    [ "$(shardtool decode -0 --where 'keep = yes' long.jsonl | tr '\0' ' ')" = "y " ]
    [ "$(shardtool decode -0 --where 'keep = no' long.jsonl | wc -c)" = 3000001 ]
    [ "$(shardtool decode -0 --where "text > 'xx'" long.jsonl | wc -c)" = 3000003 ]
    printf '{"prompt": "a", "completion": "b", "score": %s}\n' 1 '"x"' 5 >turns.jsonl
    run_match 0 '"documents":1,*"skipped":1,*"left_out":1,' shardtool tokenize --turns --max-bad 1 --json --val 0 -o turns --where 'score > 3' turns.jsonl
    shardtool tokenize --turns -q --val 0 -o want <(tail -1 turns.jsonl)
    shardtool diff --ids turns want
}

@test "a plain file with a compressed name is read, with a warning" {
    printf '{"text": "a"}\n{"text": "b"}\n' >lines && cp lines x.jsonl.gz && cp "$DATA/small.parquet" y.parquet.zst
    run_match 0 "'x.jsonl.gz' is named like *, but holds JSON lines" shardtool decode --json x.jsonl.gz
    [ "$(shardtool decode --json x.jsonl.gz 2>err | jq -r .text | paste -sd ' ')" = "a b" ]
    diff <(shardtool decode --json y.parquet.zst 2>err) <(shardtool decode --json "$DATA/small.parquet")
    # as pandas writes .tar.gz: the member has the archive's name
    mkdir m && cp lines m/p.jsonl.tar.gz && tar czf p.jsonl.tar.gz -C m p.jsonl.tar.gz
    [ "$(shardtool decode --json p.jsonl.tar.gz 2>err | jq -r .text | paste -sd ' ')" = "a b" ]
    echo prose >z.gz && run_match 65 "named like *--format text" shardtool decode --json z.gz
}

@test "tables in CSV and TSV are refused by name or by their header" {
    printf 'id,text\n1,"a, b\nc"\n2,"d"\n' | tee t.csv | gzip >t.csv.gz && sed 's/,/\t/' t.csv >t.TSV && cp t.csv unknown
    for file in t.csv t.csv.gz t.TSV unknown; do run_match 65 "'$file' is a CSV or TSV table*read_csv*to_parquet" shardtool decode --json "$file"; done
    run_match 65 "'standard input' is a CSV or TSV table*sep=',', keep_default_na=False" shardtool decode --json - <t.csv
    run_match 65 "sep='?t', keep_default_na=False" shardtool decode --json t.TSV
    run_match 66 "skipped 1 bad input" shardtool decode --json --max-bad 100% t.csv
    [ "$(shardtool decode --json --format text t.csv | jq -r .text)" = "$(cat t.csv)" ]
    printf 'A text, and\nmore text\n' >prose && run_code 0 shardtool decode --json prose
}

@test "the files of a table with a log are refused, whatever names them" {
    mkdir -p delta/{_delta_log,lang=en} ice/{metadata,data/x} hudi/.hoodie lake plain/{metadata,schema} paimon/{schema,bucket-0} stream/_spark_metadata
    echo '{"commitInfo":{}}' >delta/_delta_log/00000000000000000000.json && echo '{}' >ice/metadata/00001-a.metadata.json
    echo '{"text": "x"}' | tee paimon/schema/schema-0 >plain/schema/notes.json && echo v1 >stream/_spark_metadata/0
    for folder in delta/lang=en ice/data/x hudi lake plain paimon/bucket-0 stream; do cp "$DATA/small.parquet" $folder/a.parquet; done
    mv lake/a.parquet lake/ducklake-01.parquet && echo '{"text": "x"}' >plain/metadata/notes.json
    local -A name=([delta]="Delta table*QueryBuilder" [ice]="Iceberg table" [hudi]="Hudi table" [lake]="DuckLake table" [paimon]="Paimon table" [stream]="stream that Spark")
    for folder in "${!name[@]}"; do
        file=$(find $folder -name '*.parquet')
        for input in $folder "$file" "$(dirname "$file")" "--max-bad 100% $file" "--include *.parquet $folder"; do
            set -f
            # shellcheck disable=SC2086
            run_match 65 "a file of *${name[$folder]}*rows.parquet" shardtool decode --json $input
            set +f
        done
        (cd "$(dirname "$file")" && run_match 65 "${name[$folder]}" shardtool decode --json "$(basename "$file")")
        mkdir links-$folder && ln -s "$PWD/$file" links-$folder/x && ln -s x links-$folder/y.parquet
        for link in links-$folder/x links-$folder/y.parquet links-$folder; do run_match 65 "${name[$folder]}" shardtool decode --json $link; done
    done
    tar cf t.tar delta ice && for option in "" "--max-bad 100%"; do run_match 65 "table, whose log" shardtool decode --json $option t.tar; done
    run_code 0 shardtool decode --json plain
}

@test "rows that a Spark job has not committed are left out of a folder" {
    mkdir -p in/_temporary/0/task_1 in/lang=en && cp "$DATA/small.parquet" in/lang=en/part-0.parquet
    cp "$DATA/small.parquet" in/_temporary/0/task_1/part-1.parquet && : >in/_SUCCESS && : >in/_started_12
    echo '{"added": ["part-0.parquet"], "removed": []}' >in/_committed_12
    [ "$(shardtool decode --json in)" = "$(shardtool decode --json "$DATA/small.parquet")" ]
}

@test "folders of formats that are not read are refused with the next step" {
    mkdir -p dict/train saved lance/{_versions,data} mds lit
    echo '{"splits": ["train"]}' >dict/dataset_dict.json && echo '{}' | tee saved/state.json >saved/dataset_info.json
    echo '{"shards": [{"column_encodings": ["str"], "format": "mds"}], "version": 2}' >mds/index.json
    echo '{"chunks": [{"chunk_bytes": 1}]}' >lit/index.json
    local -A step=([dict]="load_from_disk*'train'*to_parquet" [saved]="load_from_disk*to_parquet" [lance]="write_table" [mds]="batch_size=1" [lit]="litdata*StreamingDataset")
    for folder in "${!step[@]}"; do run_match 65 "'$folder/*' is a *${step[$folder]}" shardtool decode --json $folder/; done
    printf 'VTXF' >a.vortex && printf '\x83\xaf\x70\xd1\x0d\x88\x4a\x3f' >a.array_record && echo x >a.txt.br
    printf 'WARC/1.0\r\nWARC-Type: conversion\r\n' >a.wet
    # as `lz4 -l`, the framing format of Snappy and lzop begin a file
    printf '\2!L\30' >a.lz4 && printf '\xff\6\0\0sNaPpY' >a.sz && printf '\x89LZO\0\r\n\32\n' >a.lzo
    for file in a.lz4 a.sz a.lzo; do run_match 65 "'$file' is a* file: decompress it first" shardtool decode --json $file; done
    # as Apache ORC 2 begins a file: without compression, and with zlib, where a chunk of 9 bytes is stored
    printf 'ORC\n\6\22\4\b\nP\0\n\36' >none.orc && printf 'ORC\23\0\0\n\a\22\5\b' >zlib.orc
    for file in none.orc zlib.orc; do run_match 65 "'$file' is an ORC file*read_orc" shardtool decode --json $file; done
    # 8 bytes of a checksum and the magic of DuckDB 2.0.1; the length 12 and its checksum, as TensorFlow writes them
    printf '\x11\x22\x33\x44\x55\x66\x77\x88DUCK\x40' >a.duckdb && printf '\x0c\0\0\0\0\0\0\0\xf4\xc8\xfe\x0athe record' >a.tfrecord
    run_match 65 "DuckDB*write_parquet" shardtool decode --json a.duckdb
    run_match 65 "TFRecord*JSON lines" shardtool decode --json a.tfrecord
    run_match 65 "Vortex" shardtool decode --json a.vortex
    run_match 65 "ArrayRecord" shardtool decode --json a.array_record
    run_match 65 "brotli -d" shardtool decode --json a.txt.br
    run_match 65 "WET archive*warcio" shardtool decode --json a.wet
}

@test "--include and --exclude choose the members of an archive that they do not name" {
    mkdir -p in/b && echo one >in/a.txt && echo '{"url": "x"}' >in/a.json && echo two >in/b/c.txt
    tar cf in.tar in && (cd in && zip -qr ../in.zip .) && mkdir folder && cp in.tar in.zip folder/ && tar cf outer.tar in.zip in.tar
    texts() { shardtool decode -0 "$@" | tr '\0\n' '  ' | xargs -n 1 | sort | xargs; }
    for archive in in.tar in.zip; do
        [ "$(texts --include '*.txt' $archive)" = "one two" ]
        [ "$(texts --exclude '*.json' $archive)" = "one two" ]
        [ "$(texts --include 'b/*' --include 'in/b/*' $archive)" = two ]
    done
    rm folder/in.zip
    [ "$(texts --include '*.txt' folder)" = "one two" ]
    [ "$(texts --include '*.txt' outer.tar)" = "one one two two" ]
    [ "$(texts --include '*.txt' --exclude '*.zip' outer.tar)" = "one two" ]
    cp in.zip folder
    [ "$(texts --include '*.tar' --exclude '*.json' folder)" = "one two" ] # the pattern chose the archive
    [ "$(texts --include 'folder/*.zip' --include '*.zip' --exclude '*.json' folder)" = "one two" ]
    [ "$(texts --include 'in.???' --exclude '*.json' outer.tar)" = "one one two two" ]
    shardtool tokenize -q --val 0 -o out --include '*.txt' in.tar
    [ "$(shardtool info --json out | jq .train_documents)" = 2 ]
}

@test "members of archives with names beyond ASCII are chosen and named by them" {
    mkdir in && for name in Grüße 中文 $'m\xfcller' plain; do printf '{"text": "%s"}\n{broken\n' "$name" >"in/$name.jsonl"; done
    tar --sort=name -cf raw.tar in && (cd in && zip -qUN=UTF8 ../marked.zip Grüße.jsonl 中文.jsonl plain.jsonl)
    python3 - <<'END'
import os, tarfile, zipfile
with zipfile.ZipFile("python.zip", "w") as zipped, tarfile.open("python.tar", "w", format=tarfile.PAX_FORMAT) as tar:
    for name in sorted(os.listdir("in")):
        if "\udcfc" not in name: zipped.write("in/" + name, name)
        tar.add("in/" + name)
END
    for archive in in raw.tar marked.zip python.zip python.tar; do
        shardtool tokenize -q --max-bad 9 --val 0 --force -o out --include 'Gr*' --include '中*' --exclude 'plain*' $archive 2>err
        [ "$(shardtool decode -0 out | tr '\0' ' ')" = "Grüße 中文 " ]
        jq -r .input out/skipped.jsonl | sed 's/.*[:/]//' | cmp - <(printf 'Grüße.jsonl\n中文.jsonl\n')
    done
    for archive in in raw.tar python.tar; do # the byte itself in a message, U+FFFD in JSON
        run_match 0 $'*m\xfcller.jsonl*' shardtool tokenize --max-bad 9 --val 0 --force -o out --include 'm*' $archive
        jq -r .input out/skipped.jsonl | grep -q $'m\xef\xbf\xbdller.jsonl$'
    done
}

@test "text that looks like CSV or TSV is one warning a run" {
    mkdir in && for file in in/1.dat in/2.dat; do printf '1,a\n2,b\n3,c\n4,d\n' >$file; done
    run_match 0 "'in/1.dat' looks like CSV or TSV, and is read as one text*2 documents" shardtool tokenize -o out --val 0 in
    [ "$(grep -c 'looks like' <<<"$output")" = 1 ]
    for separator in , ';' '\t'; do
        for i in 1 2 3 4; do printf "$i${separator}text $i\n"; done >x.txt
        run_match 0 "'standard input' looks like CSV" shardtool decode --json -q - <x.txt
        run_match 0 "'x.txt' looks like CSV" shardtool decode --json -q x.txt
        for option in "--format text" "--docs lines"; do
            run_code 0 shardtool decode --json $option x.txt
            [[ "$output" != *"looks like"* ]]
        done
    done
    printf 'One, two.\nThree, four.\nFive, six.\nSeven, eight.\n' >prose.txt && printf '1,2\n3,4,5\n6,7\n8,9\n' >line.txt
    run_code 0 shardtool decode --json prose.txt line.txt
    [[ "$output" != *"looks like"* ]]
}

@test "--format forces the format of files, of standard input and of archive members" {
    printf '{"text": "one"}\n{"text": "two"}\n' >a.txt
    run_code 65 shardtool decode --json a.txt
    [ "$(shardtool decode --json --format text a.txt | wc -l)" = 1 ]
    run_code 0 shardtool decode --json --format jsonl a.txt
    [ "${#lines[@]}" = 2 ]
    gzip -k a.txt && tar cf a.tar a.txt
    for input in a.txt.gz a.tar; do
        run_code 0 shardtool decode --json --format jsonl "$input"
        [ "${#lines[@]}" = 2 ]
    done
    run_code 0 shardtool decode --json --format text - <<<'{"text": "one"}'
    [ "$(jq -r .text <<<"$output")" = '{"text": "one"}' ]
    run_match 2 "auto|parquet|jsonl|text" shardtool decode --json --format tar a.tar
}

# fault 1
@test "a damaged gzip file is 65: a flipped bit, a cut member, data after the end" {
    seq 400 | sed 's/.*/line & of a text/' | gzip -n >a.gz
    for at in 100 400 700; do
        cp a.gz b.gz
        printf '\x55' | dd of=b.gz bs=1 seek=$at conv=notrunc status=none
        run_match 65 "b.gz" shardtool tokenize -o "out$at" b.gz
    done
    size=$(stat -c %s a.gz)
    for extra in 1 5 9; do
        cat a.gz a.gz | head -c $((size + extra)) >cut.gz
        run_match 65 "ends within" shardtool decode --json cut.gz
    done
    (cat a.gz && echo garbage) >garbage.gz
    run_match 65 "data after the last gzip member" shardtool decode --json garbage.gz
    cat a.gz a.gz >two.gz
    shardtool decode -0 two.gz | tr -d '\0' | cmp - <(gzip -dc two.gz)
}

@test "concatenated tars are read to the end, and data after the end is 65" {
    echo one >1.txt && echo two >2.txt && echo three >3.txt
    tar cf a.tar 1.txt && tar cf b.tar 2.txt 3.txt
    cat a.tar b.tar >both.tar
    [ "$(shardtool decode --json - <both.tar | wc -l)" = 3 ]
    [ "$(gzip -c both.tar | shardtool decode --json - | wc -l)" = 3 ]
    (cat a.tar && echo garbage) >garbage.tar
    run_code 65 shardtool decode --json garbage.tar
    (cat a.tar && head -c 2000 /dev/urandom) >garbage.tar
    run_code 65 shardtool decode --json garbage.tar
}

@test "zip archives are read from files and pipes, stored and deflated; a wrong CRC is 65" {
    documents pages
    cat pages/*.txt >want
    (cd pages && zip -q ../a.zip *.txt && zip -q0 ../stored.zip *.txt)
    for zip in a.zip stored.zip; do
        shardtool decode -0 $zip | tr -d '\0' | cmp - <(tr -d '\0' <want)
    done
    shardtool decode -0 - <stored.zip | tr -d '\0' | cmp - <(tr -d '\0' <want)
    offset=$(grep -abo 'Page 110' stored.zip | head -1 | cut -d: -f1)
    printf 'X' | dd of=stored.zip bs=1 seek="$offset" conv=notrunc status=none
    run_match 65 "stored.zip:110.txt*CRC" shardtool decode --json stored.zip
    echo secret >s.txt && zip -qP word secret.zip s.txt
    run_match 65 "encrypted" shardtool decode --json secret.zip
}

@test "bz2 is read, alone and around a tar" {
    seq 1000 >a.txt
    bzip2 -k a.txt && tar cjf a.tar.bz2 a.txt
    shardtool decode -0 a.txt.bz2 | tr -d '\0' | cmp - a.txt
    shardtool decode -0 a.tar.bz2 | tr -d '\0' | cmp - a.txt
}

# bats test_tags=ci
# fault 2
@test "bombs are 65: nested too deep, or expanding too far" {
    silent() { "$@" >/dev/null; } # bash is slow at megabytes of output
    yes text | head -c 100M | xz -0 >a.xz
    run_match 65 "a.xz*--max-ratio" silent shardtool decode --json a.xz
    [ "$(shardtool decode -0 --max-ratio 0 a.xz | wc -c)" = $((100 * 1024 * 1024 + 1)) ]
    truncate -s 20G s.txt && echo end >>s.txt && tar cSf sparse.tar s.txt && rm s.txt
    run_match 65 "sparse.tar:s.txt*--max-ratio" silent shardtool decode --json sparse.tar
    echo text | xz | xz | xz >three.xz
    [ "$(shardtool decode -0 three.xz | tr -d '\0')" = text ]
    xz <three.xz >four.xz
    run_match 65 "four.xz*--max-depth" shardtool decode --json four.xz
    [ "$(shardtool decode -0 --max-depth 4 four.xz | tr -d '\0')" = text ]
}

@test "a line without the text names the key that was looked for and those it has" {
    printf '{"id": 1, "content": "x", "meta\\u001b": {"a": 1}}\n' >a.jsonl
    run_match 65 "'a.jsonl' line 1, byte *: no text at the key 'text' (--text-field); the line has the keys id, content, meta?" shardtool decode --json a.jsonl
    run_match 65 "no text at the key 'meta.b' (--text-field); the line has the keys id" shardtool decode --json --text-field meta.b a.jsonl
    for value in '1:a number' '2.5e3:a number' 'true:true or false' '["a"]:an array' '{"text":"a"}:an object'; do
        printf '{"text":"a"}\n{"id":"b","text":%s}\n' "${value%:*}" >typed.jsonl
        run_match 65 "'typed.jsonl' line 2, byte *: no text at the key 'text' (--text-field), whose value is ${value##*:}; the line has the keys id, text" \
            shardtool decode --json typed.jsonl
    done
    [ "$(shardtool decode --json --text-field content a.jsonl | jq -r .text)" = x ]
    printf '{%s"z": 1}\n' "$(printf '"k%d": 1, ' $(seq 30))" >many.jsonl
    run_match 65 "the line has the keys k1, k2, *k12, ..." shardtool decode --json many.jsonl
    printf '{"long": "%s", "id": 1}\n' "$(seq 60000 | tr '\n' ' ')" >long.jsonl # longer than the window
    run_match 65 "no text at the key 'text' (--text-field)" shardtool decode --json long.jsonl
}

# fault 4
@test "a tar whose sparse blocks are out of order is 65, and does not hang" {
    python3 - <<'END'
header = bytearray(512)
def put(at, text):
    header[at:at + len(text)] = text
put(0, b"a.txt"), put(100, b"0000644\0"), put(124, b"00000002000\0"), put(156, b"S"), put(257, b"ustar  \0")
for i, start in enumerate((4096, 0)): # GNU's map of the blocks: offset and size of each
    put(386 + 24 * i, b"%011o\0%011o\0" % (start, 512))
put(483, b"%011o\0" % 8192), put(148, b" " * 8)
put(148, b"%06o\0 " % sum(header))
open("order.tar", "wb").write(bytes(header) + b"text\n" * 204 + bytes(4 + 1024))
END
    bad="'order.tar:a.txt': truncated or damaged"
    run_match 65 "$bad*out-of-order sparse blocks" timeout 60 "$BIN/shardtool" decode --json order.tar
    run_match 66 "skipped 1 bad input, the first: the rest of 'order.tar' is not read: $bad" timeout 60 "$BIN/shardtool" decode --json --max-bad 100% order.tar
}

# bats test_tags=ci
@test "a damaged header of a tar is 65, and loses its member only with --max-bad 100% or --max-bad" {
    mkdir m && for i in $(seq 10 49); do seq $i 500 >m/$i.txt; done
    tar cf a.tar --sort=name m/*.txt
    offset=$(grep -abo 'm/20.txt' a.tar | head -1 | cut -d: -f1)
    cp a.tar flipped.tar && printf 'n' | dd of=flipped.tar bs=1 seek=$offset conv=notrunc status=none
    cp a.tar zeros.tar && dd if=/dev/zero of=zeros.tar bs=512 seek=$((offset / 512)) count=1 conv=notrunc status=none
    for tar in flipped.tar zeros.tar; do
        run_code 65 shardtool decode --json $tar
        [[ "$output" == *"'$tar': a damaged header at byte $offset,"* || $tar = zeros.tar ]]
        run_code 0 shardtool tokenize -o out-$tar --val 0 --max-bad 1 $tar
        [[ "$output" == *"skipped 1 bad input,"* && "$output" == *" 39 documents"* ]]
        [ "$(jq -r .input out-$tar/skipped.jsonl)" = $tar ]
    done
    gzip -c flipped.tar >flipped.tar.gz
    run_code 65 shardtool decode --json flipped.tar.gz
    # one that ends between two members: the zeros are missing
    head -c $((offset / 512 * 512)) a.tar >cut.tar
    [ "$(shardtool decode --json cut.tar 2>err | wc -l)" = 10 ]
    grep -q "'cut.tar' lacks the zeros that end a tar: it may be cut after its member 10" err
    shardtool decode --json a.tar 2>err >all
    [ ! -s err ]
}

@test "a damaged member of a zip is the only one lost, or a message names the rest" {
    mkdir m && for i in $(seq 10 49); do seq $i 500 >m/$i.txt; done
    zip -q a.zip m/*.txt
    offset=$(grep -abo 'm/20.txt' a.zip | head -1 | cut -d: -f1)
    cp a.zip bad.zip && printf '\xff\xff' | dd of=bad.zip bs=1 seek=$((offset + 60)) conv=notrunc status=none
    run_code 65 shardtool decode --json bad.zip
    for limit in "--max-bad 100%" "--max-bad 1"; do
        run_code 0 shardtool tokenize --force -o out --val 0 $limit bad.zip
        [[ "$output" == *"skipped 1 bad input, the first: 'bad.zip:m/20.txt'"* && "$output" == *" 39 documents"* ]]
    done
    [ "$(cat bad.zip | shardtool decode --json --max-bad 1 - | wc -l)" = 39 ]
    cp a.zip bad.zip && printf 'n' | dd of=bad.zip bs=1 seek=$((offset - 30)) conv=notrunc status=none
    run_code 0 shardtool tokenize --force -o out --val 0 --max-bad 100% bad.zip
    grep -q "the rest of 'bad.zip' is not read" out/skipped.jsonl
}

@test "a bad line of JSON that is longer than a window is one bad line, and the lines behind it are read" {
    python3 - <<END
with open("long.jsonl", "w") as file:
    file.write('{"text":"one"}\n{"text":"' + "b" * 1500000 + '","x":bad}\n')
    file.writelines('{"text":"doc %d"}\n' % i for i in range(1000))
END
    for limit in "--max-bad 100%" "--max-bad 1"; do
        run_code 0 shardtool tokenize --force -o out --val 0 $limit long.jsonl
        [[ "$output" == *"1002 documents"*"skipped 1 bad input, the first: 'long.jsonl' line 2, byte 1500015: expected a JSON value"* ]]
        [ "$(jq -c '[.line]' out/skipped.jsonl)" = "[2]" ]
    done
    [ "$(shardtool decode --json out | tail -1 | jq -r .text)" = "doc 999" ]
    run_code 65 shardtool tokenize --force -o out --val 0 long.jsonl
    printf '{"text":"aa"}\nbad\nbad\n' >two.jsonl
    run_match 65 "shardtool tokenize: more than --max-bad 1 bad lines, rows, members and files: 'two.jsonl' line 3" \
        shardtool tokenize --force -o out --val 0 --max-bad 1 two.jsonl
    gzip -k two.jsonl && tar cf two.tar two.jsonl.gz
    run_code 65 shardtool tokenize --force -o out --val 0 --max-bad 1 two.tar
    [ "$(grep -o 'more than' <<<"$output" | wc -l)" = 1 ]
    run_match 2 "--files-from - and the input -: standard input is one of them" shardtool decode --json --files-from - - </dev/null
}

@test "--invalid-utf8 fail refuses a document, and --max-bad 100% passes over it" {
    mkdir texts && echo good >texts/a.txt && printf 'cut \xc3' >texts/b.txt && printf 'bad \xff bytes' >texts/c.txt && printf 'm\xc3\xbchle' >texts/d.txt
    { head -c 3000000 /dev/zero | tr '\0' 'x' | sed 's/x\{99\}/& \xc3\xbc /g' && printf '\xff'; } >texts/e.txt # in windows
    run_match 65 "'texts/b.txt' document 0: invalid UTF-8 at byte 4" shardtool tokenize -o out --val 0 --invalid-utf8 fail texts
    for jobs in 1 3; do
        run_match 0 "skipped 3 bad inputs, the first: 'texts/b.txt' document 0: invalid UTF-8 at byte 4" \
            shardtool tokenize --force -j $jobs -o out$jobs --val 0 --invalid-utf8 fail --max-bad 100% texts
        [ "$(jq -r .input out$jobs/skipped.jsonl | xargs)" = "texts/b.txt texts/c.txt texts/e.txt" ]
        [ "$(shardtool decode --json out$jobs | head -2 | jq -r .text | xargs)" = "good mühle" ]
    done
    diff -r out1 out3
}

@test "the members of a zip are those of its directory, also from a pipe and in another container" {
    for name in a b c; do echo "text of $name" >$name.txt; done
    zip -q a.zip a.txt b.txt c.txt
    python3 - <<END
import zipfile
with zipfile.ZipFile("a.zip", "a") as file: # deletes b.txt as some tools do: in the directory only
    del file.filelist[1]
    file._didModify = True
END
    gzip -k a.zip && tar cf a.tar a.zip && zip -q outer.zip a.zip
    grep -aq 'b.txt' a.zip
    printf '{"text": "text of %s\\n"}\n' a c >want
    for file in a.zip a.zip.gz a.tar outer.zip; do
        shardtool decode --json $file | cmp - want
        cat $file | shardtool decode --json - | cmp - want
    done
    run_match 73 "cannot create '/nowhere/shard.*for a copy of standard input*set TMPDIR" env TMPDIR=/nowhere bash -c 'cat a.zip | shardtool decode --json -'
    run_match 65 "no central directory" bash -c 'head -c 200 a.zip | shardtool decode --json -'
}

@test "a zip that is cut in its central directory is 65" {
    seq 100 >a.txt && seq 200 >b.txt && zip -q a.zip a.txt b.txt && echo comment | zip -qz a.zip
    [ "$(shardtool decode --json a.zip | wc -l)" = 2 ]
    for cut in 1 10 40 100; do
        head -c -$cut a.zip >cut.zip
        run_match 65 "'cut.zip': truncated or damaged*no central directory" shardtool decode --json cut.zip
    done
    cat a.zip | shardtool decode --json - | wc -l >count && [ "$(cat count)" = 2 ]
}

@test "data after a zip is 65, zeros are accepted; a directory with fewer members than its end record is a warning" {
    seq 100 >a.txt && seq 200 >b.txt && zip -q a.zip a.txt b.txt
    cp a.zip more.zip && echo comment | zip -qz more.zip && head -c 1000 /dev/zero >>more.zip
    run_code 0 shardtool decode --json more.zip
    [ "${#lines[@]}" = 2 ]
    echo garbage >>more.zip
    run_match 65 "'more.zip': 1008 bytes after the end of the archive" shardtool decode --json more.zip
    run_code 65 bash -c 'shardtool decode --json - <more.zip'
    shardtool tokenize -q --val 0 --max-bad 1 -o out more.zip
    [ "$(shardtool decode out | grep -o '<|endoftext|>' | wc -l)" = 2 ] # as of a tar
    python3 -c '
import sys
data = bytearray(open("a.zip", "rb").read())
data[-14:-10] = b"\3\0\3\0"
open("lost.zip", "wb").write(data)'
    run_match 0 "'lost.zip' counts 3 members at its end and has 2: some may be lost" shardtool decode --json lost.zip
}

@test "UTF-16 with a byte order mark is named, as a file and in a folder" {
    mkdir in
    for text in 'A page of text.' '中文没有低字节'; do
        for encoding in UTF-16LE UTF-16BE; do
            printf '\xef\xbb\xbf%s' "$text" | iconv -f UTF-8 -t $encoding >page && cp page in/page.txt
            for input in page in - in/page.txt; do
                run_match 65 "is UTF-16 text: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)" shardtool decode --json $input <page
            done
            iconv -f UTF-16 -t UTF-8 page | shardtool decode --json - >text
        done
    done
}

@test "UTF-16 without a byte order mark is named, as a file and in a folder" {
    printf 'A page of text.\nWith two lines.\n' >latin && printf 'Страница текста,\nв ней две строки.\n' >cyrillic
    mkdir in
    for text in latin cyrillic; do
        for encoding in UTF-16LE UTF-16BE; do
            iconv -f UTF-8 -t $encoding <$text >page && cp page in/page.txt
            for input in page in; do
                run_match 65 "is probably UTF-16 text*iconv -f $encoding" shardtool decode --json $input
            done
            [ "$(shardtool decode -0 --format text in | tr -d '\0' | wc -c)" -gt 0 ]
        done
        shardtool decode --json $text >text
    done
    iconv -f UTF-8 -t UTF-16LE <latin | shardtool decode --json - 2>err && return 1
    grep -q UTF-16LE err
    printf 'a stray \0 on a page\n' >in/page.txt && shardtool decode --json in >text
}

@test "--format text refuses a shard, and names other formats whose bytes it reads" {
    echo words >a.txt && shardtool tokenize -q --val 0 -o out a.txt
    cp out/train/000/000000.zst shard.zst
    run_match 65 "'shard.zst' is a shard already: use cat, decode or merge" shardtool tokenize -q --val 0 --format text -o raw shard.zst
    zstd -q a.txt && shardtool decode -0 --format text a.txt.zst | tr '\0' '\n' | grep -qx words # compressed text is decompressed
    printf '\4"M\x18words' >a.lz4 && cp a.lz4 b.lz4
    run_match 0 "'a.lz4' is an LZ4 file: decompress it first; --format text reads its bytes as they are" shardtool tokenize -q --val 0 --format text -o raw a.lz4 b.lz4
    [ "$(grep -c "LZ4" <<<"$output")" = 1 ]
}

@test "--max-bad 100% with nothing but bad inputs counts them" {
    printf '{"bad": 1}\n{"bad": 2}\n' >a.jsonl
    for command in "decode --json" "tokenize -o out"; do
        run_match 66 "no documents; skipped 2 bad inputs, the first: 'a.jsonl' line 1" shardtool $command --max-bad 100% a.jsonl
    done
}

@test "a run that fails before its first shard leaves no journal" {
    printf '{"text": "good"}\n{"text": 1}\n' >a.jsonl
    run_code 65 shardtool tokenize -o out a.jsonl
    [ ! -e out ]
    printf '{"text": "good"}\n' >a.jsonl
    run_code 0 shardtool tokenize -o out a.jsonl
    [[ "$output" == *"shardtool: 1 document, 2 train and 0 val tokens"* && "$output" != *"starting over"* ]]
    printf '{"text": "other"}\n{"text": 1}\n' >b.jsonl
    run_code 65 shardtool tokenize -o out --force b.jsonl
    [ ! -e out/.new ]
    shardtool verify -q out
}

@test "--max-bad skips bad lines, members and files, and lists each in skipped.jsonl" {
    mkdir in
    printf '{"text": "good 1"}\n{"text": 1}\n{"text": "good 2"}\n' >in/a.jsonl
    echo good 3 >c.txt && printf '%%PDF-1.4\n' >d.bin && echo good 4 >e.txt
    seq 2000 | xz -0 | head -c 300 >cut.xz
    tar cf in/b.tar c.txt d.bin cut.xz e.txt
    printf '%%PDF-1.4\n' >in/p.pdf && echo good 5 >in/z.txt
    run_code 65 shardtool tokenize -o out in
    run_match 65 "more than --max-bad 3 bad lines, rows, members and files: " shardtool tokenize -o out --max-bad 3 in
    run_match 0 "skipped 4 bad inputs, the first: 'in/a.jsonl' line 2" shardtool tokenize -o out --max-bad 4 in
    [ "$(jq -r .input out/skipped.jsonl)" = "in/a.jsonl
in/b.tar:d.bin
in/b.tar:cut.xz
in/p.pdf" ]
    [ "$(jq -c .line out/skipped.jsonl | head -1)" = 2 ]
    jq -r .error out/skipped.jsonl | grep -q "ends within the compressed data"
    cp out/skipped.jsonl first
    shardtool tokenize -q -o all --max-bad 100% in
    cmp first all/skipped.jsonl
    shardtool diff out all
    run_match 0 "skipped 4 bad inputs" shardtool decode --json -q --max-bad 100% in
    for i in 1 2 3 4 5; do [[ "$output" == *"good $i"* ]]; done
    run_match 65 "4 bad lines, rows, members and files beside 5 documents, more than --max-bad 20%" shardtool tokenize -o share --max-bad 20% in
    run_code 0 shardtool tokenize -o share --max-bad 50% in
    shardtool tokenize -q -o out --force in/z.txt
    [ ! -e out/skipped.jsonl ]
    run_code 2 shardtool tokenize -o x --max-bad lots in
}

# fault 1
@test "a document that is damaged in the middle ends there with --max-bad 100%, and is listed" {
    seq 200000 >a.txt
    xz -k -0 a.txt
    head -c $(($(stat -c %s a.txt.xz) / 2)) a.txt.xz >cut.xz && echo next >z.txt
    tar cf a.tar cut.xz z.txt
    run_match 0 "skipped 1 bad input, the first: the rest of 'a.tar:cut.xz' is not read: 'a.tar:cut.xz'" shardtool decode -q -0 --max-bad 100% a.tar
    shardtool tokenize -q -o out --val 0 --max-bad 100% a.tar
    [ "$(jq -r .input out/skipped.jsonl)" = a.tar:cut.xz ]
    shardtool cat out/train/000/000000.zst | shardtool decode --raw >got
    size=$(($(stat -c %s got) - 31)) # "<|endoftext|>next\n<|endoftext|>"
    [ "$size" -gt 300000 ]
    [ "$(tail -c 31 got)" = "<|endoftext|>next
<|endoftext|>" ]
    head -c "$size" got | cmp - <(head -c "$size" a.txt)
}

@test "a damaged file that is skipped says from which byte on no checksum has verified its text" {
    python3 - <<'EOF'
import gzip, zipfile, zlib
lines = [b'{"text": "%d"}\n' % i for i in range(100000)]
stored = zlib.compressobj(0, wbits=31)  # not compressed: a wrong byte is wrong text, and the checksum alone knows
second = bytearray(stored.compress(b"".join(lines)) + stored.flush())
second[second.index(b'"50000"') + 1] ^= 1
open("two.jsonl.gz", "wb").write(gzip.compress(b"".join(lines)) + second)
open("bytes", "w").write(str(len(b"".join(lines))))
with zipfile.ZipFile("a.zip", "w") as archive:
    archive.writestr("a.jsonl", b"".join(20 * lines))
archived = bytearray(open("a.zip", "rb").read())
archived[archived.index(b'"50000"') + 1] ^= 1
open("a.zip", "wb").write(archived)
EOF
    run_match 0 "the rest of 'a.zip:a.jsonl' is not read: *bad CRC*; no checksum has verified its text" "$BIN/shardtool" tokenize --val 0 --max-bad 100% -o zipped a.zip
    run_match 0 "damaged at byte * (incorrect data check); no checksum has verified its text from byte $(cat bytes) on" "$BIN/shardtool" tokenize --val 0 --max-bad 100% -o out two.jsonl.gz
    grep -q "has verified its text from byte $(cat bytes) on" out/skipped.jsonl
}

@test "a command without INPUT says that it reads the terminal" {
    run_code 0 python3 -c '
import os, pty, sys
inputs = iter([b"typed\n\x04"])
sys.exit(os.waitstatus_to_exitcode(pty.spawn(["shardtool", "decode", "--json"], stdin_read=lambda fd: next(inputs, b""))))'
    [[ "$output" == *"reading the terminal, up to Ctrl-D: no INPUT was named"*'{"text": "typed\n"}'* ]]
    run_code 0 shardtool decode --json <<<piped
    [[ "$output" != *terminal* ]]
}

@test "--files-from reads names by line or NUL, from a file or standard input" {
    mkdir 'in put' && echo a >'in put/a b.txt' && echo c >c.txt && printf 'd\n' >$'d\ne.txt'
    printf 'in put/a b.txt\nc.txt\n' >list
    [ "$(shardtool decode --json --files-from list | wc -l)" = 2 ]
    [ "$(shardtool decode --json --files-from - <list | wc -l)" = 2 ]
    printf 'in put/a b.txt\r\n\r\nc.txt\r\n' >list-crlf
    [ "$(shardtool decode --json --files-from list-crlf | wc -l)" = 2 ]
    printf 'c.txt\0d\ne.txt\0' >list0
    [ "$(shardtool decode --json --files-from list0 'in put' | wc -l)" = 3 ]
    : >empty
    run_code 66 shardtool decode --json --files-from empty
    run_code 66 shardtool decode --json --files-from absent
    echo missing.txt >list
    run_match 66 "missing.txt" shardtool decode --json --files-from list
}

# fault 102
@test "a dataset among the inputs is refused with the commands that read it, unless --exclude leaves it out" {
    mkdir in && echo text >in/a.txt
    shardtool tokenize -q -o in/deep/.set in && mv in/deep/.set in/deep/set
    for command in "tokenize -o out" "train-vocabulary --characters" "decode --json" "decode --json --max-bad 100%"; do
        for input in in in/deep/set; do
            [[ $command$input != decode*set ]] || continue # whose documents it prints
            run_match 65 "'in/deep/set' is a dataset already: cat, decode and merge read it" shardtool $command $input
        done
    done
    [ ! -e out/dataset.jsonl ]
    run_match 65 "is the manifest of a dataset: cat, decode and merge" shardtool decode --json in/deep/set/dataset.jsonl
    [ "$(shardtool decode --json --exclude 'deep/*' in | jq -r .text)" = text ]
    echo '{"format": "mine", "text": "no manifest"}' >in/deep/dataset.jsonl
    [ "$(shardtool decode --json -q --exclude 'deep/set/*' in | wc -l)" = 2 ]
}

# fault 102
@test "an output that the next run would read as an input is refused at the start" {
    mkdir in && echo text >in/a.txt && ln -s in link
    for output in in in/out in/../in/out link/out "$PWD/in/new/out"; do
        run_match 2 "the output '$output' lies in the input 'in', and the next run would read it" shardtool tokenize -o "$output" in
    done
    printf '\1\0\2\0' >in/train.bin
    run_match 2 "the output 'in/out' lies in the input 'in'" shardtool import-tokens --format nanogpt -o in/out in
    [ "$(ls -A in | tr '\n' ' ')" = "a.txt train.bin " ]
    for command in "in/.out --exclude *.bin in" "in/out --include *.txt in" "in/beside in/a.txt"; do # these are not read
        shardtool tokenize -q -o $command
        run_match 0 "already complete" shardtool tokenize -o $command
    done
}

@test "--include and --exclude select the files in folders by name or by path" {
    mkdir -p in/sub/deep
    for f in a.txt README.md sub/b.txt sub/deep/c.txt sub/deep/d.json.bak; do echo "$f" >"in/$f"; done
    texts() { shardtool decode --json "$@" in | jq -r .text | sed '/^$/d' | tr '\n' ' '; }
    [ "$(texts --include '*.txt')" = "a.txt sub/b.txt sub/deep/c.txt " ]
    [ "$(texts --exclude '*.md' --exclude '*.bak')" = "a.txt sub/b.txt sub/deep/c.txt " ]
    [ "$(texts --include '*.txt' --exclude 'sub/deep/*')" = "a.txt sub/b.txt " ]
    [ "$(shardtool decode --json --exclude '*' in/a.txt | jq -r .text)" = a.txt ] # a named file is read
    run_code 66 shardtool decode --json --include '*.none' in
}

# fault 14
# fault 95
@test "a link to a folder in a folder is followed, in the order of names, and one that leads back is a warning" {
    mkdir -p a/deep b && echo 1 >a/1.txt && echo 3 >a/zz.txt && echo 2 >b/2.txt
    ln -s ../b a/part2 && ln -s .. a/deep/up && ln -s . a/self
    [ "$(shardtool decode -0 a 2>err | tr '\0' ' ')" = "1
 2
 3
 " ]
    grep -q "skipped 'a/deep/up': a link to a folder that it lies in" err
    grep -q "skipped 'a/self': a link to a folder that it lies in" err
    mkdir whole whole/part2 && cp a/1.txt a/zz.txt whole && cp b/2.txt whole/part2
    shardtool tokenize -q -o out a 2>/dev/null
    shardtool tokenize -q -o same whole
    shardtool diff --ids out same
}

@test "a dangling link in a folder is one warning, a named one is 66" {
    mkdir in && echo text >in/a.txt && ln -s absent in/link && ln -s absent2 in/link2
    run_match 0 "skipped 'in/link': a link to a file that does not exist*skipped 2 links" shardtool tokenize -q -o out in
    run_code 66 shardtool decode --json in/link
    mkfifo in/pipe
    run_match 0 "skipped 'in/pipe': it is not a regular file" shardtool decode --json in
}

@test "a second name of a file in a folder or a tar is left out with a warning" {
    mkdir -p in/deep && echo one >in/a.txt && echo two >in/c.txt
    ln in/a.txt in/deep/again.txt && ln -s ../c.txt in/deep/link.txt
    run_code 0 shardtool tokenize -o out --val 0 in
    # one of the two is named, the one with the smaller inode number
    [[ "$output" == *"skipped 'in/deep/"*".txt': the same file as 'in/"[ac]".txt'"* && "$output" == *" 2 documents"* ]]
    rm in/deep/link.txt && tar cf in.tar in
    shardtool decode --json in 2>err | cmp - <(printf '{"text": "%s\\n"}\n' one two)
    [ "$(shardtool decode --json in.tar 2>err | wc -l)" = 2 ]
    grep -q "skipped 'in.tar:in/.*': the same file as 'in/.*' of the archive" err
    run_code 2 shardtool decode --json in in/deep # two arguments
}

# bats test_tags=ci
# fault 14
@test "folders two thousand levels deep are walked" {
    deep=in/$(printf 'd/%.0s' $(seq 2030)) # in one call: bash looks at every parent of a folder that it enters
    mkdir -p "$deep" && echo deep >"${deep%d/}a.txt"
    (ulimit -s 1024 && shardtool decode --json in) | jq -r .text | grep -qx deep
    rm -rf in
}

# bats test_tags=ci
@test "a million names need no more memory than their bytes" {
    needs_address_limit
    mkdir in
    long=$(printf 'n%.0s' $(seq 200))
    (cd in && seq 20000 | sed "s/.*/$long&.txt/" | xargs touch)
    run_code 66 bash -c "ulimit -v 400000; shardtool decode --json in"
}

@test "the summary names the formats read, and --json prints its numbers" {
    mkdir in && echo one >in/a.txt && echo two >in/b.txt && printf '{"text": "three"}\n{"bad": 1}\n' >in/c.jsonl
    run_match 0 "3 documents, *\(1 jsonl, 2 text)*of memory" shardtool tokenize --max-bad 1 -o out in
    shardtool tokenize -q --json --max-bad 100% --val 1 -o val in 2>/dev/null >summary.json
    [ "$(jq -c '[.documents, .train_tokens, .inputs.jsonl, .inputs.text, .skipped, .val_share]' summary.json)" = "[3,0,1,2,1,1]" ]
    [ "$(jq .val_tokens summary.json)" = "$(shardtool info --json val | jq .val_tokens)" ]
    [ "$(jq .bytes summary.json)" = "$(stat -c %s val/val/000/000000.zst)" ]
    [ "$(jq '.peak_memory > 1000000 and .seconds > 0' summary.json)" = true ]
    run_code 2 shardtool tokenize --json -o - in
}
