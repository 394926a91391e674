// Opening the file of a vocabulary by its name, and keeping it in a directory.
#include "tokenizer/files/vocab_file.h"
#include "common/err.h"
#include "common/log.h"
#include "tokenizer/files/vocab_config.h"
#include "tokenizer/files/vocab_kind.h"
#include "tokenizer/files/vocab_table.h"
#include <errno.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

// A table for the file at `path`, NULL for bytes without files beside them. NULL after fail().
static VocabTable *open_table(const char *path, const VocabNames *names, VocabEnds *ends) {
    char directory[PATH_MAX_BYTES];
    *ends = (VocabEnds){0};
    if (path && (path_split(path, directory), vocab_config_ends(directory, ends) < 0)) return NULL;
    VocabTable *table = vocab_table_open();
    if (names) table->named = *names;
    if (!table->named.end_of_text && *ends->end_of_text) table->named.end_of_text = ends->end_of_text;
    if (*ends->eos_token) table->eos_token = ends->eos_token;
    return table;
}

static bool is_text(Bytes bytes, const char *text) {
    return bytes.size == strlen(text) && !memcmp(bytes.data, text, bytes.size);
}

// Logs which token ends documents, if the vocabulary has another token that a user may expect.
static void log_end(const Vocab *vocab, const VocabTable *table, const char *name) {
    const Bytes end = vocab_bytes(vocab, vocab_end_of_text(vocab));
    if (table->named.end_of_text || !table->eos_token || is_text(end, table->eos_token)) return;
    log_line("the vocabulary '%s' ends documents with %.*s, and its eos_token is %s: --end-of-text names another", name,
             (int)end.size, (const char *)end.data, table->eos_token);
}

static const Vocab *take(VocabTable *table, int status, const char *name, bool is_named) {
    const Vocab *vocab = status < 0 ? NULL : vocab_table_take(table);
    if (!vocab) fail_in("the vocabulary '%s'", name);
    if (vocab && is_named) log_end(vocab, table, name);
    vocab_table_close(table);
    return vocab;
}

static const Vocab *open_bytes(Bytes file, const char *name, const char *path, const VocabNames *names) {
    const bool is_json = fnmatch("*.json", name, 0) == 0,
               is_tiktoken = fnmatch("*.tiktoken", name, 0) == 0 || fnmatch("*tokenizer.model", name, 0) == 0;
    VocabEnds ends;
    if (vocab_kind_check(file, name) < 0) return NULL;
    if (!is_json && !is_tiktoken) {
        if (names && (names->pattern || names->end_of_text)) {
            fail(EX_USAGE, "--pattern and --end-of-text are for merges, and '%s' is a file of characters", name);
            return NULL;
        }
        const Vocab *vocab = vocab_open_characters_text(file, name);
        if (!vocab)
            fail_in("by its name neither tokenizer.json nor NAME.tiktoken, and no file of characters, each once");
        return vocab;
    }
    VocabTable *table = open_table(is_json ? path : NULL, names, &ends);
    if (!table) return NULL;
    return take(table, (is_json ? vocab_read_tokenizer_json : vocab_read_tiktoken)(table, file), name, names);
}

const Vocab *vocab_open_bytes(Bytes file, const char *name, const VocabNames *names) {
    return open_bytes(file, name, NULL, names);
}

static const Vocab *open_file(const char *path, const VocabNames *names) {
    Buffer file = {0};
    const Vocab *vocab = NULL;
    if (file_read(&file, path, VOCAB_FILE_BYTES_MAX) == 0)
        vocab = open_bytes((Bytes){file.data, file.size}, path, path, names);
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

static void print_end(const Vocab *vocab, Buffer *out) {
    vocab_print_config(vocab, "PreTrainedTokenizerFast", "", out);
}

static int keep(const Vocab *vocab, const char *directory, const char *name, bool is_kept,
                void (*print)(const Vocab *vocab, Buffer *out)) {
    char path[PATH_MAX_BYTES];
    path_join(path, directory, "%s", name);
    if (!is_kept) return unlink(path) < 0 && errno != ENOENT ? fail_errno("cannot remove '%s'", path) : 0;
    Buffer text = {0};
    print(vocab, &text);
    const int status = file_write(path, (Bytes){text.data, text.size});
    buffer_close(&text);
    return status;
}

int vocab_file_write(const Vocab *vocab, const char *directory) {
    const char *name = vocab ? vocab_file_name(vocab) : "";
    if (keep(vocab, directory, CHARACTERS_FILE, !strcmp(name, CHARACTERS_FILE), vocab_print_file) < 0) return -1;
    if (keep(vocab, directory, VOCAB_CONFIG_FILE, vocab && !vocab_names_end(vocab), print_end) < 0) return -1;
    return keep(vocab, directory, VOCAB_FILE, !strcmp(name, VOCAB_FILE), vocab_print_file);
}

typedef int ReadPair(VocabTable *table, Bytes json, Bytes other);

static const Vocab *open_pair(ReadPair *read, const char *json_path, const char *merges_path, const VocabNames *names) {
    Buffer json = {0}, merges = {0};
    const Vocab *vocab = NULL;
    VocabEnds ends;
    VocabTable *table = open_table(json_path, names, &ends);
    if (table && file_read(&json, json_path, VOCAB_FILE_BYTES_MAX) == 0 &&
        file_read(&merges, merges_path, VOCAB_FILE_BYTES_MAX) == 0) {
        const Bytes first = {json.data, json.size}, second = {merges.data, merges.size};
        vocab = take(table, read(table, first, second), json_path, names);
    } else
        vocab_table_close(table);
    buffer_close(&json);
    buffer_close(&merges);
    return vocab;
}

// A file of Hugging Face as AutoTokenizer reads it: with the files beside it.
static const Vocab *check_beside(const Vocab *vocab, const char *path) {
    char directory[PATH_MAX_BYTES];
    path_split(path, directory);
    if (!vocab || fnmatch("*.json", path, 0) != 0) return vocab;
    if (vocab_config_check(directory, vocab) == 0) return vocab;
    vocab_close(vocab);
    return NULL;
}

const Vocab *vocab_open_path(const char *path, const VocabNames *names) {
    struct stat status;
    char file[PATH_MAX_BYTES], merges[PATH_MAX_BYTES];
    if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)) return check_beside(open_file(path, names), path);
    if (vocab_file_in(file, path)) return check_beside(open_file(file, names), file);
    if (file_in(file, path, "vocabulary.json") && file_in(merges, path, "vocabulary.tiktoken"))
        return open_pair(vocab_read_trained, file, merges, names);
    if (file_in(file, path, "vocab.json") && file_in(merges, path, "merges.txt")) {
        if (vocab_config_pattern(path, names ? names->pattern : NULL) < 0) return NULL;
        return check_beside(open_pair(vocab_read_json_and_merges, file, merges, names), file);
    }
    fail(EX_NOINPUT,
         "'%s' has no " CHARACTERS_FILE ", no " VOCAB_FILE
         ", no vocabulary.tiktoken with vocabulary.json, and no vocab.json with merges.txt%s",
         path, file_in(file, path, "tokenizer.model") ? ", but a tokenizer.model: name that file" : "");
    return NULL;
}
