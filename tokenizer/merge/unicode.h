// The four classes of code points that GPT-2's pattern distinguishes.
#pragma once

#include <stdint.h>

typedef enum { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE } Class; // O, \p{L}, \p{N}, \s

Class unicode_class(uint32_t point);

// Tables for scanners that look up many characters at a time. Bit n of byte m stands for number 8*m + n.
extern const uint8_t unicode_low_letters[256], unicode_low_numbers[256]; // code points below U+0800
// Blocks of 64 code points below U+10000 that are all letters; that are neither all letters nor all CLASS_OTHER.
extern const uint8_t unicode_letter_blocks[128], unicode_mixed_blocks[128];
