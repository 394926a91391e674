# shardtool: nothing is lost or left over when a run is killed or fails. Programs come from $BIN, data from $DATA.

load ../helpers

setup() {
    enter_test
    printf 'The first document.\n' >a.txt
    printf 'The second document.\n' >b.txt
}

# fault 20
@test "after kill -9 at any moment no torn shard has a final name, and the same command completes the dataset" {
    seq 60000 >lines.txt
    options="-q --docs lines --val 0.1 --frame-tokens 1024 --shard-tokens 16k lines.txt"
    shardtool tokenize -o whole $options
    has_shards() { [ -d out ] && [ "$(find out -name '*.zst*' | wc -l)" -ge "$1" ]; }
    for round in 0 1 3 5; do
        rm -rf out
        shardtool tokenize -o out $options 3>&- &
        wait_until has_shards $round
        kill -9 $! && wait $! 2>/dev/null || true
        if ls out/*/*/*.zst >/dev/null 2>&1; then shardtool verify -q out/*/*/*.zst; fi
        shardtool tokenize -o out $options
        shardtool diff out whole
        [ -z "$(leftovers)" ]
    done
}

# bats test_tags=ci
# fault 20
@test "a kill at any unlink, rename or rmdir while a dataset is replaced leaves the old or the new one" {
    seq 3000 >lines.txt
    many="-q --docs lines --val 0.1 --frame-tokens 64 --shard-tokens 1024 lines.txt"
    few="-q a.txt"
    shardtool tokenize -o many $many
    shardtool tokenize -o few $few
    for call in unlink rename rmdir; do
        for number in $(seq 1 40); do
            rm -rf out && cp -r many out
            kill_at $call $number shardtool tokenize --force -o out $few || break
            shardtool verify -q out # the next reader completes the exchange
            shardtool info out >/dev/null
            shardtool diff out many >/dev/null || shardtool diff out few
            shardtool tokenize --force -o out $few
            shardtool verify -q out
            shardtool diff out few
            [ -z "$(leftovers)" ] || { leftovers && return 1; }
            [ "$(find out -name '*.zst' | wc -l)" = "$(find few -name '*.zst' | wc -l)" ]
        done
        [ "$number" -gt 1 ]
    done
}

