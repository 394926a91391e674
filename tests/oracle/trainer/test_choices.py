# peers: torch, transformers, lm_eval
"""The losses of multiple-choice endings against a forward pass in double precision (gpt2_model.py), by the rule of
lm-evaluation-harness 0.4.13: white space at the end of a context moves to the ending, both are encoded together, and the
ids after as many as the context has are the ending's."""
import json
import os
import sys

import numpy as np

import runner
import gpt2
import gpt2_model

SHARDTOOL, TRAINER = (os.path.join(os.environ["BIN"], name) for name in ("shardtool", "trainer"))
CPU = ["--device=cpu", "--dtype=float32", "--threads=1"]
ITEMS = [("The old mill ", ["turns slowly", "eats the moon"]), ("The old mill", ["turns slowly", " turns slowly"]),
         ("The old mill ", [" turns slowly", "  turns"]), ("The old mill", ["", " "]), ("Answer: ", ["", "yes"]),
         ("Answer:\n", ["yes", " no"]), ("two \u00a0\u3000", ["yes", "\u00a0no"]), ("", ["yes", ""]), (" ", ["yes", " no"]),
         ("tab\t", ["yes", "\tno"]), ("don", [" 't", " 'll"])]  # fmt: skip


def split(encoding, context, ending):
    """As _encode_pair of lm-eval's models, and the context that it has for none."""
    joined = context + ("" if context.endswith(" ") or ending.startswith(" ") else " ") + ending
    before = encoding.encode_ordinary(context.rstrip())
    return before or [50256], encoding.encode_ordinary(joined)[len(before) :]


def model():
    if not os.path.exists("model"):
        runner.call(sys.executable, gpt2_model.__file__, "make", "model")
    return "model"


def answers(option):
    with open("items", "w", encoding="utf-8") as file:
        for context, endings in ITEMS:
            file.write(json.dumps({"ctx": context, "endings": endings, "label": 0}) + "\n")
    result = runner.call(TRAINER, "eval", option, "--choices=items", "--json", *CPU)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_losses_of_endings_are_those_of_the_joined_text():
    weights, encoding = gpt2_model.read(model()), gpt2.encoding()
    for (context, endings), answer in zip(ITEMS, answers("--init_from=./model")):
        for ending, loss, tokens in zip(endings, answer["losses"], answer["tokens"]):
            before, ids = split(encoding, context, ending)
            row = np.array(before + ids)
            want = gpt2_model.losses(weights, False, row, len(row) - 1)[len(before) - 1 :].sum()
            assert tokens == len(ids), (context, ending, tokens, ids)
            assert abs(loss - want) < 1e-4 * max(1, abs(want)), (context, ending, loss, want)


def test_losses_of_endings_are_those_of_lm_eval():
    """But where the context is white space alone, or the ending has no token: it refuses these."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    with open("text.txt", "w") as file:
        file.writelines(f"the mill of words and {i} more\n" for i in range(300))
    runner.call(SHARDTOOL, "tokenize", "-q", "--docs", "lines", "--val", "0.2", "-o", "data", "text.txt")
    runner.call(TRAINER, "train", "--quiet", f"--init_from=./{model()}", "--dataset=data", "--out_dir=run", "--max_iters=1",
                "--batch_size=1", "--gradient_accumulation_steps=1", "--eval_interval=0", "--sample_tokens=0", *CPU)  # fmt: skip
    runner.call(TRAINER, "export", "-q", "-o", "exported", "--out_dir=run")
    theirs = HFLM(transformers.AutoModelForCausalLM.from_pretrained("exported").double(),
                  tokenizer=transformers.AutoTokenizer.from_pretrained("exported"), device="cpu", batch_size=1)  # fmt: skip
    compared = 0
    for (context, endings), answer in zip(ITEMS, answers("--out_dir=run")):
        for ending, loss, tokens in zip(endings, answer["losses"], answer["tokens"]):
            if not tokens or (context and not context.strip()):
                continue
            blank = "" if context.endswith(" ") or ending.startswith(" ") else " "  # its target_delimiter
            request = Instance("loglikelihood", {}, (context, blank + ending), 0)
            want = -theirs.loglikelihood([request], disable_tqdm=True)[0][0]
            assert abs(loss - want) < 1e-4 * max(1, want), (context, ending, loss, want)
            compared += 1
    assert compared > 15, compared
