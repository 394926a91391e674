// Reading the texts of a conversation.
#include "shardtool/conversation/conversation.h"
#include "common/json_read.h"
#include "common/log.h"
#include "common/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#define ROLE(NAME, name) name,
static const char *const roles[TURN_COUNT] = {TURN_MARKERS(ROLE)};

static LineContent bad(char why[CONVERSATION_WHY_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
static LineContent bad(char why[CONVERSATION_WHY_BYTES], const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(why, CONVERSATION_WHY_BYTES, format, list);
    va_end(list);
    text_printable(why);
    return LINE_BAD;
}

static bool is_set(const json_t *value) {
    return value && !json_is_null(value) && !(json_is_array(value) && !json_array_size(value));
}

// Whether a key is this word in the singular or the plural, whatever its case.
static bool is_word(const char *key, const char *word) {
    const size_t size = strlen(word), stem = size - (word[size - 1] == 'y');
    if (!strncasecmp(key, word, size)) return !key[size] || !strcasecmp(key + size, "s");
    return stem < size && !strncasecmp(key, word, stem) && !strcasecmp(key + stem, "ies");
}

static bool is_refused(const char *key) {
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
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (is_word(key, refused[i])) return true;
    return false;
}

static bool is_name(const StringList *names, const char *name) {
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->items[i], name)) return true;
    return false;
}

// Whether a key is one of these, or begins the path of one.
static bool begins(const StringList *names, const char *key) {
    const size_t size = strlen(key);
    for (size_t i = 0; i < names->count; i++)
        if (!strncmp(names->items[i], key, size) && (!names->items[i][size] || names->items[i][size] == '.'))
            return true;
    return false;
}

static bool is_text_key(const ConversationKeys *keys, const char *key) {
    bool found = false;
    for (Turn role = 0; role < TURN_END; role++) found |= begins(&keys->texts[role], key);
    return found;
}

static const ConversationKeys *keys_of(const SourceOptions *options) {
    static const ConversationKeys usual = {
        .lists = true,
        .pairs = true,
        .messages = {{"messages"}, 1},
        .texts = {[TURN_USER] = {{"prompt"}, 1}, [TURN_ASSISTANT] = {{"completion"}, 1}},
        .role = {{"role"}, 1},
        .content = {{"content"}, 1}};
    return options->turns_keys ? options->turns_keys : &usual;
}

bool conversation_needs(const SourceOptions *options, const char *key) {
    const ConversationKeys *keys = keys_of(options);
    const bool is_read = (keys->lists && begins(&keys->messages, key)) || (keys->pairs && is_text_key(keys, key));
    return is_read || (is_refused(key) && !is_name(&keys->ignore, key));
}

void conversation_note_ignored(SourceOptions *options, const char *key) {
    StringList *keys = &options->ignored;
    if (is_name(&keys_of(options)->ignore, key)) return;
    for (size_t i = 0; i < keys->count; i++)
        if (!strcmp(keys->items[i], key)) return;
    if (keys->count < STRING_LIST_MAX) keys->items[keys->count++] = allocate_text(key, strlen(key));
}

// Returns the name of a key beside the conversation that would change its text, or what of it counts. Other keys that
// are not read are noted.
static const char *find_refused(const json_t *line, const ConversationKeys *keys, bool in_lists,
                                SourceOptions *options) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)line, key, value) {
        const bool is_read = in_lists ? begins(&keys->messages, key) : is_text_key(keys, key);
        if (is_read || !is_set(value) || (json_is_string(value) && !json_string_length(value)) ||
            is_name(&keys->ignore, key))
            continue;
        if (is_refused(key)) return key;
        conversation_note_ignored(options, key);
    }
    return NULL;
}

// A conversation on its way to `out`.
typedef struct {
    const ConversationKeys *keys;
    SourceOptions *options;
    Buffer *out;
    char *why;
    bool answered;    // it has a message of an assistant
    const char *list; // the key of the list that is read; NULL: no key, or two
} Reading;

static LineContent add_text(const Reading *reading, const json_t *string) {
    const Bytes text = {(const uint8_t *)json_string_value(string), json_string_length(string)};
    const size_t valid = utf8_valid(text);
    if (valid < text.size && !reading->options->replaces)
        return bad(reading->why, "a text has the byte 0x%02x, which is not UTF-8", text.data[valid]);
    reading->options->replaced += utf8_replace(text, reading->out);
    return LINE_OF_TEXT;
}

static void add_marker(const Reading *reading, Turn marker) {
    buffer_add(reading->out, &(uint8_t){(uint8_t)(TURN_BYTE + marker)}, 1);
}

const json_t *conversation_value(const json_t *object, const char *key) {
    const json_t *whole = json_object_get(object, key);
    const char *dot = whole ? NULL : strchr(key, '.');
    return dot ? conversation_value(json_object_getn(object, key, (size_t)(dot - key)), dot + 1) : whole;
}

