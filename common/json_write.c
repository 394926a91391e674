// JSON strings: sixteen plain bytes are copied at a time, the rest character by character.
#include "common/json_write.h"
#include "common/hash.h"
#include "common/json_scan.h"
#include "common/utf8.h"
#include <inttypes.h>

// The second character of the escapes of two characters; 0 for others.
static const uint8_t short_escapes[256] = {
    ['"'] = '"', ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't',
};

static void add_character(Buffer *out, const uint8_t *p, unsigned length, uint32_t point, uint64_t *replaced) {
    if (point > UTF8_LAST)
        buffer_add(out, UTF8_REPLACED, 3), ++*replaced;
    else if (short_escapes[*p])
        buffer_add(out, (uint8_t[]){'\\', short_escapes[*p]}, 2);
    else if (*p < 0x20)
        buffer_print(out, "\\u%04x", *p);
    else
        buffer_add(out, p, length);
}

// Appends characters up to one that is not written in JSON as it is and has no escape of two characters, or that is cut
// or not valid; returns the place of it.
static const uint8_t *add_plain(Buffer *out, const uint8_t *at, const uint8_t *end) {
    buffer_reserve(out, 2 * (size_t)(end - at) + JSON_SCAN_BYTES);
    uint8_t *to = out->data + out->size;
    while (at < end) {
        if (end - at >= JSON_SCAN_BYTES) {
            unsigned plain = json_scan(to, at, true);
            at += plain, to += plain;
            if (plain == JSON_SCAN_BYTES) continue;
        }
        if (*at >= 0x80) {
            const uint8_t *run = at;
            for (unsigned length; at < end && *at >= 0x80 && (length = utf8_length(at, end)); at += length) {
            }
            if (at == run) break;
            memcpy(to, run, (size_t)(at - run));
            to += at - run;
        } else if (short_escapes[*at]) {
            *to++ = '\\', *to++ = short_escapes[*at++];
        } else {
            if (*at < 0x20) break;
            *to++ = *at++;
        }
    }
    out->size = (size_t)(to - out->data);
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
        at = add_plain(out, at, end);
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
    json_add_text(out, bytes_of_text(string), true, &(JsonCarry){.size = 0});
    buffer_add(out, "\"", 1);
}

void json_add_key(Buffer *out, const char *key) {
    const uint8_t before = out->size ? out->data[out->size - 1] : '\n';
    buffer_print(out, "%s\"%s\":", before == '{' ? "" : strchr("\n:[,", before) ? "{" : ",", key);
}

void json_add_field(Buffer *out, const char *key, const char *value) {
    json_add_key(out, key);
    json_add_string(out, value);
}

void json_add_number(Buffer *out, const char *key, uint64_t value) {
    json_add_key(out, key);
    buffer_print(out, "%" PRIu64, value);
}

void json_add_real(Buffer *out, const char *key, double value, int decimals) {
    json_add_key(out, key);
    buffer_print(out, "%.*f", decimals, value);
}

void json_add_bool(Buffer *out, const char *key, bool value) {
    json_add_key(out, key);
    buffer_print(out, value ? "true" : "false");
}

void json_add_hex(Buffer *out, const char *key, const void *data, size_t size) {
    char hex[2 * 64 + 1];
    hex_encode(hex, data, size);
    json_add_field(out, key, hex);
}
