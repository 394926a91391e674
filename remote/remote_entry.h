// The entries of a listing: enough to read the files later, and to find that they have changed.
#pragma once

#include "remote/transfer.h"

#define ENTRY_SHA256   "sha256:"   // begins the validator of an entry whose content has this hash, in hex
#define ENTRY_IN_ORDER "in order:" // begins the validator of a file at a server without ranges

typedef struct {
    const char *name;  // printed and kept in manifests: the URL without its query, which may hold a signature
    const char *query; // "?...", or ""
    // The ETag, else Last-Modified, else ""; with the hash of a hub instead, or ENTRY_IN_ORDER before it.
    const char *validator;
    uint64_t size;
} RemoteEntry;

// The files that one argument names.
typedef struct {
    const char *name;     // of the argument, as RemoteEntry.name
    size_t folder_length; // the first bytes of all names, as of a folder; 0: it names one file
    RemoteEntry *entries;
    size_t count;
    const char *log; // a file of a table's log that the pattern leaves out, or NULL
} RemoteArgument;

void argument_set_name(RemoteArgument *argument, const char *name, size_t length);
// Adds a file; copies the strings. 65 when its name is too long, 71 beyond ten million files.
int argument_add(RemoteArgument *argument, const char *name, const char *query, const char *validator, uint64_t size);
void argument_sort(RemoteArgument *argument);  // in byte order of the names
void argument_close(RemoteArgument *argument); // accepts a zeroed struct

// Appends text to a URL, with %XX for characters that a path may not hold; with `slash`, also for '/', as in a query.
void url_add_escaped(Buffer *url, const char *text, bool slash);
// Requests a whole document, as a listing, of an object and closes that. The bytes are appended to `document`, and the
// header is kept in `response`. -1 after fail().
int remote_request(Remote *remote, RemoteObject *object, Buffer *document, Response *response);
