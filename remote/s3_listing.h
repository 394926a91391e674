// A page of ListObjectsV2: XML of a foreign server. The parser is ours because libxml2 would be a dependency for six
// elements, and no part of XML that makes parsers dangerous is in them: DOCTYPE, entities of its own, CDATA and nesting
// beyond a few levels are refused.
#pragma once

#include "common/bytes.h"

typedef struct {
    const char *key, *etag; // etag with its quotes; NUL-terminated, of S3Listing.text
    uint64_t size;
} S3Object;

typedef struct {
    S3Object *objects;
    size_t count;
    char *next; // the continuation token; NULL: this is the last page
    char *text; // owns the strings
} S3Listing;

// 65 when it is not a listing, or malformed. Call s3_listing_close in either case.
int s3_listing_parse(S3Listing *listing, Bytes xml);
void s3_listing_close(S3Listing *listing);
