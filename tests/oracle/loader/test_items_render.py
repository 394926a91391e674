"""Items of benchmarks as finished texts (python -m millrace_loader.items): the rules of nanochat and lm-evaluation-harness, in words of
their own, on small files of the true forms."""
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import test_loader_client as client

WORDS = "river mill stone wheel grain flour late old ship naïve 日本".split()


def render(*arguments, code=0):
    done = subprocess.run([sys.executable, "-m", "millrace_loader.items", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": client.PACKAGE, "PYTHONIOENCODING": "utf-8"})
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def whole(item):
    return [item["shots"] + context + ending for context, ending in item["texts"]]


def text(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def write_lines(path, rows):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_bundle():
    """The lines of each task; core.yaml is JSON, which is YAML, too."""
    rng = random.Random(3)
    rows = {
        "choice": [{"query": text(rng, 5), "choices": [text(rng, 2) for _ in range(4)], "gold": rng.randrange(4)} for _ in range(20)],
        "lettered": [{"query": text(rng, 4) + "\nA. " + text(rng, 1) + "\nB. " + text(rng, 1) + "\nAnswer: ", "choices": ["A", "B"],
                      "gold": rng.randrange(2)} for _ in range(9)],
        "passage": [{"query": f"Passage: {text(rng, 9)}\nQuestion: {text(rng, 3)}?", "choices": ["no", "yes"], "gold": rng.randrange(2)}
                    for _ in range(9)],
        "schema": [{"context_options": [text(rng, 3), text(rng, 2)], "continuation": text(rng, 2), "gold": rng.randrange(2)} for _ in range(9)],
        "words": [{"context": " " + text(rng, 6) + " \n", "continuation": text(rng, 1)} for _ in range(9)],
    }
    kinds = {"schema": "schema", "words": "language_modeling"}
    tasks = [{"label": name, "dataset_uri": f"folder/{name}.jsonl", "num_fewshot": [0 if name == "passage" else 3],
              "icl_task_type": kinds.get(name, "multiple_choice"), "continuation_delimiter": "\nAnswer: "} for name in rows]
    del tasks[-1]["continuation_delimiter"]
    for name, lines in rows.items():
        write_lines(f"bundle/eval_data/folder/{name}.jsonl", lines)
    with open("bundle/core.yaml", "w") as file:
        json.dump({"icl_tasks": tasks}, file)
    with open("bundle/eval_meta_data.csv", "w") as file:
        file.write('Eval Task,Random baseline,Description\nchoice,9.1,"one, two"\n')
    return rows


def shuffled(rows, limit=None):
    numbered = list(enumerate(rows))
    random.Random(1337).shuffle(numbered)
    return numbered[:limit]


def example(name, row):
    if name == "words":
        return row["context"].strip() + " " + row["continuation"]
    if name == "schema":
        return row["context_options"][row["gold"]] + "\nAnswer: " + row["continuation"]
    return row["query"] + "\nAnswer: " + row["choices"][row["gold"]]


def nanochat_texts(name, rows, i):
    row, shots = rows[i][1], ""
    if name != "passage":
        others = [j for j in range(len(rows)) if j != i]
        shots = "".join(example(name, rows[j][1]) + "\n\n" for j in random.Random(1234 + i).sample(others, 3))
    if name == "schema":
        return [shots + context + "\nAnswer: " + row["continuation"] for context in row["context_options"]]
    return [shots + row["query"] + "\nAnswer: " + choice for choice in row["choices"]] if name != "words" else [shots + example(name, row)]


def test_a_bundle_has_the_texts_of_nanochat(home):
    os.chdir(home)
    rows = write_bundle()
    spans = {"schema": "common", "words": "ending"}
    for limit in (0, 7):
        items, _ = render("bundle", "--limit", limit)
        for name in rows:
            drawn, found = shuffled(rows[name], limit or None), [item for item in items if item["task"] == name]
            assert [item["id"] for item in found] == [number for number, _ in drawn]
            for i, item in enumerate(found):
                assert whole(item) == nanochat_texts(name, drawn, i), (name, i)
                assert item["span"] == spans.get(name, "differing") and item["begin"] is True
                assert item.get("label") == drawn[i][1].get("gold") and item["kind"] == ("greedy" if name == "words" else "choice")
                assert item.get("chance") == (0.091 if name == "choice" else None)
    assert {item["task"] for item in render("bundle", "--task", "words")[0]} == {"words"}
    assert "choice: 3 shots of 2 items" in render("bundle", "--limit", 2, code=1)[1]


def test_controls_swap_what_a_model_must_read(home):
    os.chdir(home)
    rows = write_bundle()
    plain, (swapped, told) = render("bundle")[0], render("bundle", "--swap")
    assert told == "schema: has no control, and is left out\n"
    plain = [item for item in plain if item["task"] != "schema"]
    assert len(plain) == len(swapped)
    place = {}
    for before, after in zip(plain, swapped):
        name, i = before["task"], place.setdefault(before["task"], 0)
        place[name] += 1
        drawn = [row for _, row in shuffled(rows[name])]
        key = "context" if name == "words" else "query"
        own, donor = drawn[i][key], drawn[random.Random(99 + i).choice([j for j in range(len(drawn)) if j != i])][key]
        want = {"choice": donor, "words": donor.strip(), "lettered": donor.split("\n")[0] + "".join(own.partition("\n")[1:]),
                "passage": donor.partition("\nQ")[0] + "".join(own.partition("\nQ")[1:])}[name]
        delimiter = " " if name == "words" else "\nAnswer: "
        assert after == {**before, "texts": [[want + delimiter, ending] for _, ending in before["texts"]]}, (name, i)


def sample(number, target, texts, **more):
    return {"doc_id": number, "doc": {}, "target": target, "filtered_resps": [["-2.5", "False"]] * len(texts),
            "arguments": {f"gen_args_{i}": {"arg_0": one, "arg_1": two} for i, (one, two) in enumerate(texts)}, **more}


def test_samples_of_lm_eval_keep_their_texts_and_find_their_label(home):
    os.chdir(home)
    two = [["a b", " c"], ["a d", " c"]]
    right = [["-2.5", "False"], ["-1.5", "False"]]  # the second text is the likelier one
    rows = [sample(0, "1", [["Q: x", " y"], ["Q: x", " z"]]), sample(1, "z", [["Q: x", " y"], ["Q: x", " z"]]),
            sample(2, "c", two, doc={"answer": "2"}), sample(3, "c", two, acc=0.0, filtered_resps=right),
            sample(4, "c", two, acc=1.0, filtered_resps=right), sample(5, " w", [["so it", " w"]], acc=1.0),
            sample(6, "0", [*two, ["", " c"], ["", " d"]], acc_mutual_info=1.0)]
    write_lines("samples_my_task_2026-11-29T01-44-00.000000.jsonl", [*rows, sample(7, "w", [["ask", {"until": ["\n"]}]])])
    items, told = render("samples_my_task_2026-11-29T01-44-00.000000.jsonl")
    assert [item.get("label") for item in items] == [1, 1, 1, 0, 1, None, 0]
    assert items[5] == {"task": "my_task", "id": 5, "kind": "greedy", "shots": "", "texts": [["so it", " w"]], "span": "ending", "begin": False}
    assert items[6]["texts"] == two and "1 lines ask for generated text" in told
    write_lines("unknown.jsonl", [sample(8, "c", two)])
    assert "unknown.jsonl: doc_id 8: which text is right is not in the line" in render("unknown.jsonl", code=1)[1]
    write_lines("other.jsonl", [{"text": "x"}])
    assert "no samples of lm-evaluation-harness" in render("other.jsonl", code=1)[1]
    assert "the texts of samples are finished" in render("unknown.jsonl", "--swap", code=1)[1]



def test_results_become_samples_of_lm_eval(home):
    os.chdir(home)
    choice = {"task": "t", "id": 4, "kind": "choice", "shots": "s\n\n", "texts": [["a ", "b"], ["a ", "cd"]], "label": 1, "span": "ending"}
    greedy = {"task": "u", "id": "x", "kind": "greedy", "texts": [["so it", " is"]]}
    talk = {"task": "v", "id": 0, "kind": "answers", "messages": [], "answer": "yes"}
    write_lines("items.jsonl", [choice, talk, greedy])
    digest = hashlib.sha256(pathlib.Path("items.jsonl").read_bytes()).hexdigest()
    result = {"losses": [3.0, 3.5], "greedy": [0, 1], "label": 1, "pick": {"sum": 0, "mean": 1, "char": 1, "byte": 1}}
    write_lines("results.jsonl", [{"format": "millrace items 1", "items_sha256": digest}, {**choice, **result}, {**talk, **result},
                                  {**greedy, "losses": [0.25], "greedy": [1], "label": 0, "pick": {"sum": 0, "char": 0}}])
    (first, second), _ = render("--results", "results.jsonl", "items.jsonl")
    assert first.pop("doc") == choice and second.pop("doc") == greedy
    assert first == {"doc_id": 4, "target": "1", "arguments": {"gen_args_0": {"arg_0": "s\n\na ", "arg_1": "b"},
                                                              "gen_args_1": {"arg_0": "s\n\na ", "arg_1": "cd"}},
                     "resps": [[["-3.0", "False"]], [["-3.5", "True"]]], "filtered_resps": [["-3.0", "False"], ["-3.5", "True"]],
                     "filter": "none", "metrics": ["acc", "acc_norm"], "acc": 0.0, "acc_norm": 1.0}
    assert second == {"doc_id": "x", "target": " is", "arguments": {"gen_args_0": {"arg_0": "so it", "arg_1": " is"}},
                      "resps": [[["-0.25", "True"]]], "filtered_resps": [["-0.25", "True"]], "filter": "none",
                      "metrics": ["perplexity", "acc"], "perplexity": -0.25, "acc": 1}
    assert len(render("--results", "results.jsonl", "--task", "u", "items.jsonl")[0]) == 1
    write_lines("items.jsonl", [choice])
    assert "results.jsonl has no results of 'items.jsonl'" in render("--results", "results.jsonl", "items.jsonl", code=1)[1]


CHOICES = {"text": ["p", "q"], "label": ["A", "B"]}
# A row, the context and the endings of lm-evaluation-harness, and the label.
TABLES = {
    "arc": ({"id": "M1", "question": "Why?", "choices": CHOICES, "answerKey": "B"}, "Question: Why?\nAnswer:", ["p", "q"], 1),
    "openbookqa": ({"id": "7", "question_stem": "So that", "choices": CHOICES, "answerKey": "A"}, "So that", ["p", "q"], 0),
    "hellaswag": ({"ind": 3, "activity_label": "Milling", "ctx_a": "He [title] turns.", "ctx_b": "the wheel", "ctx": "-", "label": "1",
                   "endings": ["is [step] old", "turns"]}, "Milling: He. turns. The wheel", ["is old", "turns"], 1),
    "piqa": ({"goal": "Grind", "sol1": "p", "sol2": "q", "label": 1}, "Question: Grind\nAnswer:", ["p", "q"], 1),
    "boolq": ({"question": "is it", "passage": "It is.", "answer": True}, "It is.\nQuestion: is it?\nAnswer:", ["no", "yes"], 1),
    "squad": ({"id": "5", "title": "T", "context": "It is.", "question": "What?", "answers": {"text": ["it", "is"], "answer_start": [0, 3]}},
              "Context: It is.\nQuestion: What?\nAnswer:", ["it"], None),
    "lambada": ({"text": "the last word"}, "the last", ["word"], None),
}


def test_tables_of_the_hub_have_the_texts_of_lm_eval(home):
    os.chdir(home)
    for name, (row, *_) in TABLES.items():
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), f"{name}-table.parquet")
    items, _ = render(*(f"{name}-table.parquet" for name in TABLES))
    for (name, (_, context, endings, label)), item in zip(TABLES.items(), items, strict=True):
        assert whole(item) == [f"{context} {ending}" for ending in endings], (name, item)
        assert (item["task"], item.get("label"), item["span"], item["begin"]) == (name, label, "ending", False)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"sentence": "So _ went.", "option1": "he", "option2": "it", "answer": "2"}]), "w.parquet")
    (item,), _ = render("w.parquet", "--task", "mine")
    assert item["texts"] == [["So he ", "went."], ["So it ", "went."]] and item["label"] == 1 and item["task"] == "mine"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"sentence": "So _ went.", "option1": "he", "option2": "it", "answer": ""}]), "w.parquet")
    assert "row 0 of winogrande has no label" in render("w.parquet", code=1)[1]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"x": 1}]), "x.parquet")
    assert "x.parquet: columns x are of no known benchmark (openbookqa, arc," in render("x.parquet", code=1)[1]
    assert "'none' does not exist" in render("none", code=1)[1]


def test_shots_of_a_table_are_one_stream_over_its_items(home):
    os.chdir(home)
    rng = random.Random(4)
    rows = [{"goal": text(rng, 3), "sol1": text(rng, 2), "sol2": text(rng, 2), "label": rng.randrange(2)} for _ in range(30)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[:20]), "train.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[20:]), "test.parquet")
    shot = lambda row: f"Question: {row['goal']}\nAnswer: {row['sol2' if row['label'] else 'sol1']}\n\n"
    stream = random.Random(1234)
    assert [item["id"] for item in render("train.parquet", "test.parquet")[0]] == list(range(30))
    for item in render("test.parquet", "--shots", 4, "--shots-from", "train.parquet")[0]:
        assert item["shots"] == "".join(map(shot, stream.sample(rows[:20], 4)))
    stream = random.Random(1234)
    for item, own in zip(render("test.parquet", "--shots", 4)[0], rows[20:]):
        assert item["shots"] == "".join(map(shot, [row for row in stream.sample(rows[20:], 5) if row != own][:4]))
    assert "piqa: 10 shots of 10 items" in render("test.parquet", "--shots", 10, code=1)[1]
