// The configuration: files and flags into values.
#include "common/cli/successors.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "trainer/config/config_python.h"
#include "trainer/config/expression.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1 << 20, NAME_BYTES = 64 };

// A name that a file sets and that is no key. It may be used in later values; if it is not, it was meant as a key.
typedef struct ConfigVariable {
    struct ConfigVariable *next;
    char name[NAME_BYTES];
    Value value;
    bool used;
    int number, column;
} Variable;

// The position of an assignment, for messages.
typedef struct {
    ConfigReader *reader;
    const char *file; // NULL: a flag
    const char *line; // its first byte
    int number;
    const char *docstring; // the quotes that end the docstring in which the line begins, or NULL
    int docstring_number;
} Assignment;

__attribute__((format(printf, 3, 4))) static void mistake(const Assignment *place, int column, const char *format,
                                                          ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    Buffer *out = &place->reader->mistakes;
    if (place->file)
        buffer_print(out, "%s:%d:%d: %s\n", place->file, place->number, column, text);
    else // a flag: --NAME, or --NAME=VALUE as far as it is short
        buffer_print(out, "--%.60s%s: %s\n", place->line, strlen(place->line) > 60 ? "..." : "", text);
    place->reader->mistake_count++;
}

static int column(const Assignment *place, const char *at) { return (int)(at - place->line) + 1; }

static bool same_name(const char *text, const char *name, size_t length) {
    return strlen(text) == length && !memcmp(text, name, length);
}

static void note_ignored(ConfigReader *reader, const char *name, size_t length) {
    buffer_print(&reader->ignored, "%s%.*s", reader->ignored.size ? ", " : "", (int)length, name);
}

static const char *skip_blank(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\r') at++;
    return at;
}

// ---- names

static const Option *find_option(const ConfigReader *reader, const char *name, size_t length) {
    const Option *option = option_find(reader->options, name, length);
    return option && strlen(option->name) == length && !config_is_part((int)(option - reader->options)) ? option : NULL;
}

static int key_index(const ConfigReader *reader, const Option *option) { return (int)(option - reader->options); }

static Variable *find_variable(const ConfigReader *reader, const char *name, size_t length) {
    for (Variable *variable = reader->variables; variable; variable = variable->next)
        if (same_name(variable->name, name, length)) return variable;
    return NULL;
}

static Value key_value(const Option *option) {
    switch (option->type) {
    case OPT_FLAG:
        return (Value){.type = VALUE_FLAG, .flag = *(bool *)option->value};
    case OPT_FLOAT:
        return (Value){.type = VALUE_NUMBER, .number = *(double *)option->value};
    case OPT_STRING:
        return (Value){.type = VALUE_TEXT, .text = *(const char **)option->value};
    case OPT_AUTO:
        return (Value){.type = VALUE_NUMBER, .number = (double)((AutoInt *)option->value)->value, .whole = true};
    case OPT_SIZE:
        return (Value){.type = VALUE_NUMBER, .number = (double)*(uint64_t *)option->value, .whole = true};
    default:
        return (Value){.type = VALUE_NUMBER, .number = (double)*(int64_t *)option->value, .whole = true};
    }
}

// The value of a variable or a key, for expressions.
static bool find_name(void *names, const char *name, size_t length, Value *value) {
    ConfigReader *reader = names;
    Variable *variable = find_variable(reader, name, length);
    if (variable) return variable->used = true, *value = variable->value, true;
    const Option *option = find_option(reader, name, length);
    if (!option || config_is_word(key_index(reader, option))) return false;
    return *value = key_value(option), true;
}

// Whether a key, or a word of one, was a key or word of an earlier version: a mistake that names its successor.
static bool is_gone(const Assignment *place, int at, SuccessorKind kind, const char *scope, const char *name) {
    if (successor_check(kind, "trainer", scope, name) == 0) return false;
    mistake(place, at, "%s", err_text());
    return err_clear(), true;
}

static void unknown_key(const Assignment *place, int at, const char *name) {
    if (is_gone(place, at, SUCCESSOR_KEY, "", name)) return;
    const char *missing = python_missing(name);
    if (missing) {
        mistake(place, at, "unknown key '%s': %s", name, missing);
        return;
    }
    const char *near = python_key(name);
    if (!near) near = option_nearest(place->reader->options, name);
    mistake(place, at, "unknown key '%s'%s%s%s", name, near ? ", did you mean '" : "", near ? near : "",
            near ? "'?" : "");
}

