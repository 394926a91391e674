// Pages in HTML: one file, no script, no link out; light and dark, on a phone and printed.
#pragma once

#include "common/bytes.h"

void html_begin(Buffer *out, const char *title);
void html_text(Buffer *out, const void *text, size_t size); // escaped
void html_string(Buffer *out, const char *text);            // escaped
