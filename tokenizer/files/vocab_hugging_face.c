// tokenizer.json, and vocab.json with merges.txt, of Hugging Face.
#include "common/err.h"
#include "common/json_read.h"
#include "common/utf8.h"
#include "tokenizer/files/vocab_table.h"
#include <stdlib.h>

static Bytes string_bytes(const json_t *string) {
    return (Bytes){(const uint8_t *)json_string_value(string), json_string_length(string)};
}

static bool is_text(const json_t *object, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(object, key));
    return text && !strcmp(text, value);
}

static bool is_set(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) && !json_is_false(value) &&
           !(json_is_number(value) && json_number_value(value) == 0) &&
           !(json_is_string(value) && !json_string_length(value));
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "without a type";
}

// ---- the pattern

static bool is_byte_level(const json_t *part, bool regex) {
    const json_t *use = json_object_get(part, "use_regex");
    return is_text(part, "type", "ByteLevel") && !is_set(part, "add_prefix_space") &&
           (use ? json_is_true(use) : true) == regex;
}

// The pattern whose regex, in one of its spellings, cuts the text.
static int find_regex(const char *regex, Pattern *pattern) {
    static const struct {
        Pattern pattern;
        const char *regex;
    } spellings[] = {
        {PATTERN_gpt2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
        {PATTERN_llama3,
         "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
         "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
    };
    for (*pattern = 0; *pattern < PATTERN_COUNT; (*pattern)++)
        if (!strcmp(regex, pattern_regex(*pattern))) return 0;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (!strcmp(regex, spellings[i].regex)) return *pattern = spellings[i].pattern, 0;
    // tiktoken's regex of cl100k_base has \p{N}{1,3}+, in which tokenizers cuts no run of digits.
    if (strstr(regex, "{1,3}+"))
        return fail(EX_DATA, "its pattern has {1,3}+, which tokenizers repeats and tiktoken does not: %s", regex);
    return fail(EX_DATA, "its pattern is none of " PATTERN_NAMES ": %s", regex);
}

static int read_split(const json_t *split, Pattern *pattern) {
    const char *regex = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    if (!is_text(split, "type", "Split") || !regex || !is_text(split, "behavior", "Isolated") ||
        is_set(split, "invert"))
        return fail(EX_DATA, "the pre-tokenizer %s is not supported here: only Split by a Regex, Isolated",
                    type_of(split));
    return find_regex(regex, pattern);
}

static int read_pre_tokenizer(const json_t *part, Pattern *pattern) {
    const json_t *parts = json_object_get(part, "pretokenizers");
    if (is_text(part, "type", "Sequence") && json_array_size(parts) == 1)
        return read_pre_tokenizer(json_array_get(parts, 0), pattern);
    if (is_byte_level(part, true)) return *pattern = PATTERN_gpt2, 0;
    if (is_text(part, "type", "Sequence") && json_array_size(parts) == 2 &&
        is_byte_level(json_array_get(parts, 1), false))
        return read_split(json_array_get(parts, 0), pattern);
    return fail(EX_DATA,
                "the pre-tokenizer %s is not supported: only ByteLevel, or a Sequence of Split and ByteLevel without "
                "use_regex, neither with add_prefix_space",
                type_of(part));
}

static int choose_pattern(const char *named, Pattern *pattern) {
    Pattern other;
    if (!named) return 0;
    if (!pattern_find(named, &other)) return fail(EX_USAGE, "unknown pattern '%s': expected " PATTERN_NAMES, named);
    if (other == *pattern) return 0;
    return fail(EX_USAGE, "its pattern is %s: leave --pattern %s out", pattern_name(*pattern), named);
}

// ---- the model

static int read_tokens(VocabTable *table, json_t *vocab) {
    const char *key;
    json_t *value;
    uint8_t token[VOCAB_TOKEN_MAX];
    size_t size;
    json_object_foreach(vocab, key, value) {
        const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0) return fail(EX_DATA, "the id of '%s' is not a number", key);
        if ((uint64_t)id < VOCAB_IDS_MAX && table->tokens[id].special) continue; // its name is not a spelling of bytes
        if (vocab_unspell(bytes_of_text(key), token, &size) < 0) return -1;
        if (vocab_table_add(table, (uint64_t)id, (Bytes){token, size}, false) < 0) return -1;
    }
    return json_is_object(vocab) ? 0 : fail(EX_DATA, "it has no 'vocab'");
}

static int merge_spelled(VocabTable *table, Bytes left, Bytes right, int *last) {
    uint8_t a[VOCAB_TOKEN_MAX], b[VOCAB_TOKEN_MAX];
    size_t a_size, b_size;
    if (vocab_unspell(left, a, &a_size) < 0 || vocab_unspell(right, b, &b_size) < 0) return -1;
    const int id = vocab_table_merge(table, (Bytes){a, a_size}, (Bytes){b, b_size});
    if (id < 0) return -1;
    if (id < *last) return fail(EX_DATA, "merges are not in the order of their ids: %d is after %d", id, *last);
    *last = id;
    return 0;
}

static int merge_line(VocabTable *table, Bytes line, int *last) {
    const uint8_t *blank = memchr(line.data, ' ', line.size);
    if (!blank) return fail(EX_DATA, "a merge is not two tokens with a blank between them");
    const size_t left = (size_t)(blank - line.data);
    return merge_spelled(table, (Bytes){line.data, left}, (Bytes){blank + 1, line.size - left - 1}, last);
}

static int read_merges(VocabTable *table, const json_t *merges) {
    int last = 0, status = 0;
    if (!json_is_array(merges)) return fail(EX_DATA, "it has no 'merges'");
    size_t i = 0;
    for (; i < json_array_size(merges) && status == 0; i++) {
        const json_t *merge = json_array_get(merges, i), *left = json_array_get(merge, 0),
                     *right = json_array_get(merge, 1);
        if (json_is_string(merge))
            status = merge_line(table, string_bytes(merge), &last);
        else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            status = merge_spelled(table, string_bytes(left), string_bytes(right), &last);
        else
            status = fail(EX_DATA, "it is not two tokens");
    }
    return status < 0 ? fail_in("merge %zu", i) : 0;
}

static int read_special(VocabTable *table, const json_t *added) {
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i), *content = json_object_get(token, "content"),
                     *id = json_object_get(token, "id");
        if (!json_is_string(content) || !json_is_integer(id) || json_integer_value(id) < 0)
            return fail(EX_DATA, "an added token has no content or no id");
        if (!json_is_true(json_object_get(token, "special")))
            return fail(EX_DATA, "the added token '%s' cuts text, which is not supported: only special tokens are",
                        json_string_value(content));
        if (vocab_table_add(table, (uint64_t)json_integer_value(id), string_bytes(content), true) < 0) return -1;
    }
    return 0;
}

