# export and import on the command line: files, exit codes, messages. tests/oracle/shardtool/test_interchange.py compares the contents
# with the readers of the other tools.

# bats file_tags=ci
load ../helpers

dataset() {
    mkdir -p in
    for i in $(seq 40); do seq "$i" $((i * 17)) >"in/$(printf %03d "$i").txt"; done
    shardtool tokenize -q --val 0.2 --shard-tokens 1000 --frame-tokens 100 -o d in
}
ids() { for i in "$@"; do printf "\\x$(printf %02x $((i % 256)))\\x$(printf %02x $((i / 256)))"; done; }

@test "export writes train and val files, and nothing else" {
    dataset
    run_match 0 "train: 23068 ids*val: 3457 ids" shardtool export-tokens --format nanogpt -o out d
    [ "$(ls -A out | tr '\n' ' ')" = "train.bin val.bin " ]
    zstd -dcq d/train/*/*.zst | cmp - out/train.bin
    zstd -dcq d/val/*/*.zst | cmp - out/val.bin
    shardtool export-tokens -q --format npy -o deep/folder/npy d/train/000/000000.zst
    [ "$(ls -A deep/folder)" = npy ]
    [ "$(ls -A deep/folder/npy)" = train.npy ]
    shardtool cat -o - d | shardtool export-tokens -q --format nanogpt -o piped -
    cmp out/train.bin piped/train.bin
}

@test "an export is replaced only with --force, and only if nothing else is in it" {
    dataset
    shardtool export-tokens -q --format megatron -o out d
    run_match 73 "'out' is not empty: choose another directory, or --force" shardtool export-tokens --format nanogpt -o out d
    shardtool export-tokens -q --format nanogpt --force -o out d
    [ "$(ls -A out | tr '\n' ' ')" = "train.bin val.bin " ]
    echo notes >out/notes.txt
    run_match 73 "'out' holds 'notes.txt'" shardtool export-tokens --format npy --force -o out d
    [ -e out/train.bin ]
    run_code 73 shardtool export-tokens --format npy --force -o d d
    mkdir empty
    shardtool export-tokens -q --format npy -o empty d
}

@test "an export through a link is made in the directory behind it" {
    dataset
    mkdir disk
    ln -s disk link
    ln -s nowhere dangling
    shardtool export-tokens --format nanogpt -q -o link d
    [ -L link ]
    [ -e disk/train.bin ]
    run_match 73 "link to a directory that does not exist" shardtool export-tokens --format nanogpt -o dangling d
    [ -z "$(compgen -G '.*.tmp.*')" ]
}

