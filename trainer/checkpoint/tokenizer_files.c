// The tokenizer files of Hugging Face. Those of GPT-2 spell tokens as the merge table does.
#include "trainer/checkpoint/tokenizer_files.h"
#include "common/file/file.h"
#include "common/json_write.h"
#include "common/utf8.h"
#include "tokenizer/files/vocab_config.h"
#include "tokenizer/files/vocab_file.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <unistd.h>

typedef struct {
    const Vocab *vocab;
    const ModelShape *shape;
} ExportedModel;

static void add_text(Buffer *out, Bytes text) { json_add_text(out, text, true, &(JsonCarry){0}); }

static void print_token(const ExportedModel *model, unsigned id, Buffer *out) {
    const Bytes token = vocab_bytes(model->vocab, id);
    uint8_t spelled[TOKEN_MAX_BYTES * UTF8_BYTES_MAX];
    size_t length = 0;
    for (size_t i = 0; i < token.size; i++) length += utf8_encode(vocab_spelling(token.data[i]), spelled + length);
    add_text(out, (Bytes){spelled, length});
}

static void print_vocab(const ExportedModel *model, Buffer *out) {
    for (unsigned id = 0; id < TOKEN_COUNT; id++) {
        buffer_print(out, id ? ",\n\"" : "{\"");
        print_token(model, id, out);
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

static void begin_tokenizer(unsigned end_of_text, Buffer *out) {
    buffer_print(out,
                 "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [{\"id\": %u, "
                 "\"content\": \"<|endoftext|>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                 "\"normalized\": false, \"special\": true}],\n",
                 end_of_text);
}

static void print_tokenizer(const ExportedModel *model, Buffer *out) {
    static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                                     "\"use_regex\": true}";
    begin_tokenizer(TOKEN_END_OF_TEXT, out);
    buffer_print(out, "\"normalizer\": null, \"pre_tokenizer\": %s,\n\"post_processor\": %s,\n\"decoder\": %s,\n",
                 byte_level, byte_level, byte_level);
    buffer_print(out, "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                      "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false,\n"
                      "\"vocab\": ");
    print_vocab(model, out);
    buffer_print(out, ",\n\"merges\": [");
    print_merges(out);
    buffer_print(out, "]}}\n");
}

static void print_config(const ExportedModel *model, const char *class, const char *more, Buffer *out) {
    char lines[128];
    snprintf(lines, sizeof lines, " \"model_max_length\": %d,\n%s", model->shape->block, more);
    vocab_print_config(model->vocab, class, lines, out);
}

static void print_gpt2_config(const ExportedModel *model, Buffer *out) {
    print_config(model, "GPT2Tokenizer", " \"add_prefix_space\": false,\n \"unk_token\": \"<|endoftext|>\",\n", out);
}

static void print_generation_config(const ExportedModel *model, Buffer *out) {
    const unsigned end = vocab_end_of_text(model->vocab);
    buffer_print(out, "{\n \"bos_token_id\": %u,\n \"eos_token_id\": %u,\n \"pad_token_id\": %u\n}\n", end, end, end);
}

// ---- characters

static void print_characters(const ExportedModel *model, Buffer *out) {
    for (unsigned id = 0; id < vocab_end_of_text(model->vocab); id++) {
        const Bytes text = vocab_bytes(model->vocab, id);
        buffer_add(out, text.data, text.size);
    }
}

// Each character is a word. One that the vocabulary does not have is an error, because the unknown token is none of it.
static void print_character_tokenizer(const ExportedModel *model, Buffer *out) {
    begin_tokenizer(vocab_end_of_text(model->vocab), out);
    buffer_print(
        out, "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
             "\"[\\\\s\\\\S]\"}, \"behavior\": \"Isolated\", \"invert\": false},\n\"post_processor\": null, "
             "\"decoder\": {\"type\": \"Fuse\"},\n\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"<unknown>\", "
             "\"vocab\": {");
    for (unsigned id = 0; id < vocab_end_of_text(model->vocab); id++) {
        buffer_print(out, id ? ",\n\"" : "\"");
        add_text(out, vocab_bytes(model->vocab, id));
        buffer_print(out, "\": %u", id);
    }
    buffer_print(out, "}}}\n");
}

static void print_fast_config(const ExportedModel *model, Buffer *out) {
    print_config(model, "PreTrainedTokenizerFast", "", out);
}

// ----

typedef struct {
    const char *name;
    void (*print)(const ExportedModel *model, Buffer *out);
} TokenizerFile;

static const TokenizerFile gpt2_files[] = {
    {"vocab.json", print_vocab},
    {"merges.txt", print_merges_txt},
    {"tokenizer.json", print_tokenizer},
    {"tokenizer_config.json", print_gpt2_config},
    {"generation_config.json", print_generation_config},
    {NULL, NULL},
};

static const TokenizerFile character_files[] = {
    {CHARACTERS_FILE, print_characters},
    {"tokenizer.json", print_character_tokenizer},
    {"tokenizer_config.json", print_fast_config},
    {"generation_config.json", print_generation_config},
    {NULL, NULL},
};

static void print_merged(const ExportedModel *model, Buffer *out) { vocab_print_file(model->vocab, out); }
static void print_merged_vocab(const ExportedModel *model, Buffer *out) { vocab_print_json(model->vocab, out); }
static void print_merged_merges(const ExportedModel *model, Buffer *out) { vocab_print_merges(model->vocab, out); }

enum { PAIR_FILES = 2 }; // the first files of merges: only of vocabularies whose ids they give

static const TokenizerFile merge_files[] = {
    {"vocab.json", print_merged_vocab},
    {"merges.txt", print_merged_merges},
    {VOCAB_FILE, print_merged},
    {"tokenizer_config.json", print_fast_config},
    {"generation_config.json", print_generation_config},
    {NULL, NULL},
};

static void file_path(char path[PATH_MAX_BYTES], const char *directory, const char *name) {
    snprintf(path, PATH_MAX_BYTES, "%.*s/%s", PATH_MAX_BYTES - 64, directory, name);
}

static const TokenizerFile *files_of(const Vocab *vocab) {
    if (vocab_is_gpt2(vocab)) return gpt2_files;
    if (vocab_is_characters(vocab)) return character_files;
    return vocab_has_pair(vocab) ? merge_files : merge_files + PAIR_FILES;
}

// Calls `visit` with the path and the bytes of each file, until it returns another status than 0.
typedef int TokenizerFileVisit(void *context, const TokenizerFile *file, Bytes text);

static int visit_files(const ModelShape *shape, const char *from, TokenizerFileVisit *visit, void *context) {
    char kept[PATH_MAX_BYTES];
    file_path(kept, from, CHARACTERS_FILE);
    if (access(kept, F_OK) < 0) file_path(kept, from, VOCAB_FILE);
    if (!shape->gpt2_vocab && access(kept, F_OK) < 0) return 0;
    const ExportedModel model = {shape->gpt2_vocab ? vocab_open() : vocab_open_path(kept, NULL), shape};
    if (!model.vocab) return -1;
    int result = 0;
    for (const TokenizerFile *file = files_of(model.vocab); result == 0 && file->name; file++) {
        Buffer text = {0};
        file->print(&model, &text);
        result = visit(context, file, (Bytes){text.data, text.size});
        buffer_close(&text);
    }
    vocab_close(model.vocab);
    return result;
}

typedef struct {
    const char *directory, *other, **which;
} Directories;

static int write_tokenizer_file(void *context, const TokenizerFile *file, Bytes text) {
    const Directories *to = context;
    char path[PATH_MAX_BYTES], same[PATH_MAX_BYTES];
    file_path(path, to->directory, file->name), file_path(same, to->other, file->name);
    return *to->other ? file_share(path, same, text) : file_write(path, text);
}

int tokenizer_files_write(const char *directory, const ModelShape *shape, const char *from, const char *other) {
    Directories to = {directory, other, NULL};
    return visit_files(shape, from, write_tokenizer_file, &to);
}

static int compare_file(void *context, const TokenizerFile *file, Bytes text) {
    const Directories *of = context;
    char path[PATH_MAX_BYTES];
    Bytes map;
    file_path(path, of->directory, file->name);
    if (file_map(&map, path) < 0) return -1;
    if (map.size != text.size || (text.size && memcmp(map.data, text.data, text.size))) *of->which = file->name;
    file_unmap(&map);
    return 0;
}

int tokenizer_files_compare(const char *directory, const ModelShape *shape, const char *from, const char **which) {
    Directories of = {directory, "", which};
    return visit_files(shape, from, compare_file, &of);
}

void tokenizer_files_remove(const char *directory) {
    static const TokenizerFile *const tables[] = {gpt2_files, character_files, merge_files};
    for (int i = 0; i < 3; i++)
        for (const TokenizerFile *file = tables[i]; file->name; file++) {
            char path[PATH_MAX_BYTES];
            file_path(path, directory, file->name);
            unlink(path);
        }
}
