// The schemes of URLs, as a table.
#pragma once

#include "remote/remote_entry.h"

typedef struct {
    const char *prefix;
    bool has_query; // the text after a '?' is the query and may hold a signature
    // The object of an entry. -1 after fail().
    int (*make)(Remote *remote, const RemoteEntry *entry, RemoteObject *object);
    // Lists a folder; `wanted` names it. NULL: the scheme has no folders.
    int (*list)(Remote *remote, const char *wanted, RemoteArgument *argument);
    // Whether the argument is known not to be a file, so that none is requested.
    bool (*is_folder)(const char *wanted);
    // The name of a file once the first response for it is known; NULL: as it was named.
    int (*pin)(Buffer *name, const char *wanted, const RemoteObject *object);
} RemoteScheme;

const RemoteScheme *remote_scheme(const char *name); // NULL: of no scheme that is read
bool remote_is_url(const char *argument);
// The object of an entry: its URL, credentials, size and validator. -1 after fail().
int remote_entry_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object);