// Refuses a step that the encoder does not have, by its name.
static int check_model(const json_t *root, const json_t *model) {
    static const char *const unsupported[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                              "byte_fallback"};
    const json_t *normalizer = json_object_get(root, "normalizer");
    const bool is_empty = is_text(normalizer, "type", "Sequence") &&
                          json_is_array(json_object_get(normalizer, "normalizers")) &&
                          !json_array_size(json_object_get(normalizer, "normalizers"));
    if (json_is_object(normalizer) && !is_empty)
        return fail(EX_DATA, "its normalizer %s is not supported", type_of(normalizer));
    if (!is_text(model, "type", "BPE") && (json_object_get(model, "type") || !json_object_get(model, "merges")))
        return fail(EX_DATA, "its model %s is not supported: only BPE is", type_of(model));
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (is_set(model, unsupported[i])) return fail(EX_DATA, "its %s is not supported", unsupported[i]);
    return 0;
}

static int read_root(VocabTable *table, const json_t *root) {
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return fail(EX_DATA,
                    "it is not tokenizer.json: it has no 'model'; of vocab.json with merges.txt name the directory");
    if (json_object_get(root, "version") && !is_text(root, "version", "1.0"))
        return fail(EX_DATA, "its version is not \"1.0\", the only one that is known");
    if (check_model(root, model) < 0) return -1;
    if (read_pre_tokenizer(json_object_get(root, "pre_tokenizer"), &table->pattern) < 0) return -1;
    if (choose_pattern(table->named.pattern, &table->pattern) < 0) return -1;
    table->whole_pieces = is_set(model, "ignore_merges");
    if (read_special(table, json_object_get(root, "added_tokens")) < 0) return -1;
    if (read_tokens(table, json_object_get(model, "vocab")) < 0) return -1;
    const json_t *merges = json_object_get(model, "merges");
    if (vocab_table_build(table, json_array_size(merges)) < 0) return -1;
    return read_merges(table, merges);
}

