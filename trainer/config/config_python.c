// Content of a configuration beside keys and values: lines of Python around nanoGPT's, and names of other programs.
#include "trainer/config/config_python.h"
#include <ctype.h>

// nanoGPT's keys for torch.compile, torch.distributed and Weights & Biases, and keys from advice to its users.
static const char *const ignored_keys[] = {"compile", "backend", "mode", NULL};
static const char ignored_prefix[] = "wandb_";
// Beginnings of lines for Python, a notebook or a shell, and of fences that are copied from a chat. A value that begins
// with torch, or a call that is set to no key, is one, too.
static const char *const ignored_statements[] = {"import ", "from ", "export ", "torch.", "os.", "print(",
                                                 "exec(",   "%",     "!",       "```",    NULL};
static const char *const docstrings[] = {"\"\"\"", "'''", NULL};
// Names that nanoGPT's train.py computes from the keys. If it is an expression of them, later values may use it.
static const char *const computed_names[] = {
    "tokens_per_iter", "ddp_world_size", "master_process", "seed_offset",   "device_type", "ptdtype",
    "config_keys",     "config",         "iter_num",       "best_val_loss", NULL};

// The names of words, and of keys, in other programs: for the hint in a mistake.
typedef struct {
    const char *name, *ours;
} Synonym;
static const Synonym key_synonyms[] = {
#define SAME(name, key)       {name, #key},
#define SET(name, key, value) {name, #key "=" value},
#define NONE(name, sentence)
#include "trainer/config/peer_keys.def"
    {NULL, NULL},
};
static const Synonym missing_keys[] = {
#define SAME(name, key)
#define SET(name, key, value)
#define NONE(name, sentence) {name, sentence},
#include "trainer/config/peer_keys.def"
    {NULL, NULL},
};
static const Synonym word_synonyms[] = {
    {"fp32", "float32"}, {"fp16", "float16"}, {"half", "float16"}, {"bf16", "bfloat16"},
    {"gpu", "cuda"},     {"mps", "cpu"},      {NULL, NULL},
};

static const char *find_synonym(const Synonym *synonym, const char *name) {
    while (synonym->name && strcmp(synonym->name, name)) synonym++;
    return synonym->ours;
}

static bool same_name(const char *text, const char *name, size_t length) {
    return strlen(text) == length && !memcmp(text, name, length);
}

static bool is_among(const char *const *names, const char *name, size_t length) {
    while (*names && !same_name(*names, name, length)) names++;
    return *names;
}

// The one of `beginnings` with which a text begins, or NULL.
static const char *beginning(const char *const *beginnings, const char *text) {
    while (*beginnings && strncmp(text, *beginnings, strlen(*beginnings))) beginnings++;
    return *beginnings;
}

bool python_is_ignored_key(const char *name, size_t length) {
    if (is_among(ignored_keys, name, length)) return true;
    return length >= sizeof ignored_prefix && !memcmp(name, ignored_prefix, sizeof ignored_prefix - 1);
}

bool python_is_computed(const char *name, size_t length) { return is_among(computed_names, name, length); }
bool python_is_ignored(const char *statement) { return beginning(ignored_statements, statement); }
const char *python_docstring(const char *statement) { return beginning(docstrings, statement); }
const char *python_key(const char *name) { return find_synonym(key_synonyms, name); }
const char *python_missing(const char *name) { return find_synonym(missing_keys, name); }
const char *python_word(const char *text) { return find_synonym(word_synonyms, text); }

const char *python_next_statement(const char *statement) {
    char quote = 0;
    for (const char *at = statement; *at && (quote || *at != '#'); at++) {
        if (!quote && *at == ';') return at + 1;
        if (quote ? *at == quote : *at == '"' || *at == '\'') quote = quote ? 0 : *at;
    }
    return NULL;
}

bool python_is_call(const char *value) {
    const char *at = value;
    while (isalnum((unsigned char)*at) || *at == '_' || *at == '.') at++;
    return at > value && !isdigit((unsigned char)*value) && *at == '(';
}

const char *python_skip_annotation(const char *at) {
    if (*at != ':') return at;
    const char *end = at + 1;
    while (isalnum((unsigned char)*end) || (*end && strchr("_.,|[] ", *end))) end++;
    return *end == '=' ? end : at;
}

static bool is_key(const char *name, size_t length) {
    const Option *option = option_find(config_keys, name, length);
    return option && strlen(option->name) == length;
}

bool python_takes_keys(const char *statement) {
    const char *end = statement + strcspn(statement, "\r\n");
    if (!strncmp(statement, "exec(", 5)) return !memmem(statement, (size_t)(end - statement), "configurator.py", 15);
    const char *names = memmem(statement, (size_t)(end - statement), " import ", 8);
    if (strncmp(statement, "from ", 5) || !names) return false;
    for (const char *at = names + 8; at < end && *at != '#'; at++) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
        if (*at == '*' || is_key(at, length)) return true;
        at += length;
    }
    return false;
}
