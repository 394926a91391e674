# peers: gguf, xllamacpp
"""`export -o NAME.gguf`: what the file computes, in double precision, against the trainer, and against llama.cpp that reads the file: logits,
ids of texts, texts of the greatest logits."""
import base64
import collections
import json
import os
import random

import numpy as np

import rooms  # noqa: F401
import gguf_model, gpt2_model, runner

BIN = os.environ["BIN"]
LLAMA = ["--norm=rmsnorm", "--position=rope", "--mlp=swiglu"]
SHAPE = ["--n_layer=2", "--n_head=4", "--n_embd=32", "--block_size=32", "--batch_size=2", "--gradient_accumulation_steps=1", "--max_iters=40",
         "--learning_rate=2e-2", "--warmup_iters=2", "--lr_decay_iters=40", "--eval_interval=0", "--threads=1", "--dtype=float32", "--device=cpu",
         "--sample_tokens=0", "--quiet", "--dataset=data"]  # fmt: skip
FORMS = {
    "gpt2": ["--mlp=gelu:tanh", "--tie_embeddings=False"],
    "gpt2_exact": ["--bias=True", "--n_kv_head=2"],
    "starcoder2": ["--position=rope", "--n_kv_head=1"],
    "llama": LLAMA,
    "llama_shared": [*LLAMA, "--tie_embeddings=False", "--n_kv_head=2", "--position=rope:500"],
    "llama_biased": [*LLAMA, "--bias=True", "--n_kv_head=1"],
    "qwen3": [*LLAMA, "--qk_norm=True", "--n_kv_head=2"],
    "arcee": [*LLAMA, "--mlp=relu2"],
}
QUICK = ("gpt2", "llama_biased")
PARTS = [
    "the mill", " wheel", "HTTPServer", "it's", "IT'LL", "we've ", "don’t", "1", "12", "1234567", "٣٤٥", "½", "  ", "\n", "\r\n", "\t\t", " \n \n", "\u00a0",
    "\u2028", "\u3000", "水車", "日本語です", "naïve", "e\u0301te\u0301", "Ärger", "ÉCOLE", "ǅ", "हिन्दी", "ไทย", "Привет", "ΣΊΣΥΦΟΣ", "العربية", "🌊", "👩‍💻", "--", "!!!",
    "/*", "://", "a_b", "<|x|>", "'", "\u200b", "ﬁ", "ª", "x²", "\\n", "{\"k\": 1}", "ß", "camelCase",
]  # fmt: skip
TEXTS = ["".join(random.Random(seed).choices(PARTS, k=1 + seed % 13)) for seed in range(500)]


def setup():
    with open("text.txt", "w", encoding="utf-8") as file:
        file.writelines(f"line {i} of a text about mills and the stream that drives the wheel {i % 40}\n" for i in range(2000))
    make_data("data", "llama3", 300, "text.txt")


def make_data(name, pattern, ids, *inputs):
    runner.call(f"{BIN}/shardtool", "train-vocabulary", "-q", "-V", str(ids), "--pattern", pattern, "--special", "<|user|>", "-o", f"{name}-ids", *inputs)
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--val", "0.2", "--vocabulary", f"{name}-ids", *(["--docs", "lines"] if inputs[0].endswith(".txt") else []),
                "-o", name, *inputs)  # fmt: skip


def train(run, *options):
    if not os.path.exists(run):
        runner.call(f"{BIN}/trainer", "train", *SHAPE, *options, f"--out_dir={run}")


def export(output, run, *options, code=0):
    return runner.call(f"{BIN}/trainer", "export", "-o", output, f"--out_dir={run}", *options, code=code).stderr.decode()


def model(form):
    train(form, *FORMS[form])
    if not os.path.exists(f"{form}.gguf"):
        export(f"{form}.gguf", form)
    return f"{form}.gguf"


def is_exact(form):
    return form in ("gpt2_exact", "starcoder2")


