// Each scheme makes its URLs and sets its credentials.
#include "shardtool/remote/remote_entry.h"
#include <stdio.h>
#include <strings.h>

typedef int MakeObject(Remote *remote, const RemoteEntry *entry, RemoteObject *object);

static int make_https(Remote *remote, const RemoteEntry *entry, RemoteObject *object) {
    Buffer url = {0};
    buffer_print(&url, "%s%s", entry->name, entry->query);
    buffer_add(&url, "", 1);
    object->url = (char *)url.data;
    return remote_check_url(remote, object->url, entry->name);
}

static const struct {
    const char *scheme;
    MakeObject *make;
} schemes[] = {
    {"https://", make_https},
    {"http://", make_https},
};
enum { SCHEMES = sizeof schemes / sizeof *schemes };

static int find_scheme(const char *text) {
    for (int i = 0; i < SCHEMES; i++)
        if (!strncmp(text, schemes[i].scheme, strlen(schemes[i].scheme))) return i;
    return -1;
}

bool remote_is_url(const char *argument) { return find_scheme(argument) >= 0; }

int remote_entry_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object) {
    *object = (RemoteObject){.name = entry->name, .has_size = true, .size = entry->size};
    if (strncmp(entry->validator, ENTRY_SHA256, sizeof ENTRY_SHA256 - 1) != 0)
        snprintf(object->validator, sizeof object->validator, "%s", entry->validator);
    return schemes[find_scheme(entry->name)].make(remote, entry, object);
}
