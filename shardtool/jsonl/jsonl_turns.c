// Reading the messages of a JSON line.
#include "shardtool/jsonl/jsonl_turns.h"
#include "common/log.h"
#include "common/turns.h"
#include <stdarg.h>
#include <stdio.h>

#define ROLE(NAME, name) name,
static const char *const roles[TURN_COUNT] = {TURN_MARKERS(ROLE)};

static LineContent bad(char why[TURNS_WHY_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
static LineContent bad(char why[TURNS_WHY_BYTES], const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(why, TURNS_WHY_BYTES, format, list);
    va_end(list);
    text_printable(why);
    return LINE_BAD;
}

static bool is_set(const json_t *value) {
    return value && !json_is_null(value) && !(json_is_array(value) && !json_array_size(value));
}

static void add_message(Buffer *out, Turn role, const json_t *content) {
    buffer_add(out, &(uint8_t){(uint8_t)(TURN_BYTE + role)}, 1);
    buffer_add(out, json_string_value(content), json_string_length(content));
    buffer_add(out, &(uint8_t){TURN_BYTE + TURN_END}, 1);
}

// Returns the role, or TURN_COUNT: then `why` is set.
static Turn read_message(json_t *message, size_t number, Buffer *out, char why[TURNS_WHY_BYTES]) {
    const json_t *content = json_object_get(message, "content");
    const char *name = json_string_value(json_object_get(message, "role")), *key;
    json_t *value;
    Turn role = TURN_SYSTEM;
    json_object_foreach(message, key, value)
        if (strcmp(key, "role") && strcmp(key, "content") && is_set(value))
            return bad(why, "message %zu has '%s', and only role and content are read", number, key), TURN_COUNT;
    while (role < TURN_END && name && strcmp(name, roles[role])) role++;
    if (!name || role == TURN_END)
        bad(why, "message %zu has %s%.100s%s, not the role system, user or assistant", number,
            name ? "the role '" : "no role", name ? name : "", name ? "'" : "");
    else if (!json_is_string(content))
        bad(why, "message %zu has %s as content, not a string", number,
            json_is_array(content) ? "an array"
            : is_set(content)      ? "another value"
                                   : "nothing");
    else
        return add_message(out, role, content), role;
    return TURN_COUNT;
}

static LineContent read_messages(const json_t *messages, Buffer *out, char why[TURNS_WHY_BYTES]) {
    bool answered = false;
    if (!json_is_array(messages)) return bad(why, "its messages are not an array");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const Turn role = read_message(json_array_get(messages, i), i, out, why);
        if (role == TURN_COUNT) return LINE_BAD;
        answered |= role == TURN_ASSISTANT;
    }
    return answered ? LINE_OF_TURNS : bad(why, "it has no message of an assistant");
}

static LineContent read_pair(const json_t *prompt, const json_t *completion, Buffer *out, char why[TURNS_WHY_BYTES]) {
    if (json_is_array(prompt) && json_is_array(completion))
        return bad(why, "its prompt and completion are arrays of messages: convert it with jq -c "
                        "'{messages: (.prompt + .completion)}'");
    if (!json_is_string(prompt) || !json_is_string(completion))
        return bad(why, "its %s is not a string", json_is_string(prompt) ? "completion" : "prompt");
    add_message(out, TURN_USER, prompt);
    add_message(out, TURN_ASSISTANT, completion);
    return LINE_OF_TURNS;
}

LineContent jsonl_turns_read(const json_t *line, const json_t *text, Buffer *out, char why[TURNS_WHY_BYTES]) {
    static const char *const refused[] = {
        "tools",  "functions", "documents", "weight",          "weights",         "train",
        "system", "label",     "labels",    "images",          "image",           "videos",
        "video",  "audio",     "audios",    "assistant_masks", "completion_mask", "chat_template_kwargs"};
    const json_t *messages = json_object_get(line, "messages"), *prompt = json_object_get(line, "prompt"),
                 *completion = json_object_get(line, "completion");
    const bool has_messages = messages && !json_is_null(messages), has_pair = is_set(prompt) && is_set(completion);
    for (size_t i = 0; i < sizeof refused / sizeof *refused && (has_messages || has_pair); i++)
        if (is_set(json_object_get(line, refused[i]))) return bad(why, "it has '%s', which is not read", refused[i]);
    if (has_messages && is_set(completion)) return bad(why, "it has messages and a completion");
    if (has_messages) return read_messages(messages, out, why);
    if (has_pair) return read_pair(prompt, completion, out, why);
    if (!json_is_string(text)) return LINE_WITHOUT_TEXT;
    buffer_add(out, json_string_value(text), json_string_length(text));
    return LINE_OF_TEXT;
}
