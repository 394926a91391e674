// From the URLs among the arguments of a command to the files that they name.
#pragma once

#include "shardtool/remote/remote_entry.h"

typedef struct {
    const char *name;     // of the argument, as RemoteEntry.name
    size_t folder_length; // the first bytes of all names, as of a folder; 0: it names one file
    RemoteEntry *entries; // in byte order of their names
    size_t count;
} RemoteArgument;

typedef struct {
    RemoteArgument *arguments;
    size_t count;
} RemoteList;

// Requests the listings of `count` URLs, or of a file its first byte, from which its size and validator follow. -1 after
// fail(): one cannot be read.
int remote_list_open(RemoteList *list, Remote *remote, const char *const *urls, size_t count);
void remote_list_close(RemoteList *list); // accepts a zeroed struct
