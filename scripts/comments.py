#!/usr/bin/env python3
"""comments.py: what `make lint` checks in the text of sources. Prints what breaks a rule, and exits with 1:
- a comment that names a function which does not exist: `name()`, or a word that begins with a file's name, as engine_open
  does, and is neither in the code nor the name of a file;
- "a" before a vowel in a comment;
- `*&`;
- declarations without values that the formatter has cut: the comment goes above."""
import os, re, subprocess, sys

LINE = re.compile(r"""((?:[^"'/]|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|/(?!/))*)(?://(.*))?""")
ARTICLE = re.compile(r"\b[Aa] (?!(?:and|are|as|at|if|in|into|is|it|its|of|on|or|one|once|u[ns]i\w*|us[aeu]\w*|eu\w*|ut[if]\w*)\b)[aeiou][a-z]+")
CUT = re.compile(r"( +)(?:(?:const|struct|unsigned) )*[A-Za-z]\w*(?: \*?| ?\*)[\w\[\], *]+,$")


def words(text):
    return re.findall(r"\w+", text)


def tracked(*patterns):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    return [file for file in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines() if os.path.exists(file)]


def main():
    sources = {file: open(file, encoding="utf-8").read().splitlines() for file in tracked("*.c", "*.h", "*.cu", "*.cuh", "*.cc", "*.def")}
    stems = {os.path.basename(file).rsplit(".", 1)[0] for file in tracked("*.*")}
    code, comments, bad = set(), [], []
    for file in tracked("*.sh", "*.bash", "*.bats", "*.py"):
        code.update(words(open(file, encoding="utf-8").read()))
    for file, lines in sources.items():
        for number, line in enumerate(lines, 1):
            text, comment = LINE.match(line).groups()
            code.update(words(text))
            comments.append((file, number, comment or ""))
            if "*&" in text: bad.append((file, number, "`*&` is the value itself"))
            after = lines[number] if number < len(lines) else ""
            cut = CUT.match(text)
            if cut and after.startswith(cut[1] + " ") and re.match(r"[\w\[\], *]+;", after.strip()):
                bad.append((file, number, "a declaration cut by the formatter"))
    for file, number, comment in comments:
        for name, call in re.findall(r"\b([a-z][a-z0-9_]*)(\(\)|\b)(?!\.\w)", comment):
            parts = name.split("_")
            of_module = any("_".join(parts[:i]) in stems for i in range(1, len(parts)))
            if (call or of_module) and name not in code and name not in stems:
                bad.append((file, number, f"no function {name}"))
        for hit in ARTICLE.findall(comment):
            bad.append((file, number, f"'{hit}'"))
    for file, number, what in bad: print(f"{file}:{number}: {what}")
    return bool(bad)


sys.exit(main())
