"""Small texts of many kinds, on which vocabularies are trained: load() -> {"name": bytes}. All are UTF-8."""
import glob
import json
import os
import random
import sysconfig

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "tokenizer_vectors.jsonl")
ALPHABETS = {
    "german": "abcdefghijklmnopqrstuvwxyzäöüß",
    "greek": "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώς",
    "russian": "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "hindi": "अआइईउऊएऐकखगघचछजझटठडढतथदधनपफबभमयरलवशषसह",
    "thai": "กขคงจฉชซญดตถทธนบปผฝพฟภมยรลวศษสหอฮ",
    "korean": "".join(map(chr, range(0xAC00, 0xAC00 + 600, 7))),
    "chinese": "".join(map(chr, range(0x4E00, 0x4E00 + 900, 3))),
    "emoji": "😀😁😂🤣😃😄😅😆😉😊😋😎😍😘🥰👍👎👌🎉🚀🔥",
}


def language(letters, seed, words=3000):
    """Words that occur like those of a language: the n-th one 1/n times as often as the first."""
    choose = random.Random(seed)
    known = ["".join(choose.choices(letters, k=choose.randint(1, 9))) for _ in range(400)]
    weights = [1 / n for n in range(1, len(known) + 1)]
    text = choose.choices(known, weights, k=words)
    return "".join(word + choose.choice([" ", " ", " ", ", ", ". ", "\n", "  ", " 12 "]) for word in text).encode()


def whole(text):
    """Without a character that was cut."""
    return text.decode(errors="ignore").encode()


def files(pattern, count, size):
    paths = sorted(glob.glob(os.path.join(sysconfig.get_path("stdlib"), pattern)))[:count]
    return b"\n".join(whole(open(path, "rb").read()[:size]) for path in paths)


def vectors():
    lines = [json.loads(line) for line in open(VECTORS, encoding="utf-8")]
    return "\n".join(line["text"] for line in lines if "text" in line).encode()


def load():
    choose = random.Random(7)
    corpora = {name: language(letters, name) for name, letters in ALPHABETS.items()}
    corpora["mixed languages"] = b"".join(whole(corpora[name][:4000]) for name in sorted(corpora))
    corpora["code"] = files("*.py", 12, 8000)
    corpora["test vectors"] = vectors()
    corpora["json"] = "\n".join(json.dumps({"id": n, "name": f"row {n * 7919 % 1000}", "tags": ["a", "b"][: n % 3]}) for n in range(800)).encode()
    corpora["numbers"] = "\n".join(str(choose.randrange(10**6)) for _ in range(3000)).encode()
    corpora["hexadecimal"] = "".join(choose.choices("0123456789abcdef", k=20000)).encode()
    corpora["one letter"] = b"a" * 255
    corpora["runs of letters"] = " ".join(choose.choice("aab") * choose.randint(1, 40) for _ in range(600)).encode()
    corpora["two letters"] = "".join(choose.choices("ab", k=6000)).encode()
    corpora["white space"] = "".join(choose.choices(" \t\n\r\u00a0\u3000x", k=4000)).encode()
    corpora["signs"] = "".join(choose.choices("-=*#<>|/'\" ", k=6000)).encode()
    corpora["random characters"] = "".join(map(chr, choose.choices(list(range(1, 0x3000)), k=4000))).encode()
    corpora["contractions"] = " ".join(choose.choices(["I'm", "we'll", "it's", "DON'T", "they've", "'tis", "you're"], k=2000)).encode()
    corpora["nothing to merge"] = b"a b\nc d"
    return corpora
