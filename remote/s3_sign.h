// Signature version 4 of AWS for requests without a body. It is ours and not libcurl's, whose releases differ: before
// 7.88 without x-amz-content-sha256, which S3 requires, and before 8.3 without the order of the query.
//
// The canonical request has the header fields host, x-amz-content-sha256, x-amz-date and, with a session,
// x-amz-security-token.
#pragma once

#include "common/bytes.h"
#include <time.h>

typedef struct {
    const char *key, *secret, *session; // session NULL: none
    const char *region;
} S3Keys;

#define S3_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // of a body of no bytes

typedef struct {
    char date[17]; // x-amz-date: 20130524T000000Z
    char host[256];
    Buffer authorization; // with a NUL
} S3Signature;

// Signs GET of `url`, whose path is escaped and whose query is escaped and in order. False when its host is too long.
bool s3_sign(S3Signature *signature, const S3Keys *keys, const char *url, time_t now);
void s3_signature_close(S3Signature *signature);
