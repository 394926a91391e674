# peers: torch, transformers
"""trainer import: a model has the weights of its file and, where torch is, the logits of the model in torch; files that do
not fit are refused. The files are made by numpy and pickle (foreign_files.py), and also by torch.save where torch is."""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import zipfile

import numpy as np

import runner
import foreign_files as files

try:
    import foreign_models as models
    import torch
    import transformers
except ImportError as missing:
    models, why = None, missing

TRAINER = os.path.join(os.environ["BIN"], "trainer")
TRANSPOSED = "c_attn.weight", "c_proj.weight", "c_fc.weight"
# name, type, bias, form of GELU, prefix and masks of the file
KINDS = (("plain", np.float32, False, "exact", {}), ("bias", np.float32, True, "exact", {"masks": True}),
         ("old", np.float32, True, "tanh", {"prefix": "_orig_mod."}), ("half", np.float16, False, "exact", {"prefix": "module."}),
         ("bf16", files.BFLOAT16, True, "exact", {"prefix": "module._orig_mod."}))  # fmt: skip


def writers():
    return [files] + ([models] if models else [])


def needs_torch():
    if not models:
        raise runner.Skip(f"needs torch and transformers ({why})")


def import_model(path, *options):
    return subprocess.run([TRAINER, "import", "-o", path + ".model", *options, path], capture_output=True, text=True)


def refused(path, code, message):
    result = import_model(path)
    assert result.returncode == code and message in result.stderr, (result.returncode, result.stderr)
    assert not os.path.exists(path + ".model")


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    assert all(entry["dtype"] == "F32" for entry in header.values())
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"]) for name, entry in header.items()}


def same_weights(path, tensors, *options):
    """Every tensor as Hugging Face's GPT-2 has it, with all bits; a bias that the file does not have is zero."""
    result = import_model(path, *options)
    assert result.returncode == 0, result.stderr
    model = {name.removeprefix("transformer."): numbers for name, numbers in read_safetensors(path + ".model/model.safetensors").items()}
    for name, tensor in tensors.items():
        wanted, got = files.widen(tensor), model.pop(name.removeprefix("transformer."))
        wanted = wanted.T if name.endswith(TRANSPOSED) else wanted[: got.shape[0]]
        assert got.shape == wanted.shape and got.tobytes() == wanted.tobytes(), name
    assert all(name.endswith(".bias") and not numbers.any() for name, numbers in model.items()), model.keys()
    with open(path + ".model/config.json") as file:
        return json.load(file)


