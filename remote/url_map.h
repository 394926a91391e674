// Files by URL as mapped memory: ranges are written to a sparse file when they are first held, and the file is mapped.
//
// Without a cache, the file is an unlinked one in $TMPDIR and lasts until it is closed. With one, it is DIR/HASH.part, of the hash of its URL and
// validator, and stays for a later process; beyond the size of the cache, and where its disk is full, the ranges that were not used for longest
// are removed from the files (a clock over all of them), but none that is held. Which ranges a file has is what the
// file system says (SEEK_DATA), so a kill leaves nothing to repair: a range that was written in part is requested again, and readers
// check what they read by checksums and call `forget`.
#pragma once

#include "remote/remote_scheme.h"

typedef struct {
    const RemoteOptions *remote;
    // Of a server, which waits for a server of files as long as it takes, and opens URLs with a cache alone:
    bool is_server;
    const char *cache;    // a folder; NULL: none
    uint64_t cache_bytes; // 0: half of what its disk has free
} UrlMapOptions;

// Sets url_files. The options are read when the first URL is opened.
void url_map_enable(const UrlMapOptions *options);
// Creates the folder of the cache and takes its lock. -1 after fail() (73).
int url_map_open_cache(void);
void url_map_sweep_cache(void); // removes files of the cache that are not open: of URLs that are no longer served
// What waits for a server fails (75), and closing a file leaves it in the cache. Thread-safe.
void url_map_stop(void);
