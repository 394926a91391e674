#!/usr/bin/env bash
# Behaviour: a tokenizer.json may hold the truncation and padding that were set when it was saved, as those of models for sentences
#   do. datatrove's DocumentTokenizer keeps them: each document is cut to max_length ids and filled with padding, and both are
#   written as training data, without a message. transformers leaves both out unless a call asks for them.
# Guess: a tokenizer for training data switches truncation off, or refuses it; padding is never written.
# Versions: datatrove 0.10.1, tokenizers 0.23.3
# Date: 2026-11-28
# Output seen:
#   without truncation and padding: 20 documents of 9 ids
#   truncation to 4, padding to 6: 20 documents of 6 ids, the first 1 2 3 0 0 0
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datatrove==0.10.1 tokenizers==0.23.3 xxhash==3.6.0 numpy==2.4.6 regex==2026.11.19
venv/bin/python - 2>err <<'END' || { tail -5 err && exit 1; }
import numpy
from datatrove.data import Document
from datatrove.pipeline.tokens import DocumentTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers

words = "<end> a mill of words that grinds on".split()
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<end>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.add_special_tokens(["<end>"])


def ids_of(name):
    tokenizer.save(f"{name}.json")
    step = DocumentTokenizer(output_folder=name, tokenizer_name_or_path=f"{name}.json", eos_token="<end>", shuffle_documents=False)
    documents = (Document(text="a mill of words that grinds on words", id=str(i)) for i in range(20))
    list(step.run(documents, rank=0, world_size=1) or [])
    return numpy.fromfile(f"{name}/00000_unshuffled.ds", "<u2").reshape(20, -1)


whole = ids_of("plain")
print(f"without truncation and padding: 20 documents of {whole.shape[1]} ids")
tokenizer.enable_truncation(4)
tokenizer.enable_padding(length=6, pad_id=0, pad_token="<end>")
cut = ids_of("cut")
print(f"truncation to 4, padding to 6: 20 documents of {cut.shape[1]} ids, the first {' '.join(map(str, cut[0]))}")
raise SystemExit(whole.shape[1] != 9 or cut[0].tolist() != [1, 2, 3, 0, 0, 0])
END
