// The content of a file before it becomes a vocabulary: tokens by id, merges, and special tokens.
#pragma once

#include "tokenizer/files/vocab_file.h"
#include "tokenizer/merge/vocab_internal.h"

typedef struct {
    Buffer bytes; // of all tokens
    struct {
        uint32_t at, size; // in bytes; size 0: no token has this id
        bool special;
    } tokens[VOCAB_IDS_MAX];
    unsigned size; // the last id + 1
    Pattern pattern;
    bool whole_pieces;
    VocabNames named;      // outside of the file
    const char *eos_token; // of tokenizer_config.json, or NULL
    Vocab *vocab;          // after vocab_table_build
    TokenNames names;
} VocabTable;

VocabTable *vocab_table_open(void);
void vocab_table_close(VocabTable *table); // closes the vocabulary, unless vocab_table_take took it

// -1 after fail() (65): the id is too large or taken, or the text is empty or too long.
int vocab_table_add(VocabTable *table, uint64_t id, Bytes text, bool special);

// Makes the vocabulary of the tokens, with room for so many merges, and names of those that are not special. -1 after
// fail() when an id is missing, a byte has no token, or no special token is known to end a document.
int vocab_table_build(VocabTable *table, size_t pairs);

// Adds the merge of two tokens by their bytes: the next in order. -1 after fail().
int vocab_table_merge(VocabTable *table, Bytes left, Bytes right);

// The finished vocabulary, GPT-2's own when it is the same. NULL after fail() (65) when its tokenizer.json would be
// larger than VOCAB_FILE_BYTES_MAX.
const Vocab *vocab_table_take(VocabTable *table);

// The bytes of a token that is written as vocab_spelling says. -1 after fail().
int vocab_unspell(Bytes text, uint8_t out[VOCAB_TOKEN_MAX], size_t *size);

// The readers; each leaves its result in the table. -1 after fail().
int vocab_read_tiktoken(VocabTable *table, Bytes file);
int vocab_read_tokenizer_json(VocabTable *table, Bytes file);
int vocab_read_trained(VocabTable *table, Bytes json, Bytes ranks);
int vocab_read_json_and_merges(VocabTable *table, Bytes json, Bytes merges);
