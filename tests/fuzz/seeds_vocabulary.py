"""Seeds of the vocabulary fuzzer, one of each form, with the byte that chooses it before: seeds_vocabulary.py FOLDER."""
import base64
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import gpt2

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
spelt = {byte: character for character, byte in gpt2.byte_of().items()}
pairs = [("h", "e"), ("t", "he"), ("th", "e"), ("Ġ", "the"), ("1", "1")]
vocab = {spelt[byte]: i for i, byte in enumerate(gpt2.byte_of().values())}
for left, right in pairs:
    vocab.setdefault(left + right, len(vocab))
special = {"id": len(vocab), "content": "<|endoftext|>", "special": True}
split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
model = {"type": "BPE", "vocab": vocab, "merges": [" ".join(pair) for pair in pairs[:1]] + [list(pair) for pair in pairs[3:]]}
whole = {"added_tokens": [special], "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "model": model}
ranks = [bytes([byte]) for byte in range(256)] + [b"he", b"the", b" the", b"111"]
seeds = {
    "tokenizer": b"\0" + json.dumps(whole).encode(),
    "tiktoken": b"\1" + b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(ranks)),
    "pair": b"\2" + json.dumps(vocab | {"<|endoftext|>": len(vocab)}).encode() + b"\0#version: 0.2\nh e\n",
}
model["merges"] = [" ".join(pair) for pair in pairs[:3:2]]
vocab = {token: i for i, token in enumerate(list(vocab)[:256] + ["he", "th", "the"])}
model["vocab"], model["merges"], special["id"] = vocab, ["h e", "t h", "t he", "th e"], 259
seeds["several"] = b"\0" + json.dumps(whole).encode()
for name, data in seeds.items():
    with open(os.path.join(sys.argv[1], name), "wb") as file:
        file.write(data)
