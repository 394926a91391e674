#!/usr/bin/env bash
# Behaviour: from_preset of keras-hub reads a folder that transformers saved. It leaves out the biases of a Llama's attention, reads no
#   epsilon of Llama's or GPT-2's norms (1e-6 and 1e-5 are taken), and no activation function of GPT-2. There is no error and no
#   warning: two models that compute different things give the same numbers. Beside transformers the logits of a small Llama with
#   biases differed by 4.7, which is their size, and those of one without, whose epsilon is 1e-5, by 0.014 to 0.042.
# Guess: a key that is not supported is an error, as other values of rope_scaling are; a tensor that is not read is at least a warning.
# Versions: keras-hub 0.32.0, keras 3.15.1, tensorflow 2.21.0
# Date: 2026-11-28
# Output seen (the largest difference of the output):
#   two embeddings (a check of this script): they differ
#   Llama, attention_bias with biases beside none: 0
#   Llama, rms_norm_eps 0.5 beside 1e-05: 0
#   GPT-2, layer_norm_epsilon 0.5 beside 1e-05: 0
#   GPT-2, activation_function relu beside gelu_new: 0
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check keras-hub==0.32.0 keras==3.15.1 tensorflow==2.21.0 tensorflow-text==2.21.1 safetensors==0.8.0
KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES='' venv/bin/python - 2>err <<'END' || { tail -5 err && exit 1; }
import json, os
import keras_hub, numpy
from safetensors.numpy import save_file

V, C, T = 50, 8, 16


def output(kind, seed=0, **changed):
    """Writes a model of two heads and one layer as transformers does, reads it by keras-hub, and computes 12 tokens."""
    normal = numpy.random.default_rng(seed).standard_normal
    if kind == "llama":
        config = dict(model_type="llama", vocab_size=V, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, hidden_size=C,
                      head_dim=C // 2, intermediate_size=16, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0, attention_bias=False,
                      max_position_embeddings=T, tie_word_embeddings=True, architectures=["LlamaForCausalLM"])
        shapes = {f"model.layers.0.{name}.weight": (C, C) for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")}
        shapes |= {"model.layers.0.mlp.gate_proj.weight": (16, C), "model.layers.0.mlp.up_proj.weight": (16, C), "model.layers.0.mlp.down_proj.weight": (C, 16)}
        shapes |= {f"model.{name}.weight": (C,) for name in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm")}
        shapes |= {"model.embed_tokens.weight": (V, C)}
    else:
        config = dict(model_type="gpt2", vocab_size=V, n_layer=1, n_head=2, n_embd=C, n_positions=T, resid_pdrop=0.0, layer_norm_epsilon=1e-5,
                      activation_function="gelu_new", architectures=["GPT2LMHeadModel"])
        shapes = {"wte.weight": (V, C), "wpe.weight": (T, C), "h.0.attn.c_attn.weight": (C, 3 * C), "h.0.attn.c_attn.bias": (3 * C,),
                  "h.0.attn.c_proj.weight": (C, C), "h.0.attn.c_proj.bias": (C,), "h.0.mlp.c_fc.weight": (C, 4 * C), "h.0.mlp.c_fc.bias": (4 * C,),
                  "h.0.mlp.c_proj.weight": (4 * C, C), "h.0.mlp.c_proj.bias": (C,)}
        shapes |= {f"{name}.{part}": (C,) for name in ("h.0.ln_1", "h.0.ln_2", "ln_f") for part in ("weight", "bias")}
    tensors = {name: normal(shape).astype("float32") for name, shape in shapes.items()}
    if changed.get("attention_bias"):
        tensors |= {f"model.layers.0.self_attn.{name}_proj.bias": normal(C).astype("float32") for name in "qkvo"}
    os.makedirs("model", exist_ok=True)
    save_file(tensors, "model/model.safetensors", metadata={"format": "pt"})
    with open("model/config.json", "w") as file:
        json.dump(config | changed, file)
    backbone = {"llama": keras_hub.models.LlamaBackbone, "gpt2": keras_hub.models.GPT2Backbone}[kind].from_preset("./model")
    ids = numpy.arange(12)[None] % V
    return numpy.asarray(backbone({"token_ids": ids, "padding_mask": numpy.ones_like(ids, dtype=bool)}))


changed = bool(numpy.allclose(output("llama"), output("llama", seed=1), atol=0.1))
print("two embeddings (a check of this script):", "the same" if changed else "they differ")
for title, kind, key, value in (("Llama, attention_bias with biases beside none", "llama", "attention_bias", True),
                                ("Llama, rms_norm_eps 0.5 beside 1e-05", "llama", "rms_norm_eps", 0.5),
                                ("GPT-2, layer_norm_epsilon 0.5 beside 1e-05", "gpt2", "layer_norm_epsilon", 0.5),
                                ("GPT-2, activation_function relu beside gelu_new", "gpt2", "activation_function", "relu")):
    difference = abs(output(kind) - output(kind, **{key: value})).max()
    print(f"{title}: {difference:g}")
    changed |= bool(difference != 0)
raise SystemExit(changed)
END
