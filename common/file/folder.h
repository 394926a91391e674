// A directory of files that appears under its name only when it is complete and on disk: its files are written in a
// directory beside it, .NAME.tmp.PID, which is then renamed.
#pragma once

#include "common/file/file.h"
#include <stdbool.h>

typedef struct {
    char path[PATH_MAX_BYTES], temp[PATH_MAX_BYTES]; // files are written in `temp`
    bool exists;
    size_t existing; // dir_existing of its parent
} NewFolder;

// Creates the parents too, and removes the temporary folders that killed processes left beside `path`. 73 when `path`
// is a file, or a directory that is not empty. With `force` it may hold files that match `pattern` (fnmatch, with
// alternatives), which newfolder_commit removes; NULL: the command has no --force.
int newfolder_open(NewFolder *folder, const char *path, bool force, const char *pattern);
int newfolder_commit(NewFolder *folder);
// Removes the unfinished directory, and parents that are new. Accepts a zeroed struct.
void newfolder_abandon(NewFolder *folder);