static const json_t *first_of(const json_t *object, const StringList *names) {
    return names->count ? conversation_value(object, names->items[0]) : NULL;
}

// A message of the texts at these keys; null and empty ones are left out, but for the first of a user or an assistant.
static LineContent add_message(Reading *reading, Turn role, const json_t *object, const StringList *names) {
    const size_t begin = reading->out->size;
    add_marker(reading, role);
    for (size_t i = 0; i < names->count; i++) {
        const json_t *text = conversation_value(object, names->items[i]);
        if (!is_set(text) && (i || role == TURN_SYSTEM)) continue;
        if (!json_is_string(text)) return bad(reading->why, "its %.100s is not a string", names->items[i]);
        if (!json_string_length(text)) continue;
        if (reading->out->size > begin + 1) buffer_add(reading->out, "\n", 1);
        if (add_text(reading, text) == LINE_BAD) return LINE_BAD;
    }
    if (role == TURN_SYSTEM && reading->out->size == begin + 1)
        reading->out->size = begin;
    else
        add_marker(reading, TURN_END);
    reading->answered |= role == TURN_ASSISTANT;
    return LINE_OF_TURNS;
}

// The messages of an object with texts of a user and an assistant.
static LineContent read_pair(Reading *reading, const json_t *object) {
    LineContent content = LINE_OF_TURNS;
    for (Turn role = 0; role < TURN_END && content != LINE_BAD; role++)
        if (reading->keys->texts[role].count) content = add_message(reading, role, object, &reading->keys->texts[role]);
    return content;
}

// Polars, pandas and DuckDB write objects and arrays so that are texts in Parquet. A new reference, or NULL.
static json_t *parse_text(const json_t *value, char first) {
    json_error_t error;
    if (!json_is_string(value) || *json_string_value(value) != first) return NULL;
    return json_parse((Bytes){(const uint8_t *)json_string_value(value), json_string_length(value)}, JSON_ANY_TEXT,
                      &error);
}

static Turn find_role(const ConversationKeys *keys, const char *name) {
    Turn role = TURN_SYSTEM;
    while (role < TURN_END && strcmp(name, roles[role]) && (keys->pairs || !is_name(&keys->texts[role], name))) role++;
    return role;
}

// Without a role, but with texts of a user and an assistant.
static bool is_pair(const ConversationKeys *keys, const json_t *message) {
    return !keys->pairs && is_set(first_of(message, &keys->texts[TURN_USER])) &&
           is_set(first_of(message, &keys->texts[TURN_ASSISTANT]));
}

// A key of a message that is not read: it may be the role or the content under another name.
static LineContent refuse_key(const Reading *reading, const json_t *message, size_t number, const char *key) {
    const char *role = reading->keys->role.items[0], *content = reading->keys->content.items[0];
    Buffer option = {0};
    LineContent refused;
    if (!json_object_get(message, role) && reading->list && conversation_suggest_roles(message, reading->list, &option))
        refused = bad(reading->why, "message %zu has '%.100s' and no %.60s: --turns-keys '%s' reads it", number, key,
                      role, (const char *)option.data);
    else
        refused = bad(reading->why,
                      "message %zu has '%.100s', and only %.60s and %.60s are read (--turns-keys ignore=%.60s leaves "
                      "it out)",
                      number, key, role, content, key);
    buffer_close(&option);
    return refused;
}

static LineContent read_message(Reading *reading, const json_t *message, size_t number) {
    const ConversationKeys *keys = reading->keys;
    const char *role_key = keys->role.items[0], *content_key = keys->content.items[0], *key;
    const json_t *content = json_object_get(message, content_key);
    const char *name = json_string_value(json_object_get(message, role_key));
    json_t *value;
    if (!json_is_object(message)) return bad(reading->why, "message %zu is not an object", number);
    const bool pair = !name && is_pair(keys, message);
    json_object_foreach((json_t *)message, key, value) {
        const bool is_read = pair ? is_text_key(keys, key) : !strcmp(key, role_key) || !strcmp(key, content_key);
        if (!is_read && is_set(value) && !is_name(&keys->ignore, key)) return refuse_key(reading, message, number, key);
    }
    if (pair) return read_pair(reading, message);
    const Turn role = name ? find_role(keys, name) : TURN_END;
    if (role == TURN_END)
        return bad(reading->why, "message %zu has %s%.100s%s, not the role system, user or assistant%s", number,
                   name ? "the role '" : "no role", name ? name : "", name ? "'" : "",
                   name ? " (--turns-keys names others, as messages=KEY,user=human,assistant=gpt)" : "");
    if (!json_is_string(content))
        return bad(reading->why, "message %zu has %s as content, not a string", number,
                   json_is_array(content) ? "an array"
                   : is_set(content)      ? "another value"
                                          : "nothing");
    add_marker(reading, role);
    if (add_text(reading, content) == LINE_BAD) return LINE_BAD;
    add_marker(reading, TURN_END);
    reading->answered |= role == TURN_ASSISTANT;
    return LINE_OF_TURNS;
}

