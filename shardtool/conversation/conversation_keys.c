// Which keys hold a conversation: the names of --turns-keys, and those of other programs, for messages.
#include "common/err.h"
#include "common/log.h"
#include "shardtool/conversation/conversation.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int refuse(const char *argument, const char *why) {
    return fail(EX_USAGE,
                "--turns-keys '%s': %s; as 'user=question,assistant=answer' or "
                "'messages=conversations,role=from,content=value,user=human,assistant=gpt'",
                argument, why);
}

// "a+b" up to `end`.
static int parse_names(const char *argument, const char *at, const char *end, StringList *list) {
    while (at <= end) {
        const char *stop = at;
        while (stop < end && *stop != '+') stop++;
        if (stop == at) return refuse(argument, "a key is missing");
        if (list->count == STRING_LIST_MAX) return refuse(argument, "too many keys");
        list->items[list->count++] = allocate_text(at, (size_t)(stop - at));
        at = stop + 1;
    }
    return 0;
}

// Adds the names to `all`, which holds each once.
static int add_names(const char *argument, const StringList *names, StringList *all) {
    for (size_t i = 0; i < names->count; i++) {
        for (size_t k = 0; k < all->count; k++)
            if (!strcmp(all->items[k], names->items[i])) return refuse(argument, "a key occurs twice");
        if (all->count == STRING_LIST_MAX) return refuse(argument, "too many keys");
        all->items[all->count++] = names->items[i];
    }
    return 0;
}

static void set_default(StringList *list, const char *name) {
    if (!list->count) list->items[list->count++] = name;
}

int conversation_keys_parse(ConversationKeys *keys, const char *argument) {
    static const char *const names[] = {"system", "user", "assistant", "messages", "role", "content", "ignore"};
    *keys = (ConversationKeys){.lists = true};
    StringList *const lists[] = {&keys->texts[TURN_SYSTEM],
                                 &keys->texts[TURN_USER],
                                 &keys->texts[TURN_ASSISTANT],
                                 &keys->messages,
                                 &keys->role,
                                 &keys->content,
                                 &keys->ignore};
    for (const char *at = argument, *end = ","; *end; at = end + 1) {
        end = at + strcspn(at, ",");
        const char *equals = memchr(at, '=', (size_t)(end - at));
        size_t i = 0;
        while (i < COUNT(names) && (!equals || strlen(names[i]) != (size_t)(equals - at) ||
                                    memcmp(names[i], at, (size_t)(equals - at)) != 0))
            i++;
        if (i == COUNT(names))
            return refuse(argument, "it is NAME=KEY, with NAME one of system, user, assistant, messages, role, content "
                                    "and ignore");
        if (lists[i]->count) return refuse(argument, "a name occurs twice");
        if (parse_names(argument, equals + 1, end, lists[i]) < 0) return -1;
    }
    const size_t users = keys->texts[TURN_USER].count, assistants = keys->texts[TURN_ASSISTANT].count;
    if (keys->role.count > 1 || keys->content.count > 1) return refuse(argument, "role and content are one key each");
    if (!keys->messages.count && (users > 0) != (assistants > 0))
        return refuse(argument, "a conversation needs texts of a user and of an assistant");
    StringList texts = {.count = 0};
    for (Turn role = 0; role < TURN_END; role++)
        if (add_names(argument, &keys->texts[role], &texts) < 0) return -1;
    if (add_names(argument, &keys->messages, &keys->named) < 0) return -1;
    if (!keys->messages.count) keys->named = texts;
    keys->lists = keys->messages.count || !users, keys->pairs = !keys->messages.count;
    if (keys->lists) set_default(&keys->messages, "messages");
    if (keys->pairs) set_default(&keys->texts[TURN_USER], "prompt");
    if (keys->pairs) set_default(&keys->texts[TURN_ASSISTANT], "completion");
    set_default(&keys->role, "role"), set_default(&keys->content, "content");
    return 0;
}

// WordList of other programs' keys

