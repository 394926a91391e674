// Opening the file of a vocabulary by its name, and keeping it in a directory.
#include "tokenizer/files/vocab_file.h"
#include "common/err.h"
#include "tokenizer/files/vocab_config.h"
#include "tokenizer/files/vocab_table.h"
#include <fnmatch.h>
#include <stdio.h>
#include <sys/stat.h>

static const Vocab *take(VocabTable *table, int status, const char *name) {
    const Vocab *vocab = status < 0 ? NULL : vocab_table_take(table);
    vocab_table_close(table);
    if (!vocab) fail_in("the vocabulary '%s'", name);
    return vocab;
}

const Vocab *vocab_open_bytes(Bytes file, const char *name, const char *pattern) {
    const bool is_json = fnmatch("*.json", name, 0) == 0,
               is_tiktoken = fnmatch("*.tiktoken", name, 0) == 0 || fnmatch("*tokenizer.model", name, 0) == 0;
    if (!is_json && !is_tiktoken) {
        if (!pattern) return vocab_open_characters_text(file, name);
        fail(EX_USAGE, "--pattern is for .tiktoken, and '%s' is a file of characters", name);
        return NULL;
    }
    VocabTable *table = vocab_table_open();
    return take(table, (is_json ? vocab_read_tokenizer_json : vocab_read_tiktoken)(table, file, pattern), name);
}

static const Vocab *open_file(const char *path, const char *pattern) {
    Buffer file = {0};
    const Vocab *vocab = NULL;
    if (file_read(&file, path, VOCAB_FILE_BYTES_MAX) == 0)
        vocab = vocab_open_bytes((Bytes){file.data, file.size}, path, pattern);
    buffer_close(&file);
    return vocab;
}

static bool file_in(char path[PATH_MAX_BYTES], const char *directory, const char *name) {
    path_join(path, directory, "%s", name);
    return file_exists(path);
}

bool vocab_file_in(char path[PATH_MAX_BYTES], const char *directory) {
    return file_in(path, directory, CHARACTERS_FILE) || file_in(path, directory, VOCAB_FILE);
}

int vocab_file_write(const Vocab *vocab, const char *directory) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    vocab_print_file(vocab, &text);
    path_join(path, directory, "%s", vocab_file_name(vocab));
    const int status = file_write(path, (Bytes){text.data, text.size});
    buffer_close(&text);
    return status;
}

typedef int ReadPair(VocabTable *table, Bytes json, Bytes other, const char *pattern);

static const Vocab *open_pair(ReadPair *read, const char *json_path, const char *merges_path, const char *pattern) {
    Buffer json = {0}, merges = {0};
    const Vocab *vocab = NULL;
    if (file_read(&json, json_path, VOCAB_FILE_BYTES_MAX) == 0 &&
        file_read(&merges, merges_path, VOCAB_FILE_BYTES_MAX) == 0) {
        VocabTable *table = vocab_table_open();
        const Bytes first = {json.data, json.size}, second = {merges.data, merges.size};
        vocab = take(table, read(table, first, second, pattern), json_path);
    }
    buffer_close(&json);
    buffer_close(&merges);
    return vocab;
}

// A file of Hugging Face as AutoTokenizer reads it: with the files beside it.
static const Vocab *check_beside(const Vocab *vocab, const char *path) {
    char directory[PATH_MAX_BYTES];
    const char *slash = strrchr(path, '/');
    if (!vocab || fnmatch("*.json", path, 0) != 0) return vocab;
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (vocab_config_check(slash == path ? "/" : directory, vocab) == 0) return vocab;
    vocab_close(vocab);
    return NULL;
}

const Vocab *vocab_open_path(const char *path, const char *pattern) {
    struct stat status;
    char file[PATH_MAX_BYTES], merges[PATH_MAX_BYTES];
    if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)) return check_beside(open_file(path, pattern), path);
    if (vocab_file_in(file, path)) return check_beside(open_file(file, pattern), file);
    if (file_in(file, path, "vocabulary.json") && file_in(merges, path, "vocabulary.tiktoken"))
        return open_pair(vocab_read_trained, file, merges, pattern);
    if (file_in(file, path, "vocab.json") && file_in(merges, path, "merges.txt")) {
        if (vocab_config_pattern(path, pattern) < 0) return NULL;
        return check_beside(open_pair(vocab_read_json_and_merges, file, merges, pattern), file);
    }
    fail(EX_NOINPUT,
         "'%s' has no " CHARACTERS_FILE ", no " VOCAB_FILE
         ", no vocabulary.tiktoken with vocabulary.json, and no vocab.json with merges.txt",
         path);
    return NULL;
}
