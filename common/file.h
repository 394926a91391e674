// Files: read-only maps, whole reads and writes, durable creation (temp, fsync, rename, fsync the directory), locks.
// Only write(2) and pwrite(2): short writes show, and a fault injector sees every one.
#pragma once

#include "common/bytes.h"
#include <sys/types.h>

enum { PATH_MAX_BYTES = 4096 };

int file_map(Bytes *map, const char *path); // an empty file maps to {NULL, 0}
void file_unmap(Bytes *map);                // accepts a zeroed map

// The whole file or stream, at most `limit` bytes (65 beyond). Appends to `out`.
int file_read(Buffer *out, const char *path, size_t limit);

// read(2) until `size` bytes or the end: returns the bytes read, or -1. `what` names the stream in errors.
ssize_t fd_read(int fd, void *data, size_t size, const char *what);
int fd_write(int fd, const void *data, size_t size, const char *what);

// A file that appears under its name only when it is complete and on disk.
typedef struct {
    int fd; // the temp file, open for write(2) and pwrite(2)
    uint64_t written;
    char path[PATH_MAX_BYTES], temp[PATH_MAX_BYTES];
} NewFile;

int newfile_open(NewFile *file, const char *path); // the temp is .NAME.tmp.PID beside it
int newfile_write(NewFile *file, const void *data, size_t size);
int newfile_commit(NewFile *file);   // fsync, close, rename over path, fsync the directory; on failure the temp is gone
void newfile_abandon(NewFile *file); // removes the temp; accepts a zeroed or committed one

int dir_make(const char *path);   // with its parents; an existing directory is fine
int dir_sync(const char *path);   // fsync of the directory itself
void dir_sweep(const char *path); // removes .*.tmp.PID (files and directories) left by dead processes, not recursive

// An exclusive lock on directory `path` (file .lock inside), held until lock_drop or death. Held by another: 73,
// with its pid.
typedef struct {
    int fd; // -1 or 0 = none
} Lock;
int lock_take(Lock *lock, const char *path);
void lock_drop(Lock *lock);
