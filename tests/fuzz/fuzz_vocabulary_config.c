// Reads any bytes as the files beside a vocabulary. The first byte chooses tokenizer_config.json,
// special_tokens_map.json or added_tokens.json, and each NUL begins the next file. Files that are accepted must name
// special tokens alone.
#include "common/json_read.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/files/vocab_config.h"
#include "tokenizer/files/vocab_file.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <unistd.h>

enum { FILES = 3 };
static const char *const names[FILES] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};
static char folder[] = "/tmp/fuzz_vocabulary_config.XXXXXX";
static char paths[FILES][sizeof folder + 32];

static void remove_folder(void) {
    for (unsigned i = 0; i < FILES; i++) unlink(paths[i]);
    rmdir(folder);
}

// The bytes, <|pad|> as 256 and <|endoftext|> as 257.
static const Vocab *vocab_of_bytes(void) {
    Buffer text = {0};
    buffer_print(
        &text,
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    Buffer json = {0};
    const Vocab *own = vocab_open();
    vocab_print_json(own, &json);
    const uint8_t *end = memmem(json.data, json.size, ": 255", 5);
    buffer_add(&text, json.data + 1, (size_t)(end - json.data) + 4);
    buffer_print(&text, "}}, \"added_tokens\": [{\"id\": 256, \"content\": \"<|pad|>\", \"special\": true}, "
                        "{\"id\": 257, \"content\": \"<|endoftext|>\", \"special\": true}]}");
    const Vocab *vocab = vocab_open_bytes((Bytes){text.data, text.size}, VOCAB_FILE, NULL);
    if (!vocab) abort();
    vocab_close(own);
    buffer_close(&json);
    buffer_close(&text);
    return vocab;
}

static void open_folder(void) {
    if (!mkdtemp(folder)) abort();
    for (unsigned i = 0; i < FILES; i++) snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    atexit(remove_folder);
}

static bool is_own(const json_t *token) {
    const char *name = json_string_value(token);
    return !name || !*name || !strcmp(name, "<|pad|>") || !strcmp(name, "<|endoftext|>");
}

// Whether the file names only tokens of the vocabulary where every version of transformers looks for them.
static void check_config(Bytes text) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    json_error_t error;
    json_t *root = json_parse(text, JSON_REJECT_DUPLICATES, &error);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *token = json_object_get(root, keys[i]);
        if (!is_own(token) || !is_own(json_object_get(token, "content"))) abort();
    }
    const char *key;
    json_t *token;
    json_object_foreach(json_object_get(root, "added_tokens_decoder"), key, token) {
        if (atoi(key) != 256 && atoi(key) != 257) abort();
        if (!json_is_true(json_object_get(token, "special")) || !is_own(json_object_get(token, "content"))) abort();
    }
    if (json_is_true(json_object_get(root, "add_prefix_space"))) abort();
    json_decref(root);
}

static void write_plain(const char *path, Bytes text) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(text.data, 1, text.size, file) != text.size || fclose(file)) abort();
}

// Writes the files from the first to write on, and returns the bytes of tokenizer_config.json.
static Bytes write_files(unsigned first, Bytes rest) {
    Bytes config = {0};
    for (unsigned i = 0; i < FILES; i++) unlink(paths[i]);
    for (unsigned i = first; i < FILES && rest.size; i++) {
        const uint8_t *end = memchr(rest.data, 0, rest.size);
        const Bytes text = {rest.data, end ? (size_t)(end - rest.data) : rest.size};
        write_plain(paths[i], text);
        if (i == 0) config = text;
        rest.data += text.size + !!end, rest.size -= text.size + !!end;
    }
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Vocab *vocab;
    if (!vocab) vocab = vocab_of_bytes(), open_folder();
    if (!size) return 0;
    const Bytes config = write_files(data[0] % FILES, (Bytes){data + 1, size - 1});
    if (vocab_config_check(folder, vocab) == 0)
        check_config(config);
    else if (err_code() != EX_DATA)
        abort();
    err_clear();
    const char *pattern = data[0] & 64 ? "qwen2" : NULL;
    if (vocab_config_pattern(folder, pattern) < 0 && err_code() != EX_DATA && err_code() != EX_USAGE) abort();
    err_clear();
    return 0;
}
