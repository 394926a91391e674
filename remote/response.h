// The header fields of a response that are used: bytes of a foreign server, each checked before it is kept.
#pragma once

#include "common/bytes.h"

enum { FIELD_BYTES = 256, LINK_BYTES = 4096 };

typedef struct {
    unsigned status;
    bool malformed;                                     // a field below does not parse, or is too long
    bool has_range, has_total;                          // Content-Range: bytes first-end/total, with `end` exclusive
    uint64_t first, end, total;                         // with total alone: Content-Range: bytes */total
    uint64_t retry_after_s;                             // 0: none
    uint64_t limit_s;                                   // of RateLimit, until requests are left; 0: there are some
    uint64_t linked_size;                               // X-Linked-Size of a hub; 0: none
    char etag[FIELD_BYTES], modified[FIELD_BYTES];      // ETag, Last-Modified; "": none
    char type[FIELD_BYTES], encoding[FIELD_BYTES];      // Content-Type, Content-Encoding
    char linked_etag[FIELD_BYTES], commit[FIELD_BYTES]; // X-Linked-Etag, X-Repo-Commit of a hub
    char region[FIELD_BYTES];                           // x-amz-bucket-region
    char next[LINK_BYTES];                              // the URL of Link: <URL>; rel="next"
} Response;

// Adds a line of the header, with or without its line end. A status line begins a new response.
void response_add_line(Response *response, Bytes line);
// Identifies the content: the ETag, else Last-Modified, else "".
const char *response_validator(const Response *response);
bool response_is_html(const Response *response);
