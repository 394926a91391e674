"""Vocabularies of other tools: ids against tiktoken for every pattern, read from and written to each form.

The vocabularies are GPT-2's tokens with each pattern, and one of few merges, in which tokens are
made by several pairs or by none. With the package tokenizers also against its own, from the files that we write."""
# peers: transformers
import base64
import functools
import json
import os
import random
import shutil
import subprocess

import runner
import fuzz_tokenizer
import gpt2
import test_patterns as pieces

TIMER = os.path.join(os.environ["BIN"], "..", "bench_tokenizer")
SHARDTOOL = os.path.join(os.environ["BIN"], "shardtool")
SEED = int(os.environ.get("SEED", 1))  # of the texts, which are the same for each pattern and vocabulary of a run


def many_ranks():
    """GPT-2's tokens and one more, so that with no pattern they are GPT-2's vocabulary."""
    return gpt2.ranks() | {b"one more than GPT-2": 50256}


def few_ranks(seed):
    """All bytes, and tokens of two to six letters that are joined from earlier ones at random, and some that are not."""
    made_of = random.Random(seed)
    ranks = {bytes([byte]): byte for byte in range(256)}
    common = [text.encode() for text in "a b e s t l ' . ! 1 2 A B é 中 \n".split(" ")] + [b" ", b"\n"]
    pool = sorted({byte for text in common for byte in (bytes([one]) for one in text)})
    while len(ranks) < 900:
        token = made_of.choice(pool) + made_of.choice(pool)
        if made_of.random() < 0.03:  # no merge makes it
            token = b"".join(made_of.choices(pool[:4], k=5))
        if len(token) < 12 and token not in ranks:
            ranks[token] = len(ranks)
            pool.append(token)
    return ranks


def wide_ranks(seed):
    """All pairs of bytes and longer tokens, 66,000 to 135,000 of them in an order that puts those of letters last."""
    made_of = random.Random(seed)
    tokens = [bytes([left, right]) for left in range(256) for right in range(256)]
    last = sorted(token for token in gpt2.ranks() if len(token) > 2)
    made_of.shuffle(tokens), made_of.shuffle(last)
    order = [token for token in tokens if not token.isalpha()] + [token for token in tokens if token.isalpha()]
    order += last[: made_of.choice([200, 5000, len(last)])]
    return {token: rank for rank, token in enumerate([bytes([byte]) for byte in range(256)] + order)}


def write_tiktoken(path, ranks):
    with open(path, "wb") as file:
        for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
            file.write(base64.b64encode(token) + b" %d\n" % rank)


def reference(ranks, pattern):
    import tiktoken

    return tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})


@functools.cache
def documents(seed):
    """Without <|endoftext|>, which tokenizers takes for the special token."""
    made = fuzz_tokenizer.Writer(seed).documents(3000) + [pieces.dense(random.Random(seed + i)) for i in range(2000)]
    made += [random.Random(seed).choice(["ab", "aA", "  ", "\n", "e's"]).encode() * 700]
    return [document.decode("utf-8", "replace").encode() for document in made if b"endoftext" not in document]


def compare(encoding, *vocabulary):
    texts = documents(SEED)
    lists = encoding.encode_ordinary_batch([text.decode() for text in texts], num_threads=1)
    for path in fuzz_tokenizer.paths():
        got, at = fuzz_tokenizer.millrace(TIMER, path, texts, *vocabulary), 0
        for text, ids in zip(texts, lists):
            want = fuzz_tokenizer.packed(ids, encoding.n_vocab)
            assert got[at : at + len(want)] == want, (path, text, ids)
            at += len(want)
        assert at == len(got)


@runner.each([name for name, _ in pieces.patterns()], quick=["o200k"])
def test_ids_are_those_of_tiktoken_with_the_pattern_of(name):
    pattern = dict(pieces.patterns())[name]
    for ranks in many_ranks(), few_ranks(SEED), wide_ranks(SEED):
        write_tiktoken("ranks.tiktoken", ranks)
        compare(reference(ranks, pattern), "ranks.tiktoken", name)