# bats test_tags=ci
# fault 92
@test "a file that is not a shard stays when a dataset is replaced, and the new dataset is whole" {
    seq 3000 >lines.txt
    shardtool tokenize -q -o many --docs lines --val 0.1 --frame-tokens 64 --shard-tokens 1024 lines.txt
    shardtool tokenize -q -o few b.txt
    echo note >many/train/note && echo mapped >many/val/000/.nfs0001
    for number in 1 2 6 7 8 9 99; do # of the renames: shard, table and manifest of the new dataset, then the exchange
        rm -rf out && cp -r many out
        kill_at rename $number shardtool tokenize --force -o out b.txt || true
        shardtool diff out many >/dev/null || shardtool diff out few
        run_code 0 shardtool tokenize --force -o out b.txt
        shardtool verify -q out
        shardtool diff out few
        [ "$(cat out/.old-train*/note out/.old-val*/000/.nfs0001)" = "note
mapped" ]
        [ -z "$(find out/.old-* -name '*.zst')" ]
        [[ "$output" == *"'out/.old-train' keeps files that are not shards"* ]]
    done
    rm -rf out && cp -r few out && touch out/train/000/.nfs0001
    run_code 0 shardtool tokenize --append -o out a.txt
    shardtool verify -q out
    rm -rf out/.old-*/000/.nfs0001 # the loader that served it ended
    run_code 0 shardtool tokenize --append -o out a.txt
    not compgen -G 'out/.old-*'
}

@test "a replaced shard that cannot be removed is named, and removed by the next run" {
    seq 5000 >five && seq 9000 | shardtool tokenize -q -o out -
    shard=out/.old-train/000/000000.zst
    run_match 0 "'out/.old-train' holds shards that were replaced: cannot remove '$shard': Permission denied" \
        strace -f -qq -o /dev/null -P "$shard" -e inject=unlink:error=EACCES shardtool tokenize --force -o out five
    [ -e $shard ]
    shardtool verify -q out
    seq 9 | shardtool tokenize -q --force -o out -
    [ ! -e out/.old-train ]
}

@test "a directory with an unfinished run is named as that" {
    seq 60000 >lines.txt
    kill_at rename 3 shardtool tokenize -o out --docs lines --frame-tokens 1024 --shard-tokens 16k lines.txt
    for command in verify info; do
        run_match 66 "'out' holds an unfinished run: the command that began it continues it" shardtool $command out
    done
}

@test "--force keeps the old dataset until the new one is complete" {
    shardtool tokenize -q -o out a.txt
    cp -r out old
    seq 100 | gzip | head -c 100 >cut.gz
    run_code 65 shardtool tokenize --force -o out cut.gz
    shardtool diff out old
    shardtool verify -q out
    run_code 66 shardtool tokenize --force -o out absent
    run_code 66 shardtool merge --force -o out cut.gz
    shardtool diff out old
    shardtool verify -q out
    shardtool tokenize -q --force -o out b.txt
    [ "$(shardtool cat out/train/000/000000.zst | shardtool decode --raw)" = "The second document.
<|endoftext|>" ]
    [ -z "$(leftovers)" ]
}

@test "shards without a manifest are not removed unless --force" {
    shardtool tokenize -q -o out a.txt
    rm out/dataset.jsonl
    run_match 73 "holds shards but no manifest; --force" shardtool tokenize -o out b.txt
    shardtool tokenize -q -o other b.txt
    run_code 73 shardtool merge -o out other
    [ -e out/train/000/000000.zst ]
    run_code 0 shardtool tokenize --force -o out b.txt
    shardtool diff out other
}

# fault 33
@test "verify finds shards that the manifest does not list" {
    shardtool tokenize -q -o out a.txt
    shardtool tokenize -q -o other b.txt
    cp other/train/000/000000.zst out/train/000/000001.zst
    run_match 1 "'out/train/000/000001.zst' is not listed in the manifest" shardtool verify out
    rm out/train/000/000001.zst && mkdir -p out/val/000 && cp other/train/000/000000.zst out/val/000/000000.zst
    run_match 1 "'out/val/000/000000.zst' is not listed" shardtool verify out
}

# fault 20
@test "a run that writes one file removes what killed runs of it left, and nothing else" {
    shardtool tokenize -q -o - a.txt >a.zst
    : >.other.zst.tmp.99999999
    for command in "cat -o one.zst a.zst" "cat --raw -o one.zst a.zst" "verify --rebuild one.zst a.zst"; do
        kill_at fsync 1 shardtool $command
        compgen -G '.one.zst.tmp.*'
        shardtool $command
        not compgen -G '.one.zst.tmp.*'
        rm one.zst
    done
    [ -e .other.zst.tmp.99999999 ]
}

@test "an input that was edited since the kill, to the same size, is refused" {
    seq 60000 >lines.txt
    options="-q --docs lines --val 0.1 --frame-tokens 1024 --shard-tokens 16k lines.txt"
    kill_at rename 8 shardtool tokenize -j 1 -o out $options
    sed -i '30000s/3/4/' lines.txt # far from both ends
    run_match 2 "has other inputs, or they have changed" shardtool tokenize -o out $options
    shardtool tokenize --force -o out $options
    shardtool tokenize -o whole $options
    shardtool diff out whole
}

# rest_of_a_killed_run PLACES FILES OPTION...: that of a run that was killed after most of its shards. $bytes: what it reads of the files
rest_of_a_killed_run() {
    rm -rf whole out
    shardtool tokenize -q -o whole "${@:3}" 2>/dev/null
    shards=$(find whole -name '*.zst' | wc -l)
    kill_at rename $((shards * 9 / 5 + $1)) shardtool tokenize -q -j 1 -o out "${@:3}"
    strace -f -qq -y -e trace=read,rename -o calls shardtool tokenize -q -o out "${@:3}" 2>/dev/null
    cmp out/dataset.jsonl whole/dataset.jsonl
    bytes=$(grep -F "$2>" calls | awk '$NF ~ /^[0-9]+$/ { sum += $NF } END { print sum }')
    [ -z "$(leftovers)" ]
}

# bats test_tags=ci
@test "a run that continues tokenizes only what is missing" {
    seq 200000 | sed 's/.*/Line & of a text that is long enough to take some time./' >lines.txt
    rest_of_a_killed_run 2 lines.txt --docs lines --frame-tokens 1024 --shard-tokens 64k lines.txt # two of the probe of the folder
    # the renames of the rest: shards, tables, manifest; of the probe
    renames=$(grep -c 'rename(' calls) && [ "$renames" -le $((shards * 2 / 5 + 2)) ]
    # of the text as well, cut by lines or by paragraphs, only the rest is read
    sed -i 'n;G' lines.txt
    for docs in lines paragraphs; do
        rest_of_a_killed_run 0 lines.txt --docs $docs --frame-tokens 1024 --shard-tokens 64k lines.txt
        [ "$bytes" -le $((131072 + $(stat -c %s lines.txt) / 5)) ]
    done
}

# compress_stored FILE: FILE.gz of two members without compression. A changed byte of the first changes neither the size nor the
# first and last 64 KiB, which the digest of an input covers.
compress_stored() {
    python3 -c '
import gzip, sys
text = open(sys.argv[1], "rb").read()
half = len(text) // 2
open(sys.argv[1] + ".gz", "wb").write(b"".join(gzip.compress(part, 0, mtime=0) for part in (text[:half], text[half:])))' "$1"
}

# bats test_tags=ci
@test "a run that continues decompresses what is in finished shards, but does not read documents of it" {
    seq 20000 | jq -c '{text: "Line \(.) of a text that is long enough to take some time."}' >docs.jsonl
    mkdir members && split -n l/99 --additional-suffix .jsonl docs.jsonl members/ && tar cf members.tar --sort=name members
    for file in docs.jsonl members.tar; do
        compress_stored $file
        options="-q --frame-tokens 1024 --shard-tokens 8k $file.gz"
        shardtool tokenize -o whole-$file $options 2>/dev/null
        shards=$(find whole-$file -name '*.zst' | wc -l)
        kill_at rename $((shards * 9 / 5)) shardtool tokenize -j 1 -o out-$file $options
        # lines behind the first 64 KiB become bad, and the file's size and time stay
        touch -r $file.gz before
        sed -i 's/{"text":"Line 3000 /["text":"Line 3000 /; s/"Line 4000 of/"Line\x014000 of/' $file
        compress_stored $file && touch -r before $file.gz
        shardtool tokenize -o out-$file $options 2>/dev/null
        cmp out-$file/dataset.jsonl whole-$file/dataset.jsonl
        run_code 65 shardtool tokenize -o - -q $file.gz
    done
}

# make_compressed: two.jsonl.gz (two members), long.tar.gz and frames.jsonl.zst, each of 13 MB
make_compressed() {
    python3 - <<'END'
import gzip, io, json, random, subprocess, tarfile
random.seed(1)
words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 9))) for _ in range(3000)]
lines = [json.dumps({"text": " ".join(random.choices(words, k=400))}) + "\n" for _ in range(1700)]
parts = ["".join(lines[at:] + lines[:at]).encode() for at in (0, 500, 1000)]
with open("two.jsonl.gz", "wb") as file:
    for part in (parts[0], b"".join(parts[1:])):
        file.write(gzip.compress(part, 3, mtime=0))
