# peers: torch, transformers, lm_eval
"""Grades by items (trainer/items/items.h) against the rules of nanochat's core_eval and of lm-evaluation-harness 0.4.13, written down from
what they compute, over a forward pass in double precision (gpt2_model.py); and against lm-evaluation-harness itself."""
import functools
import json
import os
import random
import re
import sys

import numpy as np

import runner
import gpt2
import gpt2_model

SHARDTOOL, TRAINER = (os.path.join(os.environ["BIN"], name) for name in ("shardtool", "trainer"))
CPU = ["--device=cpu", "--dtype=float32"]
BLOCK, END = 64, 50256
WORDS = "the mill wheel turns, a river of 1,024 stones; écluse 水車 \U0001f30a and then He said: don't [header] stop\n".split(" ")


def setup():
    runner.call(sys.executable, gpt2_model.__file__, "make", "model")
    with open("text.txt", "w") as file:
        file.writelines(f"the mill of words and {i} more\n" for i in range(300))
    runner.call(SHARDTOOL, "tokenize", "-q", "--docs", "lines", "--val", "0.2", "-o", "data", "text.txt")


@functools.cache
def model():
    return gpt2_model.read("model")


def text(draw, most):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, most)))


def likeliest(context):
    """The text that the model continues with."""
    ids = gpt2.encoding().encode_ordinary(context)
    row = gpt2_model.logits(model(), False, np.array([END] + ids), last=1)[0]
    return gpt2.encoding().decode([next(i for i in np.argsort(-row) if gpt2.encoding().encode_ordinary(gpt2.encoding().decode(ids + [i])) == ids + [i])])


def made(count):
    """Items of the shapes of real tasks: questions with answers, letters, schemas, texts to continue; some longer than a sequence."""
    draw = random.Random(7)
    for i in range(count):
        shots = "".join(f"Question: {text(draw, 4)}\nAnswer: {text(draw, 2)}\n\n" for _ in range((0, 0, 1, 3)[i % 4]))
        query, n = f"Question: {text(draw, 12)}", 2 + i % 4
        item = {"task": "answers", "id": i, "kind": "choice", "shots": shots, "label": draw.randrange(n), "span": "differing"}
        if i % 5 == 1:  # all answers begin with the same id, and the text before them ends with a blank
            texts = [[f"{query}\nAnswer: ", f"the {text(draw, 6)}"] for _ in range(n)]
        elif i % 5 == 2:
            item |= {"task": "letters"}
            texts = [[f"{query} \nAnswer:", f" {letter}"] for letter in "ABCDE"[:n]]
        elif i % 5 == 3:
            item |= {"task": "schemas", "span": "common"}
            texts = [[f"{query} because {text(draw, 3)} ", "was late, they said."] for _ in range(n)]
        elif i % 5 == 4:
            item |= {"task": "words", "kind": "greedy", "label": 0}
            texts = [[query, likeliest(query) if i % 2 else f" {text(draw, 2)}"]]
            del item["span"]
        else:
            item |= {"task": "endings", "span": "ending", "begin": False}
            texts = [[f"{query}\nAnswer:", f" {text(draw, 9)}"] for _ in range(n)]
        yield item | {"texts": texts}


TRAPS = [  # what peers and their ports have fallen over: (item, scored ids of each text)
    # the ids of one choice begin another's, which leaves nanochat a mean of nothing: the last common id counts, too
    ({"texts": [["a: ", "the sun"], ["a: ", "the sun set"]], "span": "differing"}, [1, 2]),
    ({"texts": [["a: ", "the sun set"], ["a: ", "the sun"]], "span": "differing"}, [2, 1]),
    ({"texts": [["a:", " one"], ["a:", " one"]], "span": "differing"}, [1, 1]),  # no choice of two alike wins by its place alone
    ({"texts": [["He said", " no"], ["So he said", " no"]], "span": "common"}, [2, 2]),
    # text and context are encoded together: '>y' joins '-', and lm-eval counts ids where nanochat asserts that they are a prefix
    ({"texts": [["a -", ">y"], ["a -", "y"]], "span": "ending"}, [1, 1]),
    ({"texts": [["two \u00a0\u3000", "yes"], ["two \u00a0\u3000", "no"]], "span": "ending"}, None),  # white space that is not ASCII
    ({"texts": [["", "yes"], [" ", " no"]], "span": "ending", "begin": False}, [1, 2]),  # nothing stands before
    ({"texts": [["a", "\nyes\n"], ["a", "\tno "]], "span": "ending"}, None),
]


