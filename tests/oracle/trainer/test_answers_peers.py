# peers: torch, transformers, trl, gguf, xllamacpp
"""A model of conversations in other programs: TRL gives the labels that the trainer counts; llama.cpp has the ids of a conversation, and a
model that has learned its answers answers there and stops."""
import json
import os
import urllib.request

import numpy as np

import rooms  # noqa: F401
import gpt2_model, runner
import test_answers as answers
import test_turns as turns

BIN = os.environ["BIN"]


def imported(*names):
    os.environ["HF_HUB_OFFLINE"] = "1"
    return [__import__(name) for name in names]


def exported():
    """A model with the vocabulary of GPT-2."""
    if not os.path.exists("exported"):
        answers.setup()
        answers.train("chat", "--batch_size=1", "--gradient_accumulation_steps=1", "--max_iters=1")
        runner.call(f"{BIN}/trainer", "export", "-q", "-o", "exported", "--out_dir=chat")
    return "exported"


def test_trl_gives_the_labels_that_count():
    datasets, trl = imported("datasets", "trl")
    directory, conversations = exported(), list(turns.conversations(20, 9, turns.SPELL_NONE))
    config = trl.SFTConfig(output_dir="trl", assistant_only_loss=True, use_cpu=True, bf16=False, report_to=[], max_length=None,
                           per_device_train_batch_size=1, dataloader_pin_memory=False)  # fmt: skip
    data = datasets.Dataset.from_list([{"messages": talk} for talk in conversations])
    trainer = trl.SFTTrainer(model=directory, args=config, train_dataset=data)
    found = {tuple(batch["input_ids"][0].tolist()): batch["labels"][0].tolist() for batch in trainer.get_train_dataloader()}
    for talk in conversations:
        ids = np.array([answers.END_OF_TEXT, *turns.ids_of(talk)])
        labels = [-100, *np.where(answers.counted(ids), ids[1:], -100)[:-1]]  # without the <|endoftext|> behind it
        assert found[tuple(ids[:-1].tolist())] == labels, talk


def write_gguf(gguf, directory, path, matrices="F32"):
    """Writes an exported GPT-2; `matrices`: the type of weights and embeddings."""
    with open(f"{directory}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(f"{directory}/tokenizer.json", encoding="utf-8") as file:
        tokenizer = json.load(file)
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    tokens = {id: token for token, id in tokenizer["model"]["vocab"].items()} | special
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens[id] for id in range(len(tokens))])
    writer.add_token_types([gguf.TokenType.CONTROL if id in special else gguf.TokenType.NORMAL for id in range(len(tokens))])
    gguf.SpecialVocab(directory, load_merges=True, n_vocab=len(tokens)).add_to_gguf(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config["n_layer"])
    for name, values in gpt2_model.read(directory).items():
        values = values.T if name.startswith("h.") and values.ndim == 2 else values
        kind = gguf.GGMLQuantizationType[matrices if values.ndim == 2 else "F32"]
        values = gguf.quants.quantize(np.ascontiguousarray(values, "<f4"), kind)
        writer.add_tensor(names.get_name(f"transformer.{name}", try_suffixes=(".weight", ".bias")), values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Server:
    """llama.cpp with a model, at an address of this machine."""

    def __init__(self, xllamacpp, path, threads=1):
        parameters = xllamacpp.CommonParams()
        parameters.model.path = path
        parameters.n_parallel, parameters.cpuparams.n_threads, parameters.warmup, parameters.use_jinja, parameters.verbosity = 1, threads, False, True, 0
        parameters.prefill_assistant = False  # else it takes the end off a last answer, to go on with it
        self.server = xllamacpp.Server(parameters)
        assert self.server.listening_address.startswith("http://127.0.0.1:")

    def post(self, path, body):
        request = urllib.request.Request(f"{self.server.listening_address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
            return json.load(response)


def test_llama_cpp_has_the_ids_of_a_conversation():
    gguf, xllamacpp = imported("gguf", "xllamacpp")
    write_gguf(gguf, exported(), "ids.gguf")
    server = Server(xllamacpp, "ids.gguf")
    for talk in turns.conversations(20, 9, turns.SPELL_NONE):
        text = server.post("/apply-template", {"messages": talk, "add_generation_prompt": False})["prompt"]
        assert server.post("/tokenize", {"content": text, "add_special": True})["tokens"] == [answers.END_OF_TEXT, *turns.ids_of(talk)[:-1]], talk


def test_llama_cpp_answers_and_stops():
    gguf, xllamacpp = imported("gguf", "xllamacpp")
    pairs = answers.learn()
    runner.call(f"{BIN}/trainer", "export", "-q", "-o", "learned-exported", "--out_dir=learned")
    write_gguf(gguf, "learned-exported", "learned.gguf")
    server = Server(xllamacpp, "learned.gguf")
    for prompt, completion in pairs:
        found = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 40})["choices"][0]
        assert (found["message"]["content"], found["finish_reason"]) == (completion, "stop"), found
