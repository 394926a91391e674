# One changed bit in a directory that init_from names: no command may use its numbers.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    printf '\n abcdefg\xc3\xbcz' >abc
    seq 2000 | tr 0-9 'abcdefgz a' | split -l 20 - text-
    {
        "$BIN/shardtool" tokenize --quiet --val 0.2 --vocabulary abc -o data text-*
        "$BIN/trainer" import --quiet --vocabulary abc -o imported "$DATA/fuzz/import/float32.pt"
        "$BIN/trainer" train --quiet --init_from=./imported --out_dir=run --dataset=data --batch_size=2 --dtype=float32 \
            --gradient_accumulation_steps=1 --eval_iters=1 --max_iters=2 --sample_tokens=0 --device=cpu
        "$BIN/trainer" export --quiet --out_dir=run -o exported
    } 3>&-
    cp -r run/ckpt-00000002 checkpoint
    cp run/characters.txt checkpoint
}

uses() { # COMMAND DIRECTORY
    case $1 in
        train) "$BIN/trainer" train --init_from="$2" --out_dir="$BATS_TEST_TMPDIR/out" --dataset=data --max_iters=0 --eval_iters=1 --sample_tokens=0 --device=cpu ;;
        eval) "$BIN/trainer" eval --init_from="$2" --dataset=data --eval_tokens=60 --device=cpu ;;
        sample) "$BIN/trainer" sample --init_from="$2" --start=a --num_samples=1 --max_new_tokens=2 --device=cpu ;;
    esac
}

# flip FILE OFFSET: one bit; a negative offset counts from the end
flip() { python3 -c 'import sys; p, at = sys.argv[1], int(sys.argv[2]); b = bytearray(open(p, "rb").read()); b[at] ^= 0x40; open(p, "wb").write(b)' "$@"; }

setup() { cd "$BATS_FILE_TMPDIR" || exit; }

# Each bit of the tensors: a_changed_bit_of_a_tensor_is_found_in_a_checkpoint_an_export_and_an_import in test_checkpoint.c.
# fault 88
@test "a changed bit of a tensor is found in a checkpoint, an export and an import, by train, eval and sample" {
    for directory in checkpoint exported imported; do
        cp -r $directory changed-$directory
        flip changed-$directory/model.safetensors -1
        for command in train eval sample; do run_match 65 "is damaged" uses $command ./changed-$directory; done
    done
}

# Each bit of the files: checkpoint_detects_every_flipped_bit.
# fault 88
@test "a changed header, config.json or state.json is found" {
    at=$(grep -oba 'hash.transformer' checkpoint/model.safetensors | sed -n '2s/:.*//p')
    refuses() { # DIRECTORY FILE OFFSET WORDS
        rm -rf broken && cp -r "$1" broken && flip "broken/$2" "$3"
        run_match 65 "$4" uses eval ./broken
    }
    refuses checkpoint model.safetensors "$at" "damaged"
    refuses exported model.safetensors "$at" "the header is damaged"
    refuses checkpoint config.json $(($(grep -ob activation_function checkpoint/config.json | cut -d: -f1) + 11)) "is damaged"
    refuses checkpoint state.json 40 "damaged"
}

# fault 88
@test "export refuses a damaged directory" {
    cp -r exported changed && flip changed/model.safetensors -1
    run_code 65 "$BIN/trainer" export --init_from=./changed -o again
    [[ "$output" == *"is damaged"* && ! -e again ]]
}
