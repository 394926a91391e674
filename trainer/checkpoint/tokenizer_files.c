// The tokenizer files of Hugging Face. They spell tokens as the merge table does.
#include "trainer/checkpoint/tokenizer_files.h"
#include "common/file/file.h"
#include "common/json_write.h"
#include "common/utf8.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <unistd.h>

typedef struct {
    const Vocab *vocab;
    const ModelShape *shape;
} ExportedModel;

static void add_text(Buffer *out, Bytes text) { json_add_text(out, text, true, &(JsonCarry){0}); }

static void print_token(const ExportedModel *model, uint16_t id, Buffer *out) {
    const Bytes token = vocab_bytes(model->vocab, id);
    uint8_t spelled[TOKEN_MAX_BYTES * UTF8_BYTES_MAX];
    size_t length = 0;
    for (size_t i = 0; i < token.size; i++) length += utf8_encode(vocab_spelling(token.data[i]), spelled + length);
    add_text(out, (Bytes){spelled, length});
}

static void print_vocab(const ExportedModel *model, Buffer *out) {
    for (unsigned id = 0; id < TOKEN_COUNT; id++) {
        buffer_print(out, id ? ",\n\"" : "{\"");
        print_token(model, (uint16_t)id, out);
        buffer_print(out, "\": %u", id);
    }
    buffer_print(out, "}");
}

static void print_merges_txt(const ExportedModel *model, Buffer *out) {
    const Bytes table = vocab_merges();
    (void)model;
    buffer_add(out, table.data, table.size);
}

// Each line of the merge table but its first, the version, as a string.
static void print_merges(Buffer *out) {
    Bytes rest = vocab_merges(), line;
    bytes_next_line(&rest, &line);
    for (const char *comma = ""; bytes_next_line_or_rest(&rest, &line); comma = ",\n") {
        buffer_print(out, "%s\"", comma);
        add_text(out, line);
        buffer_print(out, "\"");
    }
}

static void print_tokenizer(const ExportedModel *model, Buffer *out) {
    static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                                     "\"use_regex\": true}";
    buffer_print(out,
                 "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [{\"id\": %d, "
                 "\"content\": \"<|endoftext|>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                 "\"normalized\": false, \"special\": true}],\n\"normalizer\": null, \"pre_tokenizer\": %s,\n"
                 "\"post_processor\": %s,\n\"decoder\": %s,\n",
                 TOKEN_END_OF_TEXT, byte_level, byte_level, byte_level);
    buffer_print(out, "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                      "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false,\n"
                      "\"vocab\": ");
    print_vocab(model, out);
    buffer_print(out, ",\n\"merges\": [");
    print_merges(out);
    buffer_print(out, "]}}\n");
}

static void print_tokenizer_config(const ExportedModel *model, Buffer *out) {
    buffer_print(
        out,
        "{\n \"tokenizer_class\": \"GPT2Tokenizer\",\n \"model_max_length\": %d,\n \"add_prefix_space\": false,\n"
        " \"clean_up_tokenization_spaces\": false,\n \"bos_token\": \"<|endoftext|>\",\n"
        " \"eos_token\": \"<|endoftext|>\",\n \"unk_token\": \"<|endoftext|>\"\n}\n",
        model->shape->block);
}

static void print_generation_config(const ExportedModel *model, Buffer *out) {
    (void)model;
    buffer_print(out, "{\n \"bos_token_id\": %d,\n \"eos_token_id\": %d,\n \"pad_token_id\": %d\n}\n",
                 TOKEN_END_OF_TEXT, TOKEN_END_OF_TEXT, TOKEN_END_OF_TEXT);
}

static const struct {
    const char *name;
    void (*print)(const ExportedModel *model, Buffer *out);
} files[] = {
    {"vocab.json", print_vocab},
    {"merges.txt", print_merges_txt},
    {"tokenizer.json", print_tokenizer},
    {"tokenizer_config.json", print_tokenizer_config},
    {"generation_config.json", print_generation_config},
};

static void file_path(char path[PATH_MAX_BYTES], const char *directory, const char *name) {
    snprintf(path, PATH_MAX_BYTES, "%.*s/%s", PATH_MAX_BYTES - 64, directory, name);
}

int tokenizer_files_write(const char *directory, const ModelShape *shape, const char *other) {
    const ExportedModel model = {vocab_open(), shape};
    int result = model.vocab ? 0 : -1;
    for (size_t i = 0; i < sizeof files / sizeof *files && result == 0; i++) {
        char path[PATH_MAX_BYTES], same[PATH_MAX_BYTES];
        Buffer text = {0};
        file_path(path, directory, files[i].name), file_path(same, other, files[i].name);
        files[i].print(&model, &text);
        result = file_share(path, same, (Bytes){text.data, text.size});
        buffer_close(&text);
    }
    vocab_close(model.vocab);
    return result;
}

void tokenizer_files_remove(const char *directory) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[PATH_MAX_BYTES];
        file_path(path, directory, files[i].name);
        unlink(path);
    }
}
