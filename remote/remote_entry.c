// Entries of listings, as texts and back.
#include "remote/remote_entry.h"
#include "common/file/file.h"
#include <stdlib.h>

enum { ENTRIES_MAX = 10000000 };

static void release(const char *text) { free((char *)(uintptr_t)text); }

void argument_set_name(RemoteArgument *argument, const char *name, size_t length) {
    const char *copy = allocate_text(name, length); // before the release: `name` may be argument->name
    release(argument->name);
    argument->name = copy;
}

int argument_add(RemoteArgument *argument, const char *name, const char *query, const char *validator, uint64_t size) {
    if (strlen(name) >= PATH_MAX_BYTES - 1) return fail(EX_DATA, "the URL '%.60s...' is too long", name);
    if (argument->count == ENTRIES_MAX)
        return fail(EX_LIMIT, "'%s' has more than %d files", argument->name, ENTRIES_MAX);
    argument->entries = array_grow(argument->entries, argument->count, sizeof *argument->entries);
    argument->entries[argument->count++] =
        (RemoteEntry){allocate_text(name, strlen(name)), allocate_text(query, strlen(query)),
                      allocate_text(validator, strlen(validator)), size};
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const RemoteEntry *)a)->name, ((const RemoteEntry *)b)->name);
}

void argument_sort(RemoteArgument *argument) {
    if (argument->count) qsort(argument->entries, argument->count, sizeof *argument->entries, by_name);
}

void argument_close(RemoteArgument *argument) {
    for (size_t i = 0; i < argument->count; i++) {
        const RemoteEntry *entry = &argument->entries[i];
        release(entry->name), release(entry->query), release(entry->validator);
    }
    free(argument->entries);
    release(argument->name), release(argument->log);
    *argument = (RemoteArgument){0};
}

void url_add_escaped(Buffer *url, const char *text, bool slash) {
    for (; *text; text++) {
        const char byte = *text;
        const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                           (byte >= '0' && byte <= '9') || strchr("-._~", byte) || (byte == '/' && !slash);
        if (plain)
            buffer_add(url, text, 1);
        else
            buffer_print(url, "%%%02X", (unsigned char)byte);
    }
}

int remote_request(Remote *remote, RemoteObject *object, Buffer *document, Response *response) {
    Transfer transfer = {.object = object};
    transfer_start(remote, &transfer);
    const int status = transfer_wait(&transfer);
    *response = transfer.response;
    if (status == 0 && transfer.document.size) buffer_add(document, transfer.document.data, transfer.document.size);
    transfer_stop(&transfer);
    object_close(object);
    return status;
}
