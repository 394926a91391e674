// Each scheme makes its URLs, sets its credentials and lists its folders.
#include "remote/remote_scheme.h"
#include "remote/hub.h"
#include "remote/s3.h"
#include "remote/transfer_request.h"
#include <stdio.h>

static int make_https(Remote *remote, const RemoteEntry *entry, RemoteObject *object) {
    Buffer url = {0};
    buffer_print(&url, "%s%s", entry->name, entry->query);
    buffer_add(&url, "", 1);
    object->url = (char *)url.data;
    return remote_check_url(remote, object->url, entry->name);
}

static const RemoteScheme schemes[] = {
    {.prefix = "https://", .has_query = true, .make = make_https},
    {.prefix = "http://", .has_query = true, .make = make_https},
    {.prefix = S3_PREFIX, .make = s3_make_object, .list = s3_list, .is_folder = s3_is_folder},
    {.prefix = HUB_PREFIX, .make = hub_make_object, .list = hub_list, .is_folder = hub_is_folder, .pin = hub_pin},
};

const RemoteScheme *remote_scheme(const char *name) {
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (!strncmp(name, schemes[i].prefix, strlen(schemes[i].prefix))) return &schemes[i];
    return NULL;
}

bool remote_is_url(const char *argument) { return remote_scheme(argument); }

int remote_entry_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object) {
    *object = (RemoteObject){.name = entry->name, .has_size = true, .size = entry->size};
    object->in_order = !strncmp(entry->validator, ENTRY_IN_ORDER, sizeof ENTRY_IN_ORDER - 1);
    if (strncmp(entry->validator, ENTRY_SHA256, sizeof ENTRY_SHA256 - 1) != 0)
        snprintf(object->validator, sizeof object->validator, "%s",
                 entry->validator + (object->in_order ? sizeof ENTRY_IN_ORDER - 1 : 0));
    else
        snprintf(object->linked, sizeof object->linked, "\"%.200s\"", entry->validator + sizeof ENTRY_SHA256 - 1);
    return remote_scheme(entry->name)->make(remote, entry, object);
}
