# What transformers says of a model: losses, exports.
# peers: torch, transformers
load ../helpers

python=$ROOT/build/venv/bin/python
parity() { "$python" "$ROOT/tests/oracle/trainer/parity_$1.py" "${@:2}"; }

setup() {
    "$python" -c 'import torch, transformers' 2>/dev/null || skip "build/venv has no torch or no transformers (make test-peers)"
    enter_test
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