def ids_of(item, block):
    """For each text: ids, the number of scored ones, the number cut. After nanochat's render_*, batch_sequences_*, and after lm-eval's
    _encode_pair and _loglikelihood_tokens."""
    encode, shots, begin = gpt2.encoding().encode_ordinary, item.get("shots", ""), item.get("begin", True)
    whole = [encode(shots + context + ending) for context, ending in item["texts"]]
    if item.get("span", "ending") == "ending":
        before = [len(encode((shots + context).rstrip())) for context, _ in item["texts"]]
    elif item["span"] == "differing":
        shortest = min(map(len, whole))
        same = next((i for i in range(shortest) if len({row[i] for row in whole}) > 1), shortest - 1)
        before = [same] * len(whole)
    else:
        shortest = min(map(len, whole))
        same = next((i for i in range(shortest) if len({row[-1 - i] for row in whole}) > 1), shortest)
        before = [len(row) - same for row in whole]
    for row, start in zip(whole, before):
        scored, row = len(row) - start, [END] + row if begin or not start else row
        kept = row[-(block if begin else block + 1) :]
        yield kept, scored, len(row) - len(kept)


def check(item, answer, weights, block):
    for i, (row, scored, cut) in enumerate(ids_of(item, block)):
        row = np.array(row)
        found = gpt2_model.logits(weights, False, row[:-1], last=scored)
        largest = found.max(-1)
        losses = largest + np.log(np.exp(found - largest[:, None]).sum(-1)) - found[np.arange(scored), row[-scored:]]
        ending, context = item["texts"][i][1], item.get("shots", "") + item["texts"][i][0]
        if ending.startswith(" ") and context == context.rstrip():
            ending = ending[1:]
        want = losses.sum(), scored, cut, len(ending), len(ending.encode()), int((found.argmax(-1) == row[-scored:]).all())
        have = [answer[key][i] for key in ("losses", "tokens", "cut", "chars", "bytes", "greedy")]
        assert abs(have[0] - want[0]) < 1e-4 * max(1, want[0]) and list(want[1:]) == have[1:], (item, i, want, have)
    losses = np.array(answer["losses"])
    picks = {unit: int(np.argmin(losses / of)) for unit, of in
             (("sum", 1), ("mean", answer["tokens"]), ("char", answer["chars"]), ("byte", answer["bytes"]))}  # fmt: skip
    assert answer["pick"] == picks, (item, answer)
    unit = "sum" if item.get("span") == "ending" else "mean"
    right = answer["greedy"][0] if item["kind"] == "greedy" else picks[unit] == item["label"]
    assert answer["right"] == right, (item, answer)


def write(name, items):
    with open(name, "w", encoding="utf-8") as file:
        for i, item in enumerate(items):
            file.write(json.dumps({"task": f"trap-{item.get('kind', item.get('span'))}", "id": i, "kind": "choice", "label": 0} | item, ensure_ascii=i % 3 == 0) + "\n")


def grade(*options, code=0, items="items", of="--init_from=./model"):
    done = runner.call(TRAINER, "eval", of, f"--items={items}", "--json", *CPU, *options, code=code)
    head, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert head["format"] == "millrace items 1", head
    return head, answers, done.stderr.decode()


def train(of, run, *options, code=0):
    return runner.call(TRAINER, "train", "--quiet", f"--init_from=./{of}", "--dataset=data", f"--out_dir={run}", "--max_iters=1", "--batch_size=1",
                       "--gradient_accumulation_steps=1", "--eval_interval=0", "--sample_tokens=0", *CPU, *options, code=code)  # fmt: skip


@runner.each([64, 24], quick=[64])
def test_losses_spans_and_picks_are_those_of_nanochat_and_lm_eval_in_sequences_of(block):
    items, weights = list(made(30)), model()
    items = [item for item in items if all(scored < block - 1 for _, scored, _ in ids_of(item, block))]
    write("items", items)
    head, answers, said = grade(f"--eval_block_size={block}", "--batch_size=3")
    assert head["block"] == block and len(answers) == len(items)
    for item, answer in zip(items, answers):
        check(item, answer, weights, block)
    cuts = [answer["cut"] for answer in answers]
    assert any(sum(cut) and len(set(cut)) > 1 for cut in cuts) and any(answer["greedy"] == [1] for answer in answers), cuts
    assert "were cut by different numbers of tokens: they have different contexts" in said
    computed, tokens, whole = map(int, re.search(r"computed (\d+) of (\d+) tokens.* (\d+) items whole", said).groups())
    assert tokens == sum(len(row) - 1 for item in items for row, *_ in ids_of(item, block))
    assert computed < 0.8 * tokens and whole >= sum(len(set(cut)) > 1 for cut in cuts), (computed, tokens, whole, cuts)