with tarfile.open("long.tar.gz", "w:gz", compresslevel=3) as tar:
    for number, part in enumerate(parts * 10):
        member = tarfile.TarInfo("a long name " * 20 + f"{number:03}.jsonl")
        data = b"".join(part.splitlines(True)[number // 3 * 170 : number // 3 * 170 + 170])
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
with open("frames.jsonl.zst", "wb") as file:
    for part in parts:
        subprocess.run(["zstd", "-q1"], input=part, stdout=file, check=True)
END
}

# bats test_tags=ci
@test "a run that continues decompresses only the last megabytes before its place, and checks the checksum" {
    make_compressed
    for input in two.jsonl.gz long.tar.gz frames.jsonl.zst; do
        options="-q --val 0.1 --frame-tokens 1024 --shard-tokens 128k $input"
        rm -rf whole out
        shardtool tokenize -o whole $options
        shards=$(find whole -name '*.zst' | wc -l)
        kill_at rename $((shards * 9 / 5)) shardtool tokenize -j 1 -o out $options
        [ -d damaged ] || cp -r out damaged
        strace -f -qq -y -e trace=read -o calls shardtool tokenize -o out $options
        diff -r -x .lock whole out
        bytes=$(grep -F "$input>" calls | awk '$NF ~ /^[0-9]+$/ { sum += $NF } END { print sum }')
        size=$(stat -c %s $input) # the digest of a file reads its first and last 64 KiB
        [ "$bytes" -le $((131072 + size / 2)) ] || { echo "$input: read $bytes of $size bytes" && return 1; }
        [ $input = two.jsonl.gz ] || continue
        cp -r damaged pipes && rm pipes/.window && mkfifo pipes/.window
        run_match 73 "'pipes/.window' is not a regular file" timeout 60 shardtool tokenize -o pipes $options
        # with a damaged window all of the file is read
        printf 'x' | dd of=damaged/.window bs=1 seek=9 conv=notrunc status=none
        shardtool tokenize -o damaged $options
        diff -r -x .lock whole damaged
    done
    # the checksum is that of the member from its beginning
    printf x | dd of=two.jsonl.gz bs=1 seek=$(($(stat -c %s two.jsonl.gz) - 8)) conv=notrunc status=none
    options="-q --val 0.1 --frame-tokens 1024 --shard-tokens 128k two.jsonl.gz"
    rm -rf out
    kill_at rename $((shards * 9 / 5)) shardtool tokenize -j 1 -o out $options
    [ -s out/.window ]
    run_match 65 "'two.jsonl.gz': truncated or damaged*incorrect data check" shardtool tokenize -o out $options
}

@test "an unfinished run with other options or inputs is kept, and --force starts over" {
    seq 3000 >lines.txt
    options="--docs lines --frame-tokens 64 --shard-tokens 1024 --val 0"
    kill_at rename 5 shardtool tokenize -q -o out $options lines.txt
    find out -name '*.zst' | sort | xargs sha256sum >shards
    run_code 2 shardtool tokenize -o out $options --seed 3 --shard-tokens 2048 lines.txt
    [[ "$output" == *"the unfinished run in 'out' was made with --seed=0, this run has --seed=3: repeat"*"--force"* ]]
    run_match 2 "was made with no --max-tokens, this run has --max-tokens=9" shardtool tokenize -o out $options --max-tokens 9 lines.txt
    sha256sum --quiet -c shards
    run_code 0 shardtool tokenize -o out $options --seed 3 --force lines.txt
    [[ "$output" == *"starting over"* && "$output" != *"continuing"* ]]
    shardtool verify -q out
    rm -rf out
    kill_at rename 5 shardtool tokenize -q -o out $options lines.txt
    echo more >>lines.txt
    run_match 2 "has other inputs, or they have changed*--force" shardtool tokenize -o out $options lines.txt
    run_match 0 "starting over" shardtool tokenize --force -o out $options lines.txt
    rm -rf out
    kill_at rename 5 shardtool tokenize -q -o out $options lines.txt
    printf x | dd of=out/.journal bs=1 seek=12 conv=notrunc status=none # damaged
    run_match 0 "starting over*is damaged" shardtool tokenize -o out $options lines.txt
    shardtool tokenize -q -o whole $options lines.txt
    cmp out/dataset.jsonl whole/dataset.jsonl
}

@test "a finished shard that was damaged before the run continues is made again" {
    seq 3000 >lines.txt
    options="--docs lines --frame-tokens 64 --shard-tokens 1024 --val 0.1"
    shardtool tokenize -q -o whole $options lines.txt
    for file in 000002.zst 000002.docs; do
        rm -rf out
        kill_at rename 14 shardtool tokenize -q -o out $options lines.txt
        printf '\xff\x00\xff\x00' | dd of=out/train/000/$file bs=1 seek=100 conv=notrunc status=none
        run_match 0 "finished shards are made again: *'out/train/000/$file'" shardtool tokenize --json -o out $options lines.txt
        [[ "$output" == *"continuing after "*"(1 text in this run)"*'"inputs":{"text":1},"continued":true'* ]]
        diff -r -x .lock out whole
    done
}

# bats test_tags=ci
# fault 20
# fault 20
@test "a shard that is removed under the run is named, and the same command makes it again" {
    seq 300000 >lines.txt
    options="-q --docs lines --frame-tokens 1024 --shard-tokens 16k"
    shardtool tokenize -o whole $options - <lines.txt
    with_a_pause() { # before the last lines
        head -n 290000 lines.txt
        wait_until [ -e removed ]
        tail -n 10000 lines.txt
    }
    with_a_pause | shardtool tokenize -o out $options - 2>stderr 3>&- &
    wait_until [ -e out/train/000/000001.zst ]
    rm out/train/000/000001.zst
    touch removed
    status=0
    wait $! || status=$?
    [ "$status" = 74 ]
    grep -q "'out/train/000/000001.zst' is not the file of [0-9]* bytes that was written there" stderr
    [ ! -e out/dataset.jsonl ]
    shardtool tokenize -o out $options - <lines.txt
    shardtool diff out whole
}

# bats test_tags=ci
@test "a run that continues reads only what is missing, with --val 0.1 and 0.9" {
    seq 20000 | jq -c '{text: "Line \(.) of a text that is long enough to take some time."}' >docs.jsonl
    mkdir folder && split -n l/40 --additional-suffix .jsonl docs.jsonl folder/
    size=$(stat -c %s docs.jsonl)
    for val in 0.1 0.9; do
        # the digest of a file reads its first and last 64 KiB
        for row in "docs.jsonl $((131072 + size / 5))" "folder $((size + size / 5))"; do
            rest_of_a_killed_run 0 .jsonl --val $val --frame-tokens 1024 --shard-tokens 8k "${row% *}"
            [ "$bytes" -le "${row#* }" ] || { echo "$row, --val $val: read $bytes of $size bytes" && return 1; }
        done
    done
}

# bats test_tags=ci
@test "SIGINT, SIGTERM and SIGHUP leave no temporary file, and the same command continues" {
    seq 20000 >numbers.txt
    options="-q --docs lines --frame-tokens 512 --shard-tokens 8k -j 1 numbers.txt"
    shardtool tokenize -o whole $options
    # A test in the background, or under nohup, inherits signals that are ignored.
    signalled() { ASAN_OPTIONS=detect_leaks=0 env --default-signal=INT,TERM,HUP strace -f -qq -o /dev/null -e trace=fsync "$@"; }
    for signal in INT TERM HUP; do
        for file in merged.zst raw.bin; do
            [ $file = raw.bin ] && raw=--raw || raw=
            code=0
            signalled -e inject=fsync:signal=$signal shardtool cat $raw -o $file whole || code=$?
            [ $code -gt 128 ] && [ ! -e $file ] && [ -z "$(find . -name "*.tmp.*")" ] || { echo "$signal: exit $code" && ls -A && return 1; }
        done
        code=0
        signalled -e inject=fsync:signal=$signal:when=12 shardtool tokenize -o out $options || code=$?
        [ $code -gt 128 ]
        [ -d out/train ]
        signalled -e inject=fsync:signal=$signal:when=3 shardtool tokenize -o loud ${options#-q} 2>stopped || true
        [ "$(tail -n 1 stopped)" = "shardtool: stopped: the same command continues" ] && rm -r loud
        [ -z "$(find out -name '*.tmp.*')" ]
        shardtool tokenize -o out $options
        cmp out/dataset.jsonl whole/dataset.jsonl
        rm -r out
    done
    # one that is ignored stays ignored
    (trap '' INT && strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:signal=INT shardtool cat -o merged.zst whole)
    [ -s merged.zst ]
}
