// The options that choose a vocabulary: GPT-2's without any.
#pragma once

#include "shardtool/support/option_rows.h"
#include "tokenizer/files/vocab_file.h"
#include "tokenizer/merge/pattern.h"

typedef struct {
    const char *characters, *vocabulary, *pattern; // NULL where it is not named
} VocabularyOptions;

#define VOCABULARY_ROWS(options)                                                                                       \
    {OPT_STRING, "characters", &(options)->characters, "FILE",                                                         \
     "a vocabulary of the characters in FILE, at most 50000 (see the command characters)"},                            \
        {OPT_STRING, "vocabulary", &(options)->vocabulary, "PATH",                                                     \
         "a vocabulary of train-vocabulary or of another tool: a directory, tokenizer.json or NAME.tiktoken"},         \
    {                                                                                                                  \
        OPT_STRING, "pattern", &(options)->pattern, "NAME",                                                            \
            "the pattern of a vocabulary that names none, as NAME.tiktoken: " PATTERN_NAMES                            \
    }

// As vocab_open_path, whose path may be a URL here.
const Vocab *vocabulary_path_open(const char *path, const char *pattern);

bool vocabulary_is_named(const VocabularyOptions *options);

// NULL after fail(): 2 when both are named.
const Vocab *vocabulary_options_open(const VocabularyOptions *options);
