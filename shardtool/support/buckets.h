// Sorts records by a 64-bit key with bounded memory: each record goes to an unlinked temporary file, the bucket of the
// high bits of its key; then the buckets are mapped and sorted one after the other.
#pragma once

#include "common/bytes.h"

typedef struct Buckets Buckets;

// About 64 MiB a bucket when `bytes` of records follow, 256 buckets at most; up to 16 bytes of memory a record of one
// bucket. The files are in `folder`, NULL: $TMPDIR or /tmp. NULL after fail().
Buckets *buckets_open(const char *folder, uint64_t bytes);
void buckets_close(Buckets *buckets); // accepts NULL

// Begins a record. Its bytes follow in any number of parts.
int buckets_begin(Buckets *buckets, uint64_t key, uint64_t size);
int buckets_add(Buckets *buckets, const void *data, size_t size);

// Calls `visit` with each record in ascending order of keys, equal keys in the order of buckets_begin. Stops at a
// status other than 0 and returns it.
int buckets_visit(Buckets *buckets, int (*visit)(void *context, uint64_t key, Bytes record), void *context);
