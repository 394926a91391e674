// Keeps the file of a vocabulary in its dataset, and compares it with the manifest.
#include "shardtool/support/dataset_vocabulary.h"
#include "common/err.h"
#include "remote/url_map.h"
#include "shardtool/support/vocabulary_options.h"
#include "tokenizer/tokenizer.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

// Writes the file of that name, and removes the others.
static int keep(const char *directory, const char *name, Bytes text) {
    static const char *const names[] = {CHARACTERS_FILE, VOCAB_FILE};
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_join(path, directory, "%s", names[i]);
        if (name && !strcmp(name, names[i])) {
            if (file_write(path, text) < 0) return -1;
        } else if (unlink(path) < 0 && errno != ENOENT)
            return fail_errno("cannot remove '%s'", path);
    }
    return 0;
}

int dataset_vocabulary_keep(const char *directory, const Vocab *vocab) {
    if (!vocab || vocab_is_gpt2(vocab)) return keep(directory, NULL, (Bytes){0});
    Buffer text = {0};
    vocab_print_file(vocab, &text);
    const int status = keep(directory, vocab_file_name(vocab), (Bytes){text.data, text.size});
    buffer_close(&text);
    return status;
}

int dataset_vocabulary_copy(const char *directory, const char *from) {
    if (!*from) return keep(directory, NULL, (Bytes){0});
    Buffer text = {0};
    int status = url_map_read(&text, from, VOCAB_FILE_BYTES_MAX);
    if (status == 0) status = keep(directory, strrchr(from, '/') + 1, (Bytes){text.data, text.size});
    buffer_close(&text);
    return status;
}

bool dataset_vocabulary_in(char path[PATH_MAX_BYTES], const char *directory) {
    if (!url_map_takes(directory)) return vocab_file_in(path, directory);
    return url_map_file_exists(path_join(path, directory, CHARACTERS_FILE)) ||
           url_map_file_exists(path_join(path, directory, VOCAB_FILE));
}

const Vocab *dataset_vocabulary_open(const char *path, const uint8_t fingerprint[32]) {
    const Vocab *vocab = vocabulary_path_open(path, NULL);
    if (!vocab || vocab_has_fingerprint(vocab, fingerprint)) return vocab;
    vocab_close(vocab);
    fail(EX_DATA, "'%s' is damaged or of another dataset: copy the file of the vocabulary with which this one was made",
         path);
    return NULL;
}

int dataset_vocabulary_find(char path[PATH_MAX_BYTES], const Dataset *dataset) {
    *path = '\0';
    if (vocab_is_gpt2_fingerprint(dataset->vocab_fp)) return 0;
    if (!dataset_vocabulary_in(path, dataset->path))
        return fail(EX_DATA,
                    "'%s' has no " CHARACTERS_FILE " and no " VOCAB_FILE
                    ": copy the file of the vocabulary with which the dataset was made",
                    dataset->path);
    const Vocab *vocab = dataset_vocabulary_open(path, dataset->vocab_fp);
    if (!vocab) return -1;
    vocab_close(vocab);
    return 0;
}