// ---- values

static const char *const type_names[] = {
    [OPT_FLAG] = "True or False",        [OPT_INT] = "an integer",
    [OPT_AUTO] = "an integer or 'auto'", [OPT_FLOAT] = "a number",
    [OPT_STRING] = "a quoted string",    [OPT_SIZE] = "a number of bytes, as 1000000 or '10.8GiB'",
};

// Integers must be exact: 2^53 is far beyond any sensible setting.
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

static bool store_text(const Option *option, const char *text) {
    if (option->type == OPT_STRING) return *(const char **)option->value = text, true;
    if (option->type != OPT_SIZE && option->type != OPT_AUTO) return false;
    if (option_set(option, text) == 0) return true;
    return err_clear(), false;
}

static bool store(const Option *option, const Value *value) {
    if (value->type == VALUE_NUMBER) return store_number(option, value->number, value->whole);
    if (value->type == VALUE_TEXT) return store_text(option, value->text);
    if (option->type != OPT_FLAG) return false;
    return *(bool *)option->value = value->flag, true;
}

static const char *copy_text(ConfigReader *reader, const char *text, size_t length) {
    char *copy = arena_push(&reader->strings, length + 1);
    memcpy(copy, text, length), copy[length] = 0;
    return copy;
}

// Sets a word, which may have a part behind a colon: without it the part has its default.
static bool set_word(ConfigReader *reader, int key, const char *text) {
    const int part = config_part(key);
    const char *colon = strrchr(text, ':');
    Config *config = &reader->config;
    char initial[64];
    if (part < KEY_COUNT) {
        config_default(part, initial, sizeof initial);
        config_parse(config, part, initial), strcpy(reader->origin[part], "default");
    }
    if (config_parse(config, key, text)) return true;
    if (part == KEY_COUNT || !colon) return false;
    strcpy(reader->origin[part], reader->origin[key]);
    return config_parse(config, key, copy_text(reader, text, (size_t)(colon - text))) && config_is_used(config, part) &&
           config_parse(config, part, colon + 1) && (config_is_word(part) || config_number(config, part) != 0);
}

// After set_word has failed: what the part takes, if the word before the colon may have one.
static bool explain_part(const Assignment *place, const char *at, const Option *option, const char *text) {
    const Config *config = &place->reader->config;
    const int key = key_index(place->reader, option), part = config_part(key);
    const char *colon = strrchr(text, ':');
    char word[NAME_BYTES];
    if (part == KEY_COUNT || !colon || !config_is_used(config, part)) return false;
    config_value(config, key, word, sizeof word);
    if (strlen(word) != (size_t)(colon - text) || strncmp(text, word, strlen(word))) return false;
    Buffer takes = {0};
    if (config_is_word(part)) config_words(part, &takes);
    if (!config_is_word(part)) buffer_print(&takes, "%s above 0", type_names[place->reader->options[part].type]);
    mistake(place, column(place, at), "'%s' is '%s': '%s:' takes %s%s", option->name, text, word,
            config_is_word(part) ? "one of " : "", (const char *)takes.data);
    return buffer_close(&takes), true;
}

