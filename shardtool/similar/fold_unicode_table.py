#!/usr/bin/env python3
"""Writes fold_unicode_table.h from Python's unicodedata: python3 shardtool/similar/fold_unicode_table.py > shardtool/similar/fold_unicode_table.h
Python 3.11 (Debian 12) has Unicode 14.0, whose table is in the tree."""
import unicodedata

BLOCK = 64  # code points
SELF, BLANK, DROP, DIGIT, ALONE, POINT, PAIR = range(7)  # FoldKind in words.c
# Scripts that do not separate words.
ALONE_NAMES = "CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "IDEOGRAPHIC", "THAI", "LAO", "KHMER", "MYANMAR"
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by its formula
pairs = []


def folded(character):
    """In lower case, decomposed, without nonspacing marks; both forms of the small sigma as one."""
    parts = unicodedata.normalize("NFD", character.lower()).replace("ς", "σ")
    return [ord(part) for part in parts if unicodedata.category(part) != "Mn"]


def entry(point):
    character = chr(point)
    category = unicodedata.category(character)
    if category == "Nd":
        return DIGIT | unicodedata.decimal(character) << 3
    if category in ("Mn", "Cf"):
        return DROP
    if category[0] in "PSZ" or category in ("Cc", "Cs"):
        return BLANK
    if category in ("Cn", "Co") or point in HANGUL:
        return SELF
    points = folded(character)
    if unicodedata.name(character, "").startswith(ALONE_NAMES):
        assert len(points) == 1
        return ALONE | (points[0] << 3 if points != [point] else 0)
    if points == [point]:
        return SELF
    if len(points) == 1:
        return POINT | points[0] << 3
    assert len(points) == 2, (hex(point), points)
    pairs.append(points)
    return PAIR | (len(pairs) - 1) << 3


entries = [entry(point) for point in range(0x110000)]
end = max(point for point, value in enumerate(entries) if value) // BLOCK * BLOCK + BLOCK
numbers, index = {}, []
for first in range(0, end, BLOCK):
    block = tuple(entries[first : first + BLOCK])
    index.append(numbers.setdefault(block, len(numbers)))


def rows(values, form, per_line):
    texts = [form(value) for value in values]
    return "\n".join("    " + ", ".join(texts[i : i + per_line]) + "," for i in range(0, len(texts), per_line))


print(f"""\
// Made by fold_unicode_table.py: Unicode {unicodedata.unidata_version}, (c) Unicode, Inc. (see NOTICE). Do not edit.
#pragma once

#include <stdint.h>

enum {{ FOLD_BLOCK = {BLOCK}, FOLD_END = 0x{end:X} }};

static const uint16_t fold_index[FOLD_END / FOLD_BLOCK] = {{
{rows(index, str, 256)}
}};

static const uint32_t fold_entries[][FOLD_BLOCK] = {{""")
for block in numbers:
    print("    {" + (", ".join(map(str, block)) if any(block) else "0") + "},")
print(f"""}};

static const uint32_t fold_pairs[][2] = {{
{rows(pairs, lambda pair: "{0x%X, 0x%X}" % tuple(pair), 30)}
}};""")
