// What a folder's file system can do, tried there at the start of a run: small files are created, flushed, renamed,
// mapped, read, linked and locked in a temporary folder, which is removed.
#pragma once

#include "common/bytes.h"

// What the caller goes without; maps and renamed folders are always tried.
enum { PROBE_LINKS = 1, PROBE_LOCKS = 2 };

// -1 after fail() when something fails that every run needs. Appends to `lacks` a text, or nothing: what the folder
// lacks, why, and what is done instead. A full disk is not an error: callers check the free space.
int folder_probe(const char *folder, int parts, Buffer *lacks);
int folder_check(const char *folder, int parts); // the same, with a warning of what it lacks
