// A file that is read by ranges over HTTPS, or in order from a server without ranges. Its size and ETag (else
// Last-Modified) come from the listing, and each response is compared with them; a hash that the listing has is
// compared when every byte was read.
//
// Blocks of 2 MiB are kept, at most eight with those that are read ahead of a reader that advances, so a file takes
// 16 MiB of memory however large it is.
#pragma once

#include "remote/remote_scheme.h"
#include <sys/types.h>

typedef struct RemoteFile RemoteFile;
RemoteFile *remote_file_open(Remote *remote, const RemoteEntry *entry); // requests nothing yet; NULL after fail()
// Requests the first bytes, and finds whether the server has no ranges, so that each read has to continue at the end of
// the one before. -1 after fail().
int remote_file_find_order(RemoteFile *file, bool *in_order);
// Requests the first bytes of a file that is read later; returns their number, at most 2 MiB.
size_t remote_file_begin(RemoteFile *file);
// Fewer than `size` bytes only at the end; -1 after fail().
ssize_t remote_file_read_at(RemoteFile *file, uint64_t offset, void *data, size_t size);
bool remote_file_has_failed(const RemoteFile *file); // a transfer, so that the error is not one of the content
int remote_file_check(RemoteFile *file);             // 65 when every byte was read, and the hash is another
void remote_file_close(RemoteFile *file);            // accepts NULL
