"""python -m millrace_loader.items PATH... >items.jsonl: the items of benchmarks as finished texts, a line of JSON each, for
`millrace eval` and `millrace decontaminate --against`. A path is

- a folder with core.yaml, nanochat's bundle: its tasks with their shots, by nanochat's rules;
- a .jsonl file of lm-evaluation-harness --log_samples: its texts;
- a .parquet file of ARC, OpenBookQA, HellaSwag, PIQA, BoolQ, LAMBADA, SQuAD or WinoGrande, by its columns: the texts and shots of
  lm-evaluation-harness."""
import argparse
import csv
import hashlib
import json
import math
import os
import random
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

Record = Dict[str, Any]


@dataclass
class Item:
    """The texts are each context with each ending: one of the two lists has one element."""
    id: int
    contexts: List[str]
    endings: List[str]
    label: int = 0
    shots: str = ""

    def texts(self, delimiter: str) -> List[List[str]]:
        return [[context + delimiter, ending] for context in self.contexts for ending in self.endings]


@dataclass
class Task:
    name: str
    items: List[Item]
    span: str  # which tokens of a text are scored
    begin: bool = False  # whether the token that ends a document stands before each text
    delimiter: str = " "
    chance: Optional[float] = None
    shots: int = 0
    donors: List[Item] = field(default_factory=list)  # of shots; none: the items themselves
    nanochat: bool = False  # its rule of shots
    passage: Optional[bool] = None  # what --swap takes of another item: what stands before "\nQuestion:"; None: by the first item


# ---- shots and controls


def other(i: int, own: int) -> int:
    """The number i of the items without one's own."""
    return i + (i >= own)


def add_shots(task: Task) -> None:
    """Of nanochat: a random stream for each item, from all others. Of lm-evaluation-harness: one stream for all, from the donors, or from
    the items with one more, so that one's own can be left out."""
    donors, stream = task.donors or task.items, random.Random(1234)
    if len(donors) < task.shots + (not task.donors):
        sys.exit(f"{task.name}: {task.shots} shots of {len(donors)} items")
    for number, item in enumerate(task.items):
        if task.nanochat:
            drawn = [other(i, number) for i in random.Random(1234 + number).sample(range(len(donors) - 1), task.shots)]
        elif task.donors:
            drawn = stream.sample(range(len(donors)), task.shots)
        else:
            drawn = [i for i in stream.sample(range(len(donors)), task.shots + 1) if i != number][:task.shots]
        item.shots = "".join("".join(donors[i].texts(task.delimiter)[donors[i].label]) + "\n\n" for i in drawn)


OPTION = re.compile(r"\s*[A-Z][.)]+\s")


def first_option(query: str) -> int:
    """The line of the first lettered choice. 0: none, or nothing before it."""
    return next((i for i, line in enumerate(query.split("\n")) if OPTION.match(line)), 0)


def swap_passages(task: Task) -> bool:
    """Gives each item what a model must read from another item, as nanochat's controls (PR 806): the passage before a question, the text
    before lettered choices, or all. False: the task has several contexts, or its choices cannot be told from the question."""
    first = task.items[0]
    if len(first.contexts) > 1 or len(task.items) < 2:
        return False
    lettered = len(first.endings) > 1 and all(len(ending.strip()) == 1 and ending.strip().isalpha() for ending in first.endings)
    if lettered and sum(bool(OPTION.match(line)) for line in first.contexts[0].split("\n")) != len(first.endings):
        return False
    passage = task.passage
    if passage is None:
        passage = not lettered and len(first.endings) > 1 and all(word in first.contexts[0] for word in ("Passage:", "Question:"))
    queries = [item.contexts[0] for item in task.items]
    for number, item in enumerate(task.items):
        donor, own = queries[other(random.Random(99 + number).choice(range(len(queries) - 1)), number)], queries[number]
        cut, donor_cut = first_option(own), first_option(donor)
        if passage and "\nQuestion:" in own and "\nQuestion:" in donor:
            donor = donor.split("\nQuestion:", 1)[0] + "\nQuestion:" + own.split("\nQuestion:", 1)[1]
        elif not passage and len(item.endings) > 1 and any(OPTION.match(line) for line in own.split("\n")):
            donor = "\n".join(donor.split("\n")[:donor_cut] + own.split("\n")[cut:]) if cut and donor_cut else own
        item.contexts = [donor]
    return True


# ---- nanochat's bundle


def read_lines(path: str) -> Iterator[Record]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def bundle_item(number: int, row: Record) -> Item:
    if "context_options" in row:
        return Item(number, row["context_options"], [row["continuation"]], row["gold"])
    if "choices" in row:
        return Item(number, [row["query"]], row["choices"], row["gold"])
    return Item(number, [row["context"].strip()], [row["continuation"]])


