"""reference.py BIN: prints docs/reference.md, made from the manual pages of the programs in BIN, which print the tables of keys,
commands, options, variables and exit codes."""
import re
import subprocess
import sys

# The page that explains a group of keys, a program, or a command that another page explains.
PAGES = {
    "the run": "train", "data": "datasets", "one step": "fit", "evaluation": "train", "the model": "model-options", "learning rate": "train",
    "optimizer": "train", "device and memory": "fit", "checks of a run": "train", "rarely needed": "several-processes",
    "shardtool": "datasets", "loader": "loader", "trainer": "train",
    "train-vocabulary": "vocabularies", "dedup": "clean", "decontaminate": "clean",
    "filter": "clean", "plan": "fit", "export": "use-a-model", "import": "use-a-model", "sample": "use-a-model",
    "replay": "audit", "which": "audit", "doctor": "troubleshooting"}  # fmt: skip
UNIT = r"(^step|\b(?:steps|tokens|seconds|sequences|micro-batches|heads|blocks|threads|rows|ids))\b"
COMMON = ("-q, --quiet", "-h, --help", "SIZE", "--KEY=VALUE")
ESCAPES = {r"\-": "-", r"\e": "\\", r"\(dq": '"', r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\&": ""}


def manual(bin_folder, program, *page):
    """The sections of a manual page: rows (label, text) below each title, after the text before the first row; those of .SS have two titles."""
    roff = subprocess.run([f"{bin_folder}/{program}", "--man", *page], capture_output=True, text=True, check=True).stdout
    sections, rows = {}, []
    for line in roff.splitlines():
        text = re.sub(r"\\(?:\(..|.)", lambda escape: ESCAPES[escape[0]], re.sub(r"^\.(B|BR) ", "", line))
        if line.startswith((".SH ", ".SS ")):
            rows = sections[line[4:]] = [["", ""]]
        elif line == ".TP":
            rows.append(["", ""])
        elif rows and len(rows) > 1 and not rows[-1][0]:
            rows[-1][0] = text
        elif rows:
            rows[-1][1] += f" {text}" if rows[-1][1] else text
    return sections


def cell(text):
    return re.sub(r"([|*`])", r"\\\1", text).replace("<", "&lt;")


def code(text):
    return f"`{text}`".replace("|", r"\|") if text else ""


def table(*rows):
    """The first row is the head."""
    print(f"\n| {' | '.join(rows[0])} |\n|{' --- |' * len(rows[0])}")
    for row in rows[1:]:
        print(f"| {' | '.join(row)} |")


def split(text):
    """A help: its meaning and its default."""
    found = re.fullmatch(r"(.*) \[(.*?)\]", text)
    return found.groups() if found else (text, "")


def key_row(label, text):
    (name, value), (meaning, default) = label.split(" = "), split(text)
    found = value in ("INTEGER", "INTEGER|auto", "NUMBER", "WORD") and re.fullmatch(r"(.*) \(([^()]*)\)", meaning)
    if found:
        value, meaning = found[2].replace(" | ", "|") if value == "WORD" else f"{value} {found[2]}", found[1]
    unit = re.search(UNIT, meaning) if value.startswith("INTEGER") else None
    default = default or ("False" if value == "True|False" else "")
    return code(name), code(value), unit[1] if unit else "bytes" if value == "SIZE" else "", code(default), cell(meaning)


def page_of(*names):
    page = next(PAGES[name] for name in names if name in PAGES)
    return f"[{page}.md]({page}.md)"


def main(bin_folder):
    print("# Reference\n\nThis page is made by `scripts/reference.py` from the tables of the programs.\n\n## Keys of a configuration\n")
    config, environment, exit_codes = manual(bin_folder, "trainer", "config"), {}, []
    print(config["DESCRIPTION"][0][1])
    for group, rows in config.items():
        if len(rows) > 1 and group not in ("EXAMPLES", "SEE ALSO"):
            print(f"\n### Keys: {group}\n\nSee {page_of(group)}.")
            table(("key", "values", "unit", "default", "meaning"), *(key_row(*row) for row in rows[1:]))
    for program in "shardtool", "loader", "trainer":
        pages = manual(bin_folder, program)
        print(f"\n## Commands of {program}\n\nEach has `-q, --quiet` (print warnings and errors only) and `-h, --help`.")
        for name, summary in pages["COMMANDS"][1:]:
            command = re.fullmatch(r"millrace-(\S+) \(1\)", name)
            if not command:
                continue
            page = manual(bin_folder, program, command[1])
            arguments = page["SYNOPSIS"][0][1].split("[OPTIONS]")[-1].strip()
            name = f"millrace {command[1]}"
            print(f"\n### {name}\n\n`{name} {arguments}`: {cell(summary)} ({page_of(command[1], program)}).")
            rows = [row for row in page["OPTIONS"][1:] if row[0] not in COMMON]
            if rows:
                helps = [(flag, *split(text)) for flag, text in rows]
                table(("option", "default", "meaning"), *((code(flag), code(default), cell(meaning)) for flag, meaning, default in helps))
        for name, text in pages["ENVIRONMENT"][1:]:
            environment.setdefault((name, text), []).append(program)
        exit_codes = pages["EXIT STATUS"][1:]
    print("\n## Environment variables")
    table(("variable", "read by", "meaning"), *((code(name), ", ".join(programs), cell(text)) for (name, text), programs in sorted(environment.items())))
    print("\n## Exit codes")
    table(("code", "meaning"), *((number, cell(meaning)) for number, meaning in exit_codes))


main(sys.argv[1])
