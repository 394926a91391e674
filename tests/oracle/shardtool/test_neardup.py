"""Words, MinHash and near-duplicates beside a second implementation (neardup.py): tests/oracle/shardtool/test_neardup.py [NAME]"""
import hashlib
import json
import os
import random
import re
import struct
import subprocess
import sys
import unicodedata

import neardup
import runner
import xxhash
from runner import call

ROOT = os.path.abspath(__file__).rsplit("/", 4)[0]
SHARDTOOL, STAGE = os.path.join(os.environ["BIN"], "shardtool"), os.path.join(os.environ["BIN"], "..", "bench_neardup")
ISAS = ["portable", "avx2", "avx512"] if os.uname().machine == "x86_64" else ["portable"]  # a set that the processor lacks is the next lower one
LANGUAGES = [  # 20, with numbers, marks and several scripts, and a line of numbers
    "The 3 quick-brown foxes (born in 1,984.5) don't JUMP; over 12.50 lazy dogs!",
    "Die Straße führt über 20 Brücken; ÄÖÜ äöü ß ẞ – „GROSS“ und klein, 3,14 %.",
    "L’été, à Noël, où est-il ? Ça coûte 1.234,56 € — cœur, œuvre, ÉLÈVE.",
    "¿Dónde está el niño? ¡Mañana, pingüino! Nº 5 y 1.000.000 más.",
    "Zażółć gęślą jaźń, ŁÓDŹ 2024; pchnąć w tę łódź jeża.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy ČŘŽ 7,5.",
    "Árvíztűrő tükörfúrógép, ÁRVÍZTŰRŐ; 12. kerület.",
    "İSTANBUL'da ılık IŞIK ve ğüşöç: Diyarbakır, ISPARTA 34.",
    "Tiếng Việt: Đường Nguyễn Huệ, ở thành phố Hồ Chí Minh, số 1.5 tỷ.",
    "Съешь ЖЕ ещё этих мягких французских булок, да выпей чаю: Йод 2,5 кг.",
    "Чуєш їх, доцю, ґанок? Єдність — 24 СЕРПНЯ.",
    "ΟΔΥΣΣΕΥΣ: Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, ὁ ἄνθρωπος· 3 λόγους ΣΟΦΟΣ ΣΑΣ.",
    "צַדִּיק בַּתְּמָרִים יִפְרָח: שלום עולם, 2023.",
    "اَلْعَرَبِيَّةُ لُغَةٌ، ١٢٫٥ و ٣٤٥ كِتَابًا؛ مَرْحَبًا بِكُمْ.",
    "می\u200cخواهم کتاب‌ها را بخوانم؛ ۱۲۳ صفحه، خانهٔ ما.",
    "हिन्दी में १२३ और क़लम, ज़िन्दगी; संस्कृतम् ॥ कि की कु।",
    "ভাষা আন্দোলন ২১ ফেব্রুয়ারি, কো কৌ; রবীন্দ্রনাথ।",
    "தமிழ் மொழி: கொ கோ கௌ, 12 மாதங்கள்.",
    "ภาษาไทยไม่มีช่องว่าง ๑๒๓ น้ำใจ ABC ປະເທດລາວ ខ្មែរ ៤៥ မြန်မာ ၆",
    "1\u200b2.\u00ad5 9\u200d8\ufeff7\u0301 1.\u20602.3 4\u200b,x \u200b6 3.14 1,000 1,000,000 2.17.1.1 192.168.100.14 2026-11-28 rfc2046 a_b $5+6",
    "中文没有空格，第3章：２０２４年。日本語のがぎぐゲームー々〇。한국어 조합형: 각 \u1100\u1161\u11a8 12개 \ufa10 \uff76\uff9e",
]


def normal_forms(texts, folder, mode="words", isa=None):
    with open(f"{folder}/texts", "wb") as file:
        file.write(b"".join(text.encode("utf-8", "surrogatepass") + b"\0" for text in texts))
    environment = os.environ | ({"MILLRACE_ISA": isa} if isa else {})
    done = subprocess.run([STAGE, mode, f"{folder}/texts"], check=True, stdout=subprocess.PIPE, env=environment)
    return done.stdout.decode().split("\n")[:-1]


