// The files that change a tokenizer of Hugging Face from beside it.
#include "tokenizer/files/vocab_config.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/json_read.h"
#include "tokenizer/merge/vocab_internal.h"
#include <stdio.h>
#include <stdlib.h>

#define CONFIG_FILE "tokenizer_config.json"
#define MAP_FILE    "special_tokens_map.json"
#define ADDED_FILE  "added_tokens.json"
#define DECODER     "added_tokens_decoder"
enum { CONFIG_BYTES_MAX = 64 << 20 };

// *root is NULL if there is no file.
static int read_file(const char *directory, const char *name, json_t **root) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    json_error_t error;
    *root = NULL;
    path_join(path, directory, "%s", name);
    if (!file_exists(path)) return 0;
    int status = file_read(&text, path, CONFIG_BYTES_MAX);
    if (status == 0 && !(*root = json_parse((Bytes){text.data, text.size}, JSON_REJECT_DUPLICATES, &error)))
        status = fail(EX_DATA, "'%s' is not JSON: %s at line %d", path, error.text, error.line);
    buffer_close(&text);
    return status;
}

// A token is its name, or an object with its content.
static const char *token_name(const json_t *token) {
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

int vocab_config_ends(const char *directory, VocabEnds *ends) {
    json_t *root;
    if (read_file(directory, CONFIG_FILE, &root) < 0) return -1;
    const char *end = token_name(json_object_get(root, "end_of_text")),
               *eos = token_name(json_object_get(root, "eos_token"));
    snprintf(ends->end_of_text, sizeof ends->end_of_text, "%s", end ? end : "");
    snprintf(ends->eos_token, sizeof ends->eos_token, "%s", eos ? eos : "");
    json_decref(root);
    return 0;
}

// ---- the pattern

bool vocab_has_pair(const Vocab *vocab) {
    return !vocab->characters && vocab->pattern == PATTERN_gpt2 && !vocab->whole;
}

static bool is_class_of_gpt2(const char *class) {
    return class && (!strcmp(class, "GPT2Tokenizer") || !strcmp(class, "GPT2TokenizerFast"));
}

static int check_class(const char *class, const char *pattern) {
    const bool is_gpt2 = is_class_of_gpt2(class);
    if (is_gpt2 && pattern && strcmp(pattern, "gpt2"))
        return fail(EX_USAGE, "its " CONFIG_FILE " names the %s, whose pattern is gpt2: leave --pattern %s out", class,
                    pattern);
    if (is_gpt2 || pattern) return 0;
    return fail(EX_USAGE,
                "its " CONFIG_FILE " names %s%s, which does not tell the pattern of vocab.json with merges.txt: add "
                "--pattern, " PATTERN_NAMES,
                class ? "the " : "no tokenizer_class", class ? class : "");
}

int vocab_config_pattern(const char *directory, const char *pattern) {
    json_t *root;
    if (read_file(directory, CONFIG_FILE, &root) < 0) return -1;
    const int status = root ? check_class(json_string_value(json_object_get(root, "tokenizer_class")), pattern) : 0;
    json_decref(root);
    return status < 0 ? fail_in("the vocabulary '%s'", directory) : 0;
}

// ---- settings that change the ids

// transformers 5 makes the tokenizer of this class of the tokens and merges alone, whatever else tokenizer.json has.
static int check_class_of_json(const Vocab *vocab, const json_t *value) {
    const char *class = json_string_value(value);
    if (!is_class_of_gpt2(class) || vocab_has_pair(vocab)) return 0;
    return fail(EX_DATA,
                "the %s has the pattern gpt2 and no tokens but those of merges, unlike tokenizer.json: remove "
                "tokenizer_class",
                class);
}

static int check_prefix_space(const Vocab *vocab, const json_t *value) {
    (void)vocab;
    return json_is_true(value) ? fail(EX_DATA, "add_prefix_space is not supported") : 0;
}

// Special tokens that the vocabulary has change nothing.
static int check_token(const Vocab *vocab, const char *content, json_int_t id, bool special) {
    if (!content) return fail(EX_DATA, "an added token has no content");
    if (!special)
        return fail(EX_DATA, "the added token '%s' cuts text, which is not supported: only special tokens are",
                    content);
    if (id >= 0 && id < vocab_size(vocab) && vocab_is_special(vocab, (unsigned)id)) {
        const Bytes own = vocab_bytes(vocab, (unsigned)id);
        if (own.size == strlen(content) && !memcmp(own.data, content, own.size)) return 0;
    }
    return fail(EX_DATA, "the added token '%s' is not the token %lld of the vocabulary: use a vocabulary that has it",
                content, (long long)id);
}

static int check_decoder(const Vocab *vocab, const json_t *tokens) {
    const char *key;
    json_t *token;
    json_object_foreach((json_t *)tokens, key, token) {
        char *end;
        const long long id = strtoll(key, &end, 10);
        const char *content = json_string_value(json_object_get(token, "content"));
        const bool special = json_is_true(json_object_get(token, "special"));
        if (check_token(vocab, content, *end ? -1 : id, special) < 0) return -1;
    }
    return 0;
}

static int check_added(const Vocab *vocab, const json_t *tokens) {
    const char *content;
    json_t *id;
    json_object_foreach((json_t *)tokens, content, id) {
        if (check_token(vocab, content, json_is_integer(id) ? json_integer_value(id) : -1, true) < 0) return -1;
    }
    return 0;
}

static int check_name(const TokenNames *special, const char *key, const json_t *value) {
    const char *name = token_name(value);
    if (!name || !*name || token_names_find(special, (const uint8_t *)name, strlen(name)) != NO_TOKEN) return 0;
    return fail(EX_DATA, "its %s '%s' is not a special token of the vocabulary: use a vocabulary that has it", key,
                name);
}

static int check_names_of(const TokenNames *special, const char *key, const json_t *values) {
    const char *name;
    json_t *value;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (check_name(special, key, json_array_get(values, i)) < 0) return -1;
    json_object_foreach((json_t *)values, name, value) {
        if (check_name(special, key, value) < 0) return -1;
    }
    return 0;
}

// transformers adds the tokens of these keys, and then they cut text, if they are tokens of text or no tokens.
static int check_names(const Vocab *vocab, const json_t *root) {
    TokenNames special;
    const char *key;
    json_t *value;
    int status = 0;
    token_names_open(&special, vocab);
    for (unsigned id = 0; id < vocab_size(vocab); id++)
        if (vocab_is_special(vocab, id)) token_names_add(&special, id);
    json_object_foreach((json_t *)root, key, value) {
        const size_t length = strlen(key);
        if (!strcmp(key, "additional_special_tokens") || !strcmp(key, "extra_special_tokens"))
            status = check_names_of(&special, key, value);
        else if (length > 6 && !strcmp(key + length - 6, "_token"))
            status = check_name(&special, key, value);
        if (status < 0) break;
    }
    token_names_close(&special);
    return status;
}

static const struct {
    const char *file, *key; // NULL: the whole file
    bool legacy;            // transformers reads the file only when tokenizer_config.json has no added_tokens_decoder
    int (*check)(const Vocab *vocab, const json_t *value);
} rows[] = {
    {CONFIG_FILE, "tokenizer_class", false, check_class_of_json},
    {CONFIG_FILE, "add_prefix_space", false, check_prefix_space},
    {CONFIG_FILE, DECODER, false, check_decoder},
    {CONFIG_FILE, NULL, false, check_names},
    {MAP_FILE, NULL, true, check_names},
    {ADDED_FILE, NULL, true, check_added},
};

int vocab_config_check(const char *directory, const Vocab *vocab) {
    bool has_decoder = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root;
        if (rows[i].legacy && has_decoder) continue;
        if (read_file(directory, rows[i].file, &root) < 0) return -1;
        has_decoder |= !rows[i].legacy && json_object_get(root, DECODER);
        const int status = rows[i].check(vocab, rows[i].key ? json_object_get(root, rows[i].key) : root);
        json_decref(root);
        if (status < 0) return fail_in("'%s/%s'", directory, rows[i].file);
    }
    return 0;
}
