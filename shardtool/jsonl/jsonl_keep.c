// Collects values of a JSON line while it is read.
#include "shardtool/jsonl/jsonl_keep.h"
#include "common/err.h"

int jsonl_keep_open(JsonlKeep *keep, const StringList *keys) {
    keep->keys = keys;
    for (size_t i = 0; i < keys->count; i++)
        if (!key_path_open(&keep->paths[i], keys->items[i]))
            return fail(EX_USAGE, "--keep '%s' is not a path of 1 to %d keys", keys->items[i], PATH_KEYS_MAX);
    return 0;
}

void jsonl_keep_begin(JsonlKeep *keep) {
    for (size_t i = 0; keep->keys && i < keep->keys->count; i++) {
        key_path_begin(&keep->paths[i]);
        keep->found[i].type = KEEP_NONE;
    }
}

static bool any_ends(const JsonlKeep *keep, unsigned depth) {
    for (size_t i = 0; i < keep->keys->count; i++)
        if (key_path_ends(&keep->paths[i], depth)) return true;
    return false;
}

void jsonl_keep_take(JsonlKeep *keep, JsonEvents *json, JsonEvent event) {
    const unsigned depth = event == EVENT_OPEN ? json->depth - 1 : json->depth;
    if (event == EVENT_KEY) {
        for (size_t i = 0; i < keep->keys->count; i++)
            if (key_path_enter(&keep->paths[i], json)) keep->found[i].type = KEEP_NONE;
        return;
    }
    if (event == EVENT_CLOSE || !any_ends(keep, depth)) return;
    if (event == EVENT_STRING) {
        if (!json->capture) json->capture = &keep->text, keep->text.size = 0;
        buffer_reserve(json->capture, 1); // never NULL
        keep->text_at = json->capture->size;
        return;
    }
    Bytes value = {0};
    if (event == EVENT_TEXT)
        value = (Bytes){json->capture->data + keep->text_at, json->capture->size - keep->text_at};
    else if (event == EVENT_SCALAR && *json->scalar.data != 'n')
        value = json->scalar;
    for (size_t i = 0; i < keep->keys->count; i++) {
        if (!key_path_ends(&keep->paths[i], depth)) continue;
        keep->found[i].type = event == EVENT_OPEN ? KEEP_OTHER : value.data ? KEEP_TEXT : KEEP_NONE;
        keep->found[i].text.size = 0;
        buffer_add(&keep->found[i].text, value.data, value.size);
    }
}

const char *jsonl_keep_end(JsonlKeep *keep, SourceOptions *options, char why[KEEP_WHY_BYTES]) {
    keep->row.size = 0;
    for (size_t i = 0; i < keep->keys->count; i++) {
        if (keep->found[i].type == KEEP_NONE) continue;
        const Buffer *text = &keep->found[i].text;
        const bool is_other = keep->found[i].type == KEEP_OTHER;
        if (keep_add(options, i, is_other ? "an object or an array" : NULL, (Bytes){text->data, text->size}, &keep->row,
                     why) < 0)
            return why;
    }
    return NULL;
}

void jsonl_keep_close(JsonlKeep *keep) {
    for (size_t i = 0; i < KEEP_MAX; i++) buffer_close(&keep->found[i].text);
    buffer_close(&keep->text);
    buffer_close(&keep->row);
}
