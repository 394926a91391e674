# peers: torch, transformers, gigatoken, ctranslate2
"""`trainer export` of models with options against transformers: the loss of its Llama or Qwen3 on the same tokens, and the text it
continues with."""
import json
import os

import numpy as np

import runner

BIN = os.environ["BIN"]
LLAMA = ["--norm=rmsnorm", "--position=rope", "--mlp=swiglu"]
SHAPE = ["--n_layer=2", "--n_head=4", "--n_embd=32", "--block_size=32", "--batch_size=2", "--gradient_accumulation_steps=1",
         "--max_iters=40", "--learning_rate=2e-2", "--warmup_iters=2", "--lr_decay_iters=40", "--eval_interval=0", "--threads=1",
         "--dtype=float32", "--sample_tokens=0", "--quiet"]
FORMS = {
    "llama": [],
    "untied": ["--tie_embeddings=False"],
    "shared": ["--tie_embeddings=False", "--n_kv_head=2", "--position=rope:500"],
    "biased": ["--bias=True", "--n_kv_head=1"],
    "qwen3": ["--qk_norm=True", "--n_kv_head=2"],
}


def trainer(*arguments, code=0):
    done = runner.call(f"{BIN}/trainer", *arguments, code=code)
    return done.stdout, done.stderr.decode()


def dataset():
    if not os.path.exists("data"):
        os.mkdir("docs")
        for i in range(60):
            with open(f"docs/{i}", "w", encoding="utf-8") as file:
                file.writelines(f"line {i * 40 + k} of a text about mills and the stream that drives the wheel {k}\n" for k in range(40))
        runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--val", "0.2", "-o", "data", "docs")
    return "data"


def model(form):
    if not os.path.exists(form):
        trainer("train", *SHAPE, *LLAMA, *FORMS[form], f"--dataset={dataset()}", f"--out_dir={form}")
        trainer("export", "-o", f"{form}-exported", f"--out_dir={form}")
    return f"{form}-exported"


@runner.ci
def test_export_has_the_names_and_the_shapes_of_llama():
    for form in FORMS:
        with open(f"{model(form)}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        with open(f"{model(form)}/model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
        kept = config["num_key_value_heads"] * 8
        assert config["model_type"] == ("qwen3" if form == "qwen3" else "llama")
        assert config.get("use_sliding_window") == (False if form == "qwen3" else None)  # keras-hub requires it
        assert shapes["model.layers.1.self_attn.q_proj.weight"] == [32, 32]
        assert shapes["model.layers.1.self_attn.v_proj.weight"] == [kept, 32]
        assert shapes["model.layers.0.mlp.up_proj.weight"] == [config["intermediate_size"], 32]
        assert shapes["model.layers.0.mlp.down_proj.weight"] == [32, config["intermediate_size"]]
        assert ("lm_head.weight" in shapes) == (not config["tie_word_embeddings"]) == (form in ("untied", "shared"))
        assert ("model.layers.0.self_attn.k_proj.bias" in shapes) == config["attention_bias"] == (form == "biased")
        assert ("model.layers.0.self_attn.k_norm.weight" in shapes) == (form == "qwen3")


def test_transformers_has_the_loss_and_the_text_of_the_trainer():
    import torch
    import transformers
    torch.set_num_threads(1)
    ids = {split: np.frombuffer(runner.call(f"{BIN}/shardtool", "cat", "--split", split, dataset()).stdout, "<u2").astype(np.int64)
           for split in ("train", "val")}
    for form in FORMS:
        theirs = transformers.AutoModelForCausalLM.from_pretrained(model(form)).double().eval()
        out, _ = trainer("eval", f"--out_dir={form}", "--dataset=data", "--eval_tokens=256", "--eval_order=sequential", "--threads=1",
                         "--dtype=float32", "--json")
        for line in map(json.loads, out.splitlines()):
            rows = torch.from_numpy(ids[line["split"]][: 8 * 32 + 1])
            with torch.no_grad():
                logits = theirs(rows[:-1].view(8, 32)).logits
            loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), rows[1:]).item()
            assert abs(loss - line["loss"]) < 1e-6 * loss, (form, line, loss)
            assert loss < 10, "it has learnt something"
        start = "line 7 of a text"
        tokenizer = transformers.AutoTokenizer.from_pretrained(model(form))
        with torch.no_grad():
            text = theirs.generate(**tokenizer(start, return_tensors="pt"), max_new_tokens=20, do_sample=False)
        out, _ = trainer("sample", f"--out_dir={form}", f"--start={start}", "--num_samples=1", "--temperature=0",
                         "--max_new_tokens=20", "--dtype=float32", "--threads=1")
        assert out.decode().split("\n---------------")[0] == tokenizer.decode(text[0]), (form, out)


def test_transformers_has_the_tokenizer_of_a_checkpoint():
    import transformers
    gpt2 = transformers.AutoTokenizer.from_pretrained(model("llama"))
    text = "The wheel's  1234 turns,\n\tnaïve 水 <|endoftext|>"
    for options in [], ["--logit_softcap=30"]: # a GPT-2, and a model that only we compute
        trainer("train", *SHAPE, *options, "--max_iters=1", f"--dataset={dataset()}", "--out_dir=saved", "--fresh")
        tokenizer = transformers.AutoTokenizer.from_pretrained("saved/ckpt-00000001")
        assert tokenizer(text)["input_ids"] == gpt2(text)["input_ids"]
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text and len(tokenizer) == 50257


