# shardtool on the command line. Programs come from $BIN, data from $DATA.

load ../helpers

texts() { # a folder of small documents
    mkdir -p in/sub
    printf 'The first document.\n' >in/a.txt
    printf 'The second, in a folder.\n' >in/sub/b.txt
    printf 'The third.\n' >in/c.txt
    printf 'hidden' >in/.dot
}

@test "a folder becomes a dataset: one summary line, shards that zstd reads" {
    texts
    run_code 0 shardtool tokenize -o out in
    [ "${#lines[@]}" -le 2 ]
    [[ "${lines[0]}" == "shardtool: 3 documents, "*" train and 0 val tokens from 56 B of text"*"MB/s of text" ]]
    zstd -tq out/train/000/000000.zst
    shardtool cat out/train/000/000000.zst >raw
    zstd -dcq out/train/000/000000.zst | cmp - raw
    run_code 0 shardtool decode --raw raw
    [ "$output" = "The first document.
<|endoftext|>The third.
<|endoftext|>The second, in a folder.
<|endoftext|>" ]
    [ -z "$(find out -name '*.tmp.*')" ]
}

@test "repeating a finished command changes nothing" {
    texts
    shardtool tokenize -q -o out in
    find out -type f ! -name .lock -printf '%p %T@ %s\n' | sort >before
    run_match 0 "'out' is already complete" shardtool tokenize -o out in
    find out -type f ! -name .lock -printf '%p %T@ %s\n' | sort | cmp - before
}

@test "other options on a finished dataset are refused with 2 and named" {
    texts
    shardtool tokenize -q -o out in
    run_match 2 "was made with --docs=file, this run has --docs=lines*--force" shardtool tokenize -o out --docs lines in
    run_match 2 "was made with --val=0.0005, this run has --val=0.25" shardtool tokenize -o out --val 0.25 in
    run_code 0 shardtool tokenize -o out --force --val 1 in
    [ ! -e out/train/000/000000.zst ]
    run_code 0 shardtool verify out
}

@test "another source on a finished dataset is refused with 2 and named" {
    texts
    shardtool tokenize -q -o out in/a.txt in/c.txt
    run_match 2 "'in/c.txt' is missing from this command" shardtool tokenize -o out in/a.txt
    run_match 2 "'in/sub' is new" shardtool tokenize -o out in/a.txt in/c.txt in/sub
    printf 'The THIRD.\n' >in/c.txt
    run_match 2 "'in/c.txt' has changed" shardtool tokenize -o out in/a.txt in/c.txt
    run_match 2 "'-' is a stream" shardtool tokenize -o out <in/a.txt
}

# fault 26
@test "the order of the arguments does not matter, and standard input works" {
    texts
    shardtool tokenize -q -o one in/a.txt in/c.txt in/sub
    shardtool tokenize -q -o two in/sub in/c.txt in/a.txt
    cmp one/dataset.jsonl two/dataset.jsonl
    shardtool tokenize -o - in/a.txt >a.zst
    shardtool tokenize -o - <in/a.txt >b.zst
    shardtool tokenize -o - - <in/a.txt >c.zst
    cmp a.zst b.zst
    cmp a.zst c.zst
    shardtool verify a.zst
}

# fault 13
@test "a missing file, an empty file and an empty folder are 66" {
    run_match 66 "absent.txt" shardtool tokenize -o out absent.txt
    : >empty.txt
    run_code 66 shardtool tokenize -o out empty.txt
    [ ! -e out/dataset.jsonl ]
    [ ! -e out/train ]
    mkdir folder
    run_code 66 shardtool tokenize -o out2 folder
    run_code 66 shardtool decode --json folder
}

# fault 14
@test "an unreadable file is 77" {
    texts
    chmod 000 in/c.txt
    chmod 777 .
    run_match 77 "in/c.txt" as_user shardtool decode --json in
    run_code 77 as_user shardtool tokenize -o out in
    [ ! -e out/dataset.jsonl ]
}

@test "the same file twice is 2, with both names" {
    texts
    run_match 2 "'in/a.txt' and 'in/a.txt'" shardtool decode --json in in/a.txt
    ln in/a.txt hard
    run_code 2 shardtool decode --json hard in/a.txt
}

# fault 34
@test "inputs that are not documents are refused by name with 65" {
    texts
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >lfs
    run_match 65 "git-lfs" shardtool decode --json lfs
    printf '\n<!DOCTYPE HTML>\n<p>404' >page
    run_match 65 "HTML" shardtool decode --json page
    head -c 5000 "$BIN/shardtool" >binary
    run_match 65 "binary" shardtool decode --json binary
    shardtool tokenize -o - in >own.zst
    run_match 65 "use cat, decode or merge" shardtool tokenize -o out own.zst
}

# fault 1
@test "a truncated .xz is 65 and names the file" {
    seq 100000 | xz >a.txt.xz
    head -c 2000 a.txt.xz >cut.txt.xz
    run_match 65 "cut.txt.xz*truncated" shardtool tokenize -o out cut.txt.xz
    [ ! -e out/dataset.jsonl ]
    [ -z "$(find out -name '*.zst*')" ]
}

@test "a bad JSON line is 65 with file and line, unless --max-bad allows it" {
    printf '{"text": "one"}\n{"text": 2}\n{"text": "three"}\n' >a.jsonl
    run_match 65 "'a.jsonl' line 2*no text" shardtool tokenize -o out a.jsonl
    run_match 0 "skipped 1 bad input,*line 2" shardtool tokenize -o out --max-bad 1 a.jsonl
}

# fault 10
@test "invalid UTF-8 is replaced and counted, refused, or kept as bytes" {
    printf 'a\xffb' >bad.txt
    run_match 0 "replaced invalid UTF-8 by U+FFFD in 1 place" shardtool tokenize -o out bad.txt
    run_match 65 "'bad.txt' document 0" shardtool tokenize -o out2 --invalid-utf8 fail bad.txt
    run_match 0 "replaced invalid UTF-8 by U+FFFD in 1 place" shardtool tokenize --ids --format text bad.txt
    shardtool tokenize --ids --format text --invalid-utf8 bytes bad.txt | shardtool decode | cmp - bad.txt
}

@test "tokenize names the inputs with invalid UTF-8 and counts their places, as Python does" {
    python3 - <<'END'
import os, random, tarfile, zipfile
os.mkdir("in")
made_of = random.Random(1)
for number in range(20):
    size = 3_000_000 if number == 7 else made_of.randrange(2000)
    with open(f"in/{number:02}.txt", "wb") as file:
        file.write(b"".join(made_of.choices([b"text ", "\u00e9".encode(), b"\xff", b"\xe2\x82", b"\xf0\x9f"], [9, 9, number % 3, number % 3, number % 3], k=size)))
with tarfile.open("in/a.tar", "w") as archive:
    for name in "06.txt", "08.txt":
        archive.add(f"in/{name}", name)
with zipfile.ZipFile("lines.zip", "w") as archive:
    archive.writestr("good.txt", "text")
    archive.writestr("mails/bad.jsonl", b'{"text": "a"}\n\n{"text": "b\xff"}\n')
with tarfile.open("in/b.tar", "w") as archive:
    archive.add("lines.zip", "x/lines.zip")
END
    python3 - >want <<'END'
import glob, json, tarfile
count = lambda data: data.decode("utf-8", "replace").count("\ufffd")
places = {path: count(open(path, "rb").read()) for path in sorted(glob.glob("in/*.txt"))}
places |= {"in/a.tar": places["in/06.txt"] + places["in/08.txt"], "in/b.tar": 1}
member = {"in/a.tar": {"member": "08.txt", "member_record": 0}, "in/b.tar": {"member": "x/lines.zip:mails/bad.jsonl", "member_record": 2}}
print(json.dumps([sum(places.values()), [{"path": path, "record": {"in/a.tar": 1, "in/b.tar": 2}.get(path, 0), **member.get(path, {}), "places": n} for path, n in places.items() if n]], separators=(",", ":")))
END
    for jobs in 1 3; do
        run_match 0 "places: 'in/01.txt' ([0-9]*), *, 'in/05.txt' ([0-9]*) and 11 more inputs, more than 1 %" shardtool tokenize -j $jobs --val 0.5 --json --force -o out in
        grep ^{ <<<"$output" | jq -c '[.replaced, .replaced_in]' | cmp - want
        grep ^{ <<<"$output" | jq -e '.replaced_inputs == 15'
        run_match 0 "places: 'in/a.tar' ([0-9]* from record 1 on, first in '08.txt'), 'in/b.tar' (1 from record 2 on, first in 'x/lines.zip:mails/bad.jsonl' record 2), more than 1 %" \
            shardtool tokenize -j $jobs --force -o out in/a.tar in/b.tar
    done
    jq -c '.[1] |= map(select(.path | endswith(".txt")))' want >short # each file as one conversation
    mkdir turns && python3 - <<'END'
import glob, os
for path in glob.glob("in/*.txt"):
    with open("turns/" + os.path.basename(path)[:-3] + "jsonl", "wb") as file:
        file.write(b'{"prompt": "' + open(path, "rb").read() + b'", "completion": ""}\n{"text": ""}\n')
END
    shardtool tokenize --turns --json --force -o out turns 2>err | jq -c '.replaced_in | map(.places)' | cmp - <(jq -c '.[1] | map(.places)' short)
}

# fault 22
@test "a second run on the same directory is 73 and names the pid" {
    mkdir out
    (exec 9>out/.lock && flock 9 && echo $BASHPID >&9 && echo ready >held && exec sleep 600) 3>&- &
    holder=$!
    wait_until test -s held
    texts
    run_code 73 shardtool tokenize -o out in
    kill $holder
    [[ "$output" == *"locked by pid $holder"* ]]
    wait $holder 2>/dev/null || true
    run_code 0 shardtool tokenize -o out in
}

# fault 17
@test "a full disk is 74 and leaves no temp behind" {
    seq 200000 >big.txt
    run_match 74 "000000.zst" bash -c 'ulimit -f 64; shardtool tokenize -o out big.txt'
    [ -z "$(find out -name '*.zst*')" ]
    [ ! -e out/dataset.jsonl ]
    run_code 74 bash -c 'shardtool tokenize -o - big.txt >/dev/full'
    run_code 0 shardtool tokenize -o out big.txt
    shardtool verify out
}

# bats test_tags=ci
@test "a disk that is full at the last bytes of a shard is 74 too" {
    for lines in $(seq 300 20 9000); do # until a shard ends a few bytes into a new KiB
        seq "$lines" >in.txt
        shardtool tokenize -q --force -o whole in.txt
        size=$(stat -c %s whole/train/000/000000.zst)
        [ $((size % 1024)) -lt 40 ] && [ $((size % 1024)) -gt 0 ] && break
    done
    [ $((size % 1024)) -lt 40 ]
    run_code 74 bash -c "trap '' XFSZ; ulimit -f $((size / 1024)); shardtool tokenize -o out in.txt"
    [ -z "$(find out -name '*.zst*')" ]
    [ ! -e out/dataset.jsonl ]
}

# fault 17
@test "a disk too small for the result is refused before any work, with the missing space" {
    truncate -s 15T sparse.txt || skip "no file of that size here"
    run_match 74 "are needed: free*TiB more" shardtool tokenize -o out sparse.txt
    [ ! -e out/train ]
}

# fault 23
@test "an output directory that cannot be created is refused before any work" {
    texts
    : >file
    run_code 73 shardtool tokenize -o file/out in
    run_code 73 shardtool tokenize -o file in
    mkdir locked && chmod 555 locked
    run_code 77 as_user shardtool tokenize -o locked/out in
}

@test "the next run removes the files of a killed run" {
    texts
    mkdir -p out/train/000 out/val/000
    shardtool tokenize -o - in/a.txt | tee out/train/000/000000.zst >out/train/000/000001.zst
    : >out/train/000/.000002.zst.tmp.99999999
    : >out/.journal # of a run that was killed
    run_code 0 shardtool tokenize -o out in
    [ ! -e out/train/000/000001.zst ]
    [ ! -e out/train/000/.000002.zst.tmp.99999999 ]
    run_code 0 shardtool verify out
}

@test "a command that fails removes the folders that it made for its output, and no others" {
    texts
    shardtool tokenize -q -o d in
    mkdir a
    for new in new/b/c new//b/ a/b/c/; do
        run_code 2 shardtool merge -o $new d d
        run_code 66 shardtool filter --min-tokens 100000 -o $new d
        run_code 66 shardtool export-tokens --format nanogpt -o $new in
        [ "$(find . -mindepth 1 -maxdepth 1 -type d | sort | tr '\n' ' ')" = "./a ./d ./in " ]
        rmdir a && mkdir a
    done
}

@test "verify: 0 when all shards are good, else 1 and one line per bad shard" {
    texts
    shardtool tokenize -q -o out --docs lines --frame-tokens 4 --shard-tokens 4 in
    [ "$(ls out/train/000 | wc -l)" -ge 4 ]
    run_code 0 shardtool verify out
    [[ "$output" == *"5 shards, 17 tokens: all good" ]]
    for n in 0 2; do printf '\xff' | dd of=out/train/000/00000$n.zst bs=1 seek=130 conv=notrunc status=none; done
    run_code 1 shardtool verify out
    [ "$(grep -c '^shard ' <<<"$output")" = 2 ]
    [[ "$output" == *"000000.zst': frame 0 at offset"* ]]
    [[ "$output" == *"2 of 5 shards are bad"* ]]
    run_code 1 shardtool verify --json out
    [ "$(grep -c '"ok":false' <<<"$output")" = 2 ]
    run_code 1 shardtool verify --quick out/train/000/000000.zst
    run_code 65 shardtool cat -o merged.zst out/train/000/*.zst
    [ ! -e merged.zst ]
}

# fault 28, 33
@test "verify names each bad shard of a dataset, also after one that is missing or has another size" {
    texts
    shardtool tokenize -q -o out --docs lines --val 0 --frame-tokens 4 --shard-tokens 4 in
    truncate -s -20 out/train/000/000000.zst
    rm out/train/000/000001.zst
    printf x >>out/train/000/000002.zst
    printf '\xff' | dd of=out/train/000/000003.zst bs=1 seek=130 conv=notrunc status=none
    run_code 1 shardtool verify out
    for bad in "0.zst' has * bytes instead of" "1.zst' is missing" "2.zst' has * bytes instead of" "3.zst': frame 0" "4 of 5 shards are bad"; do
        [[ "$output" == *$bad* ]] || { echo "no '$bad' in: $output" && return 1; }
    done
    [[ "$output" != *"other error"* ]]
    run_code 1 shardtool verify --json out
    [ "$(grep -c '"ok":false' <<<"$output")" = 4 ]
    run_match 65 "has * bytes instead of" shardtool cat out
}

@test "verify counts what is not a shard apart: an unfinished dataset, a path that does not exist" {
    texts
    mkdir unfinished && touch unfinished/.journal
    run_match 66 "'unfinished' holds an unfinished run: the command that began it continues it*no shard was checked; 1 other error" shardtool verify unfinished
    run_match 66 "cannot open 'typo'*no shard was checked; 1 other error" shardtool verify typo
    shardtool tokenize -q -o out in
    run_match 66 "0 of 1 shard is bad; 1 other error" shardtool verify out typo
}

# fault 28
@test "a truncated shard is 65 for readers and 1 for verify" {
    texts
    shardtool tokenize -o - in >a.zst
    head -c -20 a.zst >cut.zst
    run_match 65 "cut.zst*truncated" shardtool info cut.zst
    run_code 65 shardtool cat cut.zst
    run_code 1 shardtool verify cut.zst
}

# fault 33
@test "shards of another run in a dataset are found" {
    texts
    shardtool tokenize -q -o a --docs lines in
    printf 'The other document.\n' >in/a.txt
    shardtool tokenize -q -o b --docs lines in
    cp b/train/000/000000.zst a/train/000/000000.zst
    run_match 1 "content hash differs from the manifest" shardtool verify a
}

@test "info prints shards and datasets, with --json one object per line" {
    texts
    shardtool tokenize -q -o out in
    run_match 0 "train_documents 3" shardtool info out out/train/000/000000.zst
    shardtool info out out/train/000/000000.zst >rows
    [ "$(grep -c '^$' rows)" = 1 ]
    [ -n "$(tail -1 rows)" ] # an empty line between the two
    shardtool info --json out out/train/000/000000.zst >rows
    [ "$(wc -l <rows)" = 2 ]
    python3 -c '
import json
a, b = map(json.loads, open("rows"))
assert a["train_tokens"] == b["tokens"] and a["vocab_fp"] == b["vocab_fp"] and b["documents"] == 3'
}

@test "cat merges shards, and overwrites a file only with --force" {
    texts
    shardtool tokenize -q -o out --docs lines --frame-tokens 4 --shard-tokens 4 in
    shardtool cat -o all.zst out/train/000/*.zst
    shardtool verify all.zst
    zstd -dcq out/train/000/*.zst >want
    zstd -dcq all.zst | cmp - want
    shardtool cat --raw -o all.bin out/train/000/*.zst
    cmp all.bin want
    shardtool cat -o - out/train/000/*.zst | cmp - all.zst
    run_match 73 "--force" shardtool cat -o all.zst out/train/000/000000.zst
    shardtool cat --force -o all.zst out/train/000/000000.zst
}

@test "cat gives the same bytes and the same error with any number of threads" {
    seq 3000 >numbers.txt
    shardtool tokenize -q -o out --docs lines --frame-tokens 64 --shard-tokens 4096 numbers.txt
    shardtool cat -j 1 out >want
    zstd -dcq out/train/*/*.zst | cmp - want
    shardtool cat -j 1 -o want.zst out
    for jobs in 2 7; do
        shardtool cat -j $jobs out | cmp - want
        shardtool cat -j $jobs -o - out | cmp - want.zst
    done
    for n in 0 1; do printf '\xff' | dd of=out/train/000/00000$n.zst bs=1 seek=300 conv=notrunc status=none; done
    for jobs in 1 7; do
        run_match 65 "000000.zst': frame * at offset" shardtool cat -j $jobs -o bad.zst out
        [ ! -e bad.zst ]
    done
    run_code 2 shardtool cat -j 1025 out
}

@test "decode inverts encode" {
    run_code 0 shardtool decode <<<"15496 995 50256"
    [ "$output" = "Hello world<|endoftext|>" ]
    run_code 0 bash -c 'printf "Hello world" | shardtool tokenize --ids --format text'
    [ "$output" = "15496 995" ]
    printf '{"text": "not sniffed"}' >a.jsonl
    shardtool tokenize --ids --format text a.jsonl | shardtool decode | cmp - a.jsonl
    run_match 65 "50257" shardtool decode <<<"15496 50257"
    run_code 65 shardtool decode <<<"x"
    run_code 65 bash -c 'printf abc | shardtool decode --raw'
    run_match 65 "offset 4: id 50257" bash -c "printf 'a\0b\0\121\304c\0' | shardtool decode --raw" # 50257 at byte 4
}

@test "decode prints documents of inputs as JSON or NUL-separated" {
    texts
    run_code 0 shardtool decode --json in/a.txt
    [ "$output" = '{"text": "The first document.\n"}' ]
    shardtool decode -0 in | tr '\0' '|' >out
    [ "$(cat out)" = "The first document.
|The third.
|The second, in a folder.
|" ]
    seq 1000 | shardtool decode --json | head -c 1 >/dev/null
}

# fault 3
@test "control characters in the name of an archive member are not printed" {
    mkdir d && printf '\x00\x01\x02\x03' >"d/$(printf 'a\033[31m')"
    tar -cf t.tar -C d .
    run_match 65 "t.tar:./a\?\[31m" shardtool decode --json t.tar
}

@test "bad options are 2 and name the allowed values" {
    run_match 2 "-o DIR" shardtool tokenize
    echo a text >x
    run_match 2 "'-o=out' has an = behind a short option: write -o out" shardtool tokenize -o=out x
    run_match 2 "'-j=' has an = behind a short option: write -j N" shardtool tokenize -o out -j= x
    [ ! -e =out ]
    run_code 2 shardtool tokenize -o out --val 2 x
    run_match 2 "1024" shardtool tokenize -o out -j 1025 x
    run_match 2 "file|lines|paragraphs" shardtool tokenize -o out --docs words x
    run_code 2 shardtool decode --json --text-field a..b <<<'{"a": 1}'
    run_match 2 "--shard-tokens" shardtool tokenize -o out --shard-token 5 x
}

pieces() { # a dataset of several shards and frames, its ids in raw
    seq 3000 >lines.txt
    shardtool tokenize -q -o out --docs lines --val 0.2 --frame-tokens 64 --shard-tokens 1000 lines.txt
    zstd -dcq out/train/000/*.zst >raw
    zstd -dcq out/val/000/*.zst >raw_val
}

slice() { # FILE FIRST END: bytes of those ids
    tail -c +$((2 * $2 + 1)) "$1" | head -c $((2 * ($3 - $2)))
}

@test "cat prints any range of a shard or a dataset, across frames and shards" {
    pieces
    total=$(($(stat -c %s raw) / 2))
    for range in 0:1 0:64 63:65 1000:1100 5:4000 0:0 $((total - 1)):$total; do
        shardtool cat out $range | cmp - <(slice raw ${range%:*} ${range#*:})
    done
    shardtool cat out : | cmp - raw
    shardtool cat --split val out 10: | cmp - <(tail -c +21 raw_val)
    shardtool cat out/train/000/000001.zst 3:200 | cmp - <(zstd -dcq out/train/000/000001.zst | tail -c +7 | head -c 394)
    run_code 0 shardtool cat --ids out 2:5 7:9
    [ "${lines[0]}" = "$(slice raw 2 5 | od -An -tu2 | xargs)" ]
    [ "${lines[1]}" = "$(slice raw 7 9 | od -An -tu2 | xargs)" ]
    run_code 2 shardtool cat --ids out 0:$((total + 1))
    run_code 2 shardtool cat --ids out 5:4
    run_match 2 "missing PATH of a shard or dataset before the range" shardtool cat 0:5 out
    run_code 2 shardtool cat --ids --split test out 0:1
}

@test "cat --random prints the same ranges for the same seed" {
    pieces
    shardtool cat --ids --random 50:5 --seed 7 out >a
    shardtool cat --ids --random 50:5 --seed 7 out | cmp - a
    shardtool cat --ids --random 50:5 --seed 8 out >b
    run_code 1 cmp -s a b
    [ "$(wc -l <a)" = 50 ]
    od -An -v -tu2 -w2 raw | xargs >all
    while read -r line; do grep -qF " $line " all || grep -q "^$line " all; done <a
    run_code 2 shardtool cat --ids --random 1:1000000 out
    for wrong in x 3:x : 1:0; do run_code 2 shardtool cat --random $wrong out; done
    for wrong in "--random 2 out 0:5" "-o x out 0:4"; do run_code 2 shardtool cat $wrong; done
}

@test "decode --random prints whole documents, whatever shards they are in" {
    seq 3000 | sed 's/$/ documents/' >in.txt
    shardtool tokenize -q --docs lines --val 0.3 -o one in.txt
    shardtool tokenize -q --docs lines --val 0.3 --shard-tokens 1000 --frame-tokens 100 -o many in.txt
    for split in train val; do
        shardtool decode --json --random 20 --seed 7 --split $split one >a
        shardtool decode --json --random 20 --seed 7 --split $split many | cmp - a
        [ "$(jq .document a | sort -nu | wc -l)" = 20 ]
        jq -r .document a | while read -r n; do shardtool decode --doc "$n" --split $split one && echo; done | cmp - <(jq -r .text a)
        shardtool decode -0 --random 20 --seed 7 --split $split many | tr '\0' '\n' | cmp - <(jq -r .text a)
    done
    shardtool decode --json --random 20 --seed 8 --split val one >b
    run_code 1 cmp -s a b
    shardtool cat -q -o one.zst many
    cmp <(shardtool decode --json --random 3 one.zst | jq -c .) <(shardtool decode --json --random 3 many | jq -c 'del(.input, .record)')
    documents=$(shardtool info --json one | jq .train_documents)
    shardtool decode --random 2 many | head -1 | grep -qE "^==> document [0-9]+ of $documents, [0-9]+ tokens <==\$"
    [ "$(shardtool decode --json --random 1M one | wc -l)" = "$documents" ]
    # a shard alone: every end of it that is not the end of a document cuts one, and --doc and --docs number the parts too
    shards=(many/train/*/*.zst) whole=$documents numbered=0
    for shard in "${shards[@]}"; do
        shardtool cat --ids "$shard" | grep -q ' 50256$' || whole=$((whole - 1))
        shardtool decode -q --json --random 1M "$shard"
        shardtool info --lengths --json "$shard" >>sums
        numbered=$((numbered + $(shardtool info --docs --json "$shard" | wc -l)))
    done >chosen
    [ "$whole" -lt "$documents" ]
    [ "$(jq -s 'map(.documents) | add' sums),$(wc -l <chosen)" = "$whole,$whole" ]
    [ "$(jq -s 'map(.documents + .cut_documents) | add' sums)" = "$numbered" ]
    [ "$(jq -s 'map(.tokens + .cut_tokens) | add' sums)" = "$(shardtool cat --ids many : | wc -w)" ]
    sort -u <(shardtool decode --json many | jq -r .text) >all
    [ -z "$(jq -r .text chosen | sort | comm -23 - all)" ]
    run_match 0 "left out 2 documents that an end of this shard cuts" shardtool decode --random 1 "${shards[1]}"
    shardtool info --docs "${shards[1]}" | sed -n '2p;$p' | grep -c '(no beginning)$\|(no end-of-text)$' | grep -qx 2
    shardtool tokenize -q --docs lines --val 1 -o val in.txt
    run_match 0 "the training split of 'val' is empty: --split val has 3000 documents" shardtool decode --random 2 val
    [ "$(shardtool info --lengths --json val | head -1 | jq -c '[.documents, .tokens, .min, .p50, .max, .mean, .bytes_per_token, .histogram]')" = '[0,0,null,null,null,null,null,[]]' ]
    run_match 2 "--random has no effect without documents to choose, only with --random 1 or more" shardtool decode --random 0 many
    run_match 2 "--seed has no effect without documents to choose, only with --random 1 or more" shardtool decode --seed 3 many
    for seed in -1 1k 9223372036854775808; do
        run_match 2 "--seed: '$seed' is not a whole number from 0 to 9223372036854775807" shardtool decode --random 1 --seed $seed many
    done
    run_code 0 shardtool decode --random 1 --seed 9223372036854775807 many
    for wrong in "--doc 3" "0:5"; do run_match 2 "--random chooses documents: not with" shardtool decode --random 2 many $wrong; done
    run_match 2 "--random has no effect on inputs" shardtool decode --json --random 2 in.txt
}

@test "info --ids equals sort and uniq" {
    pieces
    od -An -v -tu2 -w2 raw | tr -d ' ' | sort | uniq -c | sort -k1,1nr -k2,2n | awk '{print $2, $1}' >want
    shardtool info --ids out | awk '{print $1, $2}' | cmp - want
    [ "$(shardtool info --ids --json out | head -n 1)" = "{\"id\":50256,\"count\":$(awk '$1==50256{print $2}' want),\"token\":\"<|endoftext|>\"}" ]
}

@test "diff reports equality or the first difference" {
    pieces
    shardtool tokenize -q -o same --docs lines --val 0.2 --frame-tokens 64 --shard-tokens 1000 lines.txt
    shardtool tokenize -q -o resharded --docs lines --val 0.2 lines.txt
    run_code 0 shardtool diff out same
    run_code 1 shardtool diff out resharded
    run_code 0 shardtool diff --ids out resharded
    sed 's/^2000$/2001/' lines.txt >changed.txt
    shardtool tokenize -q -o changed --docs lines --val 0.2 changed.txt
    run_match 1 "train: token * is *in 'out'*in 'changed'" shardtool diff --ids out changed
    run_code 0 shardtool diff same/train/000/000000.zst out/train/000/000000.zst
    run_code 1 shardtool diff out/train/000/000000.zst out/train/000/000001.zst
    run_code 66 shardtool diff out/train/000/000000.zst absent
}

@test "merge joins datasets in order by hard links, without copying" {
    seq 1000 >a.txt && seq 2000 3000 >b.txt
    for part in a b; do shardtool tokenize -q -o $part --docs lines --val 0.2 --frame-tokens 64 --shard-tokens 500 $part.txt; done
    run_code 0 shardtool merge -o both a b
    shardtool verify -q both
    for split in train val; do
        zstd -dcq a/$split/*/*.zst b/$split/*/*.zst >want
        zstd -dcq both/$split/*/*.zst | cmp - want
    done
    [ a/train/000/000000.zst -ef both/train/000/000000.zst ]
    shardtool cat both : | cmp - <(zstd -dcq both/train/*/*.zst)
    run_code 73 shardtool merge -o both a b
    run_code 0 shardtool merge --force -o both b
    shardtool diff both b
    shardtool verify -q a
    run_code 66 shardtool merge -o y a absent
    run_code 2 shardtool merge --force -o both/ a both
    shardtool verify -q both a
}

@test "mistakes of a beginner are answered: a percentage, token ids as text, one split of two" {
    seq 500 >a.txt
    run_match 2 "--val: '10%' is a percentage: write 0.1" shardtool tokenize -o out --val 10% a.txt
    shardtool tokenize -q -o out --docs lines --val 0.2 a.txt
    shardtool export-tokens -q --format nanogpt -o raw out
    run_match 65 "token ids, as in nanoGPT's train.bin, are read by 'millrace import-tokens --format nanogpt'" shardtool tokenize -o x raw/train.bin
    documents=$(shardtool info --json out | jq .val_documents)
    run_match 0 "the training split of 'out': --split val has $documents more documents" shardtool decode --json out
    run_code 0 shardtool decode --json --split val out
    [ "${#lines[@]}" = "$documents" ]
}

# bats test_tags=ci
@test "merge joins datasets made with other options and by other commands, of one vocabulary" {
    seq 1000 >a.txt && seq 2000 3000 >b.txt
    shardtool tokenize -q -o a --docs lines --val 0.2 --frame-tokens 64 --shard-tokens 500 a.txt
    shardtool tokenize -q -o b --docs lines --val 0.3 b.txt
    shardtool export-tokens -q --format nanogpt -o raw b
    shardtool import-tokens -q --format nanogpt -o c raw
    run_match 1 "'c/train/000/000000.zst' differ, and hold the same ids: --ids compares only these" shardtool diff b c
    shardtool diff --ids b c
    run_match 0 "the options differ ('a' was made with --frame-tokens=64, 'b' with --frame-tokens=32768)" shardtool merge -o all a b c
    shardtool verify -q all
    for split in train val; do
        zstd -dcq {a,b,c}/$split/*/*.zst >want
        zstd -dcq all/$split/*/*.zst | cmp - want
    done
    shardtool cat all : | cmp - <(zstd -dcq all/train/*/*.zst)
    [ "$(head -n 1 all/dataset.jsonl | jq -r '"\(.params) \(.val_share)"')" = "merge mixed" ]
    [ "$(head -n 1 all/dataset.jsonl | jq -r .params_fp)" = "$(echo merge | sha256sum | cut -d ' ' -f 1)" ]
    # the same samples as from frames of one size
    shardtool tokenize -q -o b64 --docs lines --val 0.3 --frame-tokens 64 b.txt
    shardtool merge -q -o even a b64
    shardtool merge -q -o uneven a b
    write_tiny_conf tiny.conf
    for set in even uneven; do trainer train tiny.conf -q --dataset=$set --out_dir=run-$set --sample_tokens=0 >/dev/null; done
    diff <(losses run-even) <(losses run-uneven)
    run_match 2 "with others, tokenize to a directory of its own and merge the two" shardtool tokenize --append -o all --docs lines tiny.conf
}

@test "info --frames lists frames, and verify rebuilds the tables of a truncated or damaged shard" {
    pieces
    shard=out/train/000/000000.zst
    [ "$(shardtool info --frames --json $shard | wc -l)" = "$(shardtool info --json $shard | grep -o '"frames":[0-9]*' | cut -d: -f2)" ]
    zstd -dcq $shard >raw
    size=$(stat -c %s $shard)
    offset=$(shardtool info --frames --json $shard | sed -n '6s/.*"offset":\([0-9]*\).*/\1/p')
    head -c $((offset + 20)) $shard >cut.zst
    run_match 0 "5 frames, 320 tokens; read $offset of $((offset + 20)) bytes" shardtool verify --rebuild whole.zst cut.zst
    shardtool verify whole.zst
    zstd -dcq whole.zst | cmp - <(head -c 640 raw)
    shardtool verify --rebuild same.zst $shard
    zstd -dcq same.zst | cmp - raw
    cp $shard flipped.zst && printf '\xff' | dd of=flipped.zst bs=1 seek=$((offset + 12)) conv=notrunc status=none
    # the old tables find the frames behind the damaged one
    run_match 0 "left out 1 damaged frame of " shardtool verify -q --rebuild whole.zst --force flipped.zst
    zstd -dcq whole.zst | cmp - <(head -c 640 raw && tail -c +769 raw)
    shardtool verify whole.zst
    cp $shard flipped.zst && printf '\xff' | dd of=flipped.zst bs=1 seek=$(($(shardtool info --frames --json $shard | sed -n '1s/.*"offset":\([0-9]*\).*/\1/p') + 12)) conv=notrunc status=none
    shardtool verify --rebuild whole.zst --force flipped.zst
    zstd -dcq whole.zst | cmp - <(tail -c +129 raw)
    head -c -30 flipped.zst >cut.zst # no tables and no frame
    run_match 65 "no undamaged frame" shardtool verify --rebuild none.zst cut.zst
    [ ! -e none.zst ]
    run_code 73 shardtool verify --rebuild whole.zst $shard
    run_code 65 shardtool verify --rebuild x.zst lines.txt
    run_match 2 "is a dataset" shardtool verify --rebuild x.zst out
    [ ! -e x.zst ]
    for length in 3 30 100 120; do
        head -c $length $shard >cut.zst
        run shardtool verify --rebuild x$length.zst cut.zst
        [ "$status" = 65 ] || shardtool verify x$length.zst
    done
}

@test "rebuilt tables keep the document that continues from another shard, and the bytes of text" {
    seq 20000 >a.txt && seq 20000 30000 >b.txt
    shardtool tokenize -q --val 0 --shard-tokens 32k -o out a.txt b.txt
    for shard in out/train/000/*.zst; do
        run_code 0 shardtool verify --force --rebuild x.zst $shard
        cmp x.zst $shard
    done
    # one frame is damaged, the tables are not: the first document is still no document of this shard
    shardtool tokenize -q --val 0 --frame-tokens 4k --shard-tokens 32k -o small a.txt b.txt
    shard=small/train/000/000001.zst
    offset=$(shardtool info --frames --json $shard | sed -n '5s/.*"offset":\([0-9]*\).*/\1/p')
    cp $shard damaged.zst && printf '\xff' | dd of=damaged.zst bs=1 seek=$((offset + 12)) conv=notrunc status=none
    run_match 0 "7 frames, 28672 tokens" shardtool verify --force --rebuild x.zst damaged.zst
    [ "$(shardtool info --json x.zst | jq .documents)" = "$(shardtool info --json $shard | jq .documents)" ]
    # a truncated shard has no tables
    head -c $((offset + 20)) $shard >cut.zst
    run_match 0 "no undamaged tables" shardtool verify --force --rebuild x.zst cut.zst
}

@test "options that keep their default are not part of a dataset's fingerprint" {
    echo hello >a.txt
    shardtool tokenize -q -o d a.txt
    [ "$(head -1 d/dataset.jsonl | jq -r .params)" = \
        "frame_tokens=32768;codec=pairs,4,13,13,17,1;eot=after;invalid=replace;docs=file;field=text;val=0.0005;val_seed=0;shard_tokens=134217728" ]
}
