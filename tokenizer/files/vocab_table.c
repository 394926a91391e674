// Tokens and merges of a file, checked on their way to a vocabulary.
#include "tokenizer/files/vocab_table.h"
#include "common/err.h"
#include "common/utf8.h"
#include <stdlib.h>

#define END_OF_TEXT "<|endoftext|>"

VocabTable *vocab_table_open(void) { return allocate_zeroed(1, sizeof(VocabTable)); }

void vocab_table_close(VocabTable *table) {
    if (!table) return;
    if (table->names.slots) token_names_close(&table->names);
    vocab_close(table->vocab);
    buffer_close(&table->bytes);
    free(table);
}

int vocab_table_add(VocabTable *table, uint64_t id, Bytes text, bool special) {
    if (id >= VOCAB_IDS_MAX)
        return fail(EX_DATA, "it has the id %llu: vocabularies of more than %d ids are not supported",
                    (unsigned long long)id, VOCAB_IDS_MAX);
    if (!text.size) return fail(EX_DATA, "the token of id %u is empty", (unsigned)id);
    if (text.size > VOCAB_TOKEN_MAX)
        return fail(EX_DATA, "the token of id %u has %zu bytes, and at most %d are supported", (unsigned)id, text.size,
                    VOCAB_TOKEN_MAX);
    if (table->tokens[id].size) {
        const uint8_t *other = table->bytes.data + table->tokens[id].at;
        const bool same = table->tokens[id].size == text.size && !memcmp(other, text.data, text.size);
        if (!same || !special) return fail(EX_DATA, "two tokens have the id %u", (unsigned)id);
    }
    table->tokens[id].at = (uint32_t)table->bytes.size;
    table->tokens[id].size = (uint32_t)text.size;
    table->tokens[id].special = special;
    buffer_add(&table->bytes, text.data, text.size);
    if (id >= table->size) table->size = (unsigned)id + 1;
    return 0;
}

static Bytes token_at(const VocabTable *table, unsigned id) {
    return (Bytes){table->bytes.data + table->tokens[id].at, table->tokens[id].size};
}

// Counts the tokens of text. If there is no special token, the one that ends a document is added.
static int check_ids(VocabTable *table, unsigned *count) {
    const char *end = table->named.end_of_text ? table->named.end_of_text : END_OF_TEXT;
    *count = 0;
    for (unsigned id = 0; id < table->size; id++) {
        if (!table->tokens[id].size)
            return fail(EX_DATA, "no token has the id %u, and one the id %u", id, table->size - 1);
        *count += !table->tokens[id].special;
    }
    if (!*count) return fail(EX_DATA, "it has no tokens");
    if (*count == table->size && vocab_table_add(table, table->size, bytes_of_text(end), true) < 0)
        return fail_in("it has no special token that ends a document, and one more");
    return 0;
}

// The id of a special token, or NO_TOKEN.
static unsigned find_special(const Vocab *vocab, const char *name) {
    const size_t size = strlen(name);
    for (unsigned id = 0; id < vocab->size; id++) {
        const Bytes token = vocab_bytes(vocab, id);
        if (vocab_is_special(vocab, id) && token.size == size && !memcmp(token.data, name, size)) return id;
    }
    return NO_TOKEN;
}

// The special token that ends a document by its name, NO_TOKEN when none has such a name.
static unsigned known_end(const Vocab *vocab) {
    static const char *const names[] = {END_OF_TEXT, "<|end_of_text|>", "</s>", "<|eos|>"};
    unsigned id = NO_TOKEN;
    for (size_t i = 0; id == NO_TOKEN && i < sizeof names / sizeof *names; i++) id = find_special(vocab, names[i]);
    return id;
}

static unsigned only_special(const Vocab *vocab) {
    unsigned id = 0;
    while (!vocab_is_special(vocab, id)) id++;
    return vocab->size == vocab->count + 1 ? id : NO_TOKEN;
}

bool vocab_names_end(const Vocab *vocab) {
    const unsigned id = known_end(vocab);
    return vocab->characters || vocab->end_of_text == (id == NO_TOKEN ? only_special(vocab) : id);
}

static int find_end(VocabTable *table, unsigned *id) {
    const Vocab *vocab = table->vocab;
    const char *named = table->named.end_of_text, *eos = table->eos_token;
    *id = named ? find_special(vocab, named) : known_end(vocab);
    if (named && *id == NO_TOKEN) return fail(EX_DATA, "'%s' is none of its special tokens", named);
    if (*id == NO_TOKEN && eos) *id = find_special(vocab, eos);
    if (*id == NO_TOKEN) *id = only_special(vocab);
    if (*id != NO_TOKEN) return 0;
    return fail(EX_DATA,
                "none of its %u special tokens is <|endoftext|>, <|end_of_text|>, </s> or <|eos|>: name the one that "
                "ends a document by --end-of-text, or as eos_token in its tokenizer_config.json",
                vocab->size - vocab->count);
}

// A dataset keeps tokens by their bytes: its tokenizer.json could not be read again with two of the same.
static int check_special(const VocabTable *table) {
    TokenNames special;
    int status = 0;
    token_names_open(&special, table->vocab);
    for (unsigned id = 0; status == 0 && id < table->size; id++) {
        if (!table->tokens[id].special) continue;
        const Bytes token = token_at(table, id);
        unsigned other = token_names_find(&table->names, token.data, token.size);
        if (other == NO_TOKEN) other = token_names_find(&special, token.data, token.size);
        if (other != NO_TOKEN)
            status = fail(EX_DATA, "the special token '%.*s' of id %u is also the token of id %u", (int)token.size,
                          (const char *)token.data, id, other);
        token_names_add(&special, id);
    }
    token_names_close(&special);
    return status;
}

