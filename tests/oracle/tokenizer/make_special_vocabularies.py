"""Writes tests/data/special_vocabularies.json: vocabularies that tokenizers 0.23.3 trains with special tokens, whose ids are
the first ones there, files of transformers 5.23 beside them, and the ids that tokenizers gives for a text."""
import json
import os
import sys
import tempfile

from tokenizers import ByteLevelBPETokenizer, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import rooms
import test_patterns

TEXT = "The mill's wheel, line & of 12345 äpfel; it's DONE.\n\n  中 the mill of the wheel  \n" * 2


def train(specials, pattern=None, after=()):
    tokenizer = Tokenizer(models.BPE())
    split = pattern and pre_tokenizers.Split(Regex(dict(test_patterns.patterns())[pattern]), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level]) if pattern else level
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.add_special_tokens(list(after))
    return tokenizer


def row(name, tokenizer, end, *options, **beside):
    files = {"tokenizer.json": json.loads(tokenizer.to_str())} | {f"{name}.json": content for name, content in beside.items()}
    return {"name": name, "files": files, "options": options, "end": tokenizer.token_to_id(end), "end_of_text": end,
            "ids": tokenizer.encode(TEXT, add_special_tokens=False).ids}  # fmt: skip


def pair():
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT] * 4, vocab_size=290, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
    made = row("ByteLevelBPETokenizer.save_model", tokenizer, "</s>")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_model(folder)
        made["files"] = {name: open(os.path.join(folder, name), encoding="utf-8").read() for name in ("vocab.json", "merges.txt")}
    return made


bert = train(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
rows = [row("first", train(["<|endoftext|>"]), "<|endoftext|>"),
        row("as GPT-NeoX", train(["<|endoftext|>", "<|padding|>"], after=["<|im_start|>", "<|im_end|>"]), "<|endoftext|>"),
        row("another by the option", train(["<|endoftext|>"], after=["<|im_end|>"]), "<|im_end|>", "--end-of-text", "<|im_end|>"),
        row("as BERT, by the option", bert, "[SEP]", "--end-of-text", "[SEP]"),
        row("as BERT, by eos_token", bert, "[PAD]", tokenizer_config={"eos_token": {"content": "[PAD]"}}),
        row("llama3", train(["<s>", "</s>"], "llama3"), "</s>"), pair()]  # fmt: skip
with open(os.path.join(rooms.TESTS, "data", "special_vocabularies.json"), "w", encoding="utf-8") as file:
    json.dump({"text": TEXT, "vocabularies": rows}, file, ensure_ascii=False, separators=(",", ":"))