def read_bundle(folder: str, limit: int) -> Iterator[Task]:
    try:
        import yaml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        sys.exit("core.yaml needs PyYAML: pip install pyyaml")
    with open(f"{folder}/core.yaml", encoding="utf-8") as file:
        tasks = yaml.safe_load(file)["icl_tasks"]
    chances = {}
    if os.path.exists(f"{folder}/eval_meta_data.csv"):
        with open(f"{folder}/eval_meta_data.csv", encoding="utf-8", newline="") as file:
            chances = {row["Eval Task"]: float(row["Random baseline"]) / 100 for row in csv.DictReader(file)}
    spans = {"multiple_choice": "differing", "schema": "common", "language_modeling": "ending"}
    for task in tasks:
        items = [bundle_item(*row) for row in enumerate(read_lines(f"{folder}/eval_data/{task['dataset_uri']}"))]
        random.Random(1337).shuffle(items)
        yield Task(task["label"], items[:limit or None], spans[task["icl_task_type"]], True, task.get("continuation_delimiter", " "),
                   chances.get(task["label"]), task["num_fewshot"][0], nanochat=True)


# ---- --log_samples of lm-evaluation-harness


def label_of(row: Record, texts: Sequence[Sequence[str]]) -> Optional[int]:
    """A number; or of tasks with a context for each choice, whose target is a text: from the document, or from what was right."""
    target, doc = str(row["target"]), row.get("doc", {})
    if target.isdecimal() and int(target) < len(texts):
        return int(target)
    same = [i for i, text in enumerate(texts) if text[1].strip() == target.strip()]
    if len(same) == 1:
        return same[0]
    for key, first in (("label", 0), ("gold", 0), ("answer", 1)):
        value = str(doc.get(key, ""))
        if value.isdecimal() and 0 <= int(value) - first < len(texts):
            return int(value) - first
    if len(texts) == 2 and row.get("acc") in (0, 1):
        likelihoods = [float(response[0]) for response in row["filtered_resps"]]
        return int((likelihoods[1] > likelihoods[0]) == (row["acc"] == 1))
    return None


