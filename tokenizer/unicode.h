// Code points: UTF-8 in, and the four classes GPT-2's pattern knows.
#pragma once

#include "common/bytes.h"

typedef enum { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE } Class; // O, \p{L}, \p{N}, \s

Class unicode_class(uint32_t point);

// For scanners that look up many at a time. Bit n of byte m stands for number 8*m + n.
extern const uint8_t unicode_low_letters[256], unicode_low_numbers[256]; // code points below U+0800
// Blocks of 64 code points below U+10000 that are all letters; that are neither all letters nor all CLASS_OTHER.
extern const uint8_t unicode_letter_blocks[128], unicode_mixed_blocks[128];

// The code point at `at` (at < end) and its length, 1 to 4. An invalid sequence gives *point = UTF8_INVALID and the
// length of its maximal subpart, which is what one U+FFFD stands for.
#define UTF8_INVALID 0xFFFFFFFFu
unsigned utf8_decode(const uint8_t *at, const uint8_t *end, uint32_t *point);

size_t utf8_valid(Bytes text); // how many bytes at the start are valid: text.size when all are

// Appends text with U+FFFD for each maximal subpart of an invalid sequence. Returns how many that were.
uint64_t utf8_replace(Bytes text, Buffer *out);
