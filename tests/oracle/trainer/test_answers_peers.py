# peers: torch, transformers, trl, xllamacpp
"""A model of conversations in other programs: TRL gives the labels that the trainer counts; llama.cpp has the ids of a conversation, and a
model that has learned its answers answers there and stops."""
import json
import os
import urllib.request

import numpy as np

import rooms  # noqa: F401
import runner
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


class Server:
    """llama.cpp with a model, at an address of this machine."""

    def __init__(self, xllamacpp, path, threads=1, exact=False):
        parameters = xllamacpp.CommonParams()
        parameters.model.path = path
        parameters.n_parallel, parameters.cpuparams.n_threads, parameters.warmup, parameters.use_jinja, parameters.verbosity = 1, threads, False, True, 0
        parameters.prefill_assistant = False  # else it takes the end off a last answer, to go on with it
        if exact:  # keys and values in float32
            parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
            parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(parameters)
        assert self.server.listening_address.startswith("http://127.0.0.1:")

    def post(self, path, body):
        request = urllib.request.Request(f"{self.server.listening_address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
            return json.load(response)


def test_llama_cpp_has_the_ids_of_a_conversation():
    (xllamacpp,) = imported("xllamacpp")
    exported()
    runner.call(f"{BIN}/trainer", "export", "-q", "-o", "ids.gguf", "--out_dir=chat")
    server = Server(xllamacpp, "ids.gguf")
    for talk in turns.conversations(20, 9, turns.SPELL_NONE):
        text = server.post("/apply-template", {"messages": talk, "add_generation_prompt": False})["prompt"]
        assert server.post("/tokenize", {"content": text, "add_special": True})["tokens"] == [answers.END_OF_TEXT, *turns.ids_of(talk)[:-1]], talk


def test_llama_cpp_answers_and_stops():
    (xllamacpp,) = imported("xllamacpp")
    pairs = answers.learn()
    runner.call(f"{BIN}/trainer", "export", "-q", "-o", "learned.gguf", "--out_dir=learned")
    server = Server(xllamacpp, "learned.gguf")
    for prompt, completion in pairs:
        found = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 40})["choices"][0]
        assert (found["message"]["content"], found["finish_reason"]) == (completion, "stop"), found
