// Opening the vocabulary that options choose.
#include "shardtool/support/vocabulary_options.h"
#include "common/err.h"
#include "remote/url_map.h"
#include "tokenizer/tokenizer.h"

const Vocab *vocabulary_path_open(const char *path, const VocabNames *names) {
    if (!url_map_takes(path)) return vocab_open_path(path, names);
    Buffer file = {0};
    const Vocab *vocab = NULL;
    if (url_map_read(&file, path, VOCAB_FILE_BYTES_MAX) == 0)
        vocab = vocab_open_bytes((Bytes){file.data, file.size}, path, names);
    buffer_close(&file);
    return vocab;
}

const Vocab *vocabulary_options_open(const VocabularyOptions *options) {
    if (options->vocabulary) return vocabulary_path_open(options->vocabulary, &options->names);
    if (options->names.pattern)
        fail(EX_USAGE, "--pattern is for --vocabulary NAME.tiktoken");
    else if (options->names.end_of_text)
        fail(EX_USAGE, "--end-of-text names a token of --vocabulary");
    else
        return vocab_open();
    return NULL;
}
