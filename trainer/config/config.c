// The configuration: keys, files and flags.
#include "trainer/config/config.h"
#include "common/err.h"
#include "common/file.h"
#include "common/log.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { FILE_MAX_BYTES = 1 << 20, STRINGS_MAX_BYTES = 64 << 20 };

// The words of the WORD rows: names by value, which may have gaps, and aliases.
typedef struct {
    const char *text;
    int value;
} Alias;

#define KEY(type, field, initial, class, meaning)
#define WORD(type, field, initial, class, meaning, words) static const char *const names_##field[] = {words};
#define W(constant, text)                                 [constant] = text,
#define ALIAS(constant, text)
#include "trainer/config/keys.def"

#define KEY(type, field, initial, class, meaning)
#define WORD(type, field, initial, class, meaning, words) static const Alias aliases_##field[] = {words NO_ALIAS};
#define W(constant, text)
#define ALIAS(constant, text) {text, constant},
#define NO_ALIAS                                                                                                       \
    { NULL, 0 }
#include "trainer/config/keys.def"

#define AUTO_INT(...)                                                                                                  \
    { __VA_ARGS__ }

static const Config defaults = {
#define KEY(type, field, initial, class, meaning)         .field = initial,
#define WORD(type, field, initial, class, meaning, words) .field = initial,
#include "trainer/config/keys.def"
};

