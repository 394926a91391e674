#!/usr/bin/env bash
# Behaviour: AutoTokenizer of transformers 5.23 does not take tokenizer.json as it is. Where tokenizer_config.json names GPT2Tokenizer
#   or Qwen2Tokenizer, or names no class beside a config.json of model_type gpt2, the pre-tokenizer of that class replaces the
#   file's. The merges stay, the ids change, without a warning. LlamaTokenizer is the exception: it warns, and keeps the file.
# Guess: tokenizer.json is the whole tokenizer, and the class only adds the names of special tokens, as in transformers 4.
# Versions: transformers 5.23.0, tokenizers 0.23.3
# Date: 2026-11-27
# Output seen (a byte-level BPE with the pattern of Llama 3; how "1234567" is cut, and whether the ids of a text are the file's):
#   tokenizer.json:                      123 456 7
#   PreTrainedTokenizerFast, model gpt2: 123 456 7, the same ids (TokenizersBackend)
#   LlamaTokenizer, model llama:         123 456 7, the same ids (TokenizersBackend, with a warning)
#   GPT2Tokenizer, model gpt2:           1234567, other ids
#   no class, model gpt2:                1234567, other ids (GPT2Tokenizer)
#   Qwen2Tokenizer, model qwen2:         1 2 3 4 5 6 7, other ids
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
HF_HUB_OFFLINE=1 venv/bin/python - <<'END'
import json, os
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
tokenizer = Tokenizer(models.BPE())
cut, bytes_ = pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([cut, bytes_]), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train_from_iterator(["(the mill) of 123 456 7 stones"] * 9, trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False))
tokenizer.add_special_tokens(["<|endoftext|>"])
text = "(the mill) of 1234567"
own = tokenizer.encode(text).ids
print("tokenizer.json:", own, tokenizer.pre_tokenizer.pre_tokenize_str("1234567"))

changed = False
cases = [("PreTrainedTokenizerFast", "gpt2", True), ("LlamaTokenizer", "llama", True), ("GPT2Tokenizer", "gpt2", False), (None, "gpt2", False), ("Qwen2Tokenizer", "qwen2", False)]
for number, (name, model, same) in enumerate(cases):
    os.mkdir(str(number))
    tokenizer.save(f"{number}/tokenizer.json")
    config = {"eos_token": "<|endoftext|>"} | ({"tokenizer_class": name} if name else {})
    json.dump(config, open(f"{number}/tokenizer_config.json", "w"))
    json.dump({"model_type": model}, open(f"{number}/config.json", "w"))
    loaded = AutoTokenizer.from_pretrained(str(number))
    pieces = loaded.backend_tokenizer.pre_tokenizer.pre_tokenize_str("1234567")
    ids = loaded.encode(text, add_special_tokens=False)
    print(f"{name}, model {model}: {type(loaded).__name__}, {[piece for piece, _ in pieces]}, {'the same' if ids == own else 'other'} ids")
    changed |= ([piece for piece, _ in pieces] == ["123", "456", "7"]) != same
    changed |= (ids == own) != same
raise SystemExit(changed)
END
