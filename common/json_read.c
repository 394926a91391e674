// Builds values of JSON. Running out of memory ends the program, so that it is not reported as an error of the text.
#include "common/json_read.h"
#include "common/err.h"
#include "common/utf8.h"
#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) die(EX_MEMORY, "out of memory: %zu bytes wanted for JSON", bytes);
    return memory;
}

void json_end_without_memory(void) { json_set_alloc_funcs(allocate, free); }

static json_t *read_scalar(Bytes scalar, Buffer *text) {
    if (*scalar.data == 'n') return json_null();
    if (*scalar.data == 't' || *scalar.data == 'f') return json_boolean(*scalar.data == 't');
    text->size = 0;
    buffer_add(text, scalar.data, scalar.size);
    buffer_add(text, "", 1);
    char *end;
    errno = 0;
    const long long integer = strtoll((const char *)text->data, &end, 10);
    if (!*end && errno == 0) return json_integer(integer);
    const double real = strtod((const char *)text->data, NULL);
    return json_real(real < -DBL_MAX ? -DBL_MAX : real <= DBL_MAX ? real : DBL_MAX);
}

static json_t *add_value(JsonTree *tree, const JsonEvents *json, unsigned depth, json_t *value) {
    if (!depth)
        tree->root = value;
    else if (json_is_array(tree->open[depth]))
        json_array_append_new(tree->open[depth], value);
    else
        json_object_setn_new_nocheck(tree->open[depth], json->key.size ? (const char *)json->key.data : "",
                                     json->key.size, value);
    return value;
}

void json_tree_add(JsonTree *tree, JsonEvents *json, JsonEvent event) {
    if (event == EVENT_STRING)
        json->capture = &tree->text, tree->text.size = 0;
    else if (event == EVENT_TEXT)
        add_value(tree, json, json->depth, json_stringn_nocheck((const char *)tree->text.data, tree->text.size));
    else if (event == EVENT_SCALAR)
        add_value(tree, json, json->depth, read_scalar(json->scalar, &tree->text));
    else if (event == EVENT_OPEN)
        tree->open[json->depth] =
            add_value(tree, json, json->depth - 1, json_events_in_object(json) ? json_object() : json_array());
}

void json_tree_clear(JsonTree *tree) {
    json_decref(tree->root);
    tree->root = NULL;
}

void json_tree_close(JsonTree *tree) {
    json_tree_clear(tree);
    buffer_close(&tree->text);
}

// Why an event is refused with these flags, or NULL.
static const char *event_refused(const JsonTree *tree, const JsonEvents *json, JsonEvent event, size_t flags) {
    const bool is_key = event == EVENT_KEY;
    const Buffer *text = is_key ? &json->key : event == EVENT_TEXT ? &tree->text : NULL;
    if (text && text->size && !(flags & JSON_ANY_TEXT) && memchr(text->data, 0, text->size)) return "\\u0000 in a text";
    if (is_key && text->size && flags & JSON_REJECT_DUPLICATES &&
        json_object_getn(tree->open[json->depth], (const char *)text->data, text->size))
        return "duplicate key";
    return event == EVENT_BAD ? json->bad : NULL;
}

json_t *json_parse(Bytes text, size_t flags, json_error_t *error) {
    JsonEvents json = {.bytes = text.data, .end = text.size, .ended = true};
    JsonTree tree = {0};
    const size_t valid = flags & JSON_ANY_TEXT ? text.size : utf8_valid(text);
    const char *why = valid < text.size ? "a byte that is not UTF-8" : NULL;
    if (why) json.at = valid;
    for (JsonEvent event; !why && (event = json_events_next(&json)) != EVENT_MORE && event != EVENT_PART;) {
        why = event_refused(&tree, &json, event, flags);
        if (!why) json_tree_add(&tree, &json, event);
    }
    if (!why && !json_events_ended(&json)) why = "it ends within a value";
    if (why) {
        error->line = 1;
        for (size_t i = 0; i < json.at; i++) error->line += text.data[i] == '\n';
        snprintf(error->text, sizeof error->text, "%s", why);
        json_tree_clear(&tree);
    }
    json_t *root = tree.root;
    json_events_close(&json);
    buffer_close(&tree.text);
    return root;
}
