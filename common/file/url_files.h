// Files named by URLs, for the libraries that read mapped files. A program that reads URLs sets the functions (remote/url_map.h
// has them); in others, a URL is a path as any other.
#pragma once

#include "common/bytes.h"

typedef struct {
    bool (*is_url)(const char *path);
    // Opens a file as mapped memory of its size, whose bytes are not there yet. NULL after fail().
    void *(*open)(const char *url, Bytes *map);
    // Brings bytes into the memory, which stay until they are released. -1 after fail(). Thread-safe, as `release`.
    int (*hold)(void *file, uint64_t offset, uint64_t size);
    void (*release)(void *file, uint64_t offset, uint64_t size);
    void (*forget)(void *file, uint64_t offset,
                   uint64_t size); // damaged bytes: the next hold requests them again
    void (*close)(void *file, bool unmap);
} UrlFiles;

extern const UrlFiles *url_files; // NULL: none

static inline bool path_is_url(const char *path) { return url_files && url_files->is_url(path); }