def test_the_patterns_of_gpt4_and_o200k_are_those_of_tiktoken():
    import tiktoken.load
    import tiktoken_ext.openai_public as public

    public.load_tiktoken_bpe = lambda *arguments, **named: {}
    own = dict(pieces.patterns())
    assert public.o200k_base()["pat_str"] == own["o200k"]
    ranks = many_ranks()
    write_tiktoken("many.tiktoken", ranks)
    compare(reference(ranks, public.cl100k_base()["pat_str"]), "many.tiktoken", "gpt4")


@runner.each([name for name, _ in pieces.patterns()], quick=["gpt4", "o200k"])
def test_a_tokenizer_json_has_the_ids_of_tokenizers_with_the_pattern_of(name):
    import tokenizers
    ranks = gpt2.ranks()
    for token in [token for token in ranks if ranks[token] > 30000]:
        del ranks[token]
    write_tiktoken("part.tiktoken", ranks)
    with open("text.txt", "w") as file:
        file.write("a")
    runner.call(SHARDTOOL, "tokenize", "-q", "--force", "-o", "data", "--vocabulary", "part.tiktoken", "--pattern", name, "text.txt")
    theirs = tokenizers.Tokenizer.from_file("data/tokenizer.json")
    compare(Ordinary(theirs), "data/tokenizer.json")
    assert theirs.token_to_id("<|endoftext|>") == len(ranks) == theirs.get_vocab_size() - 1


