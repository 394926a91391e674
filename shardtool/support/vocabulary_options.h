// The options that choose a vocabulary: GPT-2's without any.
#pragma once

#include "shardtool/support/option_rows.h"
#include "tokenizer/files/vocab_file.h"
#include "tokenizer/merge/pattern.h"

typedef struct {
    const char *vocabulary; // NULL if it is not named
    VocabNames names;
} VocabularyOptions;

#define VOCABULARY_ROWS(options)                                                                                        \
    {OPT_STRING, "vocabulary", &(options)->vocabulary, "PATH",                                                          \
     "a vocabulary of train-vocabulary or of another tool: a directory, tokenizer.json or NAME.tiktoken, or a file of " \
     "characters, each once"},                                                                                          \
        {OPT_STRING, "end-of-text", &(options)->names.end_of_text, "TOKEN",                                             \
         "the special token of --vocabulary that ends a document, if its name does not tell"},                          \
    {                                                                                                                   \
        OPT_STRING, "pattern", &(options)->names.pattern, "NAME",                                                       \
            "the pattern of a vocabulary that names none, as NAME.tiktoken: " PATTERN_NAMES                             \
    }

// As vocab_open_path, whose path may be a URL here.
const Vocab *vocabulary_path_open(const char *path, const VocabNames *names);

// NULL after fail().
const Vocab *vocabulary_options_open(const VocabularyOptions *options);