static LineContent read_list(Reading *reading, const json_t *list) {
    json_t *parsed = parse_text(list, '[');
    if (parsed) list = parsed;
    LineContent content = json_is_array(list) ? LINE_OF_TURNS
                                              : bad(reading->why, "its messages are %s",
                                                    json_is_string(list) ? "a text that is not JSON" : "not an array");
    for (size_t i = 0; i < json_array_size(list) && content != LINE_BAD; i++) {
        const json_t *message = json_array_get(list, i);
        json_t *object = parse_text(message, '{');
        content = read_message(reading, object ? object : message, i);
        json_decref(object);
    }
    json_decref(parsed);
    return content;
}

// TRL's prompt and completion may be lists of messages.
static LineContent read_list_pair(Reading *reading, const json_t *prompt, const json_t *completion) {
    reading->list = NULL;
    if (read_list(reading, prompt) == LINE_BAD) return LINE_BAD;
    if (reading->answered)
        return bad(reading->why,
                   "its %.60s has an answer, which would count: --turns-keys messages=%.60s+%.60s reads it",
                   reading->keys->texts[TURN_USER].items[0], reading->keys->texts[TURN_USER].items[0],
                   reading->keys->texts[TURN_ASSISTANT].items[0]);
    return read_list(reading, completion);
}

const char *conversation_missing(const SourceOptions *options) {
    return options->turns_keys ? "no conversation at the keys of --turns-keys, and no text at the key"
                               : "no messages, no prompt with a completion, and no text at the key";
}

static bool has_column(const json_t *columns, const char *key) {
    return json_object_get(columns, key) || json_object_getn(columns, key, strcspn(key, "."));
}

const char *conversation_absent(const SourceOptions *options, const json_t *columns) {
    const StringList *named = &keys_of(options)->named;
    const char *absent = NULL;
    bool has_one = false;
    for (size_t i = 0; i < named->count; i++)
        if (has_column(columns, named->items[i]))
            has_one = true;
        else
            absent = named->items[i];
    return has_one ? absent : NULL;
}

const char *conversation_unfound(const SourceOptions *options) {
    const StringList *named = &keys_of(options)->named;
    size_t i = 0;
    while (i < named->count && options->turns_found >> i & 1) i++;
    return i < named->count ? named->items[i] : NULL;
}

LineContent conversation_read(const json_t *line, const json_t *text, SourceOptions *options, Buffer *out,
                              char why[CONVERSATION_WHY_BYTES]) {
    const ConversationKeys *keys = keys_of(options);
    Reading reading = {keys, options, out, why, false, keys->messages.items[0]};
    for (size_t i = 0; i < keys->named.count; i++)
        if (!(options->turns_found >> i & 1) && conversation_value(line, keys->named.items[i]))
            options->turns_found |= 1u << i;
    const json_t *prompt = first_of(line, &keys->texts[TURN_USER]),
                 *completion = first_of(line, &keys->texts[TURN_ASSISTANT]);
    bool has_list = json_is_array(line); // the line is the list
    for (size_t i = 0; keys->lists && i < keys->messages.count; i++) {
        const json_t *list = conversation_value(line, keys->messages.items[i]);
        has_list |= list && !json_is_null(list);
    }
    const bool has_pair = keys->pairs && is_set(prompt) && is_set(completion);
    const char *refused = has_list || has_pair ? find_refused(line, keys, has_list, options) : NULL;
    if (refused)
        return bad(why, "it has '%.100s', which is not read (--turns-keys ignore=%.100s leaves it out)", refused,
                   refused);
    if (has_list && keys->pairs && is_set(completion)) return bad(why, "it has messages and a completion");
    LineContent content = json_is_array(line) ? read_list(&reading, line) : LINE_OF_TURNS;
    for (size_t i = 0; has_list && i < keys->messages.count && content != LINE_BAD; i++) {
        const json_t *list = conversation_value(line, keys->messages.items[i]);
        reading.list = keys->messages.items[i];
        if (list && !json_is_null(list)) content = read_list(&reading, list);
    }
    if (!has_list && has_pair)
        content = json_is_array(prompt) && json_is_array(completion) ? read_list_pair(&reading, prompt, completion)
                                                                     : read_pair(&reading, line);
    if (content == LINE_BAD) return LINE_BAD;
    if (has_list || has_pair) return reading.answered ? content : bad(why, "it has no message of an assistant");
    return json_is_string(text) ? add_text(&reading, text) : LINE_WITHOUT_TEXT;
}
