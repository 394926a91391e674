// nanoGPT's meta.pkl: a dict with "itos", a dict from each id to its character.
#include "trainer/import/nanogpt_meta.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/utf8.h"
#include "trainer/import/pickle.h"

// One character of the dict; *at is the id after it.
static int add_character(Buffer *characters, const PickleValue *key, const PickleValue *value, int64_t *id) {
    uint32_t point;
    if (key->kind != PICKLE_INT || key->integer != *id || value->kind != PICKLE_TEXT || !value->text.size)
        return fail(EX_DATA, "'itos' does not have the characters of the ids from 0 in their order");
    const uint8_t *text = value->text.data, *end = text + value->text.size;
    if (utf8_decode(text, end, &point) != value->text.size || point > UTF8_LAST)
        return fail(EX_DATA, "'itos' has a text for id %lld that is not one character", (long long)*id);
    buffer_add(characters, text, value->text.size);
    ++*id;
    return 0;
}

int nanogpt_meta_read(Buffer *characters, Bytes pickle) {
    Arena arena = {0};
    int64_t id = 0;
    const PickleValue *root = pickle_read(&arena, pickle), *itos = pickle_find(root, "itos");
    int result = root ? 0 : -1;
    if (root && (!itos || itos->kind != PICKLE_DICT))
        result = fail(EX_DATA, "it has no 'itos', as a meta.pkl of nanoGPT has");
    for (size_t i = 0; result == 0 && i < itos->items.count; i += 2)
        result = add_character(characters, itos->items.at[i], itos->items.at[i + 1], &id);
    arena_close(&arena);
    return result;
}

int nanogpt_meta_open(Buffer *characters, const char *path) {
    Buffer file = {0};
    int result = file_read(&file, path, PICKLE_MAX_BYTES);
    if (result == 0 && nanogpt_meta_read(characters, (Bytes){file.data, file.size}) < 0) result = fail_in("'%s'", path);
    buffer_close(&file);
    return result;
}
