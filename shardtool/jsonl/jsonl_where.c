// Applies conditions to the values of a JSON line while it is read.
#include "shardtool/jsonl/jsonl_where.h"
#include "common/err.h"
#include <stdlib.h>

int jsonl_where_open(JsonlWhere *where, const StringList *arguments) {
    if (where_parse(&where->list, arguments) < 0) return -1;
    for (unsigned i = 0; i < where->list.count; i++) {
        const Where *item = &where->list.items[i];
        if (!key_path_open(&where->paths[i], item->name))
            return fail(EX_USAGE, "--where '%s': '%s' is not a path of 1 to %d keys", item->text, item->name,
                        PATH_KEYS_MAX);
    }
    return 0;
}

void jsonl_where_begin(JsonlWhere *where) {
    for (unsigned i = 0; i < where->list.count; i++) {
        key_path_begin(&where->paths[i]);
        where->found[i].type = WHERE_NULL;
    }
}

// An integer that 64 bits hold, with or without a sign, is exact; other numbers are the nearest double.
static WhereValue read_scalar(Bytes scalar, Buffer *text) {
    if (*scalar.data == 'n') return (WhereValue){.type = WHERE_NULL};
    if (*scalar.data == 't' || *scalar.data == 'f')
        return (WhereValue){.type = WHERE_BOOL, .number = *scalar.data == 't'};
    text->size = 0;
    buffer_add(text, scalar.data, scalar.size);
    buffer_add(text, "", 1);
    const char *const digits = (const char *)text->data;
    const long double whole = strtold(digits, NULL);
    if (!digits[strspn(digits, "-0123456789")] && whole >= (long double)INT64_MIN && whole <= (long double)UINT64_MAX)
        return (WhereValue){.type = WHERE_INTEGER, .number = whole};
    return (WhereValue){.type = WHERE_DOUBLE, .number = (long double)strtod(digits, NULL)};
}

static bool any_ends(const JsonlWhere *where, unsigned depth) {
    for (unsigned i = 0; i < where->list.count; i++)
        if (key_path_ends(&where->paths[i], depth)) return true;
    return false;
}

static void take_value(JsonlWhere *where, unsigned depth, const WhereValue *value) {
    for (unsigned i = 0; i < where->list.count; i++) {
        if (!key_path_ends(&where->paths[i], depth)) continue;
        where->found[i].type = value->type;
        where->found[i].holds = where_holds(&where->list.items[i], value);
    }
}

void jsonl_where_take(JsonlWhere *where, JsonEvents *json, JsonEvent event) {
    WhereValue value = {.type = WHERE_OTHER};
    const unsigned depth = event == EVENT_OPEN ? json->depth - 1 : json->depth;
    if (event == EVENT_KEY) {
        for (unsigned i = 0; i < where->list.count; i++)
            if (key_path_enter(&where->paths[i], json)) where->found[i].type = WHERE_NULL;
    } else if (event != EVENT_CLOSE && any_ends(where, depth)) {
        if (event == EVENT_STRING) {
            if (!json->capture) json->capture = &where->text, where->text.size = 0;
            buffer_reserve(json->capture, 1); // never NULL
            where->text_at = json->capture->size;
            return;
        }
        if (event == EVENT_TEXT)
            value = (WhereValue){.type = WHERE_TEXT,
                                 .text = {json->capture->data + where->text_at, json->capture->size - where->text_at}};
        else if (event == EVENT_SCALAR)
            value = read_scalar(json->scalar, &where->text);
        take_value(where, depth, &value);
    }
}

bool jsonl_where_met(const JsonlWhere *where, char why[WHERE_WHY_BYTES], const char **bad) {
    static const char *const types[] = {
        [WHERE_BOOL] = "true or false",
        [WHERE_INTEGER] = "a number",
        [WHERE_DOUBLE] = "a number",
        [WHERE_TEXT] = "a text",
        [WHERE_OTHER] = "an object or an array",
    };
    bool met = true;
    *bad = NULL;
    for (unsigned i = 0; i < where->list.count; i++) {
        const WhereType type = where->found[i].type;
        if (!where_fits(&where->list.items[i], type, types[type], why)) *bad = why;
        met &= type != WHERE_NULL && where->found[i].holds;
    }
    return met;
}

void jsonl_where_close(JsonlWhere *where) { buffer_close(&where->text); }