@runner.each(FORMS, quick=QUICK)
def test_the_file_has_the_loss_of_the_trainer(form):
    pairs, tensors, _ = gguf_model.read(model(form))
    assert pairs["general.architecture"] == form.split("_")[0] and len(pairs["tokenizer.ggml.tokens"]) == 300
    assert ("output.weight" in tensors) == ("--tie_embeddings=False" in FORMS[form])
    ids = np.frombuffer(runner.call(f"{BIN}/shardtool", "cat", "--split", "val", "data").stdout, "<u2").astype(int)[: 8 * 32 + 1]
    losses = []
    for row in range(8):
        found = gguf_model.logits(pairs, tensors, ids[row * 32 : row * 32 + 32], is_exact(form))
        largest = found.max(-1, keepdims=True)
        losses.append(np.log(np.exp(found - largest).sum(-1)) + largest[:, 0] - found[range(32), ids[row * 32 + 1 : row * 32 + 33]])
    out = runner.call(f"{BIN}/trainer", "eval", f"--out_dir={form}", "--dataset=data", "--eval_tokens=256", "--eval_order=sequential", "--threads=1",
                      "--dtype=float32", "--json").stdout  # fmt: skip
    (want,) = (line["loss"] for line in map(json.loads, out.splitlines()) if line["split"] == "val")
    assert abs(np.mean(losses) - want) < 1e-6 * want, (np.mean(losses), want)


def test_each_type_holds_the_numbers_and_a_second_file_the_same_bytes():
    _, want, _ = gguf_model.read(model("llama_biased"))
    for dtype, kind, error in ("float16", 1, 2**-11), ("bfloat16", 30, 2**-8), ("q8_0", 8, 1 / 220):
        export(f"{dtype}.gguf", "llama_biased", f"--dtype={dtype}")
        export("again.gguf", "llama_biased", f"--dtype={dtype}")
        with open(f"{dtype}.gguf", "rb") as one, open("again.gguf", "rb") as other:
            assert one.read() == other.read()
        os.remove("again.gguf")
        _, found, raw = gguf_model.read(f"{dtype}.gguf")
        assert list(found) == list(want)
        for name, values in want.items():
            if values.ndim == 1:
                assert raw[name][0] == 0 and (found[name] == values).all(), name
                continue
            assert raw[name][0] == kind, name
            blocks = values.reshape(-1, 32)
            scale = np.abs(blocks).max(-1, keepdims=True) if dtype == "q8_0" else np.maximum(np.abs(blocks), 2**-14)
            assert (np.abs(found[name].reshape(-1, 32) - blocks) <= scale * error).all(), (dtype, name)


def test_q8_0_rounds_halves_away_from_zero_and_refuses_what_a_scale_cannot_hold():
    train("edge", "--max_iters=1")
    runner.call(f"{BIN}/trainer", "export", "-o", "edge-folder", "--out_dir=edge")
    weights = gpt2_model.read("edge-folder")
    rows = [[127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, *[0] * 25], [0] * 32, [1e-40, *[0] * 31]]
    want = [[127, 1, 2, 3, -1, -2, -3, *[0] * 25], [0] * 32, [0] * 32]
    weights["wte.weight"][:3] = rows
    for largest, code in (65504 * 127, 0), (65521 * 127, 65), (np.inf, 65), (np.nan, 65):
        weights["wte.weight"][3, 5] = largest
        entries = [(f"transformer.{name}", "F32", list(values.shape), gpt2_model.encode(values, "F32")) for name, values in weights.items()]
        gpt2_model.write_file("edge-folder/model.safetensors", entries)
        done = runner.call(f"{BIN}/trainer", "export", "-o", f"edge{code}.gguf", "--init_from=./edge-folder", "--dtype=q8_0", code=code)
        assert code == 0 or b"'token_embd.weight' has the value" in done.stderr, done.stderr
    kind, data = gguf_model.read("edge0.gguf")[2]["token_embd.weight"]
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("values", "i1", 32)]))[:4]
    assert kind == 8 and blocks["scale"].tolist() == [1, 0, 0, 65504] and blocks["values"][:3].tolist() == want and blocks["values"][3, 5] == 127
    assert not os.path.exists("edge65.gguf")


