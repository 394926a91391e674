#!/usr/bin/env python3
"""structure.py: what `make lint` checks about the tree as a whole. Reads the floors from standard input, lowest first: a
folder, then what its files may include beside their own folder: lower folders, or single headers of these. Because no
floor reaches up, what an included header includes in turn is below, too. Prints what breaks a rule, and exits with 1:
- an include that no floor allows, one that is not a path from the root, and a floor that is not below;
- a circle of includes of more than two modules, where x.c and x.h are one;
- a folder of more than 30 files;
- the name of a type in two folders, where an opaque `typedef struct X X` counts with the folder of its struct;
- a function of more than 60 lines, a CUDA kernel or device function of more than 110."""
import collections, os, re, subprocess, sys

FILES_MAX, LINES_MAX, KERNEL_LINES_MAX = 30, 60, 110
refused = []


def refuse(what):
    refused.append(what)
    print(what)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def sources(*endings):
    files = output("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *("*." + ending for ending in endings))
    return [file for file in files if os.path.exists(file)]


def in_programs(file):
    return not file.startswith("tests/")


def includes():
    """{file: headers of the tree that it includes}"""
    known = set(sources("c", "h", "cu", "cuh", "def"))
    graph = {file: [] for file in known if in_programs(file)}
    for file, headers in sorted(graph.items()):
        for quote, header in re.findall(r'^ *# *include *([<"]?)([^>"\s]+)', open(file).read(), re.M):
            if header in known:
                headers.append(header)
            elif quote != "<" or ".." in header:
                refuse(f"{file} includes {header}, which is not a path of a header from the root of the tree")
    return graph


def check_floors(graph, rows):
    below = {}
    for folder, *allowed in rows:
        for target in allowed:
            if target not in below and os.path.dirname(target) not in below:
                refuse(f"{folder}: its floor is not above that of {target}")
        below[folder] = allowed
    for file, headers in sorted(graph.items()):
        folder = os.path.dirname(file)
        if folder not in below:
            refuse(f"{file}: the folder has no floor in scripts/lint.sh")
            continue
        for header in headers:
            target = os.path.dirname(header)
            if not folder.startswith("common"):
                target = re.sub("^common/.*", "common", target)
            if target != folder and target not in below[folder] and header not in below[folder]:
                refuse(f"{file} includes {header}, which its floor does not allow")


def circles(graph):
    """The strongly connected components of the modules, by Tarjan's algorithm."""
    modules = collections.defaultdict(set)
    for file, headers in graph.items():
        modules[os.path.splitext(file)[0]].update(os.path.splitext(header)[0] for header in headers)
    number, lowest, stack, found = {}, {}, [], []

    def visit(module):
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(modules[module]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            first = stack.index(module)
            found.append(stack[first:])
            del stack[first:]

    for module in sorted(modules):
        if module not in number:
            visit(module)
    return [circle for circle in found if len(circle) > 2]


def tags():
    """(name, file, kind, {field: value}) of every function and type"""
    lines = output("ctags", "--langmap=C:.c.h.def,C++:.cu.cuh.cc", "--kinds-C=fgstu", "--kinds-C++=fgstuc", "--fields=+ne", "-f", "-",
                   *sources("c", "h", "cu", "cuh", "cc", "def"))
    for line in lines:
        name, file, text = line.split("\t", 2)
        kind, *fields = text.rsplit(';"\t', 1)[1].split("\t")
        yield name, file, kind, dict(field.split(":", 1) for field in fields)


def is_for_device(file, line):
    """Whether the head of the function, from the line after the code before it, has __global__ or __device__."""
    lines = open(file).read().splitlines()[:line]
    start = line - 1
    while start and lines[start - 1].strip() and lines[start - 1].rstrip()[-1] not in ";{}":
        start -= 1
    return re.search("__global__|__device__", "\n".join(lines[start:])) is not None


def check_tags():
    folders = collections.defaultdict(dict)
    for name, file, kind, fields in tags():
        if kind == "f" and "end" in fields:
            lines = int(fields["end"]) - int(fields["line"]) + 1
            most = LINES_MAX
            if lines > most and file.endswith((".cu", ".cuh")) and is_for_device(file, int(fields["line"])):
                most = KERNEL_LINES_MAX
            if lines > most:
                refuse(f"{file}:{fields['line']}: {lines} lines in {name}, {most} are the limit")
        elif kind != "f" and in_programs(file) and not name.startswith("__anon") and fields.get("typeref") != "struct:" + name:
            folders[name][os.path.dirname(file)] = file
    for file in sources("def"): # WORD(Gelu, gelu, ...) of keys.def declares an enum
        for name in re.findall(r"^WORD\((\w+),", open(file).read(), re.M):
            folders[name][os.path.dirname(file)] = file
    for name, places in sorted(folders.items()):
        if len(places) > 1:
            refuse(f"type {name} in two folders: {', '.join(sorted(places.values()))}")


graph = includes()
check_floors(graph, [line.split() for line in sys.stdin if line.strip()])
for circle in circles(graph):
    refuse(f"a circle of includes: {', '.join(sorted(circle))}")
for folder, count in collections.Counter(os.path.dirname(file) for file in sources("c", "h", "cu", "cuh", "def")).items():
    if count > FILES_MAX:
        refuse(f"{folder}: {count} files, {FILES_MAX} are the limit")
check_tags()
sys.exit(1 if refused else 0)
