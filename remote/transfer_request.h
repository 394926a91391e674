// One request of a transfer: which URL may be requested, with which credentials, and whether a response is the right
// one.
#pragma once

#include "remote/transfer.h"

enum { DROPPED_BYTES_MAX = 1 << 20 }; // of the body of a redirect or an error; more ends the request

// 2 when the URL may not be requested: not https, or with a password in it.
int remote_check_url(const Remote *remote, const char *url, const char *name);
bool remote_url_is_allowed(const Remote *remote, const char *url);
bool remote_same_origin(const Remote *remote, const char *a, const char *b); // scheme, host and port
const char *remote_variable(const char *name); // of the environment; NULL when it is empty
// A part of a URL, or "".
void remote_url_part(const CurlLibrary *curl, const char *url, CURLUPart part, char text[static FIELD_BYTES]);

// Requests the rest of the range, at transfer->at or, without it, at the object's URL.
void transfer_launch(Transfer *transfer);
bool transfer_has_range(const Transfer *transfer); // all its bytes, of a response that continues after them
// Checks that the response is a file or a listing, not a web page, and not compressed.
int transfer_check_kind(Transfer *transfer);
// The same, and that the response has the range that was requested, before the first byte of it is kept.
int transfer_check(Transfer *transfer);
// The fields that a hub sends with a file, or with the redirect to the host that has it.
int transfer_check_hub(Transfer *transfer);
uint64_t transfer_offset(const Transfer *transfer); // the next byte
// fail() with the name of the object and the offset; returns -1.
int transfer_refuse(const Transfer *transfer, int code, const char *format, ...) PRINTF_LIKE(3, 4);