def exported_with_vocabulary(pattern, form=LLAMA):
    """A model with a vocabulary of our own, exported; a text, and its ids."""
    text = "The wheel's  1234 turns,\n\tnaïve 水 and HTTPServer; it's DONE  "
    with open("own.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{text}{i}\n" for i in range(500))
    vocabulary, data, run, out = (f"{name}-{pattern}{len(form)}" for name in ("vocabulary", "own", "run", "export"))
    runner.call(f"{BIN}/shardtool", "train-vocabulary", "-q", "-V", "290", "--pattern", pattern, "--special", "<|user|>", "-o", vocabulary, "own.txt")
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--docs", "lines", "--val", "0.2", "--vocabulary", vocabulary, "-o", data, "own.txt")
    trainer("train", *SHAPE, *form, "--max_iters=1", f"--dataset={data}", f"--out_dir={run}")
    if not os.path.exists(out):
        trainer("export", "-o", out, f"--out_dir={run}")
    with open("line.txt", "w", encoding="utf-8") as file:
        file.write(text)
    ids = runner.call(f"{BIN}/shardtool", "tokenize", "--ids", "--format", "text", "--vocabulary", vocabulary, "line.txt").stdout.split()
    return out, text, [int(id) for id in ids]


def test_transformers_has_the_ids_of_a_vocabulary_of_our_own():
    import transformers
    for pattern in "gpt2", "gpt4", "llama3", "qwen2", "o200k":
        out, text, ids = exported_with_vocabulary(pattern)
        tokenizer = transformers.AutoTokenizer.from_pretrained(out)
        assert tokenizer(text)["input_ids"] == ids, pattern
        assert tokenizer.decode(ids) == text and len(tokenizer) == 290
        assert tokenizer("<|user|>a<|endoftext|>")["input_ids"] == [288, *tokenizer("a")["input_ids"], tokenizer.eos_token_id]
        assert tokenizer.eos_token_id == 289


def test_gigatoken_has_the_ids_of_a_vocabulary_of_our_own():
    import gigatoken
    for pattern in "gpt2", "llama3", "qwen2", "o200k", "gpt4":
        out, text, ids = exported_with_vocabulary(pattern)
        with open(f"{out}/tokenizer.json", encoding="utf-8") as file:
            tokenizer = file.read()
        try:
            theirs = gigatoken.Tokenizer.from_json(tokenizer)
        except RuntimeError as reason:  # it has the pattern of gpt4 only with {1,3}+, which tokenizers takes for another one
            assert pattern == "gpt4" and "Split" in str(reason), (pattern, reason)
        else:
            assert list(theirs.encode(text)) == ids, pattern


def test_ctranslate2_has_the_logits_of_a_vocabulary_of_our_own():
    import ctranslate2
    import torch
    import transformers
    for form in [], LLAMA, [*LLAMA, "--qk_norm=True"]:
        out, _, ids = exported_with_vocabulary("gpt2", form)
        ctranslate2.converters.TransformersConverter(out).convert(f"{out}-ct2")
        tokens = transformers.AutoTokenizer.from_pretrained(out).convert_ids_to_tokens(ids[:20])
        found = np.array(ctranslate2.Generator(f"{out}-ct2", compute_type="float32").forward_batch([tokens]))[0]
        with torch.no_grad():
            want = transformers.AutoModelForCausalLM.from_pretrained(out).double().eval()(torch.tensor([ids[:20]])).logits[0].numpy()
        assert np.abs(found - want).max() < 1e-5 * max(1, np.abs(want).max()), (form, np.abs(found - want).max())


@runner.ci
def test_what_no_model_of_transformers_computes_is_refused():
    for options, reason in (
        (["--norm=rmsnorm"], "position is learned"),
        (["--logit_softcap=30"], "a GPT-2 does not have logit_softcap;"),
        (["--qk_norm=True", "--n_kv_head=1"], "a GPT-2 does not have qk_norm, n_kv_head;"),
        (["--position=rope", "--mlp=swiglu"], "norm is layernorm"),
        ([*LLAMA, "--mlp=relu2"], "mlp is not swiglu"),
        ([*LLAMA, "--logit_softcap=30"], "logit_softcap is not 0"),
        ([*LLAMA, "--qk_norm=True", "--bias=True"], "qk_norm has biases beside it"),
    ):
        trainer("train", *SHAPE, *options, "--max_iters=1", f"--dataset={dataset()}", "--out_dir=none", "--fresh")
        _, words = trainer("export", "-o", "refused", "--out_dir=none", code=2)
        assert reason in words, words
        assert not os.path.exists("refused")


@runner.ci
def test_untied_and_relu2_stay_a_gpt2(folder):
    trainer("train", *SHAPE, "--tie_embeddings=False", "--mlp=relu2", "--max_iters=2", f"--dataset={dataset()}", f"--out_dir={folder}/run")
    trainer("export", "-o", f"{folder}/exported", f"--out_dir={folder}/run")
    with open(f"{folder}/exported/config.json", encoding="utf-8") as file:
        config = json.load(file)
    assert (config["model_type"], config["activation_function"], config["tie_word_embeddings"]) == ("gpt2", "relu2", False)
    trainer("train", *SHAPE, f"--init_from={folder}/exported", "--max_iters=1", f"--dataset={dataset()}", f"--out_dir={folder}/tuned")
