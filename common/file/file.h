// Files: read-only maps, whole reads and writes, durable creation, locks. Functions return 0, or -1 after fail() with
// the file's name. Writing uses write(2) only, so that short writes and a full disk are noticed.
#pragma once

#include "common/bytes.h"
#include <stdbool.h>
#include <sys/types.h>

enum { PATH_MAX_BYTES = 4096 };

int file_open(const char *path); // open(2) for reading; -1 with errno

// open(2) of a regular file. Anything else is refused, and a FIFO does not wait for its other end.
int file_open_regular(const char *path, int flags);

struct stat;
uint64_t file_modified_ns(const struct stat *st); // when the file was modified last, since 1970

// Whether there is a file of that name. False after fail() for a URL that cannot be requested.
bool file_exists(const char *path);
int file_find(const char *path); // the same for what must not be missed: 1, 0, or -1 when that cannot be known now

// Maps a regular file for reading; an empty file gives {NULL, 0}. The file must not be truncated while it is mapped.
// The map is private, because FUSE with direct I/O refuses shared ones. On a file system without any maps the whole
// file is read into memory, however large it is.
int file_map(Bytes *map, const char *path);
int fd_map(Bytes *map, int fd, const char *what); // the same for an open file
void file_unmap(Bytes *map);                      // accepts a zeroed map

// Appends the whole of a regular file to `out`. A file of more than `limit` bytes is refused (65).
int file_read(Buffer *out, const char *path, size_t limit);
int file_read_stream(Buffer *out, const char *path, size_t limit); // the same, also of a pipe that the user names
int fd_read_all(int fd, Buffer *out, size_t limit, const char *what);

// Reads until `size` bytes or the end, and returns the number of bytes read, or -1. `what` names the stream in errors.
ssize_t fd_read(int fd, void *data, size_t size, const char *what);
ssize_t fd_read_at(int fd, uint64_t offset, void *data, size_t size, const char *what); // the same, at any offset
int fd_write(int fd, const void *data, size_t size, const char *what);                  // writes all of it

// Sets the path to FOLDER/NAME, with the name printed, and returns it. Ends the program (73) when the path is too long.
const char *path_join(char path[PATH_MAX_BYTES], const char *folder, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

// Splits a path into its directory ("." if it has no slash) and its last part, which is returned.
const char *path_split(const char *path, char directory[PATH_MAX_BYTES]);

bool path_ends(const char *path, const char *extension); // with something before it

// Path of the running program (`name` NULL), or of the file `name` in its folder.
int program_path(char path[PATH_MAX_BYTES], const char *name);
// Path of millrace's program NAME in the same folder: millrace-NAME, as it is installed, or else NAME, as it is
// built. -1 (66) when it is missing.
int program_find(char path[PATH_MAX_BYTES], const char *name);

// Creates .NAME.tmp.PID beside `path`, which must be new: a directory, or a file of which it returns the descriptor. -1
// with errno.
int temp_create(char temp[PATH_MAX_BYTES], const char *path, bool directory);

// A file that appears under its name only when it is complete and on disk: it is written beside it as .NAME.tmp.PID,
// then renamed. Zero it before use; newfile_abandon accepts it in every state.
typedef struct {
    int fd;      // of the temporary file, for pwrite(2)
    int cleanup; // the number of the temporary file in the list of common/file/cleanup.h
    uint64_t written;
    char path[PATH_MAX_BYTES], temp[PATH_MAX_BYTES];
} NewFile;

int newfile_open(NewFile *file, const char *path);
int newfile_write(NewFile *file, const void *data, size_t size);
int newfile_commit(NewFile *file);   // fsync, close, rename, fsync of the directory; -1 removes the temporary file
void newfile_abandon(NewFile *file); // closes and removes the temporary file, if there is one

// A NewFile in one call. Removes the temporary files of this name that killed processes have left.
int file_write(const char *path, Bytes bytes);

// The same for a name that a user gave: -1 (73) if there is a file and its first bytes, at most `start`, differ from
// `bytes`.
int file_write_over(const char *path, Bytes bytes, size_t start);

// The same as file_write, but the new file is a hard link to `other` if that file has these bytes and the file system
// has links.
int file_share(const char *path, const char *other, Bytes bytes);

int dir_make(const char *path); // creates the directory and its parents; an existing directory is fine
// The length of the longest beginning of `path` that exists, before dir_make.
size_t dir_existing(const char *path);
void dir_unmake(const char *path, size_t existing); // removes what lies behind that, as far as it is empty
int dir_sync(const char *path);                     // fsync of the directory itself
void dir_remove(const char *path);                  // with all that it holds; ignores errors

// Removes the entries .NAME.tmp.PID (files and directories) of processes that no longer exist; NULL: of any name. Not
// recursive; ignores errors.
void dir_sweep(const char *path, const char *name);

// An exclusive lock on the directory `path` (by flock on the file .lock in it), held until lock_drop or until the
// process ends. -1 (73, with the holder's pid) when another process holds it.
typedef struct {
    int fd; // -1 or 0: not held
} Lock;
int lock_take(Lock *lock, const char *path, const char *other); // the error advises to choose `other` instead
void lock_drop(Lock *lock);                                     // accepts a lock that is not held
// -1 (73) when another process has its lock in `path`: the directory was moved or removed under this one, and a new one
// was made.
int lock_check(const Lock *lock, const char *path);