def test_the_vocabulary_of_the_file_is_that_of_tokenizer_json():
    with open("data/tokenizer.json", encoding="utf-8") as file:
        tokenizer = json.load(file)
    pairs, _, _ = gguf_model.read(model("llama_biased"))
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    tokens = {id: token for token, id in tokenizer["model"]["vocab"].items()} | special
    assert pairs["tokenizer.ggml.tokens"] == [tokens[id] for id in range(300)]
    assert [id for id, kind in enumerate(pairs["tokenizer.ggml.token_type"]) if kind == 3] == sorted(special) == [298, 299]
    assert [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]] == pairs["tokenizer.ggml.merges"]
    assert (pairs["tokenizer.ggml.bos_token_id"], pairs["tokenizer.ggml.eos_token_id"], pairs["tokenizer.ggml.pre"]) == (299, 299, "llama-bpe")
    assert pairs["tokenizer.ggml.add_bos_token"] is False and "tokenizer.chat_template" not in pairs


def test_averaged_weights_are_written_by_their_name():
    train("averaged", *LLAMA, "--ema=0.5")
    export("newest.gguf", "averaged")
    assert "exported the averaged weights of" in export("averaged.gguf", "averaged", "--ckpt=:ema")
    export("folder", "averaged", "--ckpt=:ema")
    with open("folder/model.safetensors", "rb") as file:
        folder = file.read()
    files = [gguf_model.read(f"{name}.gguf")[2] for name in ("newest", "averaged")]
    name = "blk.1.ffn_up.weight"
    assert [raw[name][1] in folder for raw in files] == [False, True]


def test_a_full_disk_leaves_no_file_and_the_same_command_writes_it_later(folder):
    train("llama_biased", *FORMS["llama_biased"])
    command = [f"{BIN}/trainer", "export", "-o", f"{folder}/x.gguf", "--out_dir=llama_biased"]
    for limit in 100, 100_000:  # in the header, in the data
        error = runner.call("prlimit", f"--fsize={limit}", *command, code=74).stderr
        assert b"File too large" in error and b"x.gguf" in error and os.listdir(folder) == [], error
    runner.call(*command)
    assert os.listdir(folder) == ["x.gguf"] and gguf_model.read(f"{folder}/x.gguf")
    assert b"exists: remove it" in runner.call(*command, code=73).stderr


REFUSED = {
    "learned": (["--norm=rmsnorm"], [], "it computes norm=layernorm position=learned mlp=gelu; "),
    "relu2": (["--mlp=relu2"], [], "does not compute this model"),
    "softcap": ([*LLAMA, "--logit_softcap=30"], [], "it has no logit_softcap"),
    "biased": ([*LLAMA, "--mlp=relu2", "--bias=True"], [], "mlp=relu2 without bias"),
    "width": (["--n_embd=24"], ["--dtype=q8_0"], "q8_0 takes 32 numbers of a row together, and n_embd is 24"),
    "card": ([], ["--card"], "--card describes a folder"),
    "gpt4": (["--dataset=gpt4"], [], "other patterns than gpt4"),
    "o200k": (["--dataset=o200k"], [], "other patterns than o200k"),
    "unmade": (["--dataset=unmade"], [], "tokens that no merges give, which llama.cpp takes for whole pieces with the pattern llama3"),
    "characters": (["--dataset=characters"], [], "no vocabulary of characters"),
}


@runner.each(REFUSED, quick=("relu2", "o200k"))
def test_what_llama_cpp_would_compute_otherwise_is_refused(name):
    options, more, reason = REFUSED[name]
    if name in ("gpt4", "o200k"):
        make_data(name, name, 290, "text.txt")
    if name == "unmade":
        with open("data/tokenizer.json", encoding="utf-8") as file:
            tokenizer = json.load(file)
        tokenizer["model"]["merges"].pop()
        tokenizer["model"]["ignore_merges"] = False
        with open("unmade.json", "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0.2", "--vocabulary", "unmade.json", "-o", name, "text.txt")
    if name == "characters":
        with open("abc.txt", "wb") as file:
            file.write(runner.call(f"{BIN}/shardtool", "train-vocabulary", "--characters", "text.txt").stdout)
        runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0.2", "--vocabulary", "abc.txt", "-o", name, "text.txt")
    train(f"no-{name}", *options, "--max_iters=1")
    error = export("no.gguf", f"no-{name}", *more, code=2)
    assert reason in error and not os.path.exists("no.gguf"), error


# ---- beside llama.cpp


def imported(*names):
    return [__import__(name) for name in names]


def server(path):
    xllamacpp, peers = imported("xllamacpp", "test_answers_peers")
    return peers.Server(xllamacpp, path, exact=True)


