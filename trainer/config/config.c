// The configuration: the table of keys, their values as text.
#include "trainer/config/config.h"
#include "common/cli/cli_help.h"
#include "common/cli/nearest.h"
#include "common/err.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The words of the WORD rows: names by value, which may have gaps, and aliases.
typedef struct {
    const char *text;
    int value;
} Alias;

#define KEY(type, field, initial, class, range, when, meaning)
#define WORD(type, field, initial, class, when, meaning, words) static const char *const names_##field[] = {words};
#define W(constant, text)                                       [constant] = text,
#define ALIAS(constant, text)
#include "trainer/config/keys.def"

#define KEY(type, field, initial, class, range, when, meaning)
#define WORD(type, field, initial, class, when, meaning, words) static const Alias aliases_##field[] = {words NO_ALIAS};
#define W(constant, text)
#define ALIAS(constant, text) {text, constant},
#define NO_ALIAS                                                                                                       \
    { NULL, 0 }
#include "trainer/config/keys.def"

#define AUTO_INT(...)                                                                                                  \
    { __VA_ARGS__ }

static const Config defaults = {
#define KEY(type, field, initial, class, range, when, meaning)  .field = initial,
#define WORD(type, field, initial, class, when, meaning, words) .field = initial,
#include "trainer/config/keys.def"
};

