// Reading the messages of a JSON line.
#include "shardtool/jsonl/jsonl_turns.h"
#include "common/log.h"
#include "common/turns.h"
#include "common/utf8.h"
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

static void note_ignored(StringList *keys, const char *key) {
    for (size_t i = 0; i < keys->count; i++)
        if (!strcmp(keys->items[i], key)) return;
    if (keys->count < STRING_LIST_MAX) keys->items[keys->count++] = allocate_text(key, strlen(key));
}

// Whether a key is this word in the singular or the plural, whatever its case.
static bool is_word(const char *key, const char *word) {
    const size_t size = strlen(word), stem = size - (word[size - 1] == 'y');
    if (!strncasecmp(key, word, size)) return !key[size] || !strcasecmp(key + size, "s");
    return stem < size && !strncasecmp(key, word, stem) && !strcasecmp(key + stem, "ies");
}

// Returns the name of a key beside the conversation that would change its text, or what of it counts. Other keys that
// are not read are noted.
static const char *find_refused(const json_t *line, bool has_messages, SourceOptions *options) {
    static const char *const refused[] = {"assistant_mask", "audio",           "chat_template_kwarg",
                                          "chosen",         "completion_mask", "context",
                                          "document",       "function",        "function_call",
                                          "history",        "image",           "input",
                                          "instruction",    "label",           "loss",
                                          "loss_mask",      "loss_weight",     "mask",
                                          "rejected",       "sample_weight",   "system",
                                          "system_message", "system_prompt",   "tool",
                                          "tool_call",      "train",           "train_on_input",
                                          "video",          "weight"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)line, key, value) {
        const bool is_read =
            has_messages ? !strcmp(key, "messages") : !strcmp(key, "prompt") || !strcmp(key, "completion");
        if (is_read || !is_set(value) || (json_is_string(value) && !json_string_length(value))) continue;
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            if (is_word(key, refused[i])) return key;
        note_ignored(&options->ignored, key);
    }
    return NULL;
}

// A conversation on its way to `out`.
typedef struct {
    SourceOptions *options;
    Buffer *out;
    char *why;
} Turns;

static LineContent add_text(const Turns *turns, const json_t *string) {
    const Bytes text = {(const uint8_t *)json_string_value(string), json_string_length(string)};
    const size_t valid = utf8_valid(text);
    if (valid < text.size && !turns->options->replaces)
        return bad(turns->why, "a text has the byte 0x%02x, which is not UTF-8", text.data[valid]);
    turns->options->replaced += utf8_replace(text, turns->out);
    return LINE_OF_TEXT;
}

static LineContent add_message(const Turns *turns, Turn role, const json_t *content) {
    buffer_add(turns->out, &(uint8_t){(uint8_t)(TURN_BYTE + role)}, 1);
    if (add_text(turns, content) == LINE_BAD) return LINE_BAD;
    buffer_add(turns->out, &(uint8_t){TURN_BYTE + TURN_END}, 1);
    return LINE_OF_TURNS;
}

// Polars and pandas write objects so that are texts in Parquet.
#define FROM_JSON "convert it with jq -c '.messages%s |= fromjson', or write the lines with DuckDB or datasets"
static bool holds_json(const json_t *value, char first) {
    return json_is_string(value) && *json_string_value(value) == first;
}

// Returns the role, or TURN_COUNT: then `why` is set.
static Turn read_message(const Turns *turns, json_t *message, size_t number) {
    const json_t *content = json_object_get(message, "content");
    const char *name = json_string_value(json_object_get(message, "role")), *key;
    json_t *value;
    Turn role = TURN_SYSTEM;
    if (holds_json(message, '{'))
        return bad(turns->why, "message %zu is a text that holds JSON, not an object: " FROM_JSON, number, "[]"),
               TURN_COUNT;
    if (!json_is_object(message)) return bad(turns->why, "message %zu is not an object", number), TURN_COUNT;
    json_object_foreach(message, key, value)
        if (strcmp(key, "role") && strcmp(key, "content") && is_set(value))
            return bad(turns->why, "message %zu has '%s', and only role and content are read", number, key), TURN_COUNT;
    while (role < TURN_END && name && strcmp(name, roles[role])) role++;
    if (!name || role == TURN_END)
        bad(turns->why, "message %zu has %s%.100s%s, not the role system, user or assistant", number,
            name ? "the role '" : "no role", name ? name : "", name ? "'" : "");
    else if (!json_is_string(content))
        bad(turns->why, "message %zu has %s as content, not a string", number,
            json_is_array(content) ? "an array"
            : is_set(content)      ? "another value"
                                   : "nothing");
    else
        return add_message(turns, role, content) == LINE_BAD ? TURN_COUNT : role;
    return TURN_COUNT;
}

static LineContent read_messages(const Turns *turns, const json_t *messages) {
    bool answered = false;
    if (holds_json(messages, '['))
        return bad(turns->why, "its messages are a text that holds JSON, not an array: " FROM_JSON, "");
    if (!json_is_array(messages)) return bad(turns->why, "its messages are not an array");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const Turn role = read_message(turns, json_array_get(messages, i), i);
        if (role == TURN_COUNT) return LINE_BAD;
        answered |= role == TURN_ASSISTANT;
    }
    return answered ? LINE_OF_TURNS : bad(turns->why, "it has no message of an assistant");
}

static LineContent read_pair(const Turns *turns, const json_t *prompt, const json_t *completion) {
    if (json_is_array(prompt) && json_is_array(completion))
        return bad(turns->why, "its prompt and completion are arrays of messages: convert it with jq -c "
                               "'{messages: (.prompt + .completion)}'");
    if (!json_is_string(prompt) || !json_is_string(completion))
        return bad(turns->why, "its %s is not a string", json_is_string(prompt) ? "completion" : "prompt");
    return add_message(turns, TURN_USER, prompt) == LINE_BAD ? LINE_BAD
                                                             : add_message(turns, TURN_ASSISTANT, completion);
}

LineContent jsonl_turns_read(const json_t *line, const json_t *text, SourceOptions *options, Buffer *out,
                             char why[TURNS_WHY_BYTES]) {
    const Turns turns = {options, out, why};
    const json_t *messages = json_object_get(line, "messages"), *prompt = json_object_get(line, "prompt"),
                 *completion = json_object_get(line, "completion");
    const bool has_messages = messages && !json_is_null(messages), has_pair = is_set(prompt) && is_set(completion);
    const char *refused = has_messages || has_pair ? find_refused(line, has_messages, options) : NULL;
    if (refused) return bad(why, "it has '%s', which is not read", refused);
    if (has_messages && is_set(completion)) return bad(why, "it has messages and a completion");
    if (has_messages) return read_messages(&turns, messages);
    if (has_pair) return read_pair(&turns, prompt, completion);
    if (!json_is_string(text)) return LINE_WITHOUT_TEXT;
    return add_text(&turns, text);
}
