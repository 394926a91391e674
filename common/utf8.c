// UTF-8 in plain C; ASCII is skipped eight bytes at a time.
#include "common/utf8.h"

unsigned utf8_decode_long(const uint8_t *at, const uint8_t *end, uint32_t *point) {
    uint8_t lead = at[0];
    *point = UTF8_INVALID;
    if (lead < 0xC2 || lead > 0xF4) return 1;
    // the second byte's range excludes overlong forms, surrogates and numbers beyond U+10FFFF
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    unsigned length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t value = lead & (0x7Fu >> length);
    for (unsigned i = 1; i < length; i++) {
        if (at + i == end) return *point = UTF8_CUT, i;
        if (at[i] < low || at[i] > high) return i;
        value = value << 6 | (at[i] & 0x3F);
        low = 0x80, high = 0xBF;
    }
    *point = value;
    return length;
}

size_t utf8_valid(Bytes text) {
    if (!text.size) return 0; // its data may be NULL
    const uint8_t *at = text.data, *end = at + text.size;
    while (at < end) {
        if (end - at >= 8 && !(get_u64(at) & 0x8080808080808080)) {
            at += 8;
            continue;
        }
        unsigned length = *at < 0x80 ? 1 : utf8_length(at, end);
        if (!length) break;
        at += length;
    }
    return text.size - (size_t)(end - at);
}

uint64_t utf8_replace(Bytes text, Buffer *out) {
    uint64_t replaced = 0;
    while (text.size) {
        size_t valid = utf8_valid(text);
        buffer_add(out, text.data, valid);
        text.data += valid, text.size -= valid;
        if (!text.size) break;
        uint32_t point;
        unsigned length = utf8_decode(text.data, text.data + text.size, &point);
        buffer_add(out, UTF8_REPLACED, 3);
        text.data += length, text.size -= length;
        replaced++;
    }
    return replaced;
}
