# peers: pyarrow, datasets, duckdb, polars, pandas, fastparquet
"""Conversations in the shapes of published sets, as five programs write them to Parquet and to JSON lines: their ids against tiktoken."""
import json
import os

import runner
from test_turns import ids_of, ids_of_file

import datasets
import duckdb
import fastparquet
import pandas
import polars
import pyarrow
import pyarrow.parquet

USER, ANSWER = ["Spain?", "", "two\nlines 🌊", "<|end|> is text", "{\"a\": 1}", "[1]"], ["Madrid", "é中", "", "blue", "{}", "[{\"role\": 1}]"]
PAIRS = list(zip(USER, ANSWER)) * 3
TALKS = [
    [("user", "Spain?"), ("assistant", "Madrid")],
    [("system", "Be brief."), ("user", "2 + 2"), ("assistant", "4"), ("user", "🌊?"), ("assistant", "é")],
    [("user", ""), ("assistant", "x" * 3000)],
] * 4


def listed(talks, role="role", content="content", words={}, **more):
    return [[{role: words.get(name, name), content: text, **more} for name, text in talk] for talk in talks]


def rows(column, lists, **more):
    return [{column: messages, **more} for messages in lists]


def pairs(user, answer, **more):
    return [{user: ask, answer: reply, **more} for ask, reply in PAIRS]


def asked(system=None, suffix=""):
    return [([("system", system)] if system else []) + [("user", ask + suffix if ask else suffix.lstrip("\n")), ("assistant", reply)] for ask, reply in PAIRS]


