// .tiktoken files: a token a line, its bytes in base64, a blank and its rank.
#include "common/err.h"
#include "common/json_read.h"
#include "tokenizer/files/vocab_table.h"
#include <stdio.h>

static int digit(uint8_t byte) {
    return byte >= 'A' && byte <= 'Z'   ? byte - 'A'
           : byte >= 'a' && byte <= 'z' ? byte - 'a' + 26
           : byte >= '0' && byte <= '9' ? byte - '0' + 52
           : byte == '+'                ? 62
           : byte == '/'                ? 63
                                        : -1;
}

// Decodes base64 with padding. -1 without an error when it is not.
static int base64_decode(Bytes text, uint8_t *out, size_t *size) {
    uint32_t bits = 0;
    unsigned held = 0;
    *size = 0;
    if (!text.size || text.size % 4) return -1;
    for (int i = 0; i < 2 && text.data[text.size - 1] == '='; i++) text.size--;
    for (size_t i = 0; i < text.size; i++) {
        const int value = digit(text.data[i]);
        if (value < 0) return -1;
        bits = bits << 6 | (uint32_t)value, held += 6;
        if (held < 8) continue;
        out[(*size)++] = (uint8_t)(bits >> (held -= 8));
    }
    return bits & ((1u << held) - 1) ? -1 : 0;
}

static bool is_space(uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

// Cuts the next word off the line, as Python's split does.
static Bytes next_word(Bytes *line) {
    const uint8_t *end = line->data + line->size, *at = line->data;
    while (at < end && is_space(*at)) at++;
    const uint8_t *word = at;
    while (at < end && !is_space(*at)) at++;
    *line = (Bytes){at, (size_t)(end - at)};
    return (Bytes){word, (size_t)(at - word)};
}

static bool is_number(Bytes digits, unsigned number) {
    char wanted[16];
    snprintf(wanted, sizeof wanted, "%u", number);
    return digits.size == strlen(wanted) && !memcmp(digits.data, wanted, digits.size);
}

// The rank of the line is the size of the table. One rank can be missing, which is the id of the token that ends a
// document when the user names that token.
static int read_line(VocabTable *table, Bytes line, unsigned number) {
    uint8_t token[VOCAB_TOKEN_MAX + 4];
    size_t size;
    const char *end = table->named.end_of_text;
    const Bytes text = next_word(&line), digits = next_word(&line);
    if (text.size > (VOCAB_TOKEN_MAX + 3) / 3 * 4)
        return fail(EX_DATA, "line %u has a token of more than %d bytes, which are not supported", number,
                    VOCAB_TOKEN_MAX);
    if (!digits.size || next_word(&line).size || base64_decode(text, token, &size) < 0)
        return fail(EX_DATA, "line %u is not a token in base64, a blank and a rank", number);
    if (end && table->size + 1 == number && is_number(digits, number) &&
        vocab_table_add(table, table->size, bytes_of_text(end), true) < 0)
        return -1;
    if (!is_number(digits, table->size))
        return fail(EX_DATA,
                    "line %u does not have the rank %u: ranks count from 0, in order, and only that of the token of "
                    "--end-of-text can be missing",
                    number, table->size);
    return vocab_table_add(table, table->size, (Bytes){token, size}, false);
}

// Every split of a token in two tokens is a merge.
static int add_splits(VocabTable *table) {
    for (unsigned id = 0; id < table->vocab->size; id++) {
        if (vocab_is_special(table->vocab, id)) continue;
        const Bytes token = vocab_bytes(table->vocab, id);
        for (size_t cut = 1; cut < token.size; cut++) {
            const Bytes left = {token.data, cut}, right = {token.data + cut, token.size - cut};
            if (token_names_find(&table->names, left.data, left.size) == NO_TOKEN ||
                token_names_find(&table->names, right.data, right.size) == NO_TOKEN)
                continue;
            if (vocab_table_merge(table, left, right) < 0) return -1;
        }
    }
    return 0;
}

static int read_ranks(VocabTable *table, Bytes file) {
    Bytes line;
    for (unsigned number = 1; bytes_next_line_or_rest(&file, &line); number++) {
        Bytes rest = line;
        if (next_word(&rest).size && read_line(table, line, number) < 0) return -1;
    }
    return 0;
}

static int finish(VocabTable *table) {
    table->whole_pieces = true;
    if (vocab_table_build(table, table->bytes.size) < 0) return -1;
    return add_splits(table);
}

// vocabulary.json of train-vocabulary names the pattern and the special tokens.
static int read_manifest(VocabTable *table, const json_t *root) {
    const char *pattern = json_string_value(json_object_get(root, "pattern"));
    const json_t *special = json_object_get(root, "special");
    if (!pattern || !pattern_find(pattern, &table->pattern))
        return fail(EX_DATA, "vocabulary.json names no pattern, or one that is not known");
    for (size_t i = 0; i < json_array_size(special); i++) {
        const json_t *name = json_array_get(special, i);
        const Bytes text = {(const uint8_t *)json_string_value(name), json_string_length(name)};
        if (!text.data) return fail(EX_DATA, "vocabulary.json has a special token that is not text");
        if (vocab_table_add(table, table->size, text, true) < 0) return -1;
    }
    return 0;
}

int vocab_read_trained(VocabTable *table, Bytes json, Bytes ranks) {
    json_error_t error;
    const char *pattern = table->named.pattern;
    if (pattern) return fail(EX_USAGE, "vocabulary.json names the pattern: leave --pattern %s out", pattern);
    json_t *root = json_parse(json, 0, &error);
    if (!root) return fail(EX_DATA, "vocabulary.json is not JSON: %s", error.text);
    int status = read_ranks(table, ranks);
    if (status == 0) status = read_manifest(table, root);
    json_decref(root);
    return status < 0 ? -1 : finish(table);
}

int vocab_read_tiktoken(VocabTable *table, Bytes file) {
    const char *pattern = table->named.pattern;
    if (!pattern) return fail(EX_USAGE, "a .tiktoken file does not name its pattern: add --pattern, " PATTERN_NAMES);
    if (!pattern_find(pattern, &table->pattern))
        return fail(EX_USAGE, "unknown pattern '%s': expected " PATTERN_NAMES, pattern);
    return read_ranks(table, file) < 0 ? -1 : finish(table);
}