int vocab_table_build(VocabTable *table, size_t pairs) {
    unsigned count;
    if (check_ids(table, &count) < 0) return -1;
    Vocab *vocab = table->vocab = vocab_new(table->size, table->bytes.size, pairs < MERGES_MAX ? pairs : MERGES_MAX);
    token_names_open(&table->names, vocab);
    for (unsigned id = 0; id < table->size; id++) {
        const Bytes token = token_at(table, id);
        if (table->tokens[id].special) {
            vocab_add_special(vocab, token.data, token.size);
            continue;
        }
        vocab_add_token(vocab, token.data, token.size);
        if (token_names_find(&table->names, token.data, token.size) != NO_TOKEN)
            return fail(EX_DATA, "the token of id %u occurs twice", id);
        token_names_add(&table->names, id);
        if (token.size == 1) vocab->byte_token[*token.data] = id;
    }
    if (check_special(table) < 0) return -1;
    for (unsigned byte = 0; byte < 256; byte++)
        if (vocab->byte_token[byte] == NO_TOKEN)
            return fail(EX_DATA, "no token is the byte 0x%02X: a vocabulary on bytes has all 256", byte);
    vocab->count = count;
    if (find_end(table, &vocab->end_of_text) < 0) return -1;
    vocab->pattern = table->pattern;
    vocab->whole_pieces = table->whole_pieces;
    return 0;
}

int vocab_table_merge(VocabTable *table, Bytes left, Bytes right) {
    uint8_t joined[2 * VOCAB_TOKEN_MAX];
    memcpy(joined, left.data, left.size);
    memcpy(joined + left.size, right.data, right.size);
    const unsigned a = token_names_find(&table->names, left.data, left.size),
                   b = token_names_find(&table->names, right.data, right.size),
                   id = token_names_find(&table->names, joined, left.size + right.size);
    if (a == NO_TOKEN || b == NO_TOKEN || id == NO_TOKEN)
        return fail(EX_DATA, "a merge is not of two tokens that give a third");
    if (table->vocab->pairs == MERGES_MAX) return fail(EX_DATA, "more than %d merges are not supported", MERGES_MAX);
    vocab_add_pair(table->vocab, a, b, id);
    return (int)id;
}

static bool is_same(const Vocab *vocab, const Vocab *own) {
    bool same = vocab->count == own->count && vocab->end_of_text == own->end_of_text &&
                !memcmp(vocab->start, own->start, (TOKEN_COUNT + 1) * sizeof *vocab->start) &&
                !memcmp(vocab->bytes, own->bytes, own->start[TOKEN_COUNT]);
    for (unsigned id = BYTE_TOKENS; same && id < own->count; id++)
        same = vocab_merged(vocab, pair_left_id(own->pair[id]), pair_right_id(own->pair[id])) == id;
    return same;
}

// Datasets and runs keep the vocabulary as tokenizer.json, which they have to read again: its size, but for brackets.
static int check_file_size(const Vocab *vocab) {
    uint64_t bytes = 0, *spelled = allocate_zeroed(vocab->size, sizeof *spelled);
    for (unsigned id = 0; id < vocab->size; id++) {
        const Bytes token = vocab_bytes(vocab, id);
        for (size_t i = 0; i < token.size;
             i++) // as vocab_spelling says; a backslash is before a quotation mark and a backslash
            spelled[id] += token.data[i] > ' ' && token.data[i] < 127 && !strchr("\"\\", token.data[i]) ? 1 : 2;
        bytes += spelled[id] + 13; // with its id
    }
    for (unsigned i = 0; i < vocab->token_room + vocab->pairs_again; i++)
        if (vocab->pair[i]) bytes += spelled[vocab->pair[i] >> 40] + 5;
    free(spelled);
    if (bytes <= VOCAB_FILE_BYTES_MAX) return 0;
    return fail(EX_DATA,
                "its %u tokens and %u merges are a tokenizer.json of %llu MiB, and files of at most %d are supported",
                vocab->size, vocab->pairs, (unsigned long long)bytes >> 20, VOCAB_FILE_BYTES_MAX >> 20);
}

const Vocab *vocab_table_take(VocabTable *table) {
    Vocab *vocab = table->vocab;
    if (check_file_size(vocab) < 0) return NULL;
    if (vocab->pattern == PATTERN_gpt2 && vocab->size == TOKEN_COUNT) {
        const Vocab *own = vocab_build();
        if (is_same(vocab, own)) return own;
        vocab_close(own);
    }
    vocab_finish(vocab);
    table->vocab = NULL;
    return vocab;
}

int vocab_unspell(Bytes text, uint8_t out[VOCAB_TOKEN_MAX], size_t *size) {
    static uint8_t bytes[512];
    if (!bytes[vocab_spelling(1)])
        for (unsigned byte = 0; byte < 256; byte++) bytes[vocab_spelling((uint8_t)byte)] = (uint8_t)byte;
    *size = 0;
    for (const uint8_t *at = text.data, *end = at + text.size; at < end;) {
        uint32_t point;
        at += utf8_decode(at, end, &point);
        if (point >= 512 || (!bytes[point] && point != vocab_spelling(0)))
            return fail(EX_DATA, "the token '%.*s' is not spelled as bytes are, by ByteLevel", (int)text.size,
                        (const char *)text.data);
        if (*size == VOCAB_TOKEN_MAX) return fail(EX_DATA, "a token has more than %d bytes", VOCAB_TOKEN_MAX);
        out[(*size)++] = bytes[point];
    }
    return 0;
}
