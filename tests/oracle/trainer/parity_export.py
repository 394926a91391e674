"""Loads what `trainer export` wrote with transformers: the tokenizer gives tiktoken's ids, the text-generation pipeline runs
and continues as `trainer sample --temperature=0`, and the logits are those of the model in fp32.

usage: parity_export.py TRAINER MODEL      (MODEL: a model directory)
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import gpt2

trainer, source = sys.argv[1:3]
folder = os.path.dirname(os.path.abspath(__file__))
tiktoken = gpt2.encoding()


def logits(directory):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory).float().eval()
    with torch.no_grad():
        return model((torch.arange(64)[None] * 997) % 50257).logits


wanted = logits(source)
with tempfile.TemporaryDirectory() as temporary:
    for dtype, bits in ("float32", 24), ("float16", 11), ("bfloat16", 8):
        target = f"{temporary}/{dtype}"
        subprocess.run([trainer, "export", "-o", target, f"--init_from={source}", f"--dtype={dtype}"], check=True)
        off = ((logits(target) - wanted).norm() / wanted.norm()).item()
        print(f"{dtype}: relative error of the logits {off:.2e}")
        assert off <= (1e-5 if dtype == "float32" else 2.0 ** (2 - bits))

    target = f"{temporary}/float32"
    tokenizer = transformers.AutoTokenizer.from_pretrained(target, model_max_length=10**9)
    with open(f"{folder}/../../data/tokenizer_vectors.jsonl", encoding="utf-8") as lines:
        texts = [vector["text"] for vector in map(json.loads, lines) if "text" in vector]
    for text in texts:
        assert tokenizer(text)["input_ids"] == tiktoken.encode(text, allowed_special="all"), text
    print(f"tokenizer: the ids of {len(texts)} texts are tiktoken's")

    generate = transformers.pipeline("text-generation", model=target)
    theirs = generate("Hello there", max_new_tokens=40, do_sample=False)[0]["generated_text"]
    ours = subprocess.run([trainer, "sample", f"--init_from={target}", "--start=Hello there", "--num_samples=1", "--temperature=0",
                           "--max_new_tokens=40", "--dtype=float32"], check=True, capture_output=True).stdout
    assert ours.decode(errors="replace").split("\n---------------")[0] == theirs, (ours, theirs)
    print(f"pipeline: {theirs!r}")
