// JSON strings: plain runs are copied, the rest is escaped character by character.
#include "common/json_write.h"
#include "common/hash.h"
#include "common/utf8.h"

static void add_character(Buffer *out, const uint8_t *p, unsigned length, uint32_t point, uint64_t *replaced) {
    static const char short_names[] = "btn\0fr"; // \b to \r
    if (point > UTF8_LAST)
        buffer_add(out, UTF8_REPLACED, 3), ++*replaced;
    else if (*p == '"' || *p == '\\')
        buffer_add(out, (uint8_t[]){'\\', *p}, 2);
    else if (*p >= '\b' && *p <= '\r' && short_names[*p - '\b'])
        buffer_add(out, (char[]){'\\', short_names[*p - '\b']}, 2);
    else if (*p < 0x20)
        buffer_print(out, "\\u%04x", *p);
    else
        buffer_add(out, p, length);
}

// Finds the first quote, backslash, control character or byte above ASCII, eight bytes at a time. Each of the tests
// sets the high bit of a byte that matches, and possibly of later bytes, which do not matter.
static const uint8_t *find_special(const uint8_t *at, const uint8_t *end) {
    const uint64_t ones = 0x0101010101010101u;
    for (; end - at >= 8; at += 8) {
        uint64_t word = get_u64(at), quote = word ^ ones * '"', backslash = word ^ ones * '\\';
        uint64_t hits = (word | (word - ones * 0x20) | (quote - ones) | (backslash - ones)) & ones * 0x80;
        if (hits) return at + __builtin_ctzll(hits) / 8;
    }
    while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\') at++;
    return at;
}

// Passes what stands in JSON as it is, valid characters above ASCII included.
static const uint8_t *skip_plain(const uint8_t *at, const uint8_t *end) {
    while ((at = find_special(at, end)) < end && *at >= 0x80) {
        uint32_t point;
        unsigned length = utf8_decode(at, end, &point);
        if (point > UTF8_LAST) break;
        at += length;
    }
    return at;
}

void json_add_text(Buffer *out, Bytes text, bool last, JsonCarry *carry) {
    const uint8_t *at = text.data, *end = at + text.size;
    uint32_t point;
    while (carry->size) { // the first bytes of a character whose rest is in this text
        unsigned length = utf8_decode(carry->bytes, carry->bytes + carry->size, &point);
        if (point == UTF8_CUT && at < end) {
            carry->bytes[carry->size++] = *at++;
            continue;
        }
        if (point == UTF8_CUT && !last) return;
        add_character(out, carry->bytes, length, point, &carry->replaced);
        carry->size -= length;
        memmove(carry->bytes, carry->bytes + length, carry->size);
    }
    while (at < end) {
        const uint8_t *run = at;
        at = skip_plain(at, end);
        buffer_add(out, run, (size_t)(at - run));
        if (at == end) break;
        unsigned length = utf8_decode(at, end, &point);
        if (point == UTF8_CUT && !last) {
            carry->size = (size_t)(end - at);
            memcpy(carry->bytes, at, carry->size);
            return;
        }
        add_character(out, at, length, point, &carry->replaced);
        at += length;
    }
}

void json_add_string(Buffer *out, const char *string) {
    buffer_add(out, "\"", 1);
    json_add_text(out, (Bytes){(const uint8_t *)string, strlen(string)}, true, &(JsonCarry){.size = 0});
    buffer_add(out, "\"", 1);
}

void json_add_hex(Buffer *out, const char *key, const void *data, size_t size) {
    char hex[2 * 64 + 1];
    hex_encode(hex, data, size);
    buffer_print(out, ",\"%s\":\"%s\"", key, hex);
}
