// Reading items of a grade.
#include "shardtool/jsonl/jsonl_items.h"
#include <string.h>

static bool is_word(const json_t *value, const char *word) {
    return json_is_string(value) && !strcmp(json_string_value(value), word);
}

static bool add_text(Buffer *out, const json_t *string) {
    buffer_add(out, json_string_value(string), json_string_length(string));
    return json_is_string(string);
}

static bool read_conversation(const json_t *line, Buffer *out) {
    const json_t *messages = json_object_get(line, "messages");
    bool whole = json_is_array(messages);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        whole &= add_text(out, json_object_get(json_array_get(messages, i), "content"));
        buffer_add(out, "\n", 1);
    }
    return add_text(out, json_object_get(line, "answer")) && whole;
}

bool jsonl_items_read(const json_t *line, Buffer *out, const char **why) {
    const json_t *kind = json_object_get(line, "kind"), *label = json_object_get(line, "label");
    const bool choice = is_word(kind, "choice"), answers = is_word(kind, "answers");
    *why = NULL;
    if (!json_is_string(json_object_get(line, "task")) || !(choice || answers || is_word(kind, "greedy"))) return false;
    out->size = 0;
    const size_t right = choice ? (size_t)json_integer_value(label) : 0;
    const json_t *text = json_array_get(json_object_get(line, "texts"), right);
    if (answers && !read_conversation(line, out)) *why = "an item of the kind answers without messages and an answer";
    if (choice && !json_is_integer(label)) *why = "an item of the kind choice without a number as its label";
    if (answers || *why) return true;
    if (!add_text(out, json_array_get(text, 0)) || !add_text(out, json_array_get(text, 1)))
        *why = "an item without a context and an ending as its right text";
    return true;
}