static json_t *parse(Bytes file) {
    json_error_t error;
    json_t *root = json_parse(file, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail(EX_DATA, "it is not JSON: %s at line %d", error.text, error.line);
    return root;
}

int vocab_read_tokenizer_json(VocabTable *table, Bytes file) {
    json_t *root = parse(file);
    if (!root) return -1;
    const int status = read_root(table, root);
    json_decref(root);
    return status;
}

// ---- vocab.json and merges.txt

// The next line that is not empty, without the carriage return of Windows.
static bool next_merge(Bytes *merges, Bytes *line) {
    while (bytes_next_line_or_rest(merges, line)) {
        if (line->size && line->data[line->size - 1] == '\r') line->size--;
        if (line->size) return true;
    }
    return false;
}

// The id of the token that a merge gives, by its spelling.
static json_int_t merged_id(const json_t *vocab, Bytes line, Buffer *spelled) {
    const uint8_t *blank = memchr(line.data, ' ', line.size);
    if (!blank) return -1;
    const size_t left = (size_t)(blank - line.data);
    spelled->size = 0;
    buffer_add(spelled, line.data, left);
    buffer_add(spelled, blank + 1, line.size - left - 1);
    buffer_add(spelled, "", 1);
    return json_integer_value(json_object_get(vocab, (const char *)spelled->data));
}

// The lowest id of a byte.
static json_int_t first_byte(const json_t *vocab) {
    json_int_t first = VOCAB_IDS_MAX;
    for (unsigned byte = 0; byte < 256; byte++) {
        char spelled[UTF8_BYTES_MAX + 1];
        spelled[utf8_encode(vocab_spelling((uint8_t)byte), (uint8_t *)spelled)] = '\0';
        const json_t *id = json_object_get(vocab, spelled);
        if (json_is_integer(id) && json_integer_value(id) < first) first = json_integer_value(id);
    }
    return first;
}

// Marks the tokens before and after bytes and merges: they are special.
static int mark_special(VocabTable *table, json_t *vocab, Bytes merges) {
    Bytes line;
    Buffer spelled = {0};
    json_int_t last = 255;
    const json_int_t first = first_byte(vocab);
    while (next_merge(&merges, &line)) {
        const json_int_t id = merged_id(vocab, line, &spelled);
        if (id > last) last = id;
    }
    buffer_close(&spelled);
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value) {
        const json_int_t id = json_integer_value(value);
        if (json_is_integer(value) && id >= 0 && (id < first || id > last) &&
            vocab_table_add(table, (uint64_t)id, bytes_of_text(key), true) < 0)
            return -1;
    }
    return 0;
}

int vocab_read_json_and_merges(VocabTable *table, Bytes json, Bytes merges) {
    const char *pattern = table->named.pattern;
    json_t *vocab = parse(json);
    Bytes rest = merges, line;
    int last = 0, status = vocab ? 0 : -1;
    if (bytes_next_line(&rest, &line) && line.size > 8 && !memcmp(line.data, "#version", 8)) merges = rest;
    if (status == 0 && pattern && !pattern_find(pattern, &table->pattern))
        status = fail(EX_USAGE, "unknown pattern '%s': expected " PATTERN_NAMES, pattern);
    if (status == 0) status = mark_special(table, vocab, merges);
    if (status == 0) status = read_tokens(table, vocab);
    if (status == 0) status = vocab_table_build(table, merges.size / 4 + 1);
    while (status == 0 && next_merge(&merges, &line)) status = merge_line(table, line, &last);
    json_decref(vocab);
    return status;
}