typedef struct {
    const char *names[12];
} WordList;

static const char *find_key(const json_t *object, const WordList *names) {
    const char *key;
    json_t *value;
    for (size_t i = 0; i < COUNT(names->names) && names->names[i]; i++)
        json_object_foreach((json_t *)object, key, value)
            if (!strcasecmp(key, names->names[i])) return key;
    return NULL;
}

static const WordList users = {{"question", "instruction", "query", "problem", "prompt", "inputs", "input", "user",
                                "human"}},
                      assistants = {{"answer", "response", "output", "completion", "solution", "generated_solution",
                                     "targets", "target", "assistant", "gpt"}},
                      systems = {{"system", "system_prompt"}}, more = {{"input", "context"}},
                      lists = {{"messages", "conversations", "conversation", "dialogue", "dialog", "chat", "chosen"}},
                      others = {{"rejected"}}, roles = {{"role", "from"}}, contents = {{"content", "value"}};

// Of an object with texts of a user and an assistant.
static bool print_pair(const json_t *object, Buffer *out, bool in_list) {
    const char *user = find_key(object, &users), *assistant = find_key(object, &assistants),
               *system = find_key(object, &systems), *input = find_key(object, &more);
    if (!user || !assistant) return false;
    if (!in_list && system) buffer_print(out, "system=%s,", system);
    buffer_print(out, "user=%s", user);
    if (!in_list && input && strcmp(input, user) != 0) buffer_print(out, "+%s", input);
    buffer_print(out, ",assistant=%s", assistant);
    return true;
}

bool conversation_suggest_roles(const json_t *message, const char *list, Buffer *out) {
    const char *role = find_key(message, &roles), *content = find_key(message, &contents);
    buffer_print(out, "messages=%s", list);
    if (!role || !content) return false;
    if (strcmp(role, "role") != 0 || strcmp(content, "content") != 0)
        buffer_print(out, ",role=%s,content=%s%s", role, content,
                     strcmp(role, "from") ? "" : ",user=human,assistant=gpt");
    return true;
}

static bool print_list(const json_t *object, Buffer *out) {
    const char *key = find_key(object, &lists);
    const json_t *first = json_array_get(key ? json_object_get(object, key) : NULL, 0);
    if (!json_is_object(first)) return false;
    bool found = conversation_suggest_roles(first, key, out);
    if (!found) buffer_print(out, ","), found = print_pair(first, out, true);
    const char *other = strcasecmp(key, "chosen") ? NULL : find_key(object, &others);
    if (found && other) buffer_print(out, ",ignore=%s", other);
    return found;
}

bool conversation_suggest(const json_t *object, Buffer *out) {
    Buffer keys = {0};
    bool found = print_list(object, &keys);
    if (!found) keys.size = 0, found = print_pair(object, &keys, false);
    const char *text = keys.data ? (const char *)keys.data : "";
    if (found && (!strcmp(text, "messages=messages") || !strcmp(text, "user=prompt,assistant=completion")))
        buffer_print(out, "--turns");
    else if (found)
        buffer_print(out, "--turns-keys '%s'", text);
    buffer_close(&keys);
    return found;
}

void conversation_print_keys(const json_t *object, const char *has, const SourceOptions *options, Buffer *out) {
    enum { KEYS_MAX = 12 };
    const size_t begin = out->size;
    const char *key;
    json_t *value;
    unsigned count = 0;
    json_object_foreach((json_t *)object, key, value) {
        if (count < KEYS_MAX && count) buffer_print(out, ", %s", key);
        if (!count) buffer_print(out, "; %s %s", has, key);
        count++;
    }
    if (count > KEYS_MAX) buffer_print(out, ", ...");
    Buffer option = {0};
    if (!options->turns_keys && conversation_suggest(object, &option) &&
        !(options->turns && !strcmp((const char *)option.data, "--turns")))
        buffer_print(out, ": %s reads them", (const char *)option.data);
    buffer_close(&option);
    if (out->size > begin) text_printable((char *)out->data);
}
