// The classes of code points that the patterns distinguish.
#pragma once

#include <stdint.h>

typedef enum { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE } Class; // O, \p{L}, \p{N}, \s

Class unicode_class(uint32_t point);

// The forms that patterns with cases distinguish: [\p{Lu}\p{Lt}], \p{Ll}, and \p{M}, which is CLASS_OTHER. Other
// letters are FORM_NONE.
typedef enum { FORM_NONE, FORM_UPPER, FORM_LOWER, FORM_MARK } Form;

Form unicode_form(uint32_t point);

// Tables for scanners that look up many characters at a time. Bit n of byte m is for number 8*m + n.
extern const uint8_t unicode_low_letters[256], unicode_low_numbers[256]; // code points below U+0800
extern const uint8_t unicode_low_forms[2][256];                          // the low and the high bit of the form
// Blocks of 64 code points below U+10000 that are all letters; that are neither all letters nor all CLASS_OTHER; that
// have a form.
extern const uint8_t unicode_letter_blocks[128], unicode_mixed_blocks[128], unicode_form_blocks[128];