def test_traps_of_other_tools_are_answered_as_documented():
    write("traps", [item for item, _ in TRAPS])
    weights = model()
    _, answers, said = grade(items="traps")
    assert "trap-differing: in 3 items the ids of one text begin or are another's" in said
    for (item, tokens), answer in zip(TRAPS, answers):
        check({"kind": "choice", "label": 0} | item, answer, weights, BLOCK)
        assert tokens in (None, answer["tokens"]), (item, answer)


def test_one_id_of_the_beginning_turns_an_answer():
    """And block or block + 1 ids are read: 63 to 66 ids of texts with a beginning (nanochat), and without (lm-eval)."""
    for begin, cut in ((True, [0, 0, 1, 2]), (False, [0, 0, 0, 1])):
        write("edge", ({"begin": begin, "span": "ending", "texts": [["a" + " a" * (n - 2 - begin), " mill"]] * 2} for n in range(63, 67)))
        assert [answer["cut"][0] for answer in grade(items="edge")[1]] == cut
    schema = {"texts": [["Ann met Eve because Ann", " was late."], ["Ann met Eve because Eve", " was late."]], "span": "common"}
    write("schema", [schema, schema | {"begin": False}])
    assert [answer["pick"]["mean"] for answer in grade(items="schema")[1]] == [0, 1]


def test_batches_and_threads_do_not_change_a_grade():
    write("items", made(30))
    wanted = grade("--threads=1", "--batch_size=4")
    assert grade("--threads=2", "--batch_size=4")[:2] == wanted[:2]
    for rows in (1, 12):
        for answer, other in zip(wanted[1], grade("--threads=1", f"--batch_size={rows}")[1]):
            losses, others = np.array(answer.pop("losses") if rows == 12 else answer["losses"]), np.array(other.pop("losses"))
            assert np.allclose(losses, others, rtol=1e-5, atol=0), (losses, others)
            assert other.items() <= answer.items(), (answer, other)


def test_a_model_of_nans_ends_with_81_and_chance_and_ties_are_told():
    name = next(name for name in os.listdir("model") if name.endswith(".safetensors"))
    runner.call("cp", "-r", "model", "nan")
    with open(f"nan/{name}", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.array(np.nan, "<f4").tobytes())
    write("items", [{"texts": [["a", " b"], ["a", " b"]], "span": "differing", "chance": 0.091}] * 3)
    _, answers, said = grade(code=81, of="--init_from=./nan")
    assert answers[0]["losses"] == [None, None] and "the losses of 3 of 3 items are not finite" in said
    done = train("nan", "lost", "--items=items", "--items_interval=1", code=81)
    assert "the losses of 3 of 3 items are not finite" in done.stderr.decode() and not any("items" in name for name in os.listdir("lost"))
    table = runner.call(TRAINER, "eval", "--init_from=./model", "--items=items", "--quiet", *CPU)
    row = table.stdout.decode().splitlines()[1].split()
    assert row == ["trap-differing", "3", "mean", "1.0000", "0.0000", "0.4385", "1.0000", "0.5000", "3", "0"], row  # scipy's Wilson interval
    assert "'chance' of 3 items is not 1 / their texts, 0.5000" in table.stderr.decode()


