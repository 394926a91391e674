#!/usr/bin/env python3
"""Writes unicode_table.h from unicode_classes.tsv: python3 tokenizer/unicode_table.py > tokenizer/merge/unicode_table.h"""
import hashlib
import pathlib

BLOCK = 64  # code points: one machine word a class bit
CLASSES = {"L": 1, "N": 2, "W": 3}
FORMS = {"Lu": 1, "Ll": 2, "M": 3}

source = (pathlib.Path(__file__).parent / "unicode_classes.tsv").read_bytes()
classes, forms = bytearray(0x110000), bytearray(0x110000)
for line in source.decode().splitlines():
    if line and not line.startswith("#"):
        first, last, name = line.split("\t")
        for point in range(int(first, 16), int(last, 16) + 1):
            classes[point] = CLASSES.get(name[0], 0)
            forms[point] = FORMS.get(name, 0)


def bits(count, test):
    """test(0), test(1), ... as bits, eight a byte."""
    return [sum(test(8 * byte + bit) << bit for bit in range(8)) for byte in range(count // 8)]


def planes(values):
    """The end of the blocks with a value, the number of each block's masks, and the masks: its values' low and high bits."""
    end = max(point for point, value in enumerate(values) if value) // BLOCK * BLOCK + BLOCK
    numbers, index = {}, []
    for first in range(0, end, BLOCK):
        block = values[first : first + BLOCK]
        masks = tuple(sum((value >> plane & 1) << bit for bit, value in enumerate(block)) for plane in (0, 1))
        index.append(numbers.setdefault(masks, len(numbers)))
    return end, index, list(numbers)


def block_is(number, *wanted):
    return set(classes[BLOCK * number : BLOCK * (number + 1)]) in [{value} for value in wanted]


low_letters = bits(0x800, lambda point: classes[point] == 1)
low_numbers = bits(0x800, lambda point: classes[point] == 2)
letter_blocks = bits(0x10000 // BLOCK, lambda number: block_is(number, 1))
mixed_blocks = bits(0x10000 // BLOCK, lambda number: not block_is(number, 0, 1))
form_blocks = bits(0x10000 // BLOCK, lambda number: any(forms[BLOCK * number : BLOCK * (number + 1)]))
low_forms = [bits(0x800, lambda point: forms[point] >> plane & 1) for plane in (0, 1)]
end, index, blocks = planes(classes)
far_marks = [point for point in range(0x20000, 0x110000) if forms[point]]
assert far_marks == list(range(far_marks[0], far_marks[-1] + 1)) and {forms[point] for point in far_marks} == {FORMS["M"]}
forms_end, forms_index, forms_masks = planes(forms[:0x20000])


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
{rows(index, str, 128)}
}};

// Bit b of masks[0] and masks[1]: the low and the high bit of the class of the block's code point b.
static const uint64_t unicode_masks[{len(blocks)}][2] = {{
{rows(blocks, lambda m: f"{{0x{m[0]:016X}, 0x{m[1]:016X}}}", 16)}
}};

// One bit a code point below U+0800.
const uint8_t unicode_low_letters[{len(low_letters)}] = {{
{rows(low_letters, str, 128)}
}};
const uint8_t unicode_low_numbers[{len(low_numbers)}] = {{
{rows(low_numbers, str, 128)}
}};

// One bit a block of 64 code points below U+10000: all letters; neither all letters nor all CLASS_OTHER.
const uint8_t unicode_letter_blocks[{len(letter_blocks)}] = {{
{rows(letter_blocks, str, 128)}
}};
const uint8_t unicode_mixed_blocks[{len(mixed_blocks)}] = {{
{rows(mixed_blocks, str, 128)}
}};

// The same for forms: the index, masks of the low and the high bit, these two bits of code points below U+0800, and one
// bit a block that has any.
enum {{ UNICODE_FORMS_END = 0x{forms_end:X} }}; // from here on only the marks of the next line have a form
enum {{ UNICODE_FAR_MARKS = 0x{far_marks[0]:X}, UNICODE_FAR_MARKS_END = 0x{far_marks[-1] + 1:X} }};
static const uint16_t unicode_form_index[{len(forms_index)}] = {{
{rows(forms_index, str, 128)}
}};
static const uint64_t unicode_form_masks[{len(forms_masks)}][2] = {{
{rows(forms_masks, lambda m: f"{{0x{m[0]:016X}, 0x{m[1]:016X}}}", 16)}
}};
const uint8_t unicode_low_forms[2][{len(low_forms[0])}] = {{{{
{rows(low_forms[0], str, 128)}
}}, {{
{rows(low_forms[1], str, 128)}
}}}};
const uint8_t unicode_form_blocks[{len(form_blocks)}] = {{
{rows(form_blocks, str, 128)}
}};
// clang-format on""")
