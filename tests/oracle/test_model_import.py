"""trainer import: files of torch.save and of llm.c's layout give the logits of the model in torch, and files that do not fit are refused."""
import os
import subprocess

import numpy as np

import runner

try:
    import foreign_models as models
    import torch
    import transformers
except ImportError as missing:
    models, why = None, missing

TRAINER = os.path.join(os.environ["BIN"], "trainer")


def needs_torch():
    if not models:
        raise runner.Skip(f"needs torch and transformers ({why})")


def import_model(path, *options):
    return subprocess.run([TRAINER, "import", "-o", path + ".model", *options, path], capture_output=True, text=True)


def refused(path, code, message):
    result = import_model(path)
    assert result.returncode == code and message in result.stderr, (result.returncode, result.stderr)
    assert not os.path.exists(path + ".model")


def same_logits(path, tensors, tanh, *options):
    result = import_model(path, *options)
    assert result.returncode == 0, result.stderr
    model = transformers.GPT2LMHeadModel.from_pretrained(path + ".model").eval()
    with torch.no_grad():
        got = model(models.inputs(**models.SMALL)).logits[0]
    off = (got - models.logits(tensors, models.SMALL, tanh)[:, : got.shape[1]]).abs().max().item()
    assert off < 1e-5, off
    return model


def test_a_checkpoint_of_nanogpt_gives_its_logits(folder):
    needs_torch()
    for name, dtype, bias, tanh, rest in (("plain", torch.float32, False, False, {}),
                                          ("bias", torch.float32, True, False, {"masks": True}),
                                          ("old", torch.float32, True, True, {"prefix": "_orig_mod."}),
                                          ("half", torch.float16, False, False, {}),
                                          ("bf16", torch.bfloat16, True, False, {})):  # fmt: skip
        tensors, path = models.weights(models.SMALL, bias, dtype), f"{folder}/{name}.pt"
        models.save_nanogpt(path, tensors, models.SMALL, bias, **rest)
        same_logits(path, tensors, tanh, "--gelu", "tanh" if tanh else "exact")


def test_a_padded_vocabulary_of_nanogpt_is_cut(folder):
    needs_torch()
    sizes = models.SMALL | {"V": 50304}
    tensors, path = models.weights(sizes, False), f"{folder}/ckpt.pt"
    models.save_nanogpt(path, tensors, sizes, False)
    model = same_logits(path, tensors, False)
    assert model.transformer.wte.weight.shape[0] == 50257


def test_a_model_of_llmc_gives_its_logits(folder):
    needs_torch()
    for version, dtype in (3, torch.float32), (5, torch.bfloat16):
        tensors, path = models.weights(models.SMALL, True, dtype), f"{folder}/{version}.bin"
        models.save_llmc(path, tensors, models.SMALL, version)
        same_logits(path, tensors, True)


def test_an_imported_model_evaluates_as_transformers_does(folder):
    needs_torch()
    tensors, path = models.weights(models.SMALL, True), f"{folder}/ckpt.pt"
    models.save_nanogpt(path, tensors, models.SMALL, True)
    same_logits(path, tensors, False)
    with open(f"{folder}/text", "w") as file:
        file.writelines(f"line {i} about mills and rivers\n" for i in range(300))
    shardtool = os.path.join(os.environ["BIN"], "shardtool")
    subprocess.run([shardtool, "tokenize", "-q", "--docs", "lines", "--val", "0.5", "-o", f"{folder}/data", f"{folder}/text"], check=True)
    subprocess.run([shardtool, "export", "-q", "--to", "nanogpt", "-o", f"{folder}/out", f"{folder}/data"], check=True)
    ids = torch.from_numpy(np.fromfile(f"{folder}/out/val.bin", np.uint16).astype(np.int64))[:65]
    model = transformers.GPT2LMHeadModel.from_pretrained(path + ".model").eval()
    with torch.no_grad():
        theirs = torch.nn.functional.cross_entropy(model(ids[:64].view(2, 32)).logits.view(64, -1), ids[1:65]).item()
    result = subprocess.run([TRAINER, "eval", f"--init_from={path}.model", f"--dataset={folder}/data", "--dtype=float32", "--threads=1",
                             "--batch_size=2", "--eval_tokens=64", "--json"], capture_output=True, text=True, check=True)  # fmt: skip
    ours = float(result.stdout.split('"split": "val", "loss": ')[1].split(",")[0])
    assert abs(ours - theirs) < 1e-5, (ours, theirs)


def test_a_checkpoint_of_nanogpt_that_does_not_fit_is_refused_by_name(folder):
    needs_torch()
    tensors, sizes = models.weights(models.SMALL, False), models.SMALL
    matrix, at, other = tensors[models.MATRIX], models.MATRIX, tensors["transformer.wte.weight"] + 1

    def save(name, change, **rest):
        models.save_nanogpt(f"{folder}/{name}.pt", {k: v for k, v in (tensors | change).items() if v is not None}, sizes, False, **rest)
        return f"{folder}/{name}.pt"

    bad = matrix.clone()
    bad[3, 5], bad[0, 0] = float("nan"), float("inf")
    refused(save("nan", {at: bad}), 65, "2 of its numbers are not finite, the first in 'h.0.mlp.c_fc.weight'")
    refused(save("missing", {at: None}), 65, f"there is no tensor '{at}'")
    refused(save("extra", {"transformer.h.2.ln_1.weight": torch.ones(16)}), 65, "'transformer.h.2.ln_1.weight' is no tensor of the model")
    refused(save("shape", {at: matrix[1:].clone()}), 65, f"'{at}' has another shape than the model's 64 x 16")
    refused(save("turned", {at: matrix.t().contiguous().t()}), 65, f"'{at}' is not contiguous")
    refused(save("untied", {}, head=other), 65, "only models with a tied head are read")
    refused(save("double", {at: matrix.double()}), 65, "the pickle names 'torch.DoubleStorage', which is refused")
    refused(save("call", {}, more={"f": os.path.join}), 65, "the pickle names 'posixpath.join', which is refused")
    refused(save("code", {}, more={"f": Danger()}), 65, "system', which is refused")
    path = save("damaged", {})
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"damage")
    refused(path, 65, "its CRC-32 is wrong")
    torch.save({"model": {}}, f"{folder}/other.pt")
    refused(f"{folder}/other.pt", 65, "it has no 'model' and 'model_args'")
    torch.save({"model": {}}, f"{folder}/old.pt", _use_new_zipfile_serialization=False)
    refused(f"{folder}/old.pt", 65, "of a torch.save before version 1.6")


class Danger:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_a_file_of_llmc_that_does_not_fit_is_refused_by_name(folder):
    needs_torch()
    tensors, path = models.weights(models.SMALL, True), f"{folder}/model.bin"
    models.save_llmc(path, tensors, models.SMALL)
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
    refused(changed(0, 20240520), 65, "shardtool import --from llmc")
    refused(changed(0, 1), 65, "it is neither a ckpt.pt of nanoGPT nor a model of llm.c")
    refused(changed(1, 1), 65, "it has version 1 of llm.c's models")
    refused(changed(4, 3), 65, "a model of the shape in its header has")
    refused(changed(5, 3), 65, "it describes no usable model: 2 layers, 3 heads")
    refused(changed(7, 50000), 65, "a padded vocabulary of 50000 ids")
    with open(path, "wb") as file:
        file.write(whole[:-4])
    refused(path, 65, f"it has {len(whole) - 4} bytes, and a model of the shape in its header has {len(whole)}")


if __name__ == "__main__":
    runner.main(globals())
