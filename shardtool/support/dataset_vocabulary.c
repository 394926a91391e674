// Keeps the file of a vocabulary in its dataset, and compares it with the manifest.
#include "shardtool/support/dataset_vocabulary.h"
#include "common/err.h"
#include "remote/url_map.h"
#include "shardtool/support/vocabulary_options.h"
#include "tokenizer/tokenizer.h"

int dataset_vocabulary_keep(const char *directory, const Vocab *vocab) {
    return vocab_file_write(vocab && !vocab_is_gpt2(vocab) ? vocab : NULL, directory);
}

int dataset_vocabulary_copy(const char *directory, const char *from) {
    const Vocab *vocab = *from ? vocabulary_path_open(from, NULL) : NULL;
    const int status = *from && !vocab ? -1 : dataset_vocabulary_keep(directory, vocab);
    vocab_close(vocab);
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

int dataset_vocabulary_of(const Vocab **vocab, const Inputs *inputs, const uint8_t fingerprint[32]) {
    char path[PATH_MAX_BYTES];
    *vocab = NULL;
    if (vocab_is_gpt2_fingerprint(fingerprint)) return (*vocab = vocab_open()) ? 0 : -1;
    for (uint64_t i = 0; !*vocab && i < inputs->argument_count; i++)
        if (dataset_vocabulary_in(path, inputs->arguments[i].path) &&
            !(*vocab = dataset_vocabulary_open(path, fingerprint)))
            return -1;
    return 0;
}

int dataset_vocabulary_need(const Vocab **vocab, const Inputs *inputs, const uint8_t fingerprint[32]) {
    if (dataset_vocabulary_of(vocab, inputs, fingerprint) < 0) return -1;
    return *vocab ? 0
                  : fail(EX_DATA, "no PATH has the file of the vocabulary of its ids, without which the text cannot be "
                                  "read: put its " CHARACTERS_FILE " or " VOCAB_FILE " there");
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
