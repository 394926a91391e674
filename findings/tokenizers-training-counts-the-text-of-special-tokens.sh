#!/usr/bin/env bash
# Behaviour: the trainers of tokenizers take special_tokens, and encode() makes one id of them wherever a text spells them. But
#   training counts the same text as words: where <|endoftext|> stands between documents, ids are spent on its parts, which no text
#   can ever have, because encode() takes the whole first.
# Guess: training cuts special tokens out as encode() does, and learns nothing of them.
# Versions: tokenizers 0.23.3
# Date: 2026-11-28
# Output seen:
#   learned from texts with <|endoftext|> between them: <| endoftex endoftext ex oftex tex |>
#   ids of them in all the texts it was trained on: 0
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
venv/bin/python - <<'END'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

special = "<|endoftext|>"
texts = [f"a story of number {i} and its end{special}another story of {i}{special}" for i in range(3000)]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400, special_tokens=[special], initial_alphabet=alphabet, show_progress=False))
rest = texts[0].replace(special, " ")
parts = sorted(token for token in tokenizer.get_vocab() if len(token) > 1 and token in special and token != special and token not in rest)
print(f"learned from texts with {special} between them: {' '.join(parts)}")
ids = {tokenizer.token_to_id(part) for part in parts}
used = sum(id in ids for text in tokenizer.encode_batch(texts) for id in text.ids)
print(f"ids of them in all the texts it was trained on: {used}")
raise SystemExit(parts != ["<|", "endoftex", "endoftext", "ex", "oftex", "tex", "|>"] or used != 0)
END
