// UTF-8: decoding, checking, repairing and encoding, as Unicode table 3-7 defines it (no overlong forms, no surrogates,
// nothing beyond U+10FFFF).
#pragma once

#include "common/bytes.h"

enum { UTF8_BYTES_MAX = 4 };

// Not code points: the values that utf8_decode returns for an invalid sequence, and for one that is valid so far but
// cut by the end of the text.
#define UTF8_INVALID  0xFFFFFFFFu
#define UTF8_CUT      0xFFFFFFFEu
#define UTF8_LAST     0x10FFFFu // the largest code point
#define UTF8_REPLACED "\xEF\xBF\xBD"

unsigned utf8_decode_long(const uint8_t *at, const uint8_t *end, uint32_t *point); // utf8_decode beyond ASCII

// Sets *point to the code point at `at` (at < end) and returns its length, 1 to 4. After UTF8_INVALID or UTF8_CUT the
// length is the length of the maximal subpart, which one U+FFFD replaces.
static inline unsigned utf8_decode(const uint8_t *at, const uint8_t *end, uint32_t *point) {
    if (*at >= 0x80) return utf8_decode_long(at, end, point);
    *point = *at;
    return 1;
}

// The length of the character beyond ASCII at `at` (at < end), or 0 when it is not valid or is cut.
static inline unsigned utf8_length(const uint8_t *at, const uint8_t *end) {
    if (end - at >= 4) {
        // The bits that the lead and the continuation bytes must have; then no overlong form, no surrogate.
        uint32_t bytes = get_u32(at), low = bytes & 0x200F;
        if ((bytes & 0xC0E0) == 0x80C0 && bytes & 0x1E) return 2;
        if ((bytes & 0xC0C0F0) == 0x8080E0 && low && low != 0x200D) return 3;
    }
    uint32_t point;
    unsigned length = utf8_decode(at, end, &point);
    return point > UTF8_LAST ? 0 : length;
}

// Writes the code point (up to UTF8_LAST) and returns its length. Inline, because libjansson.a has a symbol of this
// name.
static inline unsigned utf8_encode(uint32_t point, uint8_t bytes[UTF8_BYTES_MAX]) {
    if (point < 0x80) return bytes[0] = (uint8_t)point, 1;
    static const uint8_t leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    unsigned length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (unsigned i = length; --i; point >>= 6) bytes[i] = (uint8_t)(0x80 | (point & 0x3F));
    bytes[0] = (uint8_t)(leads[length] | point);
    return length;
}

// The text without the byte order mark at its head.
static inline Bytes utf8_unmarked(Bytes text) {
    const bool marked = text.size >= 3 && !memcmp(text.data, "\xEF\xBB\xBF", 3);
    return marked ? (Bytes){text.data + 3, text.size - 3} : text;
}

// How many bytes at the start of the text are valid: text.size when all are.
size_t utf8_valid(Bytes text);

// Appends the text to `out` with U+FFFD in place of each maximal subpart of an invalid sequence, as Python's
// bytes.decode("utf-8", "replace") does. Returns the number of replacements.
uint64_t utf8_replace(Bytes text, Buffer *out);
