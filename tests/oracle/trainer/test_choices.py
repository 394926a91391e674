"""The losses of multiple-choice endings against a forward pass in double precision (gpt2_model.py), by the rule of
lm-evaluation-harness 0.4.13: white space at the end of a context moves to the ending, both are encoded together, and the
ids after as many as the context has are the ending's."""
import json
import os
import sys

import numpy as np

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import runner
import gpt2
import gpt2_model

TRAINER = os.path.join(os.environ["BIN"], "trainer")
ITEMS = [("The old mill ", ["turns slowly", "eats the moon"]), ("The old mill", ["turns slowly", " turns slowly"]),
         ("The old mill ", [" turns slowly", "  turns"]), ("The old mill", ["", " "]), ("Answer: ", ["", "yes"]),
         ("Answer:\n", ["yes", " no"]), ("two \u00a0\u3000", ["yes", "\u00a0no"]), ("", ["yes", ""]), (" ", ["yes", " no"]),
         ("tab\t", ["yes", "\tno"]), ("don", [" 't", " 'll"])]  # fmt: skip


def split(encoding, context, ending):
    """As _encode_pair of lm-eval's models, and the context that it has for none."""
    joined = context + ("" if context.endswith(" ") or ending.startswith(" ") else " ") + ending
    before = encoding.encode_ordinary(context.rstrip())
    return before or [50256], encoding.encode_ordinary(joined)[len(before) :]


def test_losses_of_endings_are_those_of_the_joined_text():
    runner.call(sys.executable, gpt2_model.__file__, "make", "model")
    weights, encoding = gpt2_model.read("model"), gpt2.encoding()
    with open("items", "w", encoding="utf-8") as file:
        for context, endings in ITEMS:
            file.write(json.dumps({"ctx": context, "endings": endings, "label": 0}) + "\n")
    result = runner.call(TRAINER, "eval", "--init_from=./model", "--choices=items", "--json", "--device=cpu", "--dtype=float32", "--threads=1")
    for (context, endings), line in zip(ITEMS, result.stdout.splitlines()):
        answer = json.loads(line)
        for ending, loss, tokens in zip(endings, answer["losses"], answer["tokens"]):
            before, ids = split(encoding, context, ending)
            row = np.array(before + ids)
            want = gpt2_model.losses(weights, False, row, len(row) - 1)[len(before) - 1 :].sum()
            assert tokens == len(ids), (context, ending, tokens, ids)
            assert abs(loss - want) < 1e-4 * max(1, abs(want)), (context, ending, loss, want)


if __name__ == "__main__":
    runner.main(globals())