def test_answers_are_what_sample_says_and_compared_exactly():
    with open("pairs.jsonl", "w") as file:
        file.writelines(json.dumps({"prompt": f"Question {i % 9}?", "completion": f"Answer {i % 9 % 2}."}) + "\n" for i in range(400))
    runner.call(SHARDTOOL, "tokenize", "-q", "--turns", "--val", "0.2", "-o", "pairs", "pairs.jsonl")
    runner.call(TRAINER, "train", "--quiet", "--dataset=pairs", "--out_dir=talk", "--loss_tokens=answers", "--n_layer=2", "--n_head=2", "--n_embd=32",
                "--block_size=32", "--batch_size=8", "--gradient_accumulation_steps=1", "--max_iters=120", "--lr_decay_iters=120", "--warmup_iters=5",
                "--learning_rate=1e-2", "--eval_interval=0", "--sample_tokens=0", "--threads=1", *CPU)  # fmt: skip
    questions = [f"Question {i}?" for i in range(9)] + ["Question 3?", "And what?"]
    spoken = runner.call(TRAINER, "sample", "--turns", "--out_dir=talk", "--temperature=0", "--quiet", "--threads=1", *CPU,
                         stdin="".join(f"/clear\n{question}\n" for question in questions).encode()).stdout.decode().splitlines()  # fmt: skip
    wanted = [f" Answer {i % 2}.\n" for i in range(9)] + ["Answer 3. And more, so that nothing is cut", spoken[10]]
    write("talk.items", [{"kind": "answers", "messages": [{"role": "user", "content": question}], "answer": answer}
                         for question, answer in zip(questions, wanted)])  # fmt: skip
    answers = grade(items="talk.items", of="--out_dir=talk")[1]
    assert [answer["text"] for answer in answers] == spoken, (answers, spoken)
    assert [answer["right"] for answer in answers] == [int(said == want.strip()) for said, want in zip(spoken, wanted)]
    assert sum(answer["right"] for answer in answers) >= 9 and not answers[9]["right"], answers  # it has learned them
    for answer in answers:  # the teacher-forced text with its end is greedy exactly when it is what is said
        assert answer["right"] == answer["greedy"][0] and answer["label"] == 0 and answer["rule"] == "exact", answer


def test_grades_are_those_of_lm_eval():
    """acc, acc_norm, acc_bytes and acc of a text to continue, item by item, as its own tasks compute them."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    import datasets
    import lm_eval
    import transformers
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.huggingface import HFLM
    train("model", "run")
    runner.call(TRAINER, "export", "-q", "-o", "exported", "--out_dir=run")
    theirs = HFLM(transformers.AutoModelForCausalLM.from_pretrained("exported").double(),
                  tokenizer=transformers.AutoTokenizer.from_pretrained("exported"), device="cpu", batch_size=1)  # fmt: skip
    draw = random.Random(3)
    docs = [{"query": text(draw, 60 if i % 20 == 9 else 14), "choices": [text(draw, 9) for _ in range(2 + i % 4)], "gold": i % 2} for i in range(60)]
    form = {"output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_choice": lambda doc: doc["choices"],
            "doc_to_target": lambda doc: doc["gold"], "test_split": "test",
            "metric_list": [{"metric": metric} for metric in ("acc", "acc_norm", "acc_bytes")]}  # fmt: skip
    words = {"output_type": "loglikelihood", "doc_to_text": "{{query}}", "doc_to_target": lambda doc: doc["choices"][0],
             "metric_list": [{"metric": "acc"}], "test_split": "test"}  # fmt: skip
    tasks = [ConfigurableTask(config=config | {"task": name, "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list(docs)}})
             for name, config in (("c", form), ("w", words))]  # fmt: skip
    found = lm_eval.simple_evaluate(theirs, tasks=tasks, log_samples=True, bootstrap_iters=0)
    write("items", [{"texts": [[doc["query"], f" {choice}"] for choice in doc["choices"]], "label": doc["gold"], "span": "ending", "begin": False}
                    for doc in docs] + [{"kind": "greedy", "texts": [[doc["query"], f" {doc['choices'][0]}"]], "begin": False} for doc in docs])  # fmt: skip
    answers = grade(of="--out_dir=run")[1]
    for doc, answer, sample in zip(docs, answers, found["samples"]["c"]):
        for loss, ((likelihood, greedy),) in zip(answer["losses"], sample["resps"]):
            assert abs(loss + float(likelihood)) < 1e-4 * max(1, loss), (doc, loss, likelihood)
        have = [int(answer["pick"][unit] == doc["gold"]) for unit in ("sum", "char", "byte")]
        assert have == [sample[metric] for metric in ("acc", "acc_norm", "acc_bytes")], (doc, answer, sample)
        assert answer["greedy"] == [int(str(greedy) == "True") for ((_, greedy),) in sample["resps"]]
    assert [answer["right"] for answer in answers[60:]] == [sample["acc"] for sample in found["samples"]["w"]]
    assert sum(answer["right"] for answer in answers[:60]) == round(60 * found["results"]["c"]["acc,none"])
