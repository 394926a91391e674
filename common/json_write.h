// Writing JSON: strings that are valid JSON whatever bytes they are made of.
#pragma once

#include "common/bytes.h"

// Appends text with the escapes of a JSON string, without the quotes. Bytes that are not UTF-8 become U+FFFD, one per
// maximal subpart. The first bytes of a character that `text` cuts stay in `carry` (zeroed before the first call) for
// the next call; `last` means that there is no next call.
typedef struct {
    uint8_t bytes[4];
    size_t size;
    uint64_t replaced; // U+FFFD written so far
} JsonCarry;
void json_add_text(Buffer *out, Bytes text, bool last, JsonCarry *carry);

void json_add_string(Buffer *out, const char *string); // with the quotes

// Appends "key": after a comma, or after the brace that begins an object: at the start of a line, as a value (after a
// colon) and as an element (after a bracket or a comma). The caller ends the object. Keys need no escapes.
void json_add_key(Buffer *out, const char *key);
void json_add_field(Buffer *out, const char *key, const char *value);
void json_add_number(Buffer *out, const char *key, uint64_t value);
void json_add_real(Buffer *out, const char *key, double value, int decimals);
void json_add_bool(Buffer *out, const char *key, bool value);
void json_add_hex(Buffer *out, const char *key, const void *data, size_t size); // "key":"00ff"
