// Writes the files of a trained vocabulary.
#include "shardtool/vocabulary/vocabulary_files.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "common/utf8.h"
#include "tokenizer/files/vocab_config.h"
#include "tokenizer/files/vocab_file.h"
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FORMAT      "MILLVOC1"
#define CONFIG_FILE "tokenizer_config.json"
enum { BYTE_IDS = 256, MANIFEST_BYTES_MAX = 64 << 20 };

// The bytes of all tokens but the special ones: token id is bytes[start[id] .. start[id + 1]).
typedef struct {
    Buffer bytes;
    uint64_t *start;
    uint32_t count;
} TokenBytes;

static Bytes token_bytes(const TokenBytes *tokens, uint32_t id) {
    return (Bytes){tokens->bytes.data + tokens->start[id], (size_t)(tokens->start[id + 1] - tokens->start[id])};
}

static void add_part(TokenBytes *tokens, uint32_t id) {
    const uint64_t start = tokens->start[id], size = tokens->start[id + 1] - start;
    buffer_reserve(&tokens->bytes, size);
    memcpy(tokens->bytes.data + tokens->bytes.size, tokens->bytes.data + start, size);
    tokens->bytes.size += size;
}

static void make_tokens(TokenBytes *tokens, const BpeMerge *merges, uint32_t merge_count) {
    *tokens = (TokenBytes){.count = BYTE_IDS + merge_count};
    tokens->start = allocate_zeroed(tokens->count + 1, sizeof *tokens->start);
    for (unsigned byte = 0; byte < BYTE_IDS; byte++) {
        buffer_add(&tokens->bytes, &(uint8_t){(uint8_t)byte}, 1);
        tokens->start[byte + 1] = tokens->bytes.size;
    }
    for (uint32_t i = 0; i < merge_count; i++) {
        add_part(tokens, merges[i].left);
        add_part(tokens, merges[i].right);
        tokens->start[BYTE_IDS + i + 1] = tokens->bytes.size;
    }
}

static void close_tokens(TokenBytes *tokens) {
    buffer_close(&tokens->bytes);
    free(tokens->start);
}

int vocabulary_check_special(const char *token) {
    const Bytes text = {(const uint8_t *)token, strlen(token)};
    if (!text.size) return fail(EX_USAGE, "--special is empty");
    if (utf8_valid(text) < text.size) return fail(EX_USAGE, "--special '%s' is not UTF-8", token);
    if (text.size == 1) return fail(EX_USAGE, "--special %s: each byte is a token of the text: choose another", token);
    if (text.size <= VOCAB_TOKEN_MAX) return 0;
    return fail(EX_USAGE, "--special has a token of %zu bytes, and at most %d are supported", text.size,
                VOCAB_TOKEN_MAX);
}

static int check_specials(const TokenBytes *tokens, const StringList *specials) {
    for (size_t i = 0; i < specials->count; i++) {
        const size_t size = strlen(specials->items[i]);
        for (uint32_t id = 0; id < tokens->count; id++) {
            const Bytes token = token_bytes(tokens, id);
            if (token.size == size && !memcmp(token.data, specials->items[i], size))
                return fail(EX_DATA, "the special token '%s' is also a token of the text, with id %u: choose another",
                            specials->items[i], id);
        }
    }
    return 0;
}

static void add_ranks(Buffer *out, const TokenBytes *tokens) {
    for (uint32_t id = 0; id < tokens->count; id++) {
        const Bytes token = token_bytes(tokens, id);
        buffer_reserve(out, token.size / 3 * 4 + 5);
        out->size += (size_t)EVP_EncodeBlock(out->data + out->size, token.data, (int)token.size);
        buffer_print(out, " %" PRIu32 "\n", id);
    }
}

static void add_sources(Buffer *out, const Inputs *inputs) {
    json_add_key(out, "sources");
    buffer_print(out, "[");
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const InputArgument *argument = &inputs->arguments[i];
        if (i) buffer_print(out, ",");
        json_add_field(out, "path", argument->path);
        json_add_number(out, "files", argument->files);
        json_add_number(out, "bytes", argument->bytes);
        json_add_hex(out, "digest", argument->digest, sizeof argument->digest);
        buffer_print(out, "}");
    }
    buffer_print(out, "]");
}