def read_samples(path: str, name: str, limit: int) -> Iterator[Record]:
    written = generated = 0
    for row in read_lines(path):
        if "arguments" not in row or "doc_id" not in row:
            sys.exit(f"{path}: no samples of lm-evaluation-harness (--log_samples): a line without 'arguments' and 'doc_id'")
        arguments = row["arguments"]
        texts = [[text["arg_0"], text["arg_1"]] for text in arguments.values()] if isinstance(arguments, dict) else arguments
        if not all(len(text) == 2 and isinstance(text[1], str) for text in texts):
            generated += 1
            continue
        if "acc_mutual_info" in row:  # the endings without their context follow
            texts = texts[:len(texts) // 2]
        if limit and written == limit:
            break
        item = {"task": name, "id": row["doc_id"], "kind": "choice" if len(texts) > 1 else "greedy", "shots": "", "texts": texts}
        if len(texts) > 1:
            label = label_of(row, texts)
            if label is None:
                sys.exit(f"{path}: doc_id {row['doc_id']}: which text is right is not in the line")
            item["label"] = label
        written += 1
        yield {**item, "span": "ending", "begin": False}
    if generated:
        print(f"{path}: {generated} lines ask for generated text, and are left out", file=sys.stderr)


# ---- Parquet files as on the hub


def plain(text: str) -> str:
    """HellaSwag's text without the marks of WikiHow, as lm-evaluation-harness has it."""
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def hellaswag(row: Record) -> Tuple[List[str], List[str], int]:
    query = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    return [plain(query)], [plain(ending) for ending in row["endings"]], int(row["label"])


def winogrande(row: Record) -> Tuple[List[str], List[str], int]:
    before, after = row["sentence"].split("_", 1)
    return [before + row["option1"], before + row["option2"]], [after.strip()], int(row["answer"]) - 1


def letter(row: Record) -> int:
    return list(row["choices"]["label"]).index(row["answerKey"].strip())


# The columns by which a file is known, and its contexts, endings and label.
FORMS: Dict[str, Tuple[str, Callable[[Record], Tuple[List[str], List[str], int]]]] = {
    "openbookqa": ("question_stem choices answerKey", lambda row: ([row["question_stem"]], row["choices"]["text"], letter(row))),
    "arc": ("question choices answerKey", lambda row: ([f"Question: {row['question']}\nAnswer:"], row["choices"]["text"], letter(row))),
    "hellaswag": ("activity_label ctx_a ctx_b endings label", hellaswag),
    "piqa": ("goal sol1 sol2 label", lambda row: ([f"Question: {row['goal']}\nAnswer:"], [row["sol1"], row["sol2"]], int(row["label"]))),
    "winogrande": ("sentence option1 option2 answer", winogrande),
    "squad": ("context question answers", lambda row: ([f"Context: {row['context']}\nQuestion: {row['question']}\nAnswer:"],
                                                       row["answers"]["text"][:1], 0)),
    "boolq": ("passage question", lambda row: ([f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"], ["no", "yes"],
                                               int(row["answer"] if "answer" in row else row["label"]))),
    "lambada": ("text", lambda row: ([row["text"].rsplit(" ", 1)[0]], [row["text"].rsplit(" ", 1)[1]], 0)),
}


def read_parquet(path: str) -> Tuple[str, List[Item]]:
    try:
        import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        sys.exit("Parquet needs pyarrow: pip install pyarrow")
    table = pyarrow.parquet.read_table(path)
    form = next((name for name, (columns, _) in FORMS.items() if set(columns.split()) <= set(table.column_names)), None)
    if form is None:
        sys.exit(f"{path}: columns {', '.join(table.column_names)} are of no known benchmark ({', '.join(FORMS)})")
    items = []
    for number, row in enumerate(table.to_pylist()):
        try:
            item = Item(number, *FORMS[form][1](row))
        except (IndexError, KeyError, TypeError, ValueError, AttributeError):
            item = Item(number, [], [])
        count = len(item.contexts) * len(item.endings)
        if not 0 <= item.label < count:
            sys.exit(f"{path}: row {number} of {form} has no label, as the rows of a hidden test")
        items.append(item)
    return form, items


# ---- results


def samples_of(items: str, results: str, name: Optional[str]) -> Iterator[Record]:
    """The lines that --log_samples would have written, of the items and their results (items-STEP.jsonl). A context holds its shots."""
    graded = read_lines(results)
    with open(items, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if next(graded, {}).get("items_sha256") != digest:
        sys.exit(f"{results} has no results of '{items}': its digest is another one")
    for item, result in zip(read_lines(items), graded):
        if item["kind"] == "answers" or name not in (None, item["task"]):
            continue
        texts = [(item.get("shots", "") + context, ending) for context, ending in item["texts"]]
        values = [[str(math.nan if loss is None else -loss), str(bool(greedy))] for loss, greedy in zip(result["losses"], result["greedy"])]
        label, pick = result["label"], result["pick"]
        metrics = {"acc": float(pick["sum"] == label), "acc_norm": float(pick["char"] == label)}
        if item["kind"] == "greedy":
            metrics = {"perplexity": float(values[0][0]), "acc": int(result["greedy"][0])}
        yield {"doc_id": item["id"], "doc": item, "target": str(label) if len(texts) > 1 else texts[0][1],
               "arguments": {f"gen_args_{i}": {"arg_0": context, "arg_1": ending} for i, (context, ending) in enumerate(texts)},
               "resps": [[value] for value in values], "filtered_resps": values, "filter": "none", "metrics": list(metrics), **metrics}


# ---- the command


def lines_of(task: Task) -> Iterator[Record]:
    for item in task.items:
        texts = item.texts(task.delimiter)
        line = {"task": task.name, "id": item.id, "kind": "choice" if len(texts) > 1 else "greedy", "shots": item.shots, "texts": texts}
        if len(texts) > 1:
            line["label"] = item.label
        line.update({"span": task.span, "begin": task.begin})
        if task.chance is not None:
            line["chance"] = task.chance
        yield line


def tasks_of(path: str, options: argparse.Namespace) -> Iterator[Task]:
    if os.path.isdir(path):
        tasks = read_bundle(path, options.limit)
        yield from (task for task in tasks if options.task in (None, task.name))
        return
    form, items = read_parquet(path)
    donors = read_parquet(options.shots_from)[1] if options.shots_from else []
    yield Task(options.task or form, items[:options.limit or None], "ending", shots=options.shots, donors=donors, passage=form == "boolq")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m millrace_loader.items", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--task", metavar="NAME", help="of a bundle or results only this task; of a file the name of its task")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="at most N items of a task; of a bundle they are drawn, as in nanochat")
    parser.add_argument("--shots", type=int, default=0, metavar="N", help="of a Parquet file: N examples before each item")
    parser.add_argument("--shots-from", metavar="FILE", help="the Parquet file of the examples, of the training split; without it the file's own items")
    parser.add_argument("--swap", action="store_true", help="what a model must read is that of another item: a control, in a file of its own")
    parser.add_argument("--results", metavar="FILE", help="of one file of items and its results (items-STEP.jsonl): samples as --log_samples "
                        "writes them")
    options = parser.parse_args()
    if options.results:
        for line in samples_of(options.paths[0], options.results, options.task):
            print(json.dumps(line, ensure_ascii=False))
        return
    next_id: Dict[str, int] = {}  # of a task in several Parquet files
    for path in options.paths:
        if not os.path.exists(path):
            sys.exit(f"'{path}' does not exist")
        if path.endswith(".jsonl"):
            if options.swap or options.shots:
                sys.exit(f"{path}: the texts of samples are finished: --swap and --shots are for bundles and Parquet files")
            name = options.task or re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$|\.jsonl$", "", os.path.basename(path))
            for line in read_samples(path, name, options.limit):
                print(json.dumps(line, ensure_ascii=False))
            continue
        for task in tasks_of(path, options):
            first = next_id.get(task.name, 0)
            if task.shots:
                add_shots(task)
            if options.swap and not swap_passages(task):
                print(f"{task.name}: has no control, and is left out", file=sys.stderr)
                continue
            for line in lines_of(task):
                if not os.path.isdir(path):
                    line["id"] += first
                    next_id[task.name] = line["id"] + 1
                print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