@runner.ci
def test_the_table_of_words_is_made_of_its_source():
    if unicodedata.unidata_version != "14.0.0":
        raise runner.Skip(f"the table has Unicode 14.0, this Python {unicodedata.unidata_version}")
    made = subprocess.run([sys.executable, f"{ROOT}/shardtool/similar/fold_unicode_table.py"], check=True, stdout=subprocess.PIPE).stdout
    with open(f"{ROOT}/shardtool/similar/fold_unicode_table.h", "rb") as file:
        assert file.read() == made


def test_the_permutations_are_made_of_their_source():
    made = subprocess.run([sys.executable, f"{ROOT}/shardtool/similar/permutations.py"], check=True, stdout=subprocess.PIPE).stdout
    with open(f"{ROOT}/shardtool/similar/permutations.def", "rb") as file:
        assert file.read() == made


def test_words_of_20_languages_are_those_of_python(folder):
    texts = LANGUAGES + [unicodedata.normalize(form, text) for text in LANGUAGES for form in ("NFC", "NFD", "NFKC")]
    for text, got in zip(texts, normal_forms(texts, folder), strict=True):
        assert got == neardup.normal(text), (text, got, neardup.normal(text))


@runner.ci
def test_words_of_all_characters_are_those_of_python(folder):
    points = [chr(point) for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000 and unicodedata.category(chr(point)) not in ("Cn", "Co")]
    alone = [f"a{character}b" for character in points]
    drawn = random.Random(1)
    mixed = ["".join(drawn.choices(points, k=40)) for _ in range(3000)]
    near = ["".join(drawn.choices("aZ5٣.,،٫ \u0301\u200dçΣςσ第가\uac01", k=20)) for _ in range(3000)]
    texts = alone + mixed + near
    for text, got in zip(texts, normal_forms(texts, folder), strict=True):
        assert got == neardup.normal(text), (text, got, neardup.normal(text))


def test_minhash_is_that_of_datatrove_on_each_instruction_set(folder):
    factors = neardup.permutations()
    texts = [text for text in LANGUAGES if neardup.normal(text)] + source_pieces(40)
    want = [" ".join(map(str, neardup.values(neardup.shingles(text), factors))) for text in texts]
    for isa in ISAS:
        assert normal_forms(texts, folder, "values", isa) == want, isa


def source_pieces(count):
    """Pieces of 400 to 1,500 characters of the files of this repository, in an order of their own."""
    drawn = random.Random(5)
    pieces = []
    for folder in ("common", "docs", "kernels", "loader", "shardtool", "tests", "tokenizer", "trainer"):
        for path, _, names in sorted(os.walk(os.path.join(ROOT, folder))):
            for name in sorted(names):
                if not name.endswith((".c", ".h", ".cu", ".cuh", ".md", ".py", ".bats", ".sh")) or "unicode_table" in name:
                    continue
                with open(os.path.join(path, name), encoding="utf-8") as file:
                    text = file.read()
                at = 0
                while len(text) - at > 400:
                    size = drawn.randint(400, 1500)
                    pieces.append(text[at : at + size])
                    at += size
    drawn.shuffle(pieces)
    return pieces[:count]


