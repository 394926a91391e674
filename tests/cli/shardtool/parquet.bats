# Parquet files on the command line. small.parquet has five rows in groups of two: text (the third is null), language,
# language_score and tags, a list.

load ../helpers

setup() {
    enter_test
    cp "$DATA/small.parquet" .
}

@test "the text column becomes documents, in the order of the file" {
    run_code 0 bash -c 'shardtool decode --json small.parquet 2>/dev/null'
    [ "$output" = '{"text": "First, in English."}
{"text": "Zweiter, auf Deutsch."}
{"text": ""}
{"text": "Fünfter: \"quoted\"\n"}' ]
}

@test "a text that is null is skipped, counted and listed, and is not a bad input" {
    run_match 0 "4 documents*skipped 1 null text, the first: 'small.parquet' row 2: its text is null" shardtool tokenize -o out --max-bad 0 small.parquet
    [ "$(jq -c . out/skipped.jsonl)" = '{"input":"small.parquet","row":2,"error":"'\''small.parquet'\'' row 2: its text is null"}' ]
    printf '{"text": null}\n{"text": 1}\n{"text": "x"}\n{"text": "a", "text": null}\n{"text": null, "text": "b"}\n' >a.jsonl
    run_code 65 shardtool decode --json a.jsonl
    [[ "$output" == *"'a.jsonl' line 2"*"no text at the key 'text' (--text-field), whose value is a number; the line has the keys text" ]]
    run_match 0 '"skipped":3,"null_texts":2' shardtool tokenize --max-bad 1 --json -o two a.jsonl
    [[ "$output" == *"skipped 1 bad input and 2 null texts, the first: 'a.jsonl' line 1: its text is null"* ]]
    [ "$(jq -c .line two/skipped.jsonl | tr '\n' ' ')" = "1 2 4 " ]
    [ "$(shardtool decode -0 -q --max-bad 1 a.jsonl 2>/dev/null | tr '\0' ' ')" = "x b " ]
    printf '{"a": {"text": null}}\n' >nested.jsonl
    run_code 66 shardtool decode --json --text-field a.text nested.jsonl
    [[ "$output" == *"no documents; skipped 1 null text, the first: 'nested.jsonl' line 1: its text is null" ]]
}

@test "--text-column names another column" {
    run_code 0 shardtool decode -0 --text-column language small.parquet
    [ "$output" = "endeenende" ]
}

@test "--where reads the rows that meet every condition" {
    run_code 0 shardtool decode -0 --where 'language_score>=0.65' small.parquet
    [ "$output" = "$(printf 'First, in English.Zweiter, auf Deutsch.Fünfter: "quoted"\n')" ]
    run_code 0 shardtool decode -0 --where 'language_score >= 0.65' --where "language = 'de' and text>Z" small.parquet
    [ "$output" = "Zweiter, auf Deutsch." ]
    run_match 66 "none of the 5 documents meets --where 'language_score>1'" shardtool decode --json --where 'language_score>1' small.parquet
    run_match 0 "2 documents do not meet --where and are left out" shardtool tokenize -o some --val 0 --where 'language_score>=0.65' small.parquet
    [ "$(shardtool tokenize -q --json -o again --where 'language_score>=0.65' small.parquet | jq .left_out)" = 2 ]
}

# fault 6
@test "a column that is missing or no text is refused with the columns of the file" {
    run_code 65 shardtool decode --json --text-column body small.parquet
    [[ "$output" == *"'small.parquet' has no column 'body'; its columns: text (STRING), language (STRING), language_score (DOUBLE), tags.list.element (list of STRING)" ]]
    run_code 65 shardtool decode --json --text-column language_score small.parquet
    [[ "$output" == *"column 'language_score' is DOUBLE, not text: name another with --text-column" ]]
    run_match 65 "a list, not one value" shardtool decode --json --text-column tags.list.element small.parquet
    run_match 65 "--where 'score>1': 'small.parquet' has no column 'score'; its columns: " shardtool decode --json --where 'score>1' small.parquet
    mkdir -p set/lang=de && mv small.parquet set/lang=de
    run_match 65 "'lang'; its columns: *; names of folders are not read as columns: --include '\*lang=VALUE/\*' chooses" \
        shardtool decode --json --where "lang = 'de'" set
    [ "$(shardtool decode --json --include '*lang=de/*' set 2>log | wc -l)" = 4 ] # a row is null
}

@test "a malformed condition is refused" {
    run_match 2 "character 17: expected one of = == != <> < <= > >=" shardtool decode --json --where 'language_score~1' small.parquet
    run_code 2 shardtool decode --json --where 'language_score>high' small.parquet
    [[ "$output" == *"'small.parquet': --where 'language_score>high': 'language_score' is DOUBLE, and 'high' is not a number" ]]
    for condition in 'language>=0.65' 'language == 5' 'text!=-1e3'; do
        run_code 2 shardtool decode --json --where "$condition" small.parquet
        [[ "$output" == *": '${condition%%[ >!]*}' is STRING, which is compared byte by byte: quote the value, '"*"', to compare it so" ]]
    done
    run_code 0 shardtool decode -0 --where 'text>"0.65"' small.parquet
    echo a >lines.txt
    run_match 65 "'lines.txt' has neither columns nor keys, so --where" shardtool decode --json --where 'language_score>1' lines.txt
    run_code 2 shardtool tokenize -o out --where 'a~1' lines.txt
    [ ! -e out ]
}

@test "a folder of Spark, dask or fastparquet is read without its indexes" {
    cp -r "$DATA/parquet/hive" hive && : >hive/_SUCCESS
    run_code 0 shardtool decode --json -q hive
    [[ "$output" != *_metadata* ]]
    [ "$(shardtool decode --json hive 2>/dev/null | wc -l)" = 22 ] # 30 rows, 8 nulls
    run_code 65 shardtool decode --json hive/_metadata             # named, it is refused
}

@test "README.md, LICENSE and dataset_infos.json are left out with a warning, in a folder and in an archive" {
    mkdir -p set/data && mv small.parquet set/data
    echo '# Set' | tee set/README.md >set/LICENSE && printf '{\n "x": {"a": 1}\n}\n' >set/dataset_infos.json
    run_code 0 shardtool tokenize --where 'language==en' -o out set
    [[ "$output" == *"left out 'set/LICENSE' by its name"*"(1 parquet)"*"left out 3 files named README.md, LICENSE"* ]]
    tar cf set.tar --sort=name set
    run_match 0 "left out 'set.tar:set/LICENSE' by its name*(1 parquet)*left out 3 files named" shardtool tokenize -o tar set.tar
    gzip -k set/README.md set/LICENSE
    [ "$(shardtool tokenize --force -o out --json set 2>log | jq -c '[.left_out, .left_out_files]')" = '[0,5]' ]
    run_match 0 "(1 parquet, 1 text)" shardtool tokenize -o named set/data set/README.md
    run_code 0 shardtool tokenize -o included --include '*.parquet' --include '*.md' set
    [[ "$output" == *"(1 parquet, 1 text)"* && "$output" != *"left out"* ]]
    run_match 0 "(1 parquet, 1 text)" shardtool tokenize -o tar2 --include '*.parquet' --include '*.md' set.tar
}

@test "a Parquet file is found by its first bytes, whatever its name" {
    mv small.parquet data.txt
    ln -s data.txt link
    run_code 0 shardtool decode -0 -q link
    [[ "$output" == "First"* ]]
}

@test "a file that is only named like Parquet is refused" {
    mkdir in
    printf 'hi' >in/b.parquet
    run_code 65 shardtool decode --json in
    [[ "$output" == *"'in/b.parquet' is not Parquet: the file does not begin with PAR1" ]]
    : >in/a.parquet
    run_code 65 shardtool decode --json in
    [[ "$output" == *"'in/a.parquet' is empty, but is named like Parquet" ]]
}

@test "Parquet files and compressed JSON lines in one folder are read" {
    mkdir in
    mv small.parquet in/b.parquet
    printf '{"text": "json"}\n' | zstd -q >in/a.jsonl.zst
    printf 'plain' >in/c.txt
    run_code 0 bash -c 'shardtool decode -0 in 2>/dev/null'
    [[ "$output" == "jsonFirst"*plain ]]
}

@test "Parquet from a pipe, standard input, an archive or a codec is read as from a file" {
    shardtool decode --json small.parquet >want
    cat small.parquet | shardtool decode --json - | cmp - want
    mkfifo fifo && (cat small.parquet >fifo &) && shardtool decode --json fifo | cmp - want
    shardtool decode --json <small.parquet | cmp - want
    TMPDIR=/absent shardtool decode --json <small.parquet | cmp - want # a regular file is not copied
    (head -c 3 >/dev/null && shardtool decode --json) < <(printf abc | cat - small.parquet) | cmp - want
    run_match 73 "cannot create '/absent/*for a copy of standard input*set TMPDIR" bash -c 'cat small.parquet | TMPDIR=/absent shardtool decode --json -'
    tar -czf x.tgz small.parquet && zip -q x.zip small.parquet && xz -k small.parquet && gzip -k small.parquet
    tar -cf two.tar small.parquet.gz x.zip
    for f in x.tgz x.zip small.parquet.xz; do shardtool decode --json "$f" | cmp - want; done
    shardtool decode --json two.tar | cmp - <(cat want want)
    cat two.tar | shardtool decode -0 --where 'text>Z' - | tr '\0' '\n' | cmp - <(printf 'Zweiter, auf Deutsch.\nZweiter, auf Deutsch.\n')
    [ "$(shardtool decode -0 --text-column language small.parquet.gz)" = endeenende ]
    head -c 300 small.parquet >cut.parquet && tar -cf cut.tar cut.parquet small.parquet
    run_code 65 shardtool decode --json cut.tar
    [[ "$output" == *"'cut.tar:cut.parquet' is cut short"* || "$output" == *"'cut.tar:cut.parquet'"* ]]
    run_match 0 '"First, in English."' shardtool decode --json -q --max-bad 100% cut.tar
}

@test "a damaged page is refused with its row group, column and place" {
    printf 'X' | dd of=small.parquet bs=1 seek=60 conv=notrunc status=none
    run_code 65 shardtool decode --json small.parquet
    [[ "$output" == *"'small.parquet' row group 0, column 'text': page at byte 4: its checksum does not fit: the page is damaged" ]]
}

@test "--max-bad 100% leaves out the rest of a damaged row group and reads the next" {
    printf 'X' | dd of=small.parquet bs=1 seek=60 conv=notrunc status=none
    run_code 0 shardtool decode -0 --max-bad 100% small.parquet
    [[ "$output" == *"Fünfter: "* && "$output" == *"skipped 1 bad input and 1 null text,"*"row group 0, column 'text': page at byte 4"* ]]
}

@test "a dataset made with other columns or conditions is not taken for this one" {
    run_code 0 shardtool tokenize -q -o out --where 'language==en' small.parquet
    run_match 2 "where=language==en" shardtool tokenize -q -o out --where 'language==de' small.parquet
    run_match 2 "column=language" shardtool tokenize -q -o out --where 'language==en' --text-column language small.parquet
    run_code 0 shardtool tokenize -q -o out --where 'language==en' small.parquet
}