// For help, in which a word's default is its name and its argument the list of words, as "one|two".
static Config shown = {
#define KEY(type, field, initial, class, range, when, meaning)  .field = initial,
#define WORD(type, field, initial, class, when, meaning, words) .field = initial,
#include "trainer/config/keys.def"
};
const Option config_keys[KEY_COUNT + 1] = {
#define KEY(type, field, initial, class, range, when, meaning) {OPT_##type, #field, &shown.field, range, when meaning},
#define WORD(type, field, initial, class, when, meaning, words)                                                        \
    {OPT_STRING, #field, (void *)(uintptr_t)&names_##field[initial], &("" words)[1], when meaning},
#define W(constant, text)  "|" text
#define ANY                NULL
#define VALUE(name)        #name
#define RANGE(low, high)   #low ".." #high
#define AT_LEAST(low)      #low ".."
#define ALWAYS             ""
#define WHEN(key, value)   #key "=" #value ": "
#define UNLESS(key, value) "unless " #key "=" #value ": "
#define WITH(key)          "with " #key ": "
#define PART(key, value)   ""
#define PART_UNLESS        PART
#define ALIAS(constant, text)
#include "trainer/config/keys.def"
};

const OptionGroup config_groups[] = {
#define KEY(type, field, initial, class, range, when, meaning)
#define WORD(type, field, initial, class, when, meaning, words)
#define GROUP(field, title) {#field, title},
#include "trainer/config/keys.def"
    {NULL, NULL},
};

static const struct {
    OptionType type; // OPT_STRING for words
    int class;       // with the roles
    size_t offset;
    const char *const *names; // of a word, by value; NULL for other types
    int name_count;
    const Alias *aliases;
} keys[KEY_COUNT] = {
#define KEY(type, field, initial, class, range, when, meaning)                                                         \
    {OPT_##type, CLASS_##class, offsetof(Config, field), NULL, 0, NULL},
#define WORD(type, field, initial, class, when, meaning, words)                                                        \
    {OPT_STRING,                                                                                                       \
     CLASS_##class,                                                                                                    \
     offsetof(Config, field),                                                                                          \
     names_##field,                                                                                                    \
     (int)(sizeof names_##field / sizeof *names_##field),                                                              \
     aliases_##field},
#define PLAN    | ROLE_PLAN
#define FIT     | ROLE_FIT
#define SAMPLES | ROLE_SAMPLES
#define EVAL    | ROLE_EVAL
#define CHOSEN  | ROLE_CHOSEN
#include "trainer/config/keys.def"
};

void config_open(ConfigReader *reader) {
    *reader = (ConfigReader){.config = defaults};
    for (int i = 0; i < KEY_COUNT; i++) {
        reader->options[i] =
            (Option){keys[i].type, config_key(i), (char *)&reader->config + keys[i].offset, NULL, NULL};
        snprintf(reader->origin[i], sizeof reader->origin[i], "default");
    }
    reader->options[KEY_COUNT] = (Option){OPT_END, NULL, NULL, NULL, NULL};
}

void config_close(ConfigReader *reader) {
    buffer_close(&reader->mistakes);
    buffer_close(&reader->ignored);
    arena_close(&reader->strings);
}

bool config_find_word(int key, const char *text, int *value) {
    for (int i = 0; i < keys[key].name_count; i++)
        if (keys[key].names[i] && !strcmp(keys[key].names[i], text)) return *value = i, true;
    for (const Alias *alias = keys[key].aliases; alias->text; alias++)
        if (!strcmp(alias->text, text)) return *value = alias->value, true;
    return false;
}

const char *config_nearest_word(int key, const char *text) {
    Nearest nearest = nearest_begin(text);
    for (int i = 0; i < keys[key].name_count; i++)
        if (keys[key].names[i]) nearest_add(&nearest, keys[key].names[i], strlen(keys[key].names[i]));
    return nearest.name;
}

bool config_is_word(int key) { return keys[key].names; }
const char *config_word(int key, int value) { return keys[key].names[value]; }

void config_words(int key, Buffer *out) {
    size_t start = out->size;
    for (int i = 0; i < keys[key].name_count; i++)
        if (keys[key].names[i]) buffer_print(out, "%s%s", out->size > start ? ", " : "", keys[key].names[i]);
}

KeyClass config_class(int key) { return (KeyClass)(keys[key].class % ROLE_PLAN); }
bool config_has_role(int key, KeyRole role) { return keys[key].class & (int)role; }
bool config_may_change(int key) { return config_class(key) == CLASS_RUN || config_class(key) == CLASS_RUN_OPTION; }
bool config_omits_default(int key) {
    const KeyClass class = config_class(key);
    return class == CLASS_OPTION || class == CLASS_STREAM_OPTION || class == CLASS_RUN_OPTION;
}
const char *config_key(int key) { return config_keys[key].name; }

int config_find_key(const char *name) {
    int key = 0;
    while (key < KEY_COUNT && strcmp(config_key(key), name)) key++;
    return key;
}

void config_value(const Config *config, int key, char *out, size_t size) {
    if (keys[key].names) {
        snprintf(out, size, "%s", config_word(key, *(const int *)((const char *)config + keys[key].offset)));
        return;
    }
    Option option = {keys[key].type, config_key(key), (char *)(uintptr_t)config + keys[key].offset, NULL, NULL};
    option_print(&option, out, size);
    if (option.type != OPT_FLOAT) return;
    double number = *(double *)option.value; // the fewest digits that give it back
    for (int digits = 6; digits <= 17 && strtod(out, NULL) != number; digits++)
        snprintf(out, size, "%.*g", digits, number);
}

double config_number(const Config *config, int key) {
    const void *value = (const char *)config + keys[key].offset;
    return keys[key].type == OPT_FLOAT  ? *(const double *)value
           : keys[key].type == OPT_AUTO ? (double)((const AutoInt *)value)->value
                                        : (double)*(const int64_t *)value;
}

void config_text(const Config *config, int key, char *out, size_t size) {
    const int part = config_part(key);
    config_value(config, key, out, size);
    if (part == KEY_COUNT || !config_is_used(config, part) || config_is_default(config, part)) return;
    const size_t length = strlen(out);
    snprintf(out + length, size - length, ":");
    config_value(config, part, out + length + 1, size - length - 1);
}

void config_default(int key, char *out, size_t size) { config_value(&defaults, key, out, size); }

bool config_parse(Config *config, int key, const char *text) {
    void *value = (char *)config + keys[key].offset;
    if (keys[key].names) return config_find_word(key, text, value);
    Option option = {keys[key].type, config_key(key), value, NULL, NULL};
    if (option_set(&option, text) == 0) return true;
    return err_clear(), false;
}

static void print_quoted(Buffer *out, const char *text) {
    static const char codes[] = "ntr\\'", bytes[] = "\n\t\r\\'";
    buffer_print(out, "'");
    for (; *text; text++) {
        const char *found = strchr(bytes, *text);
        if (found) buffer_print(out, "\\%c", codes[found - bytes]);
        if (!found) buffer_add(out, text, 1);
    }
    buffer_print(out, "'");
}

// In a file, batch_size cannot be both a number and auto: tokens_per_step then keeps the size of the step.
static Config as_file(const ConfigReader *reader) {
    Config config = reader->config;
    if (config.batch_size.is_auto && !config.tokens_per_step && reader->has_number[KEY_batch_size])
        config.tokens_per_step = config.batch_size.value * config.gradient_accumulation_steps * config.block_size;
    return config;
}

void config_add_value(const Config *config, int key, Buffer *out) {
    char text[64];
    const bool is_string = keys[key].type == OPT_STRING && !keys[key].names;
    if (!is_string) config_text(config, key, text, sizeof text);
    if (is_string)
        print_quoted(out, *(const char *const *)((const char *)config + keys[key].offset));
    else if (keys[key].names || (keys[key].type == OPT_AUTO && !strcmp(text, "auto")))
        print_quoted(out, text);
    else
        buffer_print(out, "%s", text);
}

void config_add_text(const ConfigReader *reader, Buffer *out) {
    const Config config = as_file(reader);
    for (int i = 0; i < KEY_COUNT; i++) {
        Buffer shown_value = {0};
        if (!*config_keys[i].help && (config_is_part(i) || config_is_default(&config, i))) continue;
        const char *title = key_title(&config_options, &config_keys[i]);
        if (title) buffer_print(out, "# %s\n", title);
        config_add_value(&config, i, &shown_value);
        buffer_print(out, "%-28s = %-24.*s # %s; %s\n", config_key(i), (int)shown_value.size,
                     (const char *)shown_value.data, reader->origin[i], config_keys[i].help);
        buffer_close(&shown_value);
    }
}

void config_print(const ConfigReader *reader) {
    Buffer text = {0};
    config_add_text(reader, &text);
    fwrite(text.data, 1, text.size, stdout);
    buffer_close(&text);
}
