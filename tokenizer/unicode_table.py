#!/usr/bin/env python3
"""Writes unicode_table.h from unicode_classes.tsv: python3 tokenizer/unicode_table.py > tokenizer/unicode_table.h"""
import hashlib
import pathlib

BLOCK = 64  # code points: one machine word a class bit
CLASSES = {"L": 1, "N": 2, "W": 3}

source = (pathlib.Path(__file__).parent / "unicode_classes.tsv").read_bytes()
classes = bytearray(0x110000)
for line in source.decode().splitlines():
    if line and not line.startswith("#"):
        first, last, name = line.split("\t")
        for point in range(int(first, 16), int(last, 16) + 1):
            classes[point] = CLASSES[name]

end = max(point for point in range(0x110000) if classes[point]) // BLOCK * BLOCK + BLOCK
blocks, index = [], []
for first in range(0, end, BLOCK):
    block = classes[first : first + BLOCK]
    masks = tuple(sum((value >> plane & 1) << bit for bit, value in enumerate(block)) for plane in (0, 1))
    if masks not in blocks:
        blocks.append(masks)
    index.append(blocks.index(masks))


def rows(values, form, per_line):
    texts = [form(value) for value in values]
    return "\n".join("    " + ", ".join(texts[i : i + per_line]) + "," for i in range(0, len(texts), per_line))


print(f"""\
// Made by unicode_table.py from unicode_classes.tsv (SHA-256 {hashlib.sha256(source).hexdigest()[:16]}...): Unicode 16.0 as the
// tiktoken library applies it, (c) Unicode, Inc. (see NOTICE). Do not edit.
#pragma once

#include <stdint.h>

// clang-format off
enum {{ UNICODE_TABLE_END = 0x{end:X} }}; // from here on every code point is CLASS_OTHER

// Which block of masks holds the classes of code points 64*i .. 64*i + 63.
static const uint16_t unicode_index[{len(index)}] = {{
{rows(index, str, 28)}
}};

// Bit b of masks[0] and masks[1]: the low and the high bit of the class of the block's code point b.
static const uint64_t unicode_masks[{len(blocks)}][2] = {{
{rows(blocks, lambda m: f"{{0x{m[0]:016X}, 0x{m[1]:016X}}}", 2)}
}};
// clang-format on""")