def test_a_checkpoint_of_nanogpt_gives_its_weights(folder):
    for name, dtype, bias, gelu, rest in KINDS:
        tensors, path = files.weights(files.SMALL, bias, dtype), f"{folder}/{name}.pt"
        files.save_nanogpt(path, tensors, files.SMALL, bias, **rest)
        config = same_weights(path, tensors, "--gelu", gelu)
        assert [config[key] for key in ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size")] == list(files.SMALL.values())
        assert config["activation_function"] == {"exact": "gelu", "tanh": "gelu_new"}[gelu]


def test_a_checkpoint_without_checksums_gives_its_weights(folder):
    """As torch writes it after set_crc32_options(False): 0 in every entry of the directory."""
    tensors, path = files.weights(files.SMALL, True), f"{folder}/unchecked.pt"
    files.save_nanogpt(path, tensors, files.SMALL, True)
    with zipfile.ZipFile(path) as archive:
        at, count = archive.start_dir, len(archive.namelist())
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        for _ in range(count):
            data[at + 16 : at + 20] = bytes(4)
            at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
        file.seek(0)
        file.write(data)
    same_weights(path, tensors)


def test_values_that_no_weight_needs_are_left_out(folder):
    """numpy's numbers, sets, paths and namespaces, in each protocol of pickle."""
    tensors = files.weights(files.SMALL, True)
    more = {"seen": {1, 2}, "path": pathlib.PurePosixPath("a/b"), "space": argparse.Namespace(lr=1), "frozen": frozenset([3]), "raw": b"bytes"}
    for protocol in (2, 3, 4, 5):
        path = f"{folder}/protocol{protocol}.pt"
        files.save_nanogpt(path, tensors, files.SMALL, True, more=more, best=np.float64(3.21), protocol=protocol)
        same_weights(path, tensors)


def test_float64_is_rounded_once_and_an_untied_head_is_kept(folder):
    tensors = files.weights(files.SMALL, False)
    double = tensors[files.MATRIX].astype(np.float64) * (1 + 1e-9)
    files.save_nanogpt(f"{folder}/double.pt", tensors | {files.MATRIX: double}, files.SMALL, False)
    same_weights(f"{folder}/double.pt", tensors | {files.MATRIX: double.astype(np.float32)})
    head = tensors["transformer.wte.weight"] + 1
    files.save_nanogpt(f"{folder}/untied.pt", tensors, files.SMALL, False, head=head)
    config = same_weights(f"{folder}/untied.pt", tensors | {"lm_head.weight": head})
    assert config["tie_word_embeddings"] is False


def test_checkpoints_of_other_programs_are_named_for_what_they_are(folder):
    one = np.ones((2, 2), np.float32)
    for root, name in (({"transformer.wte.weight": one, "lm_head.weight": one}, "state_dict of a model alone"),
                       ({"state_dict": {"model.wte.weight": one}, "pytorch-lightning_version": "2.6"}, "checkpoint of Lightning"),
                       ({"model": {"transformer.h.0.norm_1.weight": one, "lm_head.weight": one}}, "model of litgpt"),
                       ({"transformer.wte.weight": one, "transformer.h.0.attn.c_q.weight": one}, "model of nanochat")):  # fmt: skip
        files.save(root, f"{folder}/other.pt")
        refused(f"{folder}/other.pt", 65, name)


def test_what_another_program_made_of_nanogpts_form_is_said(folder):
    model = files.model_state(files.weights(files.SMALL, False), files.SMALL)
    for key, value, said in (("activation", "relu2", True), ("n_kv_head", 1, True), ("rope", False, False), ("dropout", 0.1, False)):
        root, path = files.nanogpt_root(model, {}, 3.2, files.SMALL, False, files.SMALL["V"]), f"{folder}/{key}.pt"
        root["model_args"][key] = value
        files.save(root, path)
        result = import_model(path)
        assert result.returncode == 0 and (f"model_args have '{key}'" in result.stderr) == said, result.stderr
    os.mkdir(f"{folder}/shards")
    open(f"{folder}/shards/.metadata", "wb").close()
    refused(f"{folder}/shards", 65, "dcp_to_torch_save")


def test_a_model_that_needs_no_import_is_named_for_init_from(folder):
    with open(f"{folder}/config.json", "w") as config, open(f"{folder}/model.safetensors", "wb") as model:
        config.write('{"model_type": "gpt2"}')
        header = b'{"wte.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        model.write(struct.pack("<Q", len(header)) + header + bytes(4))
    refused(folder, 65, f"--init_from={folder} reads it as it is")
    refused(f"{folder}/model.safetensors", 65, "a safetensors file: --init_from=DIR reads the folder")


def test_a_padded_vocabulary_of_nanogpt_is_cut(folder):
    sizes = files.SMALL | {"V": 50304}
    tensors, path = files.weights(sizes, False), f"{folder}/ckpt.pt"
    files.save_nanogpt(path, tensors, sizes, False)
    assert same_weights(path, tensors)["vocab_size"] == 50257


def test_a_model_of_another_vocabulary_takes_its_file_and_padding_is_cut(folder):
    shardtool = os.path.join(os.environ["BIN"], "shardtool")
    with open("text.txt", "w") as file:
        file.write("aa bb ab " * 40)
    subprocess.run([shardtool, "train-vocabulary", "-q", "-V", "262", "-o", "vocab", "text.txt"], check=True)
    ids = subprocess.run([shardtool, "tokenize", "--ids", "--format", "text", "--vocabulary", "vocab", "text.txt"], check=True, capture_output=True).stdout
    for rows in 262, 320, 261:  # as the vocabulary, with padding, and without the end of a text
        sizes = files.SMALL | {"V": rows}
        tensors = files.weights(sizes, True)
        files.save_nanogpt(f"{folder}/{rows}.pt", tensors, sizes, True)
        if rows == 262:
            files.save_llmc(f"{folder}/{rows}.bin", tensors, sizes, 3)
        for path in (f"{folder}/{rows}.pt", f"{folder}/{rows}.bin")[: 1 + (rows == 262)]:
            if rows == 261:
                result = import_model(path, "--vocabulary", "vocab")
                assert result.returncode == 0, result.stderr
                table = read_safetensors(path + ".model/model.safetensors")["transformer.wte.weight"]
                assert table.shape[0] == 262 and not table[261].any() and (table[:261] == tensors["transformer.wte.weight"]).all()
            else:
                config = same_weights(path, tensors, "--vocabulary", "vocab/tokenizer.json")
                assert config["vocab_size"] == 262 and config["eos_token_id"] == 261
            same = [shardtool, "tokenize", "--ids", "--format", "text", "--vocabulary", path + ".model", "text.txt"]
            assert subprocess.run(same, check=True, capture_output=True).stdout == ids
    with open("vocab/tokenizer.json", encoding="utf-8") as file:
        made = json.load(file)
    made["added_tokens"].append(made["added_tokens"][0] | {"id": 262, "content": "<|pad|>"})
    with open("padded.json", "w", encoding="utf-8") as file:
        json.dump(made, file)
    tensors = files.weights(files.SMALL | {"V": 263}, True)
    files.save_nanogpt(f"{folder}/263.pt", tensors, files.SMALL | {"V": 263}, True)
    assert same_weights(f"{folder}/263.pt", tensors, "--vocabulary", "padded.json")["eos_token_id"] == 261
    result = import_model(f"{folder}/262.pt", "--vocabulary", "padded.json")
    assert result.returncode == 76 and "'padded.json' has 263 ids, and the model" in result.stderr, result.stderr
    sizes = files.SMALL | {"V": 300}
    files.save_nanogpt(f"{folder}/300.pt", files.weights(sizes, True), sizes, True)
    result = import_model(f"{folder}/300.pt", "--vocabulary", "vocab")
    assert result.returncode == 76 and "'vocab' has 262 ids, and the model in" in result.stderr, result.stderr


def test_a_model_of_llmc_gives_its_weights(folder):
    for version, dtype in (3, np.float32), (5, files.BFLOAT16):
        tensors, path = files.weights(files.SMALL, True, dtype), f"{folder}/{version}.bin"
        files.save_llmc(path, tensors, files.SMALL, version)
        assert same_weights(path, tensors)["activation_function"] == "gelu_new"


def same_logits(path, tensors, tanh, *options):
    result = import_model(path, *options)
    assert result.returncode == 0, result.stderr
    model = transformers.GPT2LMHeadModel.from_pretrained(path + ".model").eval()
    with torch.no_grad():
        got = model(models.inputs(**files.SMALL)).logits[0]
    off = (got - models.logits(tensors, files.SMALL, tanh)[:, : got.shape[1]]).abs().max().item()
    assert off < 1e-5, off


def test_torch_reads_the_files_that_pickle_wrote(folder):
    needs_torch()
    for name, dtype, bias, _, rest in KINDS:
        tensors, path = files.weights(files.SMALL, bias, dtype), f"{folder}/{name}.pt"
        files.save_nanogpt(path, tensors, files.SMALL, bias, **rest)
        read = torch.load(path, weights_only=True)["model"]
        for tensor, numbers in tensors.items():
            assert torch.equal(read[rest.get("prefix", "") + tensor], models.to_torch(numbers)), tensor


def test_a_checkpoint_of_torch_gives_its_logits(folder):
    needs_torch()
    for name, dtype, bias, gelu, rest in KINDS:
        tensors, path = files.weights(files.SMALL, bias, dtype), f"{folder}/{name}.pt"
        models.save_nanogpt(path, tensors, files.SMALL, bias, **rest)
        same_logits(path, tensors, gelu == "tanh", "--gelu", gelu)


def test_a_padded_vocabulary_of_torch_gives_its_logits(folder):
    needs_torch()
    sizes = files.SMALL | {"V": 50304}
    tensors, path = files.weights(sizes, False), f"{folder}/ckpt.pt"
    models.save_nanogpt(path, tensors, sizes, False)
    same_logits(path, tensors, False)


def test_a_model_of_llmc_gives_its_logits(folder):
    needs_torch()
    for version, dtype in (3, np.float32), (5, files.BFLOAT16):
        tensors, path = files.weights(files.SMALL, True, dtype), f"{folder}/{version}.bin"
        files.save_llmc(path, tensors, files.SMALL, version)
        same_logits(path, tensors, True)


def test_an_imported_model_evaluates_as_transformers_does(folder):
    needs_torch()
    tensors, path = files.weights(files.SMALL, True), f"{folder}/ckpt.pt"
    models.save_nanogpt(path, tensors, files.SMALL, True)
    same_logits(path, tensors, False)
    with open(f"{folder}/text", "w") as file:
        file.writelines(f"line {i} about mills and rivers\n" for i in range(300))
    shardtool = os.path.join(os.environ["BIN"], "shardtool")
    subprocess.run([shardtool, "tokenize", "-q", "--docs", "lines", "--val", "0.5", "-o", f"{folder}/data", f"{folder}/text"], check=True)
    subprocess.run([shardtool, "export-tokens", "-q", "--format", "nanogpt", "-o", f"{folder}/out", f"{folder}/data"], check=True)
    ids = torch.from_numpy(np.fromfile(f"{folder}/out/val.bin", np.uint16).astype(np.int64))[:65]
    model = transformers.GPT2LMHeadModel.from_pretrained(path + ".model").eval()
    with torch.no_grad():
        theirs = torch.nn.functional.cross_entropy(model(ids[:64].view(2, 32)).logits.view(64, -1), ids[1:65]).item()
    result = subprocess.run([TRAINER, "eval", f"--init_from={path}.model", f"--dataset={folder}/data", "--dtype=float32", "--threads=1",
                             "--batch_size=2", "--eval_tokens=64", "--eval_order=sequential", "--json"], capture_output=True, text=True, check=True)  # fmt: skip
    ours = float(result.stdout.split('"split": "val", "loss": ')[1].split(",")[0])
    assert abs(ours - theirs) < 1e-5, (ours, theirs)


def test_a_checkpoint_of_nanogpt_that_does_not_fit_is_refused_by_name(folder):
    tensors, sizes = files.weights(files.SMALL, False), files.SMALL
    at, matrix = files.MATRIX, tensors[files.MATRIX]
    bad = matrix.copy()
    bad[3, 5], bad[0, 0] = np.nan, np.inf
    for writer in writers():

        def save(name, change, **rest):
            path = f"{folder}/{writer.__name__}-{name}.pt"
            writer.save_nanogpt(path, {k: v for k, v in (tensors | change).items() if v is not None}, sizes, False, **rest)
            return path

        refused(save("nan", {at: bad}), 65, "2 of its numbers are not finite, the first in 'h.0.mlp.c_fc.weight'")
        refused(save("missing", {at: None}), 65, f"there is no tensor '{at}'")
        refused(save("extra", {"transformer.h.2.ln_1.weight": np.ones(16, np.float32)}), 65, "'transformer.h.2.ln_1.weight' is not a tensor of the model")
        refused(save("shape", {at: matrix[1:].copy()}), 65, f"'{at}' has another shape than the model's 64 x 16")
        refused(save("turned", {at: matrix.T.copy().T}), 65, f"'{at}' is not contiguous")
        refused(save("call", {}, more={"f": os.path.join}), 65, "the pickle names 'posixpath.join', which is refused")
        refused(save("code", {}, more={"f": Danger()}), 65, "system', which is refused")
        assert not os.path.exists("executed")
        path = save("damaged", {})
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            file.write(b"damage")
        refused(path, 65, "its CRC-32 is wrong")
        writer.save({"model": {}}, f"{folder}/other.pt")
        refused(f"{folder}/other.pt", 65, "it has no 'model' and 'model_args'")


def test_a_checkpoint_of_an_old_torch_is_refused(folder):
    needs_torch()
    torch.save({"model": {}}, f"{folder}/old.pt", _use_new_zipfile_serialization=False)
    refused(f"{folder}/old.pt", 65, "of a torch.save before version 1.6")


class Danger:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_a_file_of_llmc_that_does_not_fit_is_refused_by_name(folder):
    tensors, path = files.weights(files.SMALL, True), f"{folder}/model.bin"
    files.save_llmc(path, tensors, files.SMALL)
    with open(path, "rb") as file:
        whole = file.read()
    words = np.frombuffer(whole[:1024], "<i4")

    def changed(place, value):
        head = words.copy()
        head[place] = value
        with open(path, "wb") as file:
            file.write(head.tobytes() + whole[1024:])
        return path

    refused(changed(0, 20240527), 65, "it is the optimizer's state of llm.c")
    refused(changed(0, 20240520), 65, "millrace import-tokens --format llmc")
    refused(changed(0, 1), 65, "it is neither a ckpt.pt of nanoGPT nor a model of llm.c")
    refused(changed(1, 1), 65, "it has version 1 of llm.c's models")
    refused(changed(4, 3), 65, "a model of the shape in its header has")
    refused(changed(5, 3), 65, "it describes no usable model: 2 layers, 3 heads")
    refused(changed(7, 50000), 65, "a padded vocabulary of 50000 ids")
    with open(path, "wb") as file:
        file.write(whole[:-4])
    refused(path, 65, f"it has {len(whole) - 4} bytes, and a model of the shape in its header has {len(whole)}")