static void store_word(const Assignment *place, const char *at, const Option *option, const char *text) {
    int key = key_index(place->reader, option);
    if (set_word(place->reader, key, text) || explain_part(place, at, option, text)) return;
    if (is_gone(place, column(place, at), SUCCESSOR_WORD, option->name, text)) return;
    Buffer words = {0};
    config_words(key, &words);
    const char *near = python_word(text);
    int value;
    if (near && !config_find_word(key, near, &value)) near = NULL;
    if (!near) near = config_nearest_word(key, text);
    mistake(place, column(place, at), "'%s' is '%s', not one of %s%s%s%s", option->name, text, (const char *)words.data,
            near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    buffer_close(&words);
}

// A word may have no quotes, as in flags and in "recompute = block".
static const char *read_bare_word(const Assignment *place, const char *at, const Option *option) {
    const char *end = at;
    while (*end && !strchr(" \t\r#;", *end)) end++;
    store_word(place, at, option, copy_text(place->reader, at, (size_t)(end - at)));
    return end;
}

// Reads the value at `at` into the option. Returns the rest, or NULL after a mistake.
static const char *read_value(const Assignment *place, const char *at, const Option *option) {
    const bool is_word = config_is_word(key_index(place->reader, option));
    if (is_word && *at != '"' && *at != '\'') return read_bare_word(place, at, option);
    ExpressionReader reader = {.find = find_name, .names = place->reader, .strings = &place->reader->strings};
    Value value;
    int word;
    const char *end = expression_read(&reader, at, &value);
    if (!end && is_word && !strncmp(reader.where, "torch.", 6) &&
        config_find_word(key_index(place->reader, option), "auto", &word)) { // auto inspects the device itself
        note_ignored(place->reader, option->name, strlen(option->name));
        return reader.where + strcspn(reader.where, ";#");
    }
    if (!end && *reader.error)
        mistake(place, column(place, reader.where), "'%s' takes %s: %s", option->name, type_names[option->type],
                reader.error);
    else if (end && is_word && value.type == VALUE_TEXT)
        return store_word(place, at, option, value.text), end;
    else if (!end || !store(option, &value))
        mistake(place, column(place, at), "'%s' takes %s", option->name, type_names[option->type]), end = NULL;
    else if (option->type == OPT_AUTO && value.type == VALUE_NUMBER)
        place->reader->has_number[key_index(place->reader, option)] = true;
    return end;
}

// ---- files

// Notes where a key is set. A file that sets a key twice has a mistake.
static bool take_origin(const Assignment *place, const Option *option, const char *at) {
    ConfigReader *reader = place->reader;
    int key = key_index(reader, option);
    char *origin = reader->origin[key];
    if (reader->source[key] == reader->files) {
        mistake(place, column(place, at), "'%s' is set twice, first at %s: remove one (nanoGPT takes the last)",
                option->name, origin);
        return false;
    }
    reader->source[key] = reader->files;
    snprintf(origin, sizeof reader->origin[0], "%.*s:%d", (int)sizeof reader->origin[0] - 16, place->file,
             place->number);
    return true;
}

static const char *set_variable(const Assignment *place, const char *name, size_t length, const char *at) {
    ConfigReader *reader = place->reader;
    ExpressionReader expression = {.find = find_name, .names = reader, .strings = &reader->strings};
    Value value;
    const char *end = expression_read(&expression, at, &value);
    Variable *variable = find_variable(reader, name, length);
    if (!end) return NULL;
    if (!variable) {
        variable = arena_push(&reader->strings, sizeof *variable);
        *variable = (Variable){.next = reader->variables, .number = place->number, .column = column(place, name)};
        memcpy(variable->name, name, length);
        reader->variables = variable;
    }
    variable->value = value;
    return end;
}

// Notes an ignored statement. Returns the next one in the line, or NULL.
static const char *ignore_statement(const Assignment *place, const char *name, size_t length) {
    note_ignored(place->reader, name, length);
    return python_next_statement(name);
}

// Reads a statement. Returns the next one in the line, or NULL at its end and after a mistake.
static const char *read_statement(Assignment *place, const char *at) {
    const char *name = skip_blank(at), *end = name;
    if (!*name || *name == '#') return NULL;
    place->docstring = python_docstring(name);
    if (place->docstring) {
        note_ignored(place->reader, name, strlen(place->docstring));
        place->docstring_number = place->number;
        return name + strlen(place->docstring);
    }
    while (isalnum((unsigned char)*end) || *end == '_') end++;
    size_t length = (size_t)(end - name);
    at = python_skip_annotation(skip_blank(end));
    const char *value = *at == '=' ? skip_blank(at + 1) : "";
    const bool of_torch = !strncmp(value, "torch.", 6);
    if (python_takes_keys(name)) {
        mistake(place, column(place, name),
                "takes keys from elsewhere, which is not done: name both files, that one first");
        return NULL;
    }
    if (of_torch || python_is_ignored(name))
        return ignore_statement(place, name, of_torch ? length : strcspn(name, " \t\r=("));
    if (!length || *at != '=' || at[1] == '=') {
        mistake(place, column(place, name), "not a 'key = value' line, as n_layer = 12");
        return NULL;
    }
    const Option *option = find_option(place->reader, name, length);
    const char *rest = NULL;
    char text[NAME_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    if (python_is_ignored_key(name, length)) return ignore_statement(place, name, length);
    if (length < NAME_BYTES && is_gone(place, column(place, name), SUCCESSOR_KEY, "", text)) return NULL;
    if (option)
        rest = take_origin(place, option, name) ? read_value(place, value, option) : NULL;
    else if (length >= NAME_BYTES || !(rest = set_variable(place, name, length, value))) {
        if (python_is_call(value) || python_is_computed(name, length)) return ignore_statement(place, name, length);
        unknown_key(place, column(place, name), text);
    }
    if (!rest) return NULL;
    rest = skip_blank(rest);
    if (*rest == ';') return rest + 1;
    if (*rest && *rest != '#')
        mistake(place, column(place, rest), "unexpected text after the value of '%s': '%s'", text, rest);
    return NULL;
}

static void read_line(Assignment *place) {
    for (const char *at = place->line; at; at = read_statement(place, at)) {
        if (!place->docstring) continue;
        at = strstr(at, place->docstring);
        if (!at) return;
        at += strlen(place->docstring), place->docstring = NULL;
    }
}

// A name that no later value uses was meant as a key, unless train.py computes it.
static void check_variables(Assignment *place) {
    for (Variable *variable = place->reader->variables; variable; variable = variable->next) {
        if (variable->used) continue;
        place->number = variable->number, variable->used = true;
        if (python_is_computed(variable->name, strlen(variable->name)))
            note_ignored(place->reader, variable->name, strlen(variable->name));
        else
            unknown_key(place, variable->column, variable->name);
    }
}

// What the user meant by a folder in place of a configuration.
static void print_folder_hint(ConfigReader *reader, const char *path) {
    char file[PATH_MAX_BYTES];
    if (access(path_join(file, path, "metrics.jsonl"), F_OK) == 0)
        buffer_print(&reader->mistakes, ": to name a run, write --out_dir=%s", path);
    else if (access(path_join(file, path, "dataset.jsonl"), F_OK) == 0)
        buffer_print(&reader->mistakes, ": to name a dataset, write --dataset=%s", path);
    else
        buffer_print(&reader->mistakes,
                     ": `millrace tokenize -o DATA %s` makes a dataset of its texts, for --dataset=DATA", path);
}

void config_file(ConfigReader *reader, const char *path) {
    Buffer text = {0};
    Assignment place = {.reader = reader, .file = path};
    reader->files++;
    if (file_read_stream(&text, path, FILE_MAX_BYTES) < 0) {
        struct stat status;
        buffer_print(&reader->mistakes, "%s", err_text());
        if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) print_folder_hint(reader, path);
        buffer_print(&reader->mistakes, "\n");
        reader->mistake_count++, reader->unreadable++, err_clear();
    }
    buffer_add(&text, "", 1);
    char *line = (char *)text.data, *const end = line + text.size - 1;
    if (!strncmp(line, "\xef\xbb\xbf", 3)) line += 3; // a byte order mark
    for (char *next; line; line = next) {
        next = memchr(line, '\n', (size_t)(end - line));
        if (next) *next = 0;
        place.line = line, place.number++;
        if (strlen(line) < (size_t)((next ? next : end) - line))
            mistake(&place, (int)strlen(line) + 1, "the line has a NUL byte: not a text file");
        else
            read_line(&place);
        if (next) next++;
    }
    place.number = place.docstring_number;
    if (place.docstring) mistake(&place, 1, "the docstring has no closing %s", place.docstring);
    check_variables(&place);
    buffer_close(&text);
}

// ---- flags

// The name of a flag as a key: with _ for -.
static void key_name(char name[NAME_BYTES], const char *flag, size_t length) {
    snprintf(name, NAME_BYTES, "%.*s", (int)length, flag);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
}

// The shell has removed the quotes of a flag, so that any text is a string. true and false may have any case.
void config_flag(ConfigReader *reader, const char *assignment) {
    Assignment place = {.reader = reader, .line = assignment};
    const char *equals = strchr(assignment, '=');
    size_t length = equals ? (size_t)(equals - assignment) : strlen(assignment);
    char name[NAME_BYTES];
    key_name(name, assignment, length);
    if (python_is_ignored_key(name, strlen(name))) {
        note_ignored(reader, name, strlen(name));
        return;
    }
    const Option *option = find_option(reader, name, strlen(name));
    if (!option) {
        unknown_key(&place, 1, name);
        return;
    }
    if (!equals && option->type != OPT_FLAG) {
        mistake(&place, 1, "write --%s=VALUE", option->name);
        return;
    }
    snprintf(reader->origin[key_index(reader, option)], sizeof reader->origin[0], "--%s", option->name);
    reader->source[key_index(reader, option)] = reader->files + 1;
    const char *value = equals ? equals + 1 : "True";
    const bool is_word = config_is_word(key_index(reader, option));
    if (option->type == OPT_STRING && !is_word && *value != '"' && *value != '\'')
        *(const char **)option->value = value;
    else if (option->type == OPT_FLAG || option->type == OPT_SIZE ||
             (option->type == OPT_AUTO && !strcmp(value, "auto"))) {
        if (option_set(option, value) == 0) return;
        err_clear();
        mistake(&place, 1, "'%s' takes %s", option->name, type_names[option->type]);
    } else {
        const char *rest = read_value(&place, value, option);
        if (rest && *skip_blank(rest))
            mistake(&place, 1, "unexpected text after the value of '%s': '%s'", option->name, rest);
    }
}

// ---- a command line

enum { FLAGS_MAX = 256 };
static const char *flags[FLAGS_MAX];
static int flag_count;

static bool is_truth(const char *text) {
    return !strcasecmp(text, "True") || !strcasecmp(text, "False") || !strcmp(text, "0") || !strcmp(text, "1");
}

// Whether `next` after the flag of no key is its value: a number or a plain word, and not the path of a configuration.
static bool is_plain(const char *next) {
    char *end;
    strtod(next, &end);
    return next[0] != '-' && access(next, F_OK) && (!*end || !strpbrk(next, "./"));
}

// --KEY VALUE becomes KEY=VALUE, which lives as long as the program, as its arguments do.
static int take(const char *option, const char *next) {
    if (flag_count == FLAGS_MAX) return fail(EX_USAGE, "more than %d flags", FLAGS_MAX);
    char name[NAME_BYTES];
    key_name(name, option, strcspn(option, "="));
    const Option *key = option_find(config_keys, name, strlen(name));
    const bool is_value = next && !strchr(option, '=') &&
                          (!key                    ? is_plain(next)
                           : key->type == OPT_FLAG ? is_truth(next)
                                                   : strncmp(next, "--", 2) != 0);
    char *joined = NULL;
    if (is_value && asprintf(&joined, "%s=%s", option, next) < 0) return fail(EX_MEMORY, "out of memory");
    flags[flag_count++] = is_value ? joined : option;
    return is_value ? 2 : 1;
}

static const ManualRow examples[] = {
    {"batch_size = 4 * 2", "a value may be a sum or a product, also of names that were set before", NULL},
    {"learning_rate = 6e-4  # largest", "the rest of a line after # is a comment", NULL},
    {"out_dir = 'runs/gpt2'", "quotes may be left out if a text has no space", NULL},
    {NULL, NULL, NULL},
};

const MoreOptions config_options = {
    .name = "config",
    .summary = "the keys of a configuration",
    .description =
        "A configuration file has a line KEY = VALUE for each key, as nanoGPT's files, which are read as they are. A "
        "command line has --KEY=VALUE. A key that is set several times has the last value, and one that is "
        "not set has its default. A size is in bytes, as '10.8GiB' or '12GB': KB to TB are powers of 1000, k to T and "
        "KiB to TiB of 1024. A word may have a value of its own behind a colon, as recompute=mlp:4. "
        "nanoGPT's decay_lr, eval_iters and eval_only, and grad_checkpoint of its forks, are read too.",
    .examples = examples,
    .rows = config_keys,
    .groups = config_groups,
    .take = take,
};

int config_read(ConfigReader *reader, int count, char **files) {
    config_open(reader);
    for (int i = 0; i < count; i++) config_file(reader, files[i]);
    for (int i = 0; i < flag_count; i++) config_flag(reader, flags[i]);
    if (reader->ignored.size) log_line("ignored: %s", (const char *)reader->ignored.data);
    return config_check(reader);
}
