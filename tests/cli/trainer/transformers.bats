# What transformers says of a model: losses, exports, multiple-choice items.
# peers: torch, transformers
load ../helpers

python=$ROOT/build/venv/bin/python
hf() { "$python" "$ROOT/tests/oracle/trainer/choices_hf.py" "$@" 2>/dev/null; }
parity() { "$python" "$ROOT/tests/oracle/trainer/parity_$1.py" "${@:2}"; }
evaluate() { "$BIN/trainer" eval --init_from=./model --dtype=float32 --threads=1 --batch_size=3 --quiet "$@"; }

setup() {
    "$python" -c 'import torch, transformers' 2>/dev/null || skip "build/venv has no torch or no transformers (make test-peers)"
    enter_test
}

@test "eval --choices has the losses and choices of transformers, and names a bad line, 65" {
    hf make model items.jsonl 20
    evaluate --choices=items.jsonl --json | hf check model items.jsonl
    [[ "$(evaluate --choices=items.jsonl)" == "accuracy 0."*" over 20 items" ]]
    for line in nothing '[]' '{"ctx": 3, "endings": ["b", "c"], "label": 0}' '{"ctx": "a", "endings": ["b"], "label": 0}' \
        '{"ctx": "a", "endings": ["b", 3], "label": 0}' '{"ctx": "a", "endings": ["b", "c"], "label": 2}'; do
        { head -1 items.jsonl && echo && echo "$line"; } >bad.jsonl
        run_match 65 "'bad.jsonl' line 3: " evaluate --choices=bad.jsonl
    done
    # a space that an ending begins with is not doubled
    echo '{"ctx": "the river", "endings": ["mill", "stone"], "label": 1}' >plain.jsonl
    sed 's/"mill", "stone"/" mill", " stone"/' plain.jsonl >spaced.jsonl
    cmp <(evaluate --choices=plain.jsonl --json) <(evaluate --choices=spaced.jsonl --json)
    : >empty.jsonl
    run_code 66 evaluate --choices=empty.jsonl
}

@test "transformers has the losses of a run, and the logits, ids and text of what trainer export writes of it" {
    make_data 3000 0.1
    write_tiny_conf tiny.conf
    "$BIN/trainer" train tiny.conf --dataset=data --out_dir=run --quiet --n_embd=64 --block_size=64 --bias=True --mlp=gelu:tanh
    parity trainer_hf "$BIN" run data
    parity export "$BIN/trainer" "$(printf '%s\n' run/ckpt-*[0-9] | tail -1)"
}

@test "AutoTokenizer gives the ids of characters, refuses others, and gives the text back" {
    seq 600 | sed 's/.*/"a & b" \\ { é 水\tx\n/' >play.txt
    "$BIN/shardtool" train-vocabulary --characters play.txt >abc.txt
    "$BIN/shardtool" tokenize -q --docs paragraphs --val 0.2 --vocabulary abc.txt -o data play.txt
    write_tiny_conf tiny.conf
    "$BIN/trainer" train tiny.conf --dataset=data --out_dir=run --quiet
    "$python" - "$(printf '%s\n' run/ckpt-*[0-9] | tail -1)" <<'END'
import sys, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
characters, text = open("abc.txt", newline="").read(), open("play.txt", newline="").read()[:200]
ids = [characters.index(character) for character in text] # its place in the file is its id
assert tokenizer(text)["input_ids"] == ids and tokenizer.decode(ids) == text
assert tokenizer("a<|endoftext|>")["input_ids"][1] == tokenizer.eos_token_id == len(characters)
try:
    raise SystemExit(f"an unknown character has the ids {tokenizer('Z')['input_ids']}")
except Exception as error:
    assert "WordLevel" in str(error), error
END
}
