"""Multiple-choice items of random words, and their answers by transformers with tiktoken's ids.

usage: choices_hf.py make DIR ITEMS COUNT   a small random GPT-2 in DIR, and ITEMS, a JSONL file of COUNT items
       choices_hf.py check DIR ITEMS        compares the output of `trainer eval --choices=ITEMS --json`, on stdin
"""
import json
import random
import sys

import torch
import transformers

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import gpt2

command, directory, path, *count = sys.argv[1:]
BLOCK = 96

torch.set_num_threads(1)

if command == "make":
    torch.manual_seed(7)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": BLOCK, "initializer_range": 0.3}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).save_pretrained(directory)
    draw = random.Random(7)
    words = "the mill wheel turns, a river of 1,024 stones; écluse 水車 \U0001f30a and then He said: don't [header] stop\n".split(" ")

    def text(most):
        return " ".join(draw.choice(words) for _ in range(draw.randint(1, most)))

    with open(path, "w", encoding="utf-8") as out:
        for i in range(int(count[0])):
            endings = [text(12) for _ in range(2 + i % 4)]
            context = "" if i == 5 else text(150 if i % 50 == 9 else 20)  # some are longer than the model's block
            label = draw.randrange(len(endings))
            item = {"ind": i, "ctx": context, "endings": endings, "label": str(label) if i % 2 else label}
            out.write(json.dumps(item, ensure_ascii=i % 3 == 0) + "\n")
    sys.exit()

model = transformers.GPT2LMHeadModel.from_pretrained(directory).eval()
encoding = gpt2.encoding()
answers = [json.loads(line) for line in sys.stdin]
items = [json.loads(line) for line in open(path, encoding="utf-8")]
assert len(answers) == len(items) + 1, len(answers)
right = [0, 0]
for number, (item, answer) in enumerate(zip(items, answers)):
    sums, means = [], []
    for ending in item["endings"]:
        context = encoding.encode_ordinary(item["ctx"].rstrip())  # white space at its end belongs to the ending
        blank = "" if item["ctx"].endswith(" ") or ending.startswith(" ") else " "
        ids = encoding.encode_ordinary(item["ctx"] + blank + ending)[len(context):]
        row = ((context or [50256]) + ids)[-BLOCK - 1:]
        with torch.no_grad():
            logits = model(torch.tensor([row[:-1]])).logits[0, -len(ids):].double()
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="none")
        sums.append(losses.sum().item()), means.append(losses.mean().item())
    assert all(abs(a - b) <= 1e-4 * max(1, n) for a, b, n in zip(answer["losses"], sums, answer["tokens"])), (number, answer, sums)
    choices = [min(range(len(list_)), key=list_.__getitem__) for list_ in (sums, means)]
    assert [answer["by_sum"], answer["by_mean"]] == choices and answer["item"] == number, (answer, sums, means)
    right = [count + (choice == int(item["label"])) for count, choice in zip(right, choices)]
found = answers[-1]
assert found["items"] == len(items), found
assert abs(found["accuracy"] - right[0] / len(items)) < 1e-6 and abs(found["accuracy_by_mean"] - right[1] / len(items)) < 1e-6, (found, right)
print(f"{len(items)} items: {right[0]} and {right[1]} right")
