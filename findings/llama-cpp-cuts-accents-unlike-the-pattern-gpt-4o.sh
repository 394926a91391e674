#!/usr/bin/env bash
# Behaviour: a GGUF with tokenizer.ggml.pre gpt-4o, which is also that of llama4, has other ids in llama.cpp than its tokenizer.json in
#   tokenizers for words with accents and combining marks. llama.cpp takes [^a-z] for upper case, [^A-Z] for lower case, and no marks,
#   so that pieces end elsewhere; texts in ASCII have the same ids.
# Guess: the ids of tiktoken's o200k_base pattern, but for characters that are new in Unicode 16.
# Versions: xllamacpp 2026.10.11549 (llama.cpp b11549), gguf 0.19.0, tokenizers 0.23.3
# Date: 2026-11-29
# Output seen:
#   'camelCase HTTPServer, 1234567': the same ids
#   'ÉCOLE': 1 ids in tokenizers, 2 in llama.cpp
#   'été': 1 ids in tokenizers, 7 in llama.cpp
#   'हिन्दी': 1 ids in tokenizers, 10 in llama.cpp
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check xllamacpp==2026.10.11549 gguf==0.19.0 tokenizers==0.23.3 numpy==2.4.6
venv/bin/python - <<'END'
import json, urllib.request, gguf, numpy, tokenizers, xllamacpp
from tokenizers import models, pre_tokenizers, trainers
TEXTS = ["camelCase HTTPServer, 1234567", "ÉCOLE", "e\u0301te\u0301", "हिन्दी"]
UPPER, LOWER, ENDS = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{ENDS}|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{ENDS}|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
split = pre_tokenizers.Split(tokenizers.Regex(O200K), "isolated")
tokenizer = tokenizers.Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # merges across the limits of pieces
tokenizer.train_from_iterator(TEXTS * 9, trainers.BpeTrainer(vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
model = json.loads(tokenizer.to_str())["model"]
tokens = sorted(model["vocab"], key=model["vocab"].get)

writer, C = gguf.GGUFWriter("x.gguf", "gpt2"), 32
for name, value in ("context_length", 64), ("embedding_length", C), ("feed_forward_length", C), ("block_count", 1), ("head_count", 1), ("layer_norm_eps", 1e-5):
    getattr(writer, f"add_{name}")(value)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("gpt-4o")
writer.add_token_list(tokens)
writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
writer.add_eos_token_id(0)
shapes = {"token_embd.weight": (len(tokens), C), "position_embd.weight": (64, C), "blk.0.attn_qkv.weight": (3 * C, C), "blk.0.attn_qkv.bias": (3 * C,)}
shapes |= {f"{name}.{kind}": (C,) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm") for kind in ("weight", "bias")}
shapes |= {f"blk.0.{name}.{kind}": (C, C) if kind == "weight" else (C,) for name in ("attn_output", "ffn_up", "ffn_down") for kind in ("weight", "bias")}
for name, shape in shapes.items():
    writer.add_tensor(name, numpy.ones(shape, numpy.float32))
writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()

parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.n_parallel, parameters.warmup, parameters.verbosity = "x.gguf", 1, False, 0
server = xllamacpp.Server(parameters)
found = []
for text in TEXTS:
    request = urllib.request.Request(f"{server.listening_address}/tokenize", json.dumps({"content": text}).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
        theirs = json.load(response)["tokens"]
    want = tokenizer.encode(text).ids
    found.append(want == theirs)
    print(f"{text!r}: " + ("the same ids" if want == theirs else f"{len(want)} ids in tokenizers, {len(theirs)} in llama.cpp"))
raise SystemExit(found != [True, False, False, False])
END
