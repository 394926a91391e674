// The ids of documents on standard output, without end-of-text ids: a line of decimals for each document, or raw.
#pragma once

#include "shardtool/ingest/source.h"
#include "tokenizer/tokenizer.h"

typedef struct {
    const Vocab *vocab;
    InvalidUtf8 invalid;
    uint64_t max_word, max_tokens; // max_tokens: as of tokenize, 0 = no limit
    bool raw;
} IdOutputOptions;

int id_output_print(const IdOutputOptions *options, Source *source);