def planted(pieces, each):
    """The pieces and copies of some: [(text, kind, number of the piece)], shuffled."""
    drawn = random.Random(7)
    some_words = " ".join(pieces[:50]).split()
    boilerplate = " ".join(some_words[:40])

    def edited(text, share):
        return re.sub(r"\S+", lambda word: drawn.choice(some_words) if drawn.random() < share else word[0], text)

    kinds = {
        "exact": lambda text: text,
        "case": str.upper,
        "punctuation": lambda text: text.replace(",", ";").replace(".", " . ").replace("-", " "),
        "numbers": lambda text: re.sub(r"[0-9]+", lambda number: str(int(number[0]) + 1), text),
        "boilerplate": lambda text: f"{boilerplate} {text} {boilerplate}",
        "truncation": lambda text: text[: int(len(text) * drawn.uniform(0.5, 0.97))],
        "family": lambda text: edited(text, 0.01),
    } | {f"edits {percent} %": lambda text, share=percent / 100: edited(text, share) for percent in (1, 2, 5, 10, 20)}
    all_texts = [(text, "base", number) for number, text in enumerate(pieces)]
    for kind, change in kinds.items():
        for number in drawn.sample(range(len(pieces)), each // 20 if kind == "family" else each):
            all_texts += [(change(pieces[number]), kind, number) for _ in range(20 if kind == "family" else 1)]
    drawn.shuffle(all_texts)
    return all_texts


def tokenize(texts, name):
    with open(f"{name}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    call(SHARDTOOL, "tokenize", "-q", "--val", "0", "-o", name, f"{name}.jsonl")


def dedup(name, least, *options):
    global LOG
    done = call(SHARDTOOL, "dedup", "--similar", str(least), "--report", f"{name}.report", "--force", "-o", f"{name}.unique", *options, name)
    LOG = done.stderr.decode()
    with open(f"{name}.report") as file:
        return {row["document"]: (row["kept_document"], row["similarity"]) for row in map(json.loads, file)}


def decoded(name):
    return [json.loads(line)["text"] for line in call(SHARDTOOL, "decode", "--json", name).stdout.decode().splitlines()]


def setup():
    global TEXTS, SHINGLES, SIGNATURES
    TEXTS = planted(source_pieces(5400), 80)
    assert len(TEXTS) >= 6000, len(TEXTS)
    SHINGLES = [neardup.shingles(text) for text, _, _ in TEXTS]
    factors = neardup.permutations()
    SIGNATURES = [neardup.values(hashes, factors).tolist() if hashes else None for hashes in SHINGLES]
    tokenize([text for text, _, _ in TEXTS], "planted")


@runner.ci
def test_near_duplicates_are_those_of_a_second_implementation():
    for least in (0.8, 1):
        want, comparisons = neardup.near_duplicates(SHINGLES, SIGNATURES, least)
        got = dedup("planted", least)
        by_text = re.search(rf"\b{comparisons} comparisons, (\d+) of them by text", LOG)
        assert by_text and len(got) <= int(by_text[1]) <= len(got) + (comparisons - len(got)) / 2, (LOG, comparisons, len(got))
        assert got == {removed: (kept, round(similarity, 4)) for removed, (kept, similarity) in want.items()}, least
        assert decoded("planted.unique") == [text for number, (text, _, _) in enumerate(TEXTS) if number not in got]


def test_near_duplicates_are_those_of_all_pairs():
    pairs = neardup.pairs_at_least(list(map(set, SHINGLES)), 0.8)
    got, want = dedup("planted", 0.8), neardup.greedy(len(TEXTS), pairs)
    assert len(want) > 500, len(want)
    assert sum(number in got for number in want) >= 0.999 * len(want), (len(want), len(got))
    # each has a partner that is earlier, stays, and is as similar as the report says
    for removed, (kept, similarity) in got.items():
        assert kept < removed and kept not in got and round(pairs[kept, removed], 4) == similarity
    # no document goes with all that are like it
    for i, j in pairs:
        assert {i, got.get(i, (i,))[0]} - set(got) and {j, got.get(j, (j,))[0]} - set(got)
    caught = {kind: [0, 0, 0] for _, kind, _ in TEXTS}  # by dedup, by all pairs, and how many there are
    first = {}
    for number, (_, kind, piece) in enumerate(TEXTS):
        first.setdefault(piece, []).append((number, kind))
    for numbers in first.values():
        base = next(number for number, kind in numbers if kind == "base")
        for number, kind in numbers:
            caught[kind][0] += number in got or base in got
            caught[kind][1] += number in want or base in want
            caught[kind][2] += 1
    for kind, (found, right, count) in caught.items():
        assert found >= 0.95 * (count if kind in ("exact", "case", "numbers") else right), (kind, caught)


@runner.ci
def test_near_duplicates_do_not_depend_on_threads_and_memory():
    want = dedup("planted", 0.8)
    digests = [call("sh", "-c", "find planted.unique -name '*.zst' -exec cat {} + | sha256sum; cat planted.report").stdout]
    for options in (["-j", "1"], ["-j", "2"], ["-j", "4", "--memory", "131100k"], ["-j", "3", "--memory", "4G"]):
        assert dedup("planted", 0.8, *options) == want
        digests.append(call("sh", "-c", "find planted.unique -name '*.zst' -exec cat {} + | sha256sum; cat planted.report").stdout)
    assert len(set(digests)) == 1


def drawn_corpus(seed, count):
    """Texts with copies, chains of edits, pages of one template (more than 32 that stay share a band) and short ones."""
    drawn = random.Random(seed)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9))) for _ in range(5000)]
    texts = []

    def text(least, most):
        return drawn.choices(words, k=drawn.randint(least, most))

    def edited(some, share):
        return [drawn.choice(words) if drawn.random() < share else word for word in some]

    while len(texts) < count:
        kind, base = drawn.random(), text(40, 120)
        if kind < 0.8:
            texts.append(base)
        elif kind < 0.9:
            texts += [base] + [edited(base, drawn.choice([0, 0, 0.005, 0.01, 0.02, 0.05])) for _ in range(drawn.randint(1, 20))]
        elif kind < 0.95:  # each is an edit of the one before
            for _ in range(drawn.randint(2, 40)):
                texts.append(base := edited(base, drawn.choice([0.005, 0.01, 0.02])))
        elif kind < 0.96:
            texts += [base + text(len(base) // 7, len(base) // 5) for _ in range(drawn.randint(35, 120))]
        else:
            texts.append(text(0, 6))
    if seed % 2:
        drawn.shuffle(texts)
    return [" ".join(some) for some in texts[:count]]


@runner.ci
def test_parts_have_the_bytes_of_one_run(folder):
    """Random texts in three datasets with validation, parts in random order, some of them twice."""
    digest = "cd %s && find . -type f ! -name .lock ! -name '*-of-*' -exec sha256sum {} + | sort; cat report"
    crowded = 0
    for seed in range(10):
        drawn, texts, least = random.Random(seed), drawn_corpus(seed, 2500), (0.6, 0.7, 0.8, 1, 0)[seed % 5]
        places = sorted(drawn.sample(range(len(texts)), 2))
        names = [f"{folder}/{seed}{name}" for name in "bac"]
        for name, some in zip(names, (texts[: places[0]], texts[places[0] : places[1]], texts[places[1] :])):
            tokenize(some, name)
            call(SHARDTOOL, "tokenize", "-q", "--force", "--val", "0.2", "--shard-tokens", "100k", "-o", name, f"{name}.jsonl")
        command = [SHARDTOOL, "dedup", "-j", "1", "--similar", str(least), "--shard-tokens", "64k"]
        whole = f"{folder}/{seed}.whole"
        log = call(*command, "--report", f"{whole}.report", "-o", whole, *names).stderr
        os.rename(f"{whole}.report", f"{whole}/report")
        crowded += b"that stay share a band with 32 others" in log
        for count in (1, 2, 3, 7, 16):
            made = f"{folder}/{seed}.{count}"
            for part in [*drawn.sample(range(1, count + 1), count), drawn.randint(1, count)]:
                call(*command, "-q", "--part", f"{part}/{count}", "-o", made, *names)
            joint = call(*command, "--report", f"{made}.report", "-o", made, *names).stderr
            os.rename(f"{made}.report", f"{made}/report")
            assert [line for line in joint.splitlines() if b"may be removed" not in line] == log.splitlines(), (seed, count)
            assert call("sh", "-c", digest % made).stdout == call("sh", "-c", digest % whole).stdout, (seed, count)
    assert crowded > 2, crowded


@runner.ci
def test_new_documents_beside_old_ones_are_those_of_one_run(folder):
    """--old: the report and the new documents are those of one run over the old datasets, of which none goes, and the new one."""
    for seed in range(10):
        drawn, texts, least = random.Random(seed), drawn_corpus(seed, 1500), (0.6, 0.7, 0.8, 1, 0)[seed % 5]
        texts += texts[:50]
        places = [0, *sorted(drawn.sample(range(100, 1400), 2)), len(texts)]
        first, second, new = (f"{folder}/{seed}{name}" for name in "abc")
        for number, name in enumerate((first, second, new)):
            tokenize(texts[places[number] : places[number + 1]], f"{name}.all" if name != new else name)
        command, old = [SHARDTOOL, "dedup", "-j", "1", "--similar", str(least)], []
        for name in (first, second):
            call(*command, *old, "-o", name, f"{name}.all")
            old += ["--old", name]
            for part in (2, 1):
                call(*command, "--part", f"{part}/2", "-o", name, name)
        call(*command, "--report", f"{folder}/one", "-o", f"{folder}/{seed}one", first, second, new)
        made = f"{folder}/{seed}new"
        log = call(*command, *old, "--report", f"{folder}/report", "-o", made, new).stderr.decode()
        with open(f"{folder}/one") as one, open(f"{folder}/report") as report:
            rows = one.read()
            assert rows == report.read() and rows, seed
        old_documents = len(decoded(first)) + len(decoded(second))
        assert decoded(made) == decoded(f"{folder}/{seed}one")[old_documents:], seed
        for part in (1, 2, 3):
            call(*command, "--part", f"{part}/3", "-o", f"{made}.parts", new)
        joint = call(*command, *old, "--report", f"{folder}/parts", "-o", f"{made}.parts", new).stderr.decode()
        assert [line for line in joint.splitlines() if "may be removed" not in line] == log.splitlines(), seed
        assert decoded(f"{made}.parts") == decoded(made), seed


def test_the_files_of_parts_are_as_specified(folder):
    """docs/formats.md: the line, the hashes and the entries, by a second implementation."""
    texts = [text for text, _, _ in TEXTS[:60]] + ["", "...", "two words"]
    name, number = f"{folder}/some", 0
    tokenize(texts, name)
    for part in (1, 2, 3):
        call(SHARDTOOL, "dedup", "-q", "--similar", "0.8", "--part", f"{part}/3", "-o", f"{folder}/u", name)
        with open(f"{folder}/u/bands-{part}-of-3", "rb") as file:
            data = file.read()
        line, rest = data.split(b"\n", 1)
        head, entries = json.loads(line), rest[:-16]
        assert xxhash.xxh3_128_digest(data[:-16]) == data[-16:]
        assert xxhash.xxh3_128_hexdigest(line[: line.index(b',"header_hash"')]) == head["header_hash"]
        assert (head["format"], head["kind"], head["rules"], head["split"]) == ("SHRDPART1", "bands", "words=2;minhash=1", "all")
        assert (head["part"], head["parts"], head["first"]) == (part, 3, number)
        manifest = json.loads(open(f"{name}/dataset.jsonl").readline())
        source = hashlib.sha256(bytes.fromhex(manifest["fingerprint"]) * 2).digest()[:16]  # one for each split
        assert head["inputs"] == hashlib.sha256(source).hexdigest()
        for text in texts[number : number + head["documents"]]:
            normal = neardup.normal(text)
            hashes = set(neardup.shingles(text))
            (count,), entries = struct.unpack("<Q", entries[:8]), entries[8:]
            assert count == len(hashes)
            if not count:
                continue
            assert struct.unpack("<Q", entries[:8])[0] == xxhash.xxh3_64_intdigest(normal.encode())
            rows = neardup.values(neardup.shingles(text), neardup.permutations()).tobytes()
            for band in range(neardup.BANDS):
                key = xxhash.xxh3_128_intdigest(rows[band * 40 : band * 40 + 40], band) >> 64
                assert entries[16 + 6 * band : 22 + 6 * band] == (key >> 16).to_bytes(6, "little"), band
            bits = 64
            while bits < 2 * count:
                bits *= 2
            bitmap = sum(1 << bit for bit in {value % bits for value in hashes})
            assert entries[148 : 148 + bits // 8] == bitmap.to_bytes(bits // 8, "little")
            entries = entries[148 + bits // 8 :]
        assert not entries
        number += head["documents"]
    assert number == len(texts)


@runner.ci
def test_items_are_found_as_by_a_second_implementation():
    drawn = random.Random(11)
    texts = [text for text, _, _ in TEXTS[:1500]]
    items = [" ".join(drawn.choice(texts).split()[at : at + drawn.randint(4, 60)]) for at in [drawn.randint(0, 60) for _ in range(150)]]
    items = [item or "one" for item in items]
    tokenize(texts, "searched")
    with open("items.jsonl", "w") as file:
        file.writelines(json.dumps({"a": item[:20], "b": {"c": 1, "d": [item[20:]]}}) + "\n" for item in items)
    joined = [f"{item[:20]} {item[20:]}" for item in items]
    for length in (13, 8, 5):
        call(SHARDTOOL, "decontaminate", "-q", "--against", "items.jsonl", "--words", str(length), "--report", "found", "searched")
        with open("found") as file:
            got = {row["document"]: (row["item"], row["share"]) for row in map(json.loads, file)}
        want = neardup.contaminated(texts, joined, length)
        assert want and got == {document: (item, round(share, 4)) for document, (item, share) in want.items()}, length


def test_rules_of_others_on_planted_items():
    """The table of docs/clean.md: which documents each rule removes for one item."""
    drawn = random.Random(13)

    def drawn_words(count):
        return ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(count)]

    item, short, around = drawn_words(60), drawn_words(10), drawn_words(600)
    texts = {
        "the item alone": " ".join(item),
        "the item in the middle of a paragraph of 660 words": " ".join(around[:300] + item + around[300:]),
        "the item in lines of 9 words": "\n".join(" ".join(item[at : at + 9]) for at in range(0, 60, 9)),
        "the item with each tenth word changed": " ".join("changed" if at % 10 == 9 else word for at, word in enumerate(item)),
        "the first 40 of its 60 words": " ".join(item[:40] + around[:40]),
        "13 words of it": " ".join(around[:100] + item[20:33] + around[100:200]),
        "8 words of it": " ".join(around[:100] + item[20:28] + around[100:200]),
        "an item of 10 words in other text": " ".join(around[:100] + short + around[100:200]),
    }
    items = [" ".join(item), " ".join(short)]

    def any_window(text, length):
        return bool({window for text_ in items for window in neardup.shingles(text_, length) if len(text_.split()) >= length}
                    & set(neardup.shingles(text, length)))  # fmt: skip

    def half_a_paragraph(text):
        known = {window for text_ in items for window in neardup.shingles(text_, 13) if len(text_.split()) >= 13}
        parts = [neardup.shingles(line, 13) for line in text.splitlines() if len(line.split()) >= 13]
        return any(sum(window in known for window in windows) >= 0.5 * len(windows) for windows in parts)

    tokenize(list(texts.values()), "rules")
    with open("rules.jsonl.items", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in items)
    call(SHARDTOOL, "decontaminate", "-q", "--against", "rules.jsonl.items", "--report", "rules.found", "rules")
    with open("rules.found") as file:
        found = {json.loads(line)["document"] for line in file}
    with open(os.path.join(ROOT, "docs/clean.md"), encoding="utf-8") as file:
        page = file.read()
    for number, (name, text) in enumerate(texts.items()):
        rules = any_window(text, 8), any_window(text, 13), half_a_paragraph(text), number in found
        row = f"| {name} | " + " | ".join("removed" if gone else "stays" for gone in rules) + " |"
        assert row in page, row