static void add_manifest(Buffer *out, const VocabularyFiles *files, const Buffer *ranks) {
    uint8_t hash[32];
    json_add_field(out, "format", FORMAT);
    json_add_field(out, "pattern", files->pattern);
    json_add_number(out, "size", BYTE_IDS + (uint64_t)files->merge_count + files->specials->count);
    json_add_key(out, "special");
    for (size_t i = 0; i < files->specials->count; i++) {
        buffer_print(out, i ? "," : "[");
        json_add_string(out, files->specials->items[i]);
    }
    buffer_print(out, "]");
    sha256(ranks->data, ranks->size, hash);
    json_add_hex(out, "ranks_hash", hash, sizeof hash);
    json_add_field(out, "params", files->params);
    inputs_hash(files->inputs, false, hash);
    json_add_hex(out, "inputs", hash, sizeof hash);
    json_add_number(out, "documents", files->documents);
    json_add_number(out, "bytes", files->bytes);
    json_add_number(out, "pieces", files->pieces);
    json_add_number(out, "distinct_pieces", files->distinct_pieces);
    add_sources(out, files->inputs);
    buffer_print(out, "}\n");
}

static void set_path(char path[PATH_MAX_BYTES], const char *folder, const char *name) {
    if (snprintf(path, PATH_MAX_BYTES, "%s/%s", folder, name) >= PATH_MAX_BYTES)
        die(EX_CREATE, "path too long: '%.60s...'", folder);
}

static int write_one(const char *folder, const char *name, const Buffer *content) {
    char path[PATH_MAX_BYTES];
    set_path(path, folder, name);
    return file_write(path, (Bytes){content->data, content->size});
}

int vocabulary_files_write(const char *folder, const VocabularyFiles *files) {
    static const char *const replaced[] = {VOCAB_FILE, VOCABULARY_MANIFEST, "vocab.json", "merges.txt", CONFIG_FILE};
    TokenBytes tokens;
    Buffer ranks = {0}, manifest = {0};
    char path[PATH_MAX_BYTES];
    make_tokens(&tokens, files->merges, files->merge_count);
    int status = check_specials(&tokens, files->specials);
    if (status == 0) {
        add_ranks(&ranks, &tokens);
        add_manifest(&manifest, files, &ranks);
        for (unsigned i = 0; i < sizeof replaced / sizeof *replaced; i++) { // of an older vocabulary
            set_path(path, folder, replaced[i]);
            unlink(path);
        }
        status = dir_sync(folder);
    }
    if (status == 0) status = write_one(folder, VOCABULARY_RANKS, &ranks);
    if (status == 0) status = write_one(folder, VOCABULARY_MANIFEST, &manifest);
    close_tokens(&tokens);
    buffer_close(&ranks);
    buffer_close(&manifest);
    return status;
}

static void print_config(const Vocab *vocab, Buffer *out) {
    vocab_print_config(vocab, "PreTrainedTokenizerFast", "", out);
}

int vocabulary_files_convert(const char *folder, uint64_t size) {
    char path[PATH_MAX_BYTES];
    set_path(path, folder, VOCAB_FILE);
    if (size > VOCAB_IDS_MAX || access(path, F_OK) == 0) return 0;
    static const struct {
        const char *name;
        void (*print)(const Vocab *vocab, Buffer *out);
        bool of_pair;
    } forms[] = {{"vocab.json", vocab_print_json, true},
                 {"merges.txt", vocab_print_merges, true},
                 {CONFIG_FILE, print_config, false},
                 {VOCAB_FILE, vocab_print_file, false}};
    const Vocab *vocab = vocab_open_path(folder, NULL);
    int status = vocab ? 0 : -1;
    for (unsigned i = 0; status == 0 && i < sizeof forms / sizeof *forms; i++) {
        Buffer out = {0};
        if (forms[i].of_pair && !vocab_has_pair(vocab)) continue;
        forms[i].print(vocab, &out);
        status = write_one(folder, forms[i].name, &out);
        buffer_close(&out);
    }
    vocab_close(vocab);
    return status;
}

int vocabulary_files_read(const char *folder, Buffer *params, uint8_t inputs_hash[32]) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    set_path(path, folder, VOCABULARY_MANIFEST);
    if (file_read(&text, path, MANIFEST_BYTES_MAX) < 0) return -1;
    json_t *object = json_loadb((const char *)text.data, text.size, 0, NULL);
    const char *format = json_string_value(json_object_get(object, "format")),
               *line = json_string_value(json_object_get(object, "params")),
               *hash = json_string_value(json_object_get(object, "inputs"));
    const bool good = format && !strcmp(format, FORMAT) && line && hash && hex_decode(inputs_hash, hash, 32) == 0;
    if (good) buffer_print(params, "%s", line);
    json_decref(object);
    buffer_close(&text);
    return good ? 0 : fail(EX_DATA, "'%s' is damaged: --force trains the vocabulary again", path);
}
