// The tokenizer files of Hugging Face. The files that depend on a vocabulary alone are printed by tokenizer/files,
// except the tokenizer.json of characters.
#include "trainer/checkpoint/tokenizer_files.h"
#include "common/file/file.h"
#include "common/json_write.h"
#include "common/turns.h"
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

static void print_vocab(const ExportedModel *model, Buffer *out) { vocab_print_json(model->vocab, out); }
static void print_merges(const ExportedModel *model, Buffer *out) { vocab_print_merges(model->vocab, out); }
static void print_kept(const ExportedModel *model, Buffer *out) { vocab_print_file(model->vocab, out); }

// Each character is a word. One that the vocabulary does not have is an error, because the unknown token is not a word.
static void print_character_tokenizer(const ExportedModel *model, Buffer *out) {
    const unsigned end = vocab_end_of_text(model->vocab);
    buffer_print(out,
                 "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [{\"id\": %u, "
                 "\"content\": \"<|endoftext|>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                 "\"normalized\": false, \"special\": true}],\n",
                 end);
    buffer_print(
        out, "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
             "\"[\\\\s\\\\S]\"}, \"behavior\": \"Isolated\", \"invert\": false},\n\"post_processor\": null, "
             "\"decoder\": {\"type\": \"Fuse\"},\n\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"<unknown>\", "
             "\"vocab\": {");
    for (unsigned id = 0; id < end; id++) {
        buffer_print(out, id ? ",\n\"" : "\"");
        add_text(out, vocab_bytes(model->vocab, id));
        buffer_print(out, "\": %u", id);
    }
    buffer_print(out, "}}}\n");
}

static void print_tokenizer(const ExportedModel *model, Buffer *out) {
    (vocab_is_characters(model->vocab) ? print_character_tokenizer : print_kept)(model, out);
}

static void print_config(const ExportedModel *model, Buffer *out) {
    const bool is_gpt2 = vocab_is_gpt2(model->vocab);
    char lines[128];
    snprintf(lines, sizeof lines, " \"model_max_length\": %d,\n%s", model->shape->block,
             is_gpt2 ? " \"add_prefix_space\": false,\n" : "");
    vocab_print_config(model->vocab, is_gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast", lines, out);
}

static void print_generation_config(const ExportedModel *model, Buffer *out) {
    const unsigned end = vocab_end_of_text(model->vocab);
    const TurnIds turns = vocab_turns(model->vocab);
    char ends[32];
    snprintf(ends, sizeof ends, turns.known ? "[%u, %u]" : "%u", turns.known ? turns.ids[TURN_END] : end, end);
    buffer_print(out, "{\n \"bos_token_id\": %u,\n \"eos_token_id\": %s,\n \"pad_token_id\": %u\n}\n", end, ends, end);
}

static void print_chat_template(const ExportedModel *model, Buffer *out) {
    vocab_print_chat_template(model->vocab, out);
}
static bool has_turns(const Vocab *vocab) { return vocab_turns(vocab).known; }

typedef struct {
    const char *name;
    void (*print)(const ExportedModel *model, Buffer *out);
    bool (*of)(const Vocab *vocab); // which vocabularies have it; NULL: all
} TokenizerFile;

static const TokenizerFile files[] = {
    {CHARACTERS_FILE, print_kept, vocab_is_characters},
    {"vocab.json", print_vocab, vocab_has_pair},
    {"merges.txt", print_merges, vocab_has_pair},
    {VOCAB_FILE, print_tokenizer, NULL},
    {"tokenizer_config.json", print_config, NULL},
    {"generation_config.json", print_generation_config, NULL},
    {"chat_template.jinja", print_chat_template, has_turns},
};
enum { FILES = sizeof files / sizeof *files };

// Calls `visit` with the path and the bytes of each file, until it returns another status than 0.
typedef int TokenizerFileVisit(void *context, const TokenizerFile *file, Bytes text);

static int visit_files(const ModelShape *shape, const char *from, TokenizerFileVisit *visit, void *context) {
    char kept[PATH_MAX_BYTES];
    if (!shape->gpt2_vocab && !vocab_file_in(kept, from)) return 0;
    const ExportedModel model = {shape->gpt2_vocab ? vocab_open() : vocab_open_path(kept, NULL), shape};
    if (!model.vocab) return -1;
    int result = 0;
    for (const TokenizerFile *file = files; result == 0 && file < files + FILES; file++) {
        Buffer text = {0};
        if (file->of && !file->of(model.vocab)) continue;
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
    path_join(path, to->directory, "%s", file->name), path_join(same, to->other, "%s", file->name);
    return *to->other ? file_share(path, same, text) : file_write(path, text);
}

int tokenizer_files_write(const char *directory, const ModelShape *shape, const char *from, const char *other) {
    Directories to = {directory, other, NULL};
    return visit_files(shape, from, write_tokenizer_file, &to);
}

static bool is_same(Bytes a, Bytes b) { return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size)); }

// The file as earlier versions wrote it, which had trim_offsets true.
static void print_older(Bytes text, Buffer *out) {
    static const char now[] = "\"trim_offsets\": false";
    for (const uint8_t *at; (at = memmem(text.data, text.size, now, sizeof now - 1));) {
        const size_t before = (size_t)(at - text.data);
        buffer_add(out, text.data, before);
        buffer_print(out, "\"trim_offsets\": true");
        text = (Bytes){at + sizeof now - 1, text.size - before - (sizeof now - 1)};
    }
    buffer_add(out, text.data, text.size);
}

static int compare_file(void *context, const TokenizerFile *file, Bytes text) {
    const Directories *of = context;
    char path[PATH_MAX_BYTES];
    Buffer older = {0};
    Bytes map;
    path_join(path, of->directory, "%s", file->name);
    if (file_map(&map, path) < 0) return -1;
    print_older(text, &older);
    if (!is_same(map, text) && !is_same(map, (Bytes){older.data, older.size})) *of->which = file->name;
    buffer_close(&older);
    file_unmap(&map);
    return 0;
}

int tokenizer_files_compare(const char *directory, const ModelShape *shape, const char *from, const char **which) {
    Directories of = {directory, "", which};
    return visit_files(shape, from, compare_file, &of);
}

void tokenizer_files_remove(const char *directory) {
    for (const TokenizerFile *file = files; file < files + FILES; file++) {
        char path[PATH_MAX_BYTES];
        path_join(path, directory, "%s", file->name);
        unlink(path);
    }
}