// For help, where a word's default is its name and its argument the list of words, as "one|two".
static Config shown = {
#define KEY(type, field, initial, class, meaning)         .field = initial,
#define WORD(type, field, initial, class, meaning, words) .field = initial,
#include "trainer/config/keys.def"
};
const Option config_keys[KEY_COUNT + 1] = {
#define KEY(type, field, initial, class, meaning) {OPT_##type, #field, &shown.field, NULL, meaning},
#define WORD(type, field, initial, class, meaning, words)                                                              \
    {OPT_STRING, #field, (void *)(uintptr_t)&names_##field[initial], &("" words)[1], meaning},
#define W(constant, text) "|" text
#define ALIAS(constant, text)
#include "trainer/config/keys.def"
};

static const struct {
    OptionType type; // OPT_STRING for words
    const char *name, *meaning;
    KeyClass class;
    size_t offset;
    const char *const *names; // of a word, by value; NULL for other types
    int name_count;
    const Alias *aliases;
} keys[KEY_COUNT] = {
#define KEY(type, field, initial, class, meaning)                                                                      \
    {OPT_##type, #field, meaning, CLASS_##class, offsetof(Config, field), NULL, 0, NULL},
#define WORD(type, field, initial, class, meaning, words)                                                              \
    {OPT_STRING,                                                                                                       \
     #field,                                                                                                           \
     meaning,                                                                                                          \
     CLASS_##class,                                                                                                    \
     offsetof(Config, field),                                                                                          \
     names_##field,                                                                                                    \
     (int)(sizeof names_##field / sizeof *names_##field),                                                              \
     aliases_##field},
#include "trainer/config/keys.def"
};

// nanoGPT's keys for torch.compile, torch.distributed and Weights & Biases.
static const char *const ignored_keys[] = {"compile", "backend", NULL};
static const char ignored_prefix[] = "wandb_";

// The position of an assignment, for messages.
typedef struct {
    ConfigReader *reader;
    const char *file; // NULL: a flag
    const char *line; // its first byte
    int number;
} Place;

__attribute__((format(printf, 3, 4))) static void mistake(const Place *place, const char *at, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    Buffer *out = &place->reader->mistakes;
    if (place->file)
        buffer_print(out, "%s:%d:%d: %s\n", place->file, place->number, (int)(at - place->line) + 1, text);
    else
        buffer_print(out, "%s\n", text);
    place->reader->mistake_count++;
}

static bool is_ignored(const char *name, size_t length) {
    for (int i = 0; ignored_keys[i]; i++)
        if (strlen(ignored_keys[i]) == length && !memcmp(ignored_keys[i], name, length)) return true;
    return length >= sizeof ignored_prefix && !memcmp(name, ignored_prefix, sizeof ignored_prefix - 1);
}

static void note_ignored(ConfigReader *reader, const char *name, size_t length) {
    buffer_print(&reader->ignored, "%s%.*s", reader->ignored.size ? ", " : "", (int)length, name);
}

static const char *skip_blank(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\r') at++;
    return at;
}

// Numbers, also as products: 5 * 8. `whole` tells whether every factor was written as an integer.
static const char *read_product(const char *at, double *value, bool *whole) {
    *value = 1, *whole = true;
    for (;;) {
        const char *digits = at + (*at == '-' || *at == '+');
        if (!isdigit((unsigned char)*digits) && !(*digits == '.' && isdigit((unsigned char)digits[1]))) return NULL;
        if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) return NULL;
        char text[64], *end;
        size_t length = 0; // Python's 1_000_000
        for (; isalnum((unsigned char)*at) || strchr("+-._", *at ? *at : ' '); at++) {
            bool sign = *at == '+' || *at == '-';
            if (sign && length && text[length - 1] != 'e' && text[length - 1] != 'E') break;
            if (*at != '_' && length + 1 < sizeof text) text[length++] = *at;
        }
        text[length] = 0;
        *value *= strtod(text, &end);
        if (*end) return NULL;
        if (strpbrk(text, ".eE")) *whole = false;
        const char *next = skip_blank(at);
        if (*next != '*' || next[1] == '*') return at;
        at = skip_blank(next + 1);
    }
}

static const char *read_string(ConfigReader *reader, const char *at, char **value) {
    char quote = *at++, *out = *value = arena_push(&reader->strings, strlen(at) + 1);
    while (*at != quote) {
        if (!*at) return NULL;
        if (*at == '\\' && at[1]) {
            static const char from[] = "ntr\\'\"", to[] = "\n\t\r\\'\"";
            const char *found = strchr(from, *++at);
            if (!found) *out++ = '\\';
            *out++ = found ? to[found - from] : *at;
            at++;
        } else
            *out++ = *at++;
    }
    *out = 0;
    return at + 1;
}

static const char *const type_names[] = {
    [OPT_FLAG] = "True or False",        [OPT_INT] = "an integer",
    [OPT_AUTO] = "an integer or 'auto'", [OPT_FLOAT] = "a number",
    [OPT_STRING] = "a quoted string",    [OPT_SIZE] = "a number of bytes, as 1000000 or '11.3GiB'",
};

// Stores a number, when the key takes one. Integers must be exact: 2^53 is far beyond any sensible setting.
static bool store_number(const Option *option, double value, bool whole) {
    bool integral = whole && fabs(value) <= 0x1p53;
    if (option->type == OPT_INT && integral)
        *(int64_t *)option->value = (int64_t)value;
    else if (option->type == OPT_AUTO && integral && value >= 0)
        *(AutoInt *)option->value = (AutoInt){false, (int64_t)value};
    else if (option->type == OPT_SIZE && integral && value >= 0)
        *(uint64_t *)option->value = (uint64_t)value;
    else if (option->type == OPT_FLOAT && isfinite(value))
        *(double *)option->value = value;
    else
        return false;
    return true;
}

static bool store_word(const Option *option, const char *word) {
    if (option->type == OPT_STRING) return *(const char **)option->value = word, true;
    if (option->type != OPT_SIZE && option->type != OPT_AUTO) return false;
    if (option_set(option, word) == 0) return true;
    return err_clear(), false;
}

static int key_index(const ConfigReader *reader, const Option *option) { return (int)(option - reader->options); }

static bool find_word(int key, const char *text, int *value) {
    for (int i = 0; i < keys[key].name_count; i++)
        if (keys[key].names[i] && !strcmp(keys[key].names[i], text)) return *value = i, true;
    for (const Alias *alias = keys[key].aliases; alias->text; alias++)
        if (!strcmp(alias->text, text)) return *value = alias->value, true;
    return false;
}

// Stores the value of a WORD key; `at` is where it stands.
static void store_key_word(const Place *place, const char *at, const Option *option, const char *text) {
    int key = key_index(place->reader, option);
    if (find_word(key, text, option->value)) return;
    Buffer names = {0};
    for (int i = 0; i < keys[key].name_count; i++)
        if (keys[key].names[i]) buffer_print(&names, "%s%s", names.size ? ", " : "", keys[key].names[i]);
    mistake(place, at, "'%s' is '%s', not one of %s", option->name, text, (const char *)names.data);
    buffer_close(&names);
}

static const char *read_key_word(const Place *place, const char *at, const Option *option) {
    char *text;
    const char *end = at;
    if (*at == '"' || *at == '\'') {
        end = read_string(place->reader, at, &text);
        if (!end) return mistake(place, at, "the string for '%s' has no closing quote", option->name), NULL;
    } else {
        while (*end && !strchr(" \t\r#", *end)) end++;
        text = arena_push(&place->reader->strings, (size_t)(end - at) + 1);
        memcpy(text, at, (size_t)(end - at));
        text[end - at] = 0;
    }
    store_key_word(place, at, option, text);
    return end;
}

// Reads the value at `at` into the option. Returns what follows, or NULL after a mistake.
static const char *read_value(const Place *place, const char *at, const Option *option) {
    if (keys[key_index(place->reader, option)].names) return read_key_word(place, at, option);
    const char *end = NULL;
    bool fits = false;
    if (*at == '"' || *at == '\'') {
        char *text;
        end = read_string(place->reader, at, &text);
        if (!end) return mistake(place, at, "the string for '%s' has no closing quote", option->name), NULL;
        fits = store_word(option, text);
    } else if (!strncmp(at, "True", 4) || !strncmp(at, "False", 5)) {
        end = at + (*at == 'T' ? 4 : 5);
        fits = option->type == OPT_FLAG && !isalnum((unsigned char)*end);
        if (fits) *(bool *)option->value = *at == 'T';
    } else {
        double value;
        bool whole;
        end = read_product(at, &value, &whole);
        fits = end && store_number(option, value, whole);
    }
    if (!fits) return mistake(place, at, "'%s' takes %s", option->name, type_names[option->type]), NULL;
    return end;
}

// Unknown keys name the nearest one.
static const Option *find_key(const Place *place, const char *name, size_t length) {
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    const Option *option = option_find(place->reader->options, name, length);
    if (option && strlen(option->name) == length) return option;
    const char *near = option_nearest(place->reader->options, text);
    mistake(place, name, "unknown key '%s'%s%s%s", text, near ? ", did you mean '" : "", near ? near : "",
            near ? "'?" : "");
    return NULL;
}

// Notes where a key is set. Of flags the last one wins, as of files; a file that sets a key twice has a mistake.
static bool take_origin(const Place *place, const Option *option, const char *at, const char *origin) {
    char *old = place->reader->origin[key_index(place->reader, option)];
    size_t prefix = place->file ? strlen(place->file) : 0;
    if (place->file && !strncmp(old, place->file, prefix) && old[prefix] == ':')
        return mistake(place, at, "'%s' is set twice, first at %s", option->name, old), false;
    snprintf(old, sizeof place->reader->origin[0], "%s", origin);
    return true;
}

static void read_line(const Place *place) {
    const char *name = skip_blank(place->line), *end = name;
    if (!*name || *name == '#') return;
    while (isalnum((unsigned char)*end) || *end == '_') end++;
    size_t length = (size_t)(end - name);
    const char *at = skip_blank(end);
    if ((length == 6 && !memcmp(name, "import", 6)) || (length == 4 && !memcmp(name, "from", 4))) {
        note_ignored(place->reader, name, length);
        return;
    }
    if (!length || *at != '=' || at[1] == '=') {
        mistake(place, name, "not a 'key = value' line");
        return;
    }
    if (is_ignored(name, length)) {
        note_ignored(place->reader, name, length);
        return;
    }
    const Option *option = find_key(place, name, length);
    if (!option) return;
    char origin[sizeof place->reader->origin[0]];
    snprintf(origin, sizeof origin, "%.*s:%d", (int)sizeof origin - 16, place->file, place->number);
    if (!take_origin(place, option, name, origin)) return;
    const char *rest = read_value(place, skip_blank(at + 1), option);
    if (!rest) return;
    rest = skip_blank(rest);
    if (*rest && *rest != '#') mistake(place, rest, "unexpected text after the value of '%s'", option->name);
}

void config_open(ConfigReader *reader) {
    *reader = (ConfigReader){.config = defaults};
    arena_open(&reader->strings, STRINGS_MAX_BYTES);
    for (int i = 0; i < KEY_COUNT; i++) {
        reader->options[i] =
            (Option){keys[i].type, keys[i].name, (char *)&reader->config + keys[i].offset, NULL, keys[i].meaning};
        snprintf(reader->origin[i], sizeof reader->origin[i], "default");
    }
    reader->options[KEY_COUNT] = (Option){OPT_END, NULL, NULL, NULL, NULL};
}

void config_file(ConfigReader *reader, const char *path) {
    Buffer text = {0};
    Place place = {reader, path, "", 0};
    if (file_read(&text, path, FILE_MAX_BYTES) < 0) {
        buffer_print(&reader->mistakes, "%s\n", err_text());
        reader->mistake_count++, err_clear();
    }
    buffer_add(&text, "", 1);
    for (char *line = (char *)text.data, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        place.line = line, place.number++;
        read_line(&place);
    }
    buffer_close(&text);
}

// The shell has removed the quotes of a flag, so that any text is a string. true and false may have any case.
void config_flag(ConfigReader *reader, const char *assignment) {
    Place place = {reader, NULL, assignment, 0};
    const char *equals = strchr(assignment, '=');
    size_t length = equals ? (size_t)(equals - assignment) : strlen(assignment);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, assignment);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    if (is_ignored(name, strlen(name))) {
        note_ignored(reader, name, strlen(name));
        return;
    }
    const Option *option = find_key(&place, name, strlen(name));
    if (!option) return;
    if (!equals && option->type != OPT_FLAG) {
        mistake(&place, assignment, "write --%s=VALUE", option->name);
        return;
    }
    char origin[sizeof reader->origin[0]];
    snprintf(origin, sizeof origin, "--%s", option->name);
    if (!take_origin(&place, option, assignment, origin)) return;
    const char *value = equals ? equals + 1 : "True";
    bool is_word = keys[key_index(reader, option)].names;
    if (option->type == OPT_STRING && !is_word && *value != '"' && *value != '\'')
        *(const char **)option->value = value;
    else if (option->type == OPT_FLAG || option->type == OPT_SIZE ||
             (option->type == OPT_AUTO && !strcmp(value, "auto"))) {
        if (option_set(option, value) == 0) return;
        err_clear();
        mistake(&place, value, "'--%s' takes %s", option->name, type_names[option->type]);
    } else {
        const char *rest = read_value(&place, value, option);
        if (rest && *skip_blank(rest)) mistake(&place, rest, "unexpected text after the value of '--%s'", option->name);
    }
}

void config_close(ConfigReader *reader) {
    buffer_close(&reader->mistakes);
    buffer_close(&reader->ignored);
    arena_close(&reader->strings);
}

KeyClass config_class(int key) { return keys[key].class; }
const char *config_key(int key) { return keys[key].name; }

void config_value(const Config *config, int key, char *out, size_t size) {
    if (keys[key].names) {
        snprintf(out, size, "%s", keys[key].names[*(const int *)((const char *)config + keys[key].offset)]);
        return;
    }
    Option option = {keys[key].type, keys[key].name, (char *)(uintptr_t)config + keys[key].offset, NULL, NULL};
    option_print(&option, out, size);
    if (option.type != OPT_FLOAT) return;
    double number = *(double *)option.value; // the fewest digits that give it back
    for (int digits = 6; digits <= 17 && strtod(out, NULL) != number; digits++)
        snprintf(out, size, "%.*g", digits, number);
}

bool config_parse(Config *config, int key, const char *text) {
    void *value = (char *)config + keys[key].offset;
    if (keys[key].names) return find_word(key, text, value);
    Option option = {keys[key].type, keys[key].name, value, NULL, NULL};
    if (option_set(&option, text) == 0) return true;
    return err_clear(), false;
}

void config_print(const ConfigReader *reader) {
    for (int i = 0; i < KEY_COUNT; i++) {
        char value[256];
        config_value(&reader->config, i, value, sizeof value);
        printf("%-28s = %-24s # %s; %s\n", keys[i].name, value, reader->origin[i], keys[i].meaning);
    }
}
