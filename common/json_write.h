// JSON going out: strings that are valid whatever bytes they are made of.
#pragma once

#include "common/bytes.h"

// Appends text with the escapes of a JSON string, without the quotes. Bytes that are not UTF-8 become U+FFFD, one per
// maximal subpart. A character cut at the end of `text` waits in `carry` (zeroed at first) for the next call, unless
// `last` says that there is none.
typedef struct {
    uint8_t bytes[4];
    size_t size;
} JsonCarry;
void json_add_text(Buffer *out, Bytes text, bool last, JsonCarry *carry);

void json_add_string(Buffer *out, const char *string);                          // with the quotes
void json_add_hex(Buffer *out, const char *key, const void *data, size_t size); // ,"key":"00ff"