@test "a failed or killed export leaves the earlier one and no file behind" {
    dataset
    shardtool export-tokens -q --format nanogpt -o out d
    sha256sum out/* >before
    run_code 74 bash -c 'trap "" XFSZ; ulimit -f 8; shardtool export-tokens --format npy --force -o out d'
    sha256sum -c --quiet before
    cp -r d bad
    printf x | dd of=bad/train/000/000005.zst bs=1 seek=200 conv=notrunc status=none
    run_code 65 shardtool export-tokens --format npy --force -o out bad
    sha256sum -c --quiet before
    [ "$(ls -A | tr '\n' ' ')" = "bad before d in out " ]
    mkdir .out.tmp.99999999
    : >.out.tmp.99999999/train.bin # of a killed run
    shardtool export-tokens -q --format npy --force -o out d
    [ ! -e .out.tmp.99999999 ]
}

@test "end-of-text ids move before the documents and back" {
    printf 'one' >a.txt
    printf 'two' >b.txt
    shardtool tokenize -q --val 0 -o d a.txt b.txt
    shardtool export-tokens -q --format llmc -o llmc d
    tail -c +1025 llmc/train_000000.bin | cmp - <(ids 50256 505 50256 11545)
    shardtool export-tokens -q --format nanogpt --eot before -o before d
    ids 50256 505 50256 11545 | cmp - before/train.bin
    run_match 0 "train begins with the end-of-text id 50256*use --eot before" shardtool import-tokens --format nanogpt -o wrong before
    shardtool import-tokens -q --format nanogpt --eot before -o back before
    shardtool diff --ids d back
    run_match 65 "'before/train.bin': shorter than a header" shardtool import-tokens --format llmc --eot before -o x before/train.bin
    shardtool export-tokens -q --format llmc --eot after -o after d
    run_match 65 "does not begin with the end-of-text id 50256: use --eot after" shardtool import-tokens --format llmc -o x after
    run_code 2 shardtool export-tokens --format megatron --eot before -o x d
}

@test "import names what is wrong, and writes nothing" {
    ids 1 2 50256 >train.bin
    ids 1 60000 50256 >large.bin
    printf abc >odd.bin
    run_match 65 "'large.bin': id 60000 at index 1 is not in the vocabulary of 50257" shardtool import-tokens --format nanogpt -o out large.bin
    run_match 65 "'odd.bin': its size is not a multiple of 2 bytes" shardtool import-tokens --format nanogpt -o out odd.bin
    # a header of llm.c is not ids, also where the vocabulary would have them
    { printf '\x88\xd8\x34\1\1\0\0\0\4\0\0\0' && head -c 1012 /dev/zero && printf '\1\0\2\0\3\0\4\0'; } >llmc.bin
    run_match 65 "'llmc.bin': *--format llmc" shardtool import-tokens --format nanogpt -o out llmc.bin
    run_match 65 "holds token ids of llm.c: *import-tokens --format llmc" shardtool decode --json llmc.bin
    for type in '<i4' '<i8' '>u2'; do
        { printf '\x93NUMPY\1\0\x76\0' && printf "%-117s\n" "{'descr': '$type', 'fortran_order': False, 'shape': (1,), }" && printf '\1\0\0\0\0\0\0\0'; } >ids.npy
        run_match 65 "of type '$type'*astype" shardtool import-tokens --format npy -o out ids.npy
        run_match 65 "'ids.npy': it begins as a file of NumPy*--format npy" shardtool import-tokens --format nanogpt -o out ids.npy
    done
    run_match 65 "'train.bin': not a NumPy file" shardtool import-tokens --format npy -o out train.bin
    run_match 66 "train.idx" shardtool import-tokens --format megatron -o out train.bin
    run_match 2 "'train.bin' does not end in .ds" shardtool import-tokens --format datatrove -o out train.bin
    mkdir folder
    echo hello >folder/README.md
    run_match 66 "no input file ends in .bin" shardtool import-tokens --format nanogpt -o out folder
    [ -z "$(find out -name '*.zst*' -o -name dataset.jsonl)" ]
    run_match 2 "missing --format nanogpt|llmc|megatron|datatrove|npy" shardtool import-tokens -o out train.bin
    run_match 2 "missing -o DIR" shardtool import-tokens --format nanogpt train.bin
}

# fault 101
@test "a file of 32-bit or 64-bit ids is refused, not read with ids 0 after each" {
    python3 -c '
import array
ids = [464, 717, 3188, 13, 50256]
for name, kind in ("int32.bin", "i"), ("int64.bin", "q"), ("u16.bin", "H"):
    array.array(kind, ids).tofile(open(name, "wb"))'
    for bytes in 4 8; do
        file=int$((bytes * 8)).bin
        run_match 65 "'$file': it looks like ids of $bytes bytes*numpy.fromfile(FILE, 'u$bytes').astype('u2')" shardtool import-tokens --format nanogpt -o out $file
    done
    [ ! -e out/dataset.jsonl ]
    ids 0 0 64 0 0 50256 >marks.bin # "!!a!!"
    run_code 0 shardtool import-tokens -q --format nanogpt -o out u16.bin marks.bin
    shardtool cat out | cmp - <(cat marks.bin u16.bin)
}

@test "names decide the split; one split goes to standard output" {
    ids 1 2 50256 >train.bin
    ids 3 50256 >val.bin
    ids 4 50256 >medieval_002.bin
    run_match 0 "read 2 train and 1 val files" shardtool import-tokens --format nanogpt -o out train.bin val.bin medieval_002.bin
    shardtool cat --split val out | cmp - val.bin
    mkdir -p sets/val sets/train sets/valley && cp train.bin sets/train/a.bin && cp val.bin sets/val/a.bin
    cp medieval_002.bin sets/valley && ids 5 50256 >sets/val/train_b.bin
    for inputs in sets "sets/train sets/val sets/valley" "sets/train/a.bin sets/val/a.bin sets/val/train_b.bin sets/valley/medieval_002.bin"; do
        # shellcheck disable=SC2086
        run_match 0 "read 3 train and 1 val files" shardtool import-tokens --force --format nanogpt -o folders $inputs
        shardtool cat --split val folders | cmp - val.bin
    done
    shardtool import-tokens -q --format nanogpt -o - train.bin >x.zst
    shardtool verify -q x.zst
    shardtool cat x.zst | cmp - train.bin
    run_match 2 "-o - takes one split" shardtool import-tokens --format nanogpt -o - train.bin val.bin
    shardtool import-tokens -q --format nanogpt -o - - <train.bin | cmp - x.zst
}

@test "repeating a finished import changes nothing; another one is refused without --force" {
    ids 1 2 50256 >train.bin
    ids 3 50256 >other.bin
    shardtool import-tokens -q --format nanogpt -o out train.bin
    run_match 0 "'out' is already complete" shardtool import-tokens --format nanogpt -o out train.bin
    run_match 73 "already holds another dataset" shardtool import-tokens --format nanogpt -o out other.bin
    shardtool cat out | cmp - train.bin
    shardtool import-tokens -q --force --format nanogpt -o out other.bin
    shardtool cat out | cmp - other.bin
    run_code 65 shardtool import-tokens -q --force --format npy -o out train.bin
    shardtool cat out | cmp - other.bin
    shardtool verify -q out
}

@test "ids of another vocabulary than GPT-2's keep its file in an export, which import reads" {
    for number in 1 2 3 4 5 6 7 8; do seq -f "%g sacks of grain, mill $number" 200 >"text$number.txt"; done
    shardtool train-vocabulary --characters text*.txt >characters
    shardtool train-vocabulary -q -V 400 -o merges text*.txt
    shardtool tokenize -q --vocabulary characters --val 0.3 -o letters text*.txt
    shardtool tokenize -q --vocabulary merges --val 0.3 -o words text*.txt
    for data in letters words; do
        for format in nanogpt npy llmc megatron datatrove; do
            shardtool export-tokens -q --format $format -o out $data
            shardtool import-tokens -q --format $format -o back out
            shardtool diff --ids $data back
            run_code 0 diff <(shardtool decode $data) <(shardtool decode back)
            shardtool export-tokens -q --force --format $format -o out back
            rm -r out back
        done
    done
    # nanoGPT's characters have a meta.pkl, which is a program
    mkdir nanogpt
    shardtool export-tokens -q --format nanogpt -o out letters
    cp out/train.bin nanogpt && touch nanogpt/meta.pkl
    for path in nanogpt nanogpt/train.bin; do
        run_match 65 "'nanogpt/meta.pkl' is beside the ids, which are of its characters" shardtool import-tokens --format nanogpt -o refused $path
    done
    [ ! -e refused ]
}
