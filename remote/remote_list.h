// From the URLs among the arguments of a command to the files that they name.
#pragma once

#include "remote/remote_scheme.h"

typedef struct {
    RemoteArgument *arguments; // with their entries in byte order of the names
    size_t count;
} RemoteList;

// Requests the listings of `count` URLs, or of a file its first byte, from which its size and validator follow. A name
// that is not a file is listed as a folder if the scheme has folders. -1 after fail(): one cannot be read.
int remote_list_open(RemoteList *list, Remote *remote, const char *const *urls, size_t count);
void remote_list_close(RemoteList *list); // accepts a zeroed struct
// Refuses (65) Parquet files of a table with a log (common/file/table_log.h): one among the files that were listed or,
// of s3://, in a folder around the argument, which takes a request for each. -1 after fail().
int remote_table_refuse(Remote *remote, const RemoteArgument *argument);