HUMAN = {"user": "human", "assistant": "gpt"}
TEXT = [json.dumps(messages, ensure_ascii=number % 2 == 0) for number, messages in enumerate(listed(TALKS))]
# name: rows, --turns-keys, the conversations
SHAPES = {
    "tulu, messages": (rows("messages", listed(TALKS), id="7", source="s"), None, TALKS),
    "ultrachat, prompt beside messages": (rows("messages", listed(TALKS), prompt="p", prompt_id="7"), None, TALKS),
    "trl, prompt and completion": (pairs("prompt", "completion"), None, asked()),
    "trl, lists of messages": ([{"prompt": listed([talk])[0][:-1], "completion": listed([talk])[0][-1:]} for talk in TALKS if len(talk) == 2], None, [talk for talk in TALKS if len(talk) == 2]),
    "trl, answers in the prompt": ([{"prompt": listed([talk])[0][:-1], "completion": listed([talk])[0][-1:]} for talk in TALKS], "messages=prompt+completion", TALKS),
    "sharegpt": (rows("conversations", listed(TALKS, "from", "value", HUMAN), id="7"), "messages=conversations,role=from,content=value,user=human,assistant=gpt", TALKS),
    "sharegpt, other words": (rows("conversations", listed(TALKS, "from", "value", {"assistant": "bing", "user": "human"}) + listed(TALKS, "from", "value")), "messages=conversations,role=from,content=value,user=human,assistant=gpt+bing", TALKS * 2),
    "openhermes, columns of nulls": (rows("conversations", listed(TALKS, "from", "value", HUMAN, weight=None), system_prompt=None, topic=None, idx=1), "messages=conversations,role=from,content=value,user=human,assistant=gpt", TALKS),
    "lmsys": (rows("conversation", listed(TALKS), model="m", turn=1), "messages=conversation", TALKS),
    "wildchat": (rows("conversation", listed(TALKS, language="English", toxic=False, country=None), turn=2), "messages=conversation,ignore=language+toxic", TALKS),
    "capybara": (rows("conversation", [[{"input": "a", "output": "b"}, {"input": "c", "output": "d"}]] * 2, source="s"), "messages=conversation,user=input,assistant=output", [[("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]] * 2),
    "alpaca": (pairs("instruction", "output", input=""), "user=instruction+input,assistant=output", asked()),
    "alpaca, inputs": (pairs("instruction", "output", input="more", text="rendered"), "user=instruction+input,assistant=output", asked(suffix="\nmore")),
    "dolly": (pairs("instruction", "response", context="c", category="qa"), "user=instruction+context,assistant=response", asked(suffix="\nc")),
    "gsm8k": (pairs("question", "answer"), "user=question,assistant=answer", asked()),
    "orca": (pairs("question", "response", id=1, system_prompt="Think."), "system=system_prompt,user=question,assistant=response", asked("Think.")),
    "orca, no system": (pairs("question", "response", system_prompt=""), "system=system_prompt,user=question,assistant=response", asked()),
    "metamath": (pairs("query", "response", type="GSM_AnsAug", original_question="q"), "user=query,assistant=response", asked()),
    "numinamath, messages beside": (pairs("problem", "solution", messages=[{"role": "user", "content": "other"}]), "user=problem,assistant=solution", asked()),
    "flan": (pairs("inputs", "targets", task="t"), "user=inputs,assistant=targets", asked()),
    "columns with spaces": (pairs("User Prompt", "Model Answer"), "user=User Prompt,assistant=Model Answer", asked()),
    "a struct": ([{"qa": {"q": ask, "a": reply}} for ask, reply in PAIRS], "user=qa.q,assistant=qa.a", asked()),
    "ultrafeedback": (rows("chosen", listed(TALKS), rejected=[{"role": "user", "content": "other"}], score=0.5), "messages=chosen,ignore=rejected", TALKS),
    "a weight of rows": (rows("messages", listed(TALKS), weight=0.5), "ignore=weight", TALKS),
    "tools of nulls": (rows("messages", listed(TALKS, name=None, tool_calls=None), tools=None), None, TALKS),
    "messages as a text of JSON": (rows("messages", TEXT), None, TALKS),
    "messages as texts of JSON": (rows("messages", [[json.dumps(message) for message in messages] for messages in listed(TALKS)]), None, TALKS),
    "texts between": ([{"messages": listed([TALKS[0]])[0], "text": None}, {"messages": None, "text": "a plain text"}] * 4, None, [TALKS[0], "a plain text"] * 4),
    "texts between pairs": ([{"q": "a", "r": "b", "text": None}, {"q": None, "r": None, "text": "a plain text"}] * 4, "user=q,assistant=r", [[("user", "a"), ("assistant", "b")], "a plain text"] * 4),
    "roles of one letter": (rows("dialog", listed(TALKS, "speaker", "utterance", {"user": "A", "assistant": "B", "system": "S"})), "messages=dialog,role=speaker,content=utterance,user=A,assistant=B,system=S", TALKS),
}  # fmt: skip


def by_datasets(name, made):
    data = datasets.Dataset.from_list(made)
    data.to_parquet(f"{name}.parquet")
    data.to_json(f"{name}.jsonl")


def by_pandas(name, made):
    data = pandas.DataFrame(made)
    data.to_parquet(f"{name}.parquet", row_group_size=3)
    pandas.read_parquet(f"{name}.parquet").to_json(f"{name}.jsonl", orient="records", lines=True)


def by_polars(name, made):
    data = polars.DataFrame(made, infer_schema_length=None)
    data = data.with_columns(polars.col(column).cast(polars.Categorical) for column in data.columns if data[column].dtype == polars.String)
    data.write_parquet(f"{name}.parquet", row_group_size=5)
    data.write_ndjson(f"{name}.jsonl")


def by_duckdb(name, made):
    data = pyarrow.Table.from_pylist(made)
    duckdb.sql(f"copy (from data) to '{name}.parquet' (format parquet, parquet_version v2)")
    duckdb.sql(f"copy (from data) to '{name}.jsonl' (format json)")


def by_pyarrow(name, made):
    table = pyarrow.Table.from_pylist(made)
    pyarrow.parquet.write_table(table, f"{name}.parquet", data_page_version="2.0", data_page_size=64, write_batch_size=2, use_compliant_nested_type=False)
    with open(f"{name}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())


def ids(talks):
    ends = lambda talk: ids_of([{"role": role, "content": text} for role, text in talk]) if isinstance(talk, list) else ids_of([])
    from test_turns import ENCODING

    return [id for talk in talks for id in ([*ENCODING.encode_ordinary(talk)] if isinstance(talk, str) else []) + ends(talk)]


def check(name, option, talks, *kinds):
    for kind in kinds or ("parquet", "jsonl"):
        got = ids_of_file(f"{name}.{kind}", *(["--turns-keys", option] if option else []))
        assert got == ids(talks), (name, kind)


@runner.each(SHAPES, quick=("tulu, messages", "alpaca"))
def test_ids_of_each_shape(shape):
    datasets.disable_progress_bars()
    made, option, talks = SHAPES[shape]
    for write in by_datasets, by_pandas, by_polars, by_duckdb, by_pyarrow:
        name = f"{write.__name__}_{list(SHAPES).index(shape)}"
        write(name, made)
        check(name, option, talks)


def test_each_type_of_a_list():
    messages = listed(TALKS)
    texts = pyarrow.table({"text": [json.dumps(talk) for talk in messages]})
    duckdb.sql("copy (select text::json as messages from texts) to 'json.parquet'")
    duckdb.sql("copy (select [x::json for x in (text::json)::json[]] as messages from texts) to 'jsons.parquet'")
    duckdb.sql("copy (select (text::json)::map(varchar, varchar)[] as messages from texts) to 'maps.parquet'")
    frame = pandas.DataFrame({"messages": messages})
    fastparquet.write("fast.parquet", frame, object_encoding="json")
    struct = pyarrow.struct([("role", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())), ("content", pyarrow.large_string())])
    for kind, of in {"large": pyarrow.large_list, "view": pyarrow.list_view}.items():
        column = pyarrow.array(messages, of(struct))
        pyarrow.parquet.write_table(pyarrow.table({"messages": column}), f"{kind}.parquet")
    names = ["json", "jsons", "maps", "fast", "large", "view"]
    for name in names:
        check(name, None, TALKS, "parquet")
    two = [talk for talk in TALKS if len(talk) == 2]
    polars.DataFrame({"messages": listed(two)}, schema={"messages": polars.Array(polars.Struct({"role": polars.Enum(["user", "assistant"]), "content": polars.String}), 2)}).write_parquet("fixed.parquet")
    check("fixed", None, two, "parquet")