def complete(served, ids, tokens, vocabulary):
    body = {"prompt": ids, "n_predict": tokens, "n_probs": vocabulary, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    return served.post("/completion", body)


def test_the_reference_has_the_bytes_of_each_type():
    (gguf,) = imported("gguf")
    _, want, _ = gguf_model.read(model("llama_biased"))
    for dtype, kind in ("float16", "F16"), ("bfloat16", "BF16"), ("q8_0", "Q8_0"):
        export(f"{dtype}-bytes.gguf", "llama_biased", f"--dtype={dtype}")
        for tensor in gguf.GGUFReader(f"{dtype}-bytes.gguf").tensors:
            type = gguf.GGMLQuantizationType[kind if want[tensor.name].ndim == 2 else "F32"]
            assert tensor.tensor_type == type, tensor.name
            assert tensor.data.tobytes() == gguf.quants.quantize(want[tensor.name].astype("<f4"), type).tobytes(), tensor.name


@runner.each(FORMS, quick=FORMS)
def test_llama_cpp_has_the_logits_and_the_texts(form):
    imported("xllamacpp")
    served = server(model(form))
    pairs, tensors, _ = gguf_model.read(f"{form}.gguf")
    near = 1e-5 if form.startswith(("llama", "qwen3", "arcee")) else 4e-3  # its GELU is a table in float16
    for length in 1, 7, 12:
        ids = np.random.default_rng(length).integers(0, 298, length).tolist()
        found = np.full(300, np.nan)
        answer = complete(served, ids, 20, 300)
        for entry in answer["completion_probabilities"][0]["top_logprobs"]:
            found[entry["id"]] = entry["logprob"]
        want = gguf_model.logits(pairs, tensors, np.array(ids))[-1]
        error = found - want - np.mean(found - want)  # without what all ids have in common, the sum over them
        assert np.abs(error).max() < near, (form, np.abs(error).max())
        for token in answer["tokens"]:
            logits = gguf_model.logits(pairs, tensors, np.array(ids))[-1]
            second, first = np.sort(logits)[-2:]
            if first - second <= 2 * near:
                break
            assert token == np.argmax(logits), (form, ids)
            ids.append(token)
        assert len(ids) > length, form


def write_merges(path, count):
    """Tokens that cross every limit between pieces: of the most frequent pairs of the texts, whatever the pattern."""
    ids, tokens = list("\0".join(TEXTS).encode()), [bytes([byte]) for byte in range(256)]
    while len(tokens) < 256 + count:
        counts = collections.Counter(zip(ids, ids[1:]))
        pair = max((pair for pair in counts if 0 not in pair), key=lambda pair: (counts[pair], pair))
        tokens.append(tokens[pair[0]] + tokens[pair[1]])
        merged, at = [], 0
        while at < len(ids):
            found = tuple(ids[at : at + 2]) == pair
            merged.append(len(tokens) - 1 if found else ids[at])
            at += 1 + found
        ids = merged
    with open(path, "wb") as file:
        file.writelines(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


@runner.each(["gpt2", "llama3", "qwen2"], quick=["gpt2", "llama3", "qwen2"])
def test_llama_cpp_has_the_ids_of_texts(pattern):
    imported("xllamacpp")
    if not os.path.exists("crossing.tiktoken"):
        write_merges("crossing.tiktoken", 400)
    vocabulary = ["--vocabulary", "crossing.tiktoken", "--pattern", pattern]
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0.2", *vocabulary, "-o", f"of-{pattern}", "text.txt")
    train(f"run-{pattern}", *LLAMA, "--max_iters=1", f"--dataset=of-{pattern}")
    export(f"ids-{pattern}.gguf", f"run-{pattern}")
    served = server(f"ids-{pattern}.gguf")
    for text in TEXTS[:50]:
        with open("line.txt", "w", encoding="utf-8", newline="") as file:
            file.write(text)
        want = runner.call(f"{BIN}/shardtool", "tokenize", "--ids", "--format", "text", *vocabulary, "line.txt").stdout.split()
        assert served.post("/tokenize", {"content": text, "add_special": True})["tokens"] == [int(id) for id in want], (pattern, text)
    assert served.post("/tokenize", {"content": "<|endoftext|>a<|endoftext|>"})["tokens"][::2] == [656, 656]
