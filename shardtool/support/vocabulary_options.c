// Opening the vocabulary that options choose.
#include "shardtool/support/vocabulary_options.h"
#include "common/err.h"
#include "remote/url_map.h"
#include "tokenizer/tokenizer.h"

typedef const Vocab *OpenBytes(Bytes file, const char *name, const VocabNames *names);

static const Vocab *open_url(OpenBytes *open, const char *url, const VocabNames *names) {
    Buffer file = {0};
    const Vocab *vocab = NULL;
    if (url_map_read(&file, url, VOCAB_FILE_BYTES_MAX) == 0) vocab = open((Bytes){file.data, file.size}, url, names);
    buffer_close(&file);
    return vocab;
}

const Vocab *vocabulary_path_open(const char *path, const VocabNames *names) {
    return url_map_takes(path) ? open_url(vocab_open_bytes, path, names) : vocab_open_path(path, names);
}

static const Vocab *open_text(Bytes text, const char *name, const VocabNames *names) {
    (void)names;
    return vocab_open_characters_text(text, name);
}

static const Vocab *open_characters(const char *path) {
    const Vocab *vocab = url_map_takes(path) ? open_url(open_text, path, NULL) : vocab_open_characters(path);
    if (!vocab) fail_in("--characters reads the characters that shardtool characters writes");
    return vocab;
}

bool vocabulary_is_named(const VocabularyOptions *options) { return options->characters || options->vocabulary; }

const Vocab *vocabulary_options_open(const VocabularyOptions *options) {
    if (options->characters && options->vocabulary)
        fail(EX_USAGE, "--characters and --vocabulary are one vocabulary each: name one");
    else if (options->names.pattern && !options->vocabulary)
        fail(EX_USAGE, "--pattern is for --vocabulary NAME.tiktoken");
    else if (options->names.end_of_text && !options->vocabulary)
        fail(EX_USAGE, "--end-of-text names a token of --vocabulary");
    else
        return options->characters   ? open_characters(options->characters)
               : options->vocabulary ? vocabulary_path_open(options->vocabulary, &options->names)
                                     : vocab_open();
    return NULL;
}
