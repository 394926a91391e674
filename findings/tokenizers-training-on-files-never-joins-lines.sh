#!/usr/bin/env bash
# Behaviour: Tokenizer.train of FILES gives the trainer one line at a time, with its end. No token of a byte-level BPE then has anything
#   after a line end: no empty line, no line end with the next line's indentation, which the pattern of GPT-2 makes one piece.
#   train_from_iterator with the same text as one string learns these tokens. Encoding does not cut at lines, so the vocabulary of
#   files is worse for the same text: source code needs 30 % more ids.
# Guess: both see the same text, so both make the same vocabulary.
# Versions: tokenizers 0.23.3
# Date: 2026-11-28
# Output seen (at most 280 tokens, the same text):
#   train(["code.txt"]): 0 tokens with something after a line end, 4400 ids for the text
#   train_from_iterator([text]): 6 tokens with something after a line end, 3399 ids for the text
#   train_from_iterator(lines): 0 tokens with something after a line end, 4400 ids for the text
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
venv/bin/python - <<'END'
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
text = "def f(x):\n    if x:\n        return 1\n\n    return 2\n\n\n" * 200
open("code.txt", "w").write(text)
def measure(train):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    train(tokenizer, trainers.BpeTrainer(vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    line_end = "\u010a"  # the name of the byte in the vocabulary
    joined = [token for token in tokenizer.get_vocab() if line_end in token[:-1]]
    return len(joined), len(tokenizer.encode(text).ids)
cases = {
    'train(["code.txt"])': lambda t, trainer: t.train(["code.txt"], trainer),
    "train_from_iterator([text])": lambda t, trainer: t.train_from_iterator([text], trainer),
    "train_from_iterator(lines)": lambda t, trainer: t.train_from_iterator(text.splitlines(keepends=True), trainer),
}
got = {name: measure(train) for name, train in cases.items()}
for name, (joined, ids) in got.items():
    print(f"{name}: {joined} tokens with something after a line end, {ids} ids for the text")
files, whole, lines = got.values()
raise SystemExit(files != lines or files[0] != 0 or whole[0] == 0 or whole[1] >= files[1])
END
