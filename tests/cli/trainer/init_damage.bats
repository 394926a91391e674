# One changed bit in a directory that init_from names: no command may use its numbers.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    printf '\n abcdefg\xc3\xbcz' >abc
    seq 2000 | tr 0-9 'abcdefgz a' | split -l 20 - text-
    {
        "$BIN/shardtool" tokenize --quiet --val 0.2 --characters abc -o data text-*
        "$BIN/trainer" import --quiet --characters abc -o imported "$DATA/fuzz/import/float32.pt"
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

refuses_each() { # DIRECTORY FILE WORDS OFFSET...: 65 from every command
    local directory=$1 file=$2 words=$3 at command
    shift 3
    for at in "$@"; do
        cp "$directory/$file" kept
        flip "$directory/$file" "$at"
        for command in train eval sample; do
            run uses $command "./$directory"
            [ "$status" -eq 65 ] && [[ "$output" == *$words* ]] || { echo "$command $directory/$file $at: $status $output" && return 1; }
        done
        cp kept "$directory/$file"
    done
    for command in train eval sample; do uses $command "./$directory"; done
}

setup() { cd "$BATS_FILE_TMPDIR" || exit; }

# fault 88
@test "a changed bit of a tensor is found in a checkpoint, an export and an import, by train, eval and sample" {
    for directory in checkpoint exported imported; do
        refuses_each $directory model.safetensors "is damaged" -1 -5 -99 -203 -307 -401 -501 -602 -701 -802 -999 -1201
    done
}

# fault 88
@test "a changed header, config.json or state.json of a checkpoint is found by train, eval and sample" {
    at=$(grep -oba 'hash.transformer' checkpoint/model.safetensors | sed -n '2s/:.*//p')
    refuses_each checkpoint model.safetensors "damaged" "$at" $((at + 3))
    refuses_each exported model.safetensors "the header is damaged" "$at"
    refuses_each checkpoint config.json "is damaged" $(($(grep -ob activation_function checkpoint/config.json | cut -d: -f1) + 11))
    refuses_each checkpoint state.json "damaged" 40
}

# fault 88
@test "export refuses a damaged directory" {
    cp -r exported broken
    flip broken/model.safetensors -1
    run_code 65 "$BIN/trainer" export --init_from=./broken -o again
    [[ "$output" == *"is damaged"* && ! -e again ]]
}
