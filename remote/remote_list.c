// Lists the files of arguments; the first bytes of files are requested side by side.
#include "remote/remote_list.h"
#include "common/file/file.h"
#include <stdlib.h>

enum { LOOKS = 16 }; // side by side

// A file of which nothing is known yet.
typedef struct {
    RemoteArgument *argument;
    const char *url;
    RemoteObject object;
    Transfer transfer;
    uint8_t bytes[2];
} Look;

static int begin_look(Look *look, Remote *remote, RemoteArgument *argument, const char *url) {
    const RemoteScheme *scheme = remote_scheme(url);
    const size_t length = scheme->has_query ? strcspn(url, "?#") : strlen(url);
    argument_set_name(argument, url, length);
    *look = (Look){.argument = argument, .url = url};
    if (length >= PATH_MAX_BYTES - 1) return fail(EX_USAGE, "the URL '%.60s...' is too long", url);
    if (scheme->is_folder && scheme->is_folder(url)) return 0; // listed in its turn
    const RemoteEntry entry = {argument->name, url + length, "", 0};
    if (remote_entry_object(remote, &entry, &look->object) < 0) return -1;
    look->object.has_size = false;
    look->transfer = (Transfer){.object = &look->object, .end = sizeof look->bytes, .to = look->bytes};
    transfer_start(remote, &look->transfer);
    return 0;
}

static int add_looked(Look *look, const RemoteScheme *scheme) {
    const RemoteObject *object = &look->object;
    RemoteArgument *argument = look->argument;
    Buffer name = {0}, validator = {0};
    if (scheme->pin && scheme->pin(&name, look->url, object) < 0) return -1;
    if (!scheme->pin) buffer_print(&name, "%s", argument->name);
    buffer_add(&name, "", 1);
    // A hub sends the hash of the content in quotes.
    const size_t linked = strlen(object->linked);
    if (linked == 66)
        buffer_print(&validator, ENTRY_SHA256 "%.64s", object->linked + 1);
    else
        buffer_print(&validator, "%s", object->validator);
    if (!validator.size && !(object->has_size && !object->size)) { // an empty file has no bytes that could change
        buffer_close(&name);
        return fail(EX_DATA,
                    "'%s': the server sends no ETag and no Last-Modified, so a change of the file between two "
                    "requests would not be noticed: download it first",
                    argument->name);
    }
    buffer_add(&validator, "", 1);
    argument_set_name(argument, (const char *)name.data, name.size);
    const char *query = look->url + (scheme->has_query ? strcspn(look->url, "?#") : strlen(look->url));
    const int status = argument_add(argument, argument->name, query, (const char *)validator.data, object->size);
    buffer_close(&name);
    buffer_close(&validator);
    return status;
}

static int end_look(Look *look, Remote *remote) {
    if (!look->argument) return 0;
    const RemoteScheme *scheme = remote_scheme(look->url);
    if (look->transfer.remote) {
        const int status = transfer_wait(&look->transfer);
        if (status == 0) return add_looked(look, scheme);
        const bool is_missing = look->transfer.response.status == 404 && err_code() == EX_NOINPUT;
        if (!scheme->list || !is_missing) return -1;
        err_clear();
    }
    if (scheme->list(remote, look->url, look->argument) < 0) return -1;
    if (!look->argument->count) return fail(EX_NOINPUT, "'%s': no such file or folder", look->argument->name);
    argument_sort(look->argument);
    return 0;
}

static void drop_look(Look *look) {
    transfer_stop(&look->transfer);
    object_close(&look->object);
    look->argument = NULL;
}

int remote_list_open(RemoteList *list, Remote *remote, const char *const *urls, size_t count) {
    Look *looks = allocate_zeroed(LOOKS, sizeof *looks);
    int status = 0;
    *list = (RemoteList){allocate_zeroed(count + 1, sizeof *list->arguments), count};
    for (size_t i = 0; status == 0 && i < count + LOOKS; i++) {
        Look *look = &looks[i % LOOKS];
        status = end_look(look, remote);
        drop_look(look);
        if (status == 0 && i < count) status = begin_look(look, remote, &list->arguments[i], urls[i]);
    }
    for (size_t i = 0; i < LOOKS; i++) drop_look(&looks[i]);
    free(looks);
    return status;
}

void remote_list_close(RemoteList *list) {
    for (size_t i = 0; i < list->count; i++) argument_close(&list->arguments[i]);
    free(list->arguments);
    *list = (RemoteList){0};
}
