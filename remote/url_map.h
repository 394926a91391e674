// Files by URL as mapped memory: ranges are written to a sparse file when they are first held, and the file is mapped.
//
// Without a cache, the file is an unlinked one in $TMPDIR and lasts until it is closed. With one, it is DIR/HASH.part,
// of the hash of its URL and validator, and stays for a later process; beyond the size of the cache, and if its disk is
// full, the ranges that were not used for longest are removed from the files (a clock over all of them), but no range
// that is held. The file system tells which ranges a file has (SEEK_DATA), so a kill leaves nothing to repair: a range
// that was written in part is requested again, and readers compare checksums of the bytes and call url_map_forget.
#pragma once

#include "common/bytes.h"
#include "remote/remote_scheme.h"

typedef struct {
    const RemoteOptions *remote;
    // Set by a loader: it waits for a server of files without limit, and opens URLs only with a cache.
    bool is_server;
    const char *cache;    // a folder; NULL: none
    uint64_t cache_bytes; // 0: half of the free space of its disk
} UrlMapOptions;

// From here on the program takes URLs. The options are read when the first one is opened.
void url_map_enable(const UrlMapOptions *options);
bool url_map_takes(const char *path); // whether it is a URL; false before url_map_enable

// Opens a file as mapped memory of its size, whose bytes are not there yet. NULL after fail().
typedef struct UrlFile UrlFile;
UrlFile *url_map_open(const char *url, Bytes *map);
void url_map_close(UrlFile *file, bool unmap);
// Brings bytes into the memory, which stay until they are released. -1 after fail(). Thread-safe, as url_map_release.
int url_map_hold(UrlFile *file, uint64_t offset, uint64_t size);
void url_map_release(UrlFile *file, uint64_t offset, uint64_t size);
void url_map_forget(UrlFile *file, uint64_t offset, uint64_t size); // damaged bytes: the next hold requests them again

// Whole files, by URL or by path, as file_exists, input_map and file_read.
bool url_map_file_exists(const char *path);
int url_map_file(Bytes *map, const char *path);
int url_map_read(Buffer *out, const char *path, size_t limit);

// Creates the folder of the cache and takes its lock. -1 after fail() (73).
int url_map_open_cache(void);
void url_map_sweep_cache(void); // removes files of the cache that are not open: of URLs that are no longer served
// Requests that wait for a server fail (75), and closing a file leaves it in the cache. Thread-safe.
void url_map_stop(void);
