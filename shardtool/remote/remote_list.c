// Lists the files of arguments; the first bytes of files are requested side by side.
#include "shardtool/remote/remote_list.h"
#include "common/file/file.h"
#include <stdio.h>
#include <stdlib.h>

enum { LOOKS = 16 }; // side by side

// A file of which nothing is known yet.
typedef struct {
    RemoteArgument *argument;
    RemoteObject object;
    Transfer transfer;
    uint8_t byte;
} Look;

static char *copy(const char *text, size_t length) {
    char *kept = strndup(text, length);
    if (!kept) die(EX_MEMORY, "no memory for a URL");
    return kept;
}

static int begin_look(Look *look, Remote *remote, RemoteArgument *argument, const char *url) {
    const size_t length = strcspn(url, "?#");
    RemoteEntry *entry = allocate_zeroed(1, sizeof *entry);
    argument->entries = entry, argument->count = 1;
    argument->name = copy(url, length);
    entry->name = copy(url, length), entry->query = copy(url + length, strlen(url + length));
    entry->validator = copy("", 0);
    *look = (Look){.argument = argument};
    if (length >= PATH_MAX_BYTES - 1) return fail(EX_USAGE, "the URL '%.60s...' is too long", entry->name);
    if (remote_entry_object(remote, entry, &look->object) < 0) return -1;
    look->object.has_size = false;
    look->transfer = (Transfer){.object = &look->object, .end = 1, .to = &look->byte};
    transfer_start(remote, &look->transfer);
    return 0;
}

static int end_look(Look *look) {
    if (!look->argument) return 0;
    const int status = transfer_wait(&look->transfer);
    RemoteEntry *entry = look->argument->entries;
    entry->size = look->object.size;
    free((char *)(uintptr_t)entry->validator);
    entry->validator = copy(look->object.validator, FIELD_BYTES);
    return status;
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
        status = end_look(look);
        drop_look(look);
        if (status == 0 && i < count) status = begin_look(look, remote, &list->arguments[i], urls[i]);
    }
    for (size_t i = 0; i < LOOKS; i++) drop_look(&looks[i]);
    free(looks);
    return status;
}

void remote_list_close(RemoteList *list) {
    for (size_t i = 0; i < list->count; i++) {
        RemoteArgument *argument = &list->arguments[i];
        for (size_t k = 0; k < argument->count; k++) {
            const RemoteEntry *entry = &argument->entries[k];
            free((char *)(uintptr_t)entry->name), free((char *)(uintptr_t)entry->query);
            free((char *)(uintptr_t)entry->validator);
        }
        free(argument->entries), free((char *)(uintptr_t)argument->name);
    }
    free(list->arguments);
    *list = (RemoteList){0};
}
