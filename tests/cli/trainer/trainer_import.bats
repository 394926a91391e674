# trainer import: exit codes, messages and files. tests/oracle/trainer/test_model_import.py compares the models with torch.
load ../helpers

setup() { enter_test && files=$DATA/fuzz/import; }

@test "import requires one file and a new directory" {
    run_match 2 "missing -o DIR" trainer import "$files/llmc3.bin"
    run_match 2 "a ckpt.pt of nanoGPT or a .bin of llm.c" trainer import -o out
    run_code 66 trainer import -o out nowhere.pt
    [ ! -e out ]
}

@test "a model of characters is imported with its characters, and the end of a text is a new id" {
    run_match 76 "the vocabulary has 11 ids, and GPT-2's has 50257: name its tokenizer.json, or the meta.pkl beside nanoGPT's data, by --vocabulary" trainer import -o out "$files/float32.pt"
    python3 -c 'import pickle; c = "\n abcdefg\u00fcz"; pickle.dump({"vocab_size": 11, "itos": dict(enumerate(c)), "stoi": {x: i for i, x in enumerate(c)}}, open("meta.pkl", "wb"))'
    printf '\n abcdefg\xc3\xbcz' >abc
    trainer import -q --vocabulary meta.pkl -o out "$files/float32.pt"
    trainer import -q --vocabulary abc -o same "$files/float32.pt"
    diff -r out same
    cmp out/characters.txt abc
    jq -e '.vocab_size == 12 and .eos_token_id == 11' out/config.json
    python3 - <<'EOF'
import array, json
raw = open("out/model.safetensors", "rb").read()
size = int.from_bytes(raw[:8], "little")
table = json.loads(raw[8:8 + size])["transformer.wte.weight"]
begin, end = table["data_offsets"]
assert table["shape"] == [12, 4]
assert array.array("f", raw[8 + size:])[begin // 4:end // 4].tolist() == [float(i) for i in range(44)] + [0.0] * 4
EOF
    [[ "$(trainer sample --init_from=./out --start=abc --max_new_tokens=3 --num_samples=1 --block_size=3 --device=cpu)" == abc* ]]
    mkdir nanogpt && cp "$files/float32.pt" nanogpt/ckpt.pt
    for command in "train --init_from=nanogpt --out_dir=new" "train --init_from=resume --out_dir=nanogpt" "sample --out_dir=nanogpt" "eval --out_dir=nanogpt" "status nanogpt"; do
        # shellcheck disable=SC2086
        run_match 66 "'nanogpt' is a run of nanoGPT: \`millrace import -o DIR nanogpt/ckpt.pt\` makes a model" trainer $command
    done
    # none of 50 texts ends before its 40 characters
    trainer sample -q --init_from=./out --start=a --max_new_tokens=40 --num_samples=50 --temperature=1e9 --top_k=0 --block_size=3 --device=cpu >texts
    python3 -c 'texts = open("texts", encoding="utf-8").read().split("---------------\n"); assert [len(t) for t in texts if t] == [42] * 50, texts'
    run_match 0 "the id 11 is added for the end of a text, with an embedding of zeros" trainer import --vocabulary abc -o again "$files/float32.pt"
    printf abc >short
    run_match 76 "'short' has 3 characters, and the model in*11 ids" trainer import -o other --vocabulary short "$files/float32.pt"
    printf aa >twice
    run_code 65 trainer import -o other --vocabulary twice "$files/float32.pt"
    [ ! -e other ]
}

@test "a file, or a model that is named as a run, is refused with what to name instead, 66" {
    printf 0123456789 >abc
    cp "$files/float32.pt" ckpt.pt
    trainer import -q -o model --vocabulary abc "$files/llmc3.bin"
    for option in "train --init_from" "sample --init_from" "sample --out_dir" "eval --out_dir" "export -o made --out_dir"; do
        run_match 66 "'ckpt.pt' is a file*\`millrace import -o DIR ckpt.pt\`, for --init_from=DIR" trainer $option=ckpt.pt
        run_match 66 "'model/model.safetensors' is a file of a model: name its directory, --init_from=model" trainer $option=model/model.safetensors
        cd model
        run_match 66 "'config.json' is a file of a model: name its directory, --init_from=." trainer $option=config.json
        cd ..
    done
    run_match 66 "'./ckpt.pt' is a file*\`millrace import -o DIR ./ckpt.pt\`" trainer plan --init_from=./ckpt.pt
    run_match 66 "'model' is a model, not the directory of a run: train, eval, sample and export take it by --init_from=model" trainer sample --out_dir=model
    run_match 66 "'model' is a model, not the directory of a run" trainer status model
    run_match 66 "'model' is a model, not the directory of a run" trainer train --dataset=data --out_dir=model
    trainer sample -q --init_from=model/. --max_new_tokens=1 --num_samples=1 --device=cpu --start=0 --block_size=3
}

@test "a vocabulary of another size than the model's is refused" {
    printf 'aa bb ab %.0s' {1..40} >text.txt
    "$BIN/shardtool" train-vocabulary -q -V 259 -o vocab text.txt
    run_match 76 "'vocab' has 259 ids, and the model in*float32.pt' 11 ids" trainer import -o no --vocabulary vocab "$files/float32.pt"
    run_code 66 trainer import -o no --vocabulary nowhere "$files/float32.pt"
    [ ! -e no ]
}

# bats test_tags=ci
@test "a killed import leaves nothing under its name, and the same command completes it" {
    printf 0123456789 >abc
    import=("$BIN/trainer" import -q -o made/out --vocabulary abc "$files/llmc3.bin")
    trainer import -q -o whole --vocabulary abc "$files/llmc3.bin"
    complete_after_kills whole made/out "${import[@]}"
    run_code 73 "${import[@]}"
    [[ "$output" == *"'made/out' is not empty: choose another directory" ]]
    : >file
    run_code 73 trainer import -o file/out --vocabulary abc "$files/llmc3.bin"
    (ulimit -f 1 && run_code 74 trainer import -o small --vocabulary abc "$files/llmc3.bin")
    [ -z "$(find . -name '*small*')" ]
}

@test "import prints the kind of a file that holds no model" {
    for number in 20240527 20240328 20240803; do
        perl -e 'print pack("l<256", shift)' $number >file.bin
        run_match 65 "'file.bin': it is *llm.c" trainer import -o out file.bin
    done
    printf '\x80\x02\x8a\x0a' >file.pt
    run_match 65 "before version 1.6" trainer import -o out file.pt
    head -c 6000 "$files/float32.pt" >cut.pt
    run_match 65 "'cut.pt': it is not a zip archive, or its end is missing" trainer import -o out cut.pt
    : >empty
    run_code 65 trainer import -o out empty
    [ ! -e out ]
}

@test "import names the global of a pickle that would run code" {
    mkdir ckpt && printf '\x80\x02cposix\nsystem\nX\x0a\x00\x00\x00touch here\x85R.' >ckpt/data.pkl
    zip -q0r ckpt.pt ckpt
    run_match 65 "the pickle names 'posix.system', which is refused" trainer import -o out ckpt.pt
    [ ! -e here ]
    [ ! -e out ]
    zip -q9 small.zip "$files/float32.pt"
    run_match 65 "is compressed or encrypted" trainer import -o out small.zip
}
