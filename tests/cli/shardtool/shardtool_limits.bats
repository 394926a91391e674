# shardtool: bounds of memory, address space and time, and inputs that would break them.

# bats file_tags=ci
load ../helpers

# fault 11
@test "a word longer than --max-word is 65 with its place" {
    (echo before && head -c 4M /dev/zero | tr '\0' a && echo after) >word.txt
    shardtool tokenize --help | grep -qF '[256MiB]'
    run_match 65 "'word.txt' document 0: a word of more than 2097152 bytes at byte 6 (--max-word)" shardtool tokenize -o out --max-word 2M word.txt
    [ ! -e out/dataset.jsonl ]
    run_code 65 shardtool tokenize --raw --format text --max-word 2M word.txt
    run_code 0 shardtool tokenize -q -o out --max-word 5M word.txt
    seq 500000 >prose.txt
    run_code 0 shardtool tokenize -q -o prose --max-word 1k prose.txt
    # in a document that is encoded at once, too
    for isa in portable avx2 avx512; do
        export MILLRACE_ISA=$isa
        for size in 100 140000; do
            (echo é before && head -c $((size + 1)) /dev/zero | tr '\0' a && echo . after) >word.txt
            for command in "tokenize --ids --format text" "tokenize -q --force -o out"; do
                run_match 65 "a word of more than $size bytes at byte 10 (--max-word)" shardtool $command --max-word $size word.txt
                run_code 0 shardtool $command --max-word $((size + 1)) word.txt
            done
        done
        printf 'aaaaa\xffaaaaaaaaa\n' >word.txt # two words and U+FFFD
        run_code 0 shardtool tokenize -q --force -o out --max-word 9 word.txt
        run_code 65 shardtool tokenize -q --force -o out --max-word 8 word.txt
    done
}

