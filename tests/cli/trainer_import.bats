# trainer import: exit codes, messages and files. tests/oracle/test_model_import.py compares the models with torch.
load helpers

trainer() { "$BIN/trainer" "$@"; }

setup() { cd "$BATS_TEST_TMPDIR" && files=$DATA/fuzz/import; }

@test "import requires one file and a new directory" {
    run_code 2 trainer import "$files/llmc3.bin"
    [[ "$output" == *"missing -o DIR"* ]]
    run_code 2 trainer import -o out
    [[ "$output" == *"a ckpt.pt of nanoGPT or a .bin of llm.c"* ]]
    run_code 66 trainer import -o out nowhere.pt
    [ ! -e out ]
}

@test "import names what a file is that holds no model" {
    for number in 20240527 20240328 20240803; do
        perl -e 'print pack("l<256", shift)' $number >file.bin
        run_code 65 trainer import -o out file.bin
        [[ "$output" == *"'file.bin': it is "*"llm.c"* ]]
    done
    printf '\x80\x02\x8a\x0a' >file.pt
    run_code 65 trainer import -o out file.pt
    [[ "$output" == *"before version 1.6"* ]]
    head -c 6000 "$files/float32.pt" >cut.pt
    run_code 65 trainer import -o out cut.pt
    [[ "$output" == *"'cut.pt': it is no zip archive, or its end is missing"* ]]
    : >empty
    run_code 65 trainer import -o out empty
    [ ! -e out ]
}

@test "import names the global of a pickle that would run code" {
    mkdir ckpt && printf '\x80\x02cposix\nsystem\nX\x0a\x00\x00\x00touch here\x85R.' >ckpt/data.pkl
    zip -q0r ckpt.pt ckpt
    run_code 65 trainer import -o out ckpt.pt
    [[ "$output" == *"the pickle names 'posix.system', which is refused"* ]]
    [ ! -e here ] && [ ! -e out ]
    zip -q9 small.zip "$files/float32.pt"
    run_code 65 trainer import -o out small.zip
    [[ "$output" == *"is compressed or encrypted"* ]]
}
