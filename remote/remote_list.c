// Lists the files of arguments; the first bytes of files are requested side by side.
#include "remote/remote_list.h"
#include "common/file/table_log.h"
#include "remote/s3.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

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
        buffer_print(&validator, "%s%s", object->in_order && object->size ? ENTRY_IN_ORDER : "", object->validator);
    if (!*object->validator && linked != 66 &&
        !(object->has_size && !object->size)) { // an empty file has no bytes that could change
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
        const char *name = look->argument->name;
        if (!scheme->list && (strchr(name, '*') || name[strlen(name) - 1] == '/'))
            return fail_in("https has no folders and patterns, which s3:// and hf:// have");
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

// The error when one of the files that a URL lists is of a table's log; 0 also when there is no such folder.
static int refuse_log(Remote *remote, const char *url, const char *file) {
    RemoteList list;
    size_t root;
    int status = remote_list_open(&list, remote, &url, 1);
    if (status < 0 && err_code() == EX_NOINPUT) err_clear(), status = 0;
    for (size_t i = 0; status == 0 && i < list.arguments->count; i++) {
        const TableFormat *format = table_log_in(list.arguments->entries[i].name, &root);
        if (format) status = table_fail(format, file, url);
    }
    remote_list_close(&list);
    return status;
}

// Looks in the folders around the argument, up to the bucket, the innermost first.
static int refuse_table_around(Remote *remote, const RemoteArgument *argument) {
    size_t length = argument->folder_length ? argument->folder_length : strlen(argument->name);
    int status = 0;
    for (; status == 0 && length > sizeof S3_PREFIX; length--) {
        const char *folder;
        if (argument->name[length - 1] != '/') continue;
        for (unsigned i = 0; status == 0 && (folder = table_log_folder(i)); i++) {
            Buffer url = {0};
            buffer_print(&url, "%.*s%s", (int)length, argument->name, folder);
            buffer_add(&url, "", 1);
            status = refuse_log(remote, (const char *)url.data, argument->name);
            buffer_close(&url);
        }
    }
    return status;
}

int remote_table_refuse(Remote *remote, const RemoteArgument *argument) {
    const TableFormat *format = NULL;
    const char *log = argument->log;
    char root[PATH_MAX_BYTES];
    bool has_parquet = false;
    size_t length;
    for (size_t i = 0; i < argument->count; i++) {
        const char *name = argument->entries[i].name, *dot = strrchr(name, '.');
        has_parquet |= dot && !strcasecmp(dot, ".parquet");
        if (!log && table_log_in(name, &length)) log = name;
    }
    if (!has_parquet) return 0;
    if (!log)
        return strncmp(argument->name, S3_PREFIX, sizeof S3_PREFIX - 1) ? 0 : refuse_table_around(remote, argument);
    format = table_log_in(log, &length);
    snprintf(root, sizeof root, "%.*s", (int)length, log);
    return table_fail(format, argument->name, root);
}