class Ordinary:
    """As an encoding of tiktoken."""

    def __init__(self, tokenizer):
        self.tokenizer, self.n_vocab = tokenizer, tokenizer.get_vocab_size()

    def encode_ordinary_batch(self, texts, num_threads):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return [made.ids for made in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


def test_a_possessive_count_is_refused_where_tokenizers_repeats_it():
    """tiktoken's regex of cl100k_base in a tokenizer.json: tokenizers cuts no run of digits, and tiktoken after three."""
    import tokenizers
    import tiktoken.load
    import tiktoken_ext.openai_public as public

    public.load_tiktoken_bpe = lambda *arguments, **named: {}
    regex = public.cl100k_base()["pat_str"]
    ranks = few_ranks(5) | {b"1234": 900}
    for token in (b"12", b"34"):
        ranks.setdefault(token, len(ranks))
    ranks = {token: rank for rank, token in enumerate(sorted(ranks, key=lambda token: (len(token), ranks[token])))}
    write_tiktoken("digits.tiktoken", ranks)
    with open("text.txt", "w") as file:
        file.write("12345678")
    runner.call(SHARDTOOL, "tokenize", "-q", "--force", "-o", "data", "--vocabulary", "digits.tiktoken", "--pattern", "gpt4", "text.txt")
    with open("data/tokenizer.json", encoding="utf-8") as file:
        made = json.load(file)
    made["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex
    with open("possessive.json", "w", encoding="utf-8") as file:
        json.dump(made, file)
    theirs = tokenizers.Tokenizer.from_file("possessive.json").encode("12345678", add_special_tokens=False).ids
    assert theirs != reference(ranks, regex).encode_ordinary("12345678")
    result = subprocess.run([SHARDTOOL, "tokenize", "--ids", "--format", "text", "--vocabulary", "possessive.json", "text.txt"], capture_output=True, text=True)
    assert result.returncode == 65 and "its pattern has {1,3}+" in result.stderr, (result.returncode, result.stderr)


def merged_ranks():
    """GPT-2's first tokens, each of which merges make."""
    return {token: rank for token, rank in gpt2.ranks().items() if rank < 3000}


def beside(transformers, model, json_file, files):
    """The ids of AutoTokenizer of a text, and what shardtool says, with these files beside a tokenizer.json."""
    os.makedirs(model)
    shutil.copy(json_file, f"{model}/tokenizer.json")
    for name, content in files.items():
        with open(f"{model}/{name}", "w", encoding="utf-8") as file:
            json.dump(content, file)
    text = "ab the mill <|mill|> 1234567 it's"
    with open("text.txt", "w") as file:
        file.write(text)
    result = subprocess.run([SHARDTOOL, "tokenize", "--ids", "--format", "text", "--vocabulary", model, "text.txt"], capture_output=True, text=True)
    return transformers.AutoTokenizer.from_pretrained(model)(text)["input_ids"], result


def test_what_auto_tokenizer_takes_from_files_beside_is_refused():
    """Each of these files changes the ids of AutoTokenizer."""
    import transformers
    write_tiktoken("beside.tiktoken", merged_ranks())
    with open("text.txt", "w") as file:
        file.write("a")
    for name in ("gpt2", "llama3"):
        runner.call(SHARDTOOL, "tokenize", "-q", "--force", "-o", name, "--vocabulary", "beside.tiktoken", "--pattern", name, "text.txt")
    mill = {"content": "the mill", "special": False, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    config, special, own = "tokenizer_config.json", "special_tokens_map.json", {"tokenizer_class": "GPT2Tokenizer"}
    plain, result = beside(transformers, "plain", "gpt2/tokenizer.json", {config: own})
    assert result.returncode == 0 and [int(id) for id in result.stdout.split()] == plain
    changes = [(config, {"add_prefix_space": True}), (config, {"added_tokens_decoder": {"3001": mill}}), (config, {"pad_token": "l"})]
    changes += [(special, {"cls_token": {"content": "l", "lstrip": False}}), (special, {"extra_special_tokens": ["h"]})]
    for number, (name, change) in enumerate(changes):
        theirs, result = beside(transformers, f"model{number}", "gpt2/tokenizer.json", {config: own} | {name: own | change})
        assert theirs != plain, (name, change)
        assert result.returncode == 65 and name in result.stderr, (change, result.stderr)
    theirs, result = beside(transformers, "other", "llama3/tokenizer.json", {config: own})
    assert theirs == plain and result.returncode == 65 and "tokenizer_class" in result.stderr, result.stderr
    theirs, result = beside(transformers, "fast", "llama3/tokenizer.json", {config: {"tokenizer_class": "PreTrainedTokenizerFast"}})
    assert theirs != plain and [int(id) for id in result.stdout.split()] == theirs


TINY = ("--n_layer=1 --n_head=2 --n_embd=16 --block_size=32 --batch_size=1 --gradient_accumulation_steps=1 --eval_iters=1 --eval_interval=1 "
        "--max_iters=1 --warmup_iters=1 --lr_decay_iters=2 --dtype=float32 --threads=1 --device=cpu --sample_tokens=0").split()  # fmt: skip


def check_pair(model, texts, wanted):
    """What reads vocab.json and merges.txt alone has the same ids, or the files are not there. Returns whether they are."""
    import tokenizers

    files = [os.path.join(model, name) for name in ("vocab.json", "merges.txt")]
    if not any(map(os.path.exists, files)):
        return False
    pair = tokenizers.ByteLevelBPETokenizer.from_file(*files)
    for text, ids in zip(texts, wanted):
        assert pair.encode(text).ids == ids, (model, text)
    return True


def check_answers(tokenizer):
    """The mask that transformers finds by the offsets of tokens has every answer, also one that begins with a blank."""
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}{{ eos_token }}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{{ eos_token }}"
        "{% endgeneration %}{% else %}{{ m['content'] }}\n{% endif %}{% endfor %}"
    )
    for answers in (["Madrid", "Paris"], [" Madrid", "Paris"], ["Madrid", "\n Paris "], [" ", ""], [" 🌊 wet", " é"]):
        talk = [
            message
            for answer in answers
            for message in ({"role": "user", "content": "Spain? "}, {"role": "assistant", "content": answer})
        ]
        found = tokenizer.apply_chat_template(talk, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        counted = [i for i, on in zip(found["input_ids"], found["assistant_masks"]) if on]
        assert tokenizer.decode(counted) == "".join(answer + tokenizer.eos_token for answer in answers), (answers, found)


def test_auto_tokenizer_gives_the_ids_of_exported_models(folder):
    """From the directory that trainer export writes, against tiktoken; of each pattern, one with more than 65,536 ids.
    vocab.json and merges.txt, which have no pattern, are written only of what they describe."""
    import transformers
    trainer = os.path.join(os.environ["BIN"], "trainer")
    with open("words.txt", "w") as file:
        file.writelines(f"the mill of words and {i} more\n" for i in range(300))
    rows = [(name, pattern, wide_ranks(7) if name == "o200k" else few_ranks(7)) for name, pattern in pieces.patterns()]
    rows.append(("gpt2", rows[0][1], merged_ranks()))
    for number, (name, pattern, ranks) in enumerate(rows):
        write_tiktoken(f"{folder}/auto.tiktoken", ranks)
        data, model, run = (f"{folder}/{kind}-{number}" for kind in ("data", "model", "run"))
        runner.call(SHARDTOOL, "tokenize", "-q", "--docs", "lines", "--val", "0.3", "-o", data, "--vocabulary",
                    f"{folder}/auto.tiktoken", "--pattern", name, "words.txt")  # fmt: skip
        runner.call(trainer, "train", "--quiet", *TINY, f"--dataset={data}", f"--out_dir={run}")
        runner.call(trainer, "export", "-q", "-o", model, f"--out_dir={run}")
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        texts = [text.decode() for text in documents(11)[:600]]
        want = reference(ranks, pattern).encode_ordinary_batch(texts, num_threads=1)
        for text, ids in zip(texts, want):
            assert tokenizer(text)["input_ids"] == ids, (name, text, ids)
        assert tokenizer.eos_token_id == len(ranks) == len(tokenizer) - 1
        assert tokenizer.decode(want[0]) == texts[0]
        assert check_pair(model, texts, want) == (number == len(rows) - 1), name
        check_answers(tokenizer)


def with_specials(ranks, name, specials):
    """Writes tokenizer.json of the tokens with special tokens of these ids, which move the ids of others up. Returns the
    ranks with their new ids."""
    write_tiktoken("plain.tiktoken", ranks)
    with open("text.txt", "w") as file:
        file.write("a")
    runner.call(SHARDTOOL, "tokenize", "-q", "--force", "-o", "plain", "--vocabulary", "plain.tiktoken", "--pattern", name, "text.txt")
    with open("plain/tokenizer.json", encoding="utf-8") as file:
        made = json.load(file)
    free = (id for id in range(len(ranks) + len(specials)) if id not in specials.values())
    ids = {old: next(free) for old in range(len(ranks))}
    vocab = {token: ids[id] for token, id in made["model"]["vocab"].items() if id in ids}
    made["model"]["vocab"] = vocab | specials
    made["added_tokens"] = [made["added_tokens"][0] | {"id": id, "content": name} for name, id in specials.items()]
    with open("specials.json", "w", encoding="utf-8") as file:
        json.dump(made, file)
    return {token: ids[rank] for token, rank in ranks.items()}


def test_ids_with_special_tokens_first_and_between_are_those_of_tiktoken():
    """Among them a merge of the id 65535, the last of those that take 2 bytes."""
    import tiktoken

    pattern = dict(pieces.patterns())["llama3"]
    wide = dict(list(wide_ranks(SEED).items())[:65535])
    for ranks, specials in [(gpt2.ranks(), {"<|endoftext|>": 0, "<pad>": 1}), (wide, {"</s>": 0}),
                            (few_ranks(SEED), {"<|endoftext|>": 700, "<a>": 256, "<b>": 902}),
                            (merged_ranks(), {"[PAD]": 100, "</s>": 1000, "<c>": 1001})]:  # fmt: skip
        moved = with_specials(ranks, "llama3", specials)
        encoding = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=moved, special_tokens=specials)
        compare(encoding, "specials.json")


def test_files_of_tokenizers_with_special_tokens_have_its_ids(folder):
    """As its trainers write them (make_special_vocabularies.py), and through datasets that are made of them."""
    with open(os.path.join(os.environ["DATA"], "special_vocabularies.json"), encoding="utf-8") as file:
        made = json.load(file)
    os.chdir(folder)
    with open("text.txt", "w", encoding="utf-8") as file:
        file.write(made["text"])
    for row in made["vocabularies"]:
        shutil.rmtree("model", ignore_errors=True)
        os.makedirs("model")
        for name, content in row["files"].items():
            with open(f"model/{name}", "w", encoding="utf-8") as file:
                file.write(content if isinstance(content, str) else json.dumps(content))
        encode = [SHARDTOOL, "tokenize", "--ids", "--format", "text", "text.txt", "--vocabulary"]
        ids = [int(id) for id in runner.call(*encode, "model", *row["options"]).stdout.split()]
        assert ids == row["ids"], row["name"]
        runner.call(SHARDTOOL, "tokenize", "-q", "--force", "-o", "data", "--vocabulary", "model", *row["options"], "text.txt")
        runner.call(SHARDTOOL, "merge", "-q", "--force", "-o", "merged", "data")
        runner.call(SHARDTOOL, "export-tokens", "-q", "--force", "--format", "nanogpt", "-o", "ids", "merged")
        runner.call(SHARDTOOL, "import-tokens", "-q", "--force", "--format", "nanogpt", "-o", "back", "ids")
        infos = [json.loads(runner.call(SHARDTOOL, "info", "--json", data).stdout) for data in ("data", "merged", "back")]
        assert {(info["eot_id"], info["vocab_fp"]) for info in infos} == {(row["end"], infos[0]["vocab_fp"])}, row["name"]
        runner.call(SHARDTOOL, "verify", "-q", "back")
        end = runner.call(SHARDTOOL, "decode", "back").stdout.decode().removeprefix(made["text"])
        assert end == row["end_of_text"], (row["name"], end)
        assert [int(id) for id in runner.call(*encode, "back").stdout.split()] == row["ids"], row["name"]


def swap_rows(path, name, one, other):
    """Of a matrix of a safetensors file, which loses the hashes of its tensors."""
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        data[8:start] = json.dumps(header).ljust(start - 8).encode()
        entry = header[name]
        begin, end = (start + offset for offset in entry["data_offsets"])
        size = (end - begin) // entry["shape"][0]
        one, other = (slice(begin + id * size, begin + (id + 1) * size) for id in (one, other))
        data[one], data[other] = data[other], data[one]
        file.seek(0)
        file.write(data)


def test_a_model_ends_documents_with_any_id(folder):
    """Two vocabularies that differ in the ids of two special tokens, 398 and 399, and a model of each that differs in those
    rows have the same losses, also with document_mask, for which the losses are others."""
    trainer = os.path.join(os.environ["BIN"], "trainer")
    with open(f"{folder}/text.txt", "w") as file:
        file.writelines(f"the mill of words and {i} more\n" for i in range(3000))
    os.chdir(folder)
    runner.call(SHARDTOOL, "train-vocabulary", "-q", "-V", "400", "--special", "<|pad|>", "-o", "last", "text.txt")
    with open("last/tokenizer.json", encoding="utf-8") as file:
        made = json.load(file)
    pad, end = made["added_tokens"]
    made["added_tokens"] = [end | {"id": 398}, pad | {"id": 399}]
    made["model"]["vocab"] |= {"<|endoftext|>": 398, "<|pad|>": 399}
    with open("before.json", "w", encoding="utf-8") as file:
        json.dump(made, file)
    losses = {}
    for data, vocabulary in ("a", "last"), ("b", "before.json"):
        runner.call(SHARDTOOL, "tokenize", "-q", "--docs", "lines", "--val", "0.3", "-o", data, "--vocabulary", vocabulary, "text.txt")
    runner.call(trainer, "train", "--quiet", *TINY, "--document_mask=True", "--dataset=b", "--out_dir=run")
    runner.call(trainer, "export", "-q", "-o", "model-b", "--out_dir=run")
    assert json.loads(open("model-b/config.json").read())["eos_token_id"] == 398
    assert json.loads(open("model-b/generation_config.json").read())["eos_token_id"] == 398
    shutil.copytree("model-b", "model-a")
    swap_rows("model-a/model.safetensors", "transformer.wte.weight", 398, 399)
    shutil.copy("a/tokenizer.json", "model-a/tokenizer.json")
    for data in "a", "b":
        for mask in "True", "False":
            result = runner.call(trainer, "eval", "--json", f"--init_from=./model-{data}", f"--dataset={data}", "--eval_iters=40",
                                 "--device=cpu", "--dtype=float32", f"--document_mask={mask}")  # fmt: skip
            losses[data, mask] = [json.loads(line)["loss"] for line in result.stdout.splitlines()]
    for mask in "True", "False":
        assert all(abs(one - other) < 1e-5 for one, other in zip(losses["a", mask], losses["b", mask])), losses
    assert abs(losses["a", "True"][0] - losses["a", "False"][0]) > 1e-4, losses
    text = runner.call(trainer, "sample", "--init_from=./model-b", "--start=the<|endoftext|>mill", "--num_samples=1",
                       "--max_new_tokens=1", "--device=cpu").stdout  # fmt: skip
    assert text.startswith(b"the<|endoftext|>mill"), text
