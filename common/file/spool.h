// Temporary files for readers that need random access; standard input as one.
#pragma once

#include "common/bytes.h"

// Creates a temporary file without a name, which its last close removes, for a copy of `what`. `folder` NULL: $TMPDIR,
// or /tmp.
int spool_create(const char *folder, const char *what);

// Makes descriptor 0 a regular file at offset 0, which /dev/stdin opens again. `head` holds the bytes that were already
// read from it. A pipe is copied to a temporary file; a regular file is kept.
// Thread-safe, but nothing else may read from descriptor 0 meanwhile.
int stdin_spool(Bytes head);

// file_map, where "-" is standard input.
int input_map(Bytes *map, const char *path);
