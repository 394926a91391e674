// Opening the vocabulary that options choose.
#include "shardtool/support/vocabulary_options.h"
#include "common/err.h"
#include "tokenizer/tokenizer.h"

bool vocabulary_is_named(const VocabularyOptions *options) { return options->characters || options->vocabulary; }

const Vocab *vocabulary_options_open(const VocabularyOptions *options) {
    if (options->characters && options->vocabulary)
        fail(EX_USAGE, "--characters and --vocabulary are one vocabulary each: name one");
    else if (options->pattern && !options->vocabulary)
        fail(EX_USAGE, "--pattern is for --vocabulary NAME.tiktoken");
    else
        return options->characters   ? vocab_open_characters(options->characters)
               : options->vocabulary ? vocab_open_path(options->vocabulary, options->pattern)
                                     : vocab_open();
    return NULL;
}
