// JSON going out.
#include "common/json_write.h"
#include "common/hash.h"

// The length of the UTF-8 character at p, 0 when `size` bytes are too few to tell, or minus the length of the maximal
// subpart that is no character (Unicode, table 3-7).
static int utf8_length(const uint8_t *p, size_t size) {
    uint8_t low = 0x80, high = 0xBF;
    int want;
    if (*p < 0x80) return 1;
    if (*p >= 0xC2 && *p <= 0xDF)
        want = 2;
    else if ((*p & 0xF0) == 0xE0)
        want = 3;
    else if (*p >= 0xF0 && *p <= 0xF4)
        want = 4;
    else
        return -1;
    if (*p == 0xE0) low = 0xA0;
    if (*p == 0xED) high = 0x9F;
    if (*p == 0xF0) low = 0x90;
    if (*p == 0xF4) high = 0x8F;
    for (int i = 1; i < want; i++, low = 0x80, high = 0xBF) {
        if ((size_t)i == size) return 0;
        if (p[i] < low || p[i] > high) return -i;
    }
    return want;
}

static void add_character(Buffer *out, const uint8_t *p, int length) {
    static const char short_names[] = "btn\0fr"; // \b to \r
    if (length < 0)
        buffer_add(out, "\xEF\xBF\xBD", 3);
    else if (*p == '"' || *p == '\\')
        buffer_print(out, "\\%c", *p);
    else if (*p >= '\b' && *p <= '\r' && short_names[*p - '\b'])
        buffer_print(out, "\\%c", short_names[*p - '\b']);
    else if (*p < 0x20)
        buffer_print(out, "\\u%04x", *p);
    else
        buffer_add(out, p, (size_t)length);
}

static bool is_plain(uint8_t byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; }

void json_add_text(Buffer *out, Bytes text, bool last, JsonCarry *carry) {
    const uint8_t *at = text.data, *end = at + text.size;
    while (carry->size) { // a character begun in the text before: finish it byte by byte
        int length = utf8_length(carry->bytes, carry->size);
        if (length == 0 && at < end) {
            carry->bytes[carry->size++] = *at++;
            continue;
        }
        if (length == 0 && !last) return;
        if (length == 0) length = -(int)carry->size;
        add_character(out, carry->bytes, length);
        size_t used = (size_t)(length < 0 ? -length : length);
        carry->size -= used;
        memmove(carry->bytes, carry->bytes + used, carry->size);
    }
    while (at < end) {
        const uint8_t *run = at;
        while (at < end && is_plain(*at)) at++;
        buffer_add(out, run, (size_t)(at - run));
        if (at == end) break;
        int length = utf8_length(at, (size_t)(end - at));
        if (length == 0 && !last) {
            carry->size = (size_t)(end - at);
            memcpy(carry->bytes, at, carry->size);
            return;
        }
        if (length == 0) length = -(int)(end - at);
        add_character(out, at, length);
        at += length < 0 ? -length : length;
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