@test "tokenize uses at most 64 MiB and 16 MiB a thread, whatever the words" {
    needs_address_limit
    python3 - <<'END'
import random, resource, subprocess
words = random.Random(1)
with open("words.txt", "w") as file: # hardly a word twice: the caches fill
    for _ in range(20):
        file.write(" ".join(map(str, (words.getrandbits(40) for _ in range(40000)))).translate(str.maketrans("0123456789", "etaoinshrd")) + "\n")
for threads in (1, 2, 4):
    subprocess.run(["shardtool", "tokenize", "-q", "--force", "-j", str(threads), "--docs", "lines", "-o", "out", "words.txt"], check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 # the largest so far
    assert peak <= 64 + 16 * threads, f"{peak:.0f} MiB with -j {threads}"
END
}

@test "every command works in 300 MB of address space" {
    needs_address_limit
    echo "a document" >a.txt
    for command in "tokenize -j 1 -q -o out a.txt" "info out" "verify -q -j 1 out" "cat out" "info --lengths out" "decode out" "merge -q -o m out"; do
        (ulimit -v 300000 && shardtool $command >/dev/null)
    done
    (ulimit -v 300000 && run_code 0 shardtool tokenize -j 1 -o out a.txt && [[ "$output" == *"already complete"* ]])
}

# fault 4
@test "64 MiB of input without output is 65, not an endless wait" {
    # skippable frames of 16 MiB, which hold no content
    (for i in 1 2 3 4 5; do printf '\x50\x2a\x4d\x18\0\0\0\1' && head -c 16M /dev/zero; done; echo text | zstd) >silent.zst
    run_match 65 "64 MiB of input without output" shardtool decode --json silent.zst
}

# fault 2
@test "a stream compressed 24 times is refused with 65" {
    echo text >x
    for level in $(seq 24); do xz -0 <x >y && mv y x; done
    run_match 65 "--max-depth" shardtool decode --json x
}

# fault 3
@test "names from folders and shards reach the terminal without control characters" {
    mkdir in && printf '{"a": 1}\n' >in/$'red\e[31m\nok.jsonl' && mkfifo in/$'pipe\e[31m'
    ln -s absent in/$'link\e[31m'
    run_code 65 shardtool decode --json in
    [[ "$output" == *"red?[31m?ok.jsonl"* && "$output" != *$'\e'* ]]
    echo junk >$'red\e[31m\nok.zst'
    run_code 1 shardtool verify $'red\e[31m\nok.zst'
    [[ "${lines[0]}" == *"red?[31m?ok.zst"*"not a shard"* && "$output" != *$'\e'* ]]
}

# fault 13
@test "an archive without members is 66, like an empty folder" {
    tar cf empty.tar -T /dev/null && gzip -k empty.tar
    for file in empty.tar empty.tar.gz; do
        run_match 66 "contain no documents" shardtool tokenize -o out $file
        [ ! -e out ]
    done
    mkdir out # not of this command, which leaves it
    run_match 66 "contain no documents" shardtool tokenize -o out empty.tar
    [ -d out ]
    head -c 10240 /dev/zero >zeros.bin
    run_code 65 shardtool decode --json zeros.bin
}

@test "a directory without dataset.jsonl is refused" {
    mkdir folder
    ln -s loop loop
    run_match 66 "'folder' is not a dataset: it has no dataset.jsonl" shardtool merge -o out folder
    run_match 66 "cannot open 'nothing': No such file" shardtool merge -o out nothing
    run shardtool merge -o out loop
    [[ "$status" != 0 && "$output" == *"cannot open 'loop': Too many levels of symbolic links"* ]]
    for command in info verify cat "info --lengths"; do
        run shardtool $command folder
        [ "$status" -ne 0 ]
        [[ "$output" == *"'folder' is a directory without dataset.jsonl"* ]] || { echo "$command: $output" && return 1; }
    done
}

@test "an empty name of an output or a list is 2, and writes nothing" {
    echo text >a.txt && shardtool tokenize -q -o - a.txt >a.zst
    run_match 2 "-o: its DIR is empty" shardtool tokenize -o "" a.txt
    run_match 2 "its FILE is empty" shardtool cat --output= a.zst
    run_match 2 "--rebuild: its FILE is empty" shardtool verify --rebuild "" a.zst
    run_match 2 "--files-from: its FILE is empty" shardtool decode --json --files-from ""
    [ "$(ls -A | tr '\n' ' ')" = "a.txt a.zst " ]
}

# fault 10
@test "text in another encoding is counted, and named when it is more than 1 %" {
    printf 'd\xe9j\xe0 vu %.0s' $(seq 1000) >latin1.txt
    run_match 0 "replaced invalid UTF-8 by U+FFFD in 2000 places, more than 1 % of the text*iconv" shardtool decode --json -q latin1.txt
    run_match 0 "in 2000 places: 'latin1.txt' (2000), more than 1 % of the text*iconv" shardtool tokenize -q -o out latin1.txt
    (cat "$DATA/../../README.md" && printf '\xff') >one.txt
    run_code 0 shardtool tokenize -q -o one one.txt
    [[ "$output" == *"in 1 place: 'one.txt' (1)" ]]
}

# fault 2
@test "a file of empty seek tables is refused before memory is allocated for it" {
    needs_address_limit
    python3 -c '
import struct, sys
table = struct.pack("<II", 0x184D2A5E, 9) + struct.pack("<IBI", 0, 0x80, 0x8F92EAB1)
sys.stdout.buffer.write(table * 2000000)' >x.zst
    (ulimit -v 300000 && run_code 65 shardtool info x.zst && [[ "$output" == *"too few entries"* ]])
}

@test "frames of zstd and xz that are whole but not read are refused with the command that reads them" {
    refused() { # FILE REASON
        rm -rf DIR
        run_match 65 "'$1' at byte *: $2: * | millrace tokenize -o DIR -" shardtool tokenize -q -o DIR "$1"
        local command=${output##*: }
        command=${command/FILE/$1} command=${command/DICTIONARY/dictionary}
        PATH=$BIN:$PATH bash -c "$command --quiet --force --val 0"
        shardtool decode DIR | cmp - <(seq 1000 && printf '<|endoftext|>')
    }
    seq 1000 | zstd -q --ultra --long=31 >x.zst
    refused x.zst "its zstd window is larger than 128 MiB"
    for i in {1..200}; do seq "$i" 400 >"sample$i"; done
    zstd -q --train sample* -o dictionary --maxdict=2048
    seq 1000 | zstd -q -D dictionary >d.zst
    refused d.zst "a zstd frame was made with a dictionary"
    seq 1000 | xz --lzma2=dict=256MiB >x.xz
    refused x.xz "its xz dictionary is larger than 128 MiB"
}

@test "a stack that is too small ends the program with 71" {
    for program in "shardtool tokenize --ids --format text" "loader serve-status" "trainer plan"; do
        run_code 71 bash -c "ulimit -s 256; $BIN/$program" </dev/null
        [[ "$output" == *"the stack is limited to 256 KiB: raise the limit by \`ulimit -s\` to 512 or more" ]]
    done
}

@test "the first input that is compressed without checksum is named, and only it" {
    mkdir in && for i in 1 2 3; do seq $i 3000 >in/$i.txt; done
    zstd -q --rm in/1.txt && zstd -q --rm --no-check in/2.txt in/3.txt
    shardtool tokenize -o out in 2>log
    [ "$(grep -c checksum log)" = 1 ]
    grep -q "'in/2.txt.zst' is compressed without checksum: damage in it, and in other such inputs, cannot always be detected" log
    seq 3000 | xz --check=none >4.txt.xz
    run_match 0 "'4.txt.xz' is compressed without checksum" shardtool decode --json 4.txt.xz
}
