// What a listing says of a file: enough to read it later, and to find that it has changed.
#pragma once

#include "shardtool/remote/transfer.h"

#define ENTRY_SHA256 "sha256:" // begins the validator of an entry whose content has this hash, in hex

typedef struct {
    const char *name;  // what is printed and kept in manifests: the URL without its query, which may hold a signature
    const char *query; // "?...", or ""
    const char *validator; // the ETag, else Last-Modified, else ""; of a hub, ENTRY_SHA256 and the hash
    uint64_t size;
} RemoteEntry;

bool remote_is_url(const char *argument); // of a scheme that is read, in the case of https:// and http://
// The object of an entry: its URL, credentials, size and validator. -1 after fail().
int remote_entry_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object);
