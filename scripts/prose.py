"""prose.py FILE...: sentences of Markdown pages that are too long. A sentence has at most 40 words, and those of a page 20 on average.
Code, tables, headings and comments are left out; code between backticks is one word."""
import re
import sys

MEAN, MOST = 20, 40


def sentences(text):
    text = re.sub(r"<!--.*?-->|^```.*?^```", "\n\n", text, flags=re.S | re.M)
    text = re.sub(r"^( *[-*] |\d+\. |#.*|\|.*|>.*|!\[.*)", lambda m: "\n\n" + (m[0] if not re.match(r"[#|!>]", m[0]) else "") , text, flags=re.M)
    for block in re.split(r"\n\s*\n", text):
        block = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", " ".join(block.split())))
        for sentence in re.split(r"(?<=[.!?])[\"')\]*]*\s+", block):
            count = len(re.findall(r"\w[\w'.,-]*", sentence))
            if count: yield count, sentence


def main():
    bad = 0
    for path in sys.argv[1:]:
        found = list(sentences(open(path, encoding="utf-8").read()))
        mean = sum(count for count, _ in found) / len(found)
        if mean > MEAN: print(f"{path}: {mean:.1f} words a sentence, of which {MEAN} are the limit"); bad = 1
        for count, sentence in found:
            if count > MOST: print(f"{path}: {count} words: {sentence[:80]}"); bad = 1
    return bad


sys.exit(main())
